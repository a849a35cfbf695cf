//! Feeds a target with inputs, which are mutations of a corpus that grows by what was accepted. Seconds by default;
//! USERSWAP_FUZZ_SECONDS=600 goes on for as long as that, USERSWAP_SEED repeats a run.
use super::mutate::Corpus;
use std::fmt::Display;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, Instant};

/// Inputs of each target where no time is given.
const INPUTS: u64 = 20_000;

/// What became of an input.
#[derive(PartialEq, Eq)]
pub enum Verdict {
    Accepted,
    Refused,
}

/// Feeds a target until the time is over, or with as many inputs as there are by default.
pub fn fuzz(corpus: &[&str], words: &[&str], mut target: impl FnMut(&[u8]) -> Verdict) {
    let given = std::env::var("USERSWAP_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| RandomState::new().build_hasher().finish());
    println!("USERSWAP_SEED={seed}");
    let seconds = std::env::var("USERSWAP_FUZZ_SECONDS").ok();
    let seconds: Option<u64> = seconds.map(|text| text.parse().expect("a number of seconds"));
    let end = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut corpus = Corpus::new(seed, corpus, words);
    let (mut inputs, mut accepted) = (0u64, 0u64);
    while end.map_or(inputs < INPUTS, |end| Instant::now() < end) {
        let input = corpus.next();
        // Printed by a test that fails.
        let shown = Shown(&input);
        let verdict = target(&input);
        std::mem::forget(shown);
        if verdict == Verdict::Accepted {
            accepted += 1;
            corpus.keep(input);
        }
        inputs += 1;
    }
    println!("{inputs} inputs, {accepted} accepted");
    assert!(accepted > 0 && accepted < inputs, "both ways are taken");
}

/// Shows an input when its target panics.
struct Shown<'a>(&'a [u8]);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        println!("the input was {:?}", String::from_utf8_lossy(self.0));
    }
}

/// A refusal must be.
pub fn one_line(refusal: impl Display) {
    let text = refusal.to_string();
    assert_eq!(text.lines().count(), 1, "{text:?}");
}
