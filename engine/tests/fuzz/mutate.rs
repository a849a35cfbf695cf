//! Inputs made of other inputs.

/// Inputs that are kept; a new one takes the place of one at random.
const KEPT: usize = 2048;

/// The longest input in bytes: more than any line that is meant.
const BYTES_MAX: usize = 4096;

/// Inputs that were accepted, and what they are changed by.
pub struct Corpus {
    inputs: Vec<Vec<u8>>,
    words: Vec<Vec<u8>>,
    random: u64,
}

impl Corpus {
    pub fn new(seed: u64, inputs: &[&str], words: &[&str]) -> Self {
        let bytes = |texts: &[&str]| texts.iter().map(|text| text.as_bytes().to_vec()).collect();
        Self { inputs: bytes(inputs), words: bytes(words), random: seed | 1 }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % bound
    }

    /// A new input.
    pub fn next(&mut self) -> Vec<u8> {
        let index = self.below(self.inputs.len());
        let mut input = self.inputs[index].clone();
        for _ in 0..self.below(5) {
            self.change(&mut input);
        }
        input.truncate(BYTES_MAX);
        input
    }

    /// One that was accepted is where others come from.
    pub fn keep(&mut self, input: Vec<u8>) {
        if self.inputs.len() < KEPT {
            self.inputs.push(input);
        } else {
            let index = self.below(KEPT);
            self.inputs[index] = input;
        }
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let at = self.below(input.len() + 1);
        let end = (at + self.below(8)).min(input.len());
        match self.below(7) {
            0 => drop(input.drain(at..end)),
            1 => {
                let word = self.below(self.words.len());
                input.splice(at..at, self.words[word].iter().copied());
            }
            2 => {
                let word = self.below(self.words.len());
                input.splice(at..end, self.words[word].iter().copied());
            }
            3 => {
                let other = self.below(self.inputs.len());
                let from = self.below(self.inputs[other].len() + 1);
                input.truncate(at);
                input.extend_from_slice(&self.inputs[other][from..]);
            }
            4 => {
                let copied = input[at..end].to_vec();
                input.splice(at..at, copied);
            }
            5 if at < input.len() => input[at] ^= 1 << self.below(8),
            _ => {
                let byte = self.below(256) as u8;
                input.insert(at, byte);
            }
        }
    }
}
