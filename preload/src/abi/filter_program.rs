//! What a filter of system calls (seccomp) answers: its program (classic BPF, Linux's seccomp_filter.rst) run on a call that is not made.
use super::system_call::Arguments;
use libc::{c_long, sock_filter};

/// The most that a program may have.
pub const INSTRUCTIONS_MAX: usize = 4096;

/// What becomes of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    Made,
    /// It ends with an error.
    Refused,
    /// Somebody else is asked, who may let it be made.
    Asked,
    /// The process's handler is told, or it is ended.
    Trapped,
}

/// What the program is given (seccomp_data): the call's number, the architecture, where it comes from, its arguments.
pub struct Data([u32; WORDS]);

const WORDS: usize = 16;
const ARCHITECTURE: u32 = 0xc000_003e;
const MEMORY_WORDS: usize = 16;

impl Data {
    pub fn of(number: c_long, arguments: &Arguments) -> Self {
        let mut words = [0; WORDS];
        (words[0], words[1]) = (number as u32, ARCHITECTURE);
        for (halves, argument) in words[4..].chunks_exact_mut(2).zip(arguments) {
            (halves[0], halves[1]) = (*argument as u32, (*argument >> 32) as u32);
        }
        Self(words)
    }

    fn at(&self, offset: u32) -> Option<u32> {
        self.0.get(offset as usize / size_of::<u32>()).copied()
    }
}

/// The answer of a program; None for one that the kernel does not accept.
pub fn answer(program: &[sock_filter], data: &Data) -> Option<Answer> {
    let mut machine = Machine { a: 0, x: 0, memory: [0; MEMORY_WORDS], data };
    let mut next = 0;
    loop {
        let instruction = program.get(next)?;
        next += 1;
        match machine.step(instruction)? {
            Step::Next => {}
            Step::Skip(count) => next += count as usize,
            Step::Return(value) => return Some(action(value)),
        }
    }
}

fn action(value: u32) -> Answer {
    match value & libc::SECCOMP_RET_ACTION_FULL {
        libc::SECCOMP_RET_ALLOW | libc::SECCOMP_RET_LOG => Answer::Made,
        libc::SECCOMP_RET_ERRNO => Answer::Refused,
        libc::SECCOMP_RET_TRACE | libc::SECCOMP_RET_USER_NOTIF => Answer::Asked,
        _ => Answer::Trapped,
    }
}

struct Machine<'a> {
    a: u32,
    x: u32,
    memory: [u32; MEMORY_WORDS],
    data: &'a Data,
}

enum Step {
    Next,
    Skip(u32),
    Return(u32),
}

impl Machine<'_> {
    fn step(&mut self, instruction: &sock_filter) -> Option<Step> {
        let sock_filter { code, k: value, .. } = *instruction;
        let slot = value as usize;
        match u32::from(code) & 0x07 {
            libc::BPF_LD => self.a = self.load(code, value)?,
            libc::BPF_LDX => self.x = self.load(code, value)?,
            libc::BPF_ST => *self.memory.get_mut(slot)? = self.a,
            libc::BPF_STX => *self.memory.get_mut(slot)? = self.x,
            libc::BPF_ALU => self.a = self.compute(code, value)?,
            libc::BPF_JMP => return self.jump(instruction),
            libc::BPF_RET => return Some(Step::Return(self.returned(code, value)?)),
            _ if u32::from(code) & 0xf8 == libc::BPF_TAX => self.x = self.a,
            _ => self.a = self.x,
        }
        Some(Step::Next)
    }

    fn load(&self, code: u16, value: u32) -> Option<u32> {
        match u32::from(code) & 0xe0 {
            libc::BPF_IMM => Some(value),
            libc::BPF_ABS => self.data.at(value),
            libc::BPF_MEM => self.memory.get(value as usize).copied(),
            libc::BPF_LEN => Some(size_of::<Data>() as u32),
            _ => None,
        }
    }

    fn operand(&self, code: u16, value: u32) -> u32 {
        if u32::from(code) & libc::BPF_X != 0 { self.x } else { value }
    }

    fn compute(&self, code: u16, value: u32) -> Option<u32> {
        let (a, b) = (self.a, self.operand(code, value));
        Some(match u32::from(code) & 0xf0 {
            libc::BPF_ADD => a.wrapping_add(b),
            libc::BPF_SUB => a.wrapping_sub(b),
            libc::BPF_MUL => a.wrapping_mul(b),
            // By nothing: the program ends, with 0, which kills.
            libc::BPF_DIV => a.checked_div(b)?,
            libc::BPF_MOD => a.checked_rem(b)?,
            libc::BPF_OR => a | b,
            libc::BPF_AND => a & b,
            libc::BPF_XOR => a ^ b,
            libc::BPF_LSH => a.checked_shl(b).unwrap_or(0),
            libc::BPF_RSH => a.checked_shr(b).unwrap_or(0),
            libc::BPF_NEG => a.wrapping_neg(),
            _ => return None,
        })
    }

    fn jump(&self, instruction: &sock_filter) -> Option<Step> {
        let sock_filter { code, jt, jf, k: value } = *instruction;
        let (a, b) = (self.a, self.operand(code, value));
        let holds = match u32::from(code) & 0xf0 {
            libc::BPF_JA => return Some(Step::Skip(value)),
            libc::BPF_JEQ => a == b,
            libc::BPF_JGT => a > b,
            libc::BPF_JGE => a >= b,
            libc::BPF_JSET => a & b != 0,
            _ => return None,
        };
        Some(Step::Skip(u32::from(if holds { jt } else { jf })))
    }

    fn returned(&self, code: u16, value: u32) -> Option<u32> {
        match u32::from(code) & 0x18 {
            libc::BPF_K => Some(value),
            libc::BPF_X => Some(self.x),
            libc::BPF_A => Some(self.a),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn step(code: u32, jt: u8, jf: u8, k: u32) -> sock_filter {
        sock_filter { code: code as u16, jt, jf, k }
    }

    const LOAD: u32 = libc::BPF_LD | libc::BPF_ABS;
    const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ;

    fn answer_to(program: &[sock_filter], number: c_long, first: usize) -> Option<Answer> {
        answer(program, &Data::of(number, &[first, 0, 0, 0, 0, 0]))
    }

    /// write is refused but to standard error, ptrace kills, others are made.
    fn program() -> Vec<sock_filter> {
        vec![
            step(LOAD, 0, 0, 4),
            step(EQUAL, 1, 0, ARCHITECTURE),
            step(libc::BPF_RET, 0, 0, libc::SECCOMP_RET_KILL_PROCESS),
            step(LOAD, 0, 0, 0),
            step(EQUAL, 3, 0, libc::SYS_write as u32),
            step(EQUAL, 1, 0, libc::SYS_ptrace as u32),
            step(libc::BPF_RET, 0, 0, libc::SECCOMP_RET_ALLOW),
            step(libc::BPF_RET, 0, 0, libc::SECCOMP_RET_KILL_THREAD),
            step(LOAD, 0, 0, 20),
            step(EQUAL, 0, 3, 0),
            step(LOAD, 0, 0, 16),
            step(EQUAL, 0, 1, 2),
            step(libc::BPF_RET, 0, 0, libc::SECCOMP_RET_LOG),
            step(libc::BPF_RET, 0, 0, libc::SECCOMP_RET_ERRNO | 1),
        ]
    }

    #[test]
    fn a_program_answers_by_number_and_both_halves_of_an_argument() {
        let program = program();
        assert_eq!(answer_to(&program, libc::SYS_read, 0), Some(Answer::Made));
        assert_eq!(answer_to(&program, libc::SYS_ptrace, 0), Some(Answer::Trapped));
        assert_eq!(answer_to(&program, libc::SYS_write, 2), Some(Answer::Made));
        assert_eq!(answer_to(&program, libc::SYS_write, 1), Some(Answer::Refused));
        assert_eq!(answer_to(&program, libc::SYS_write, 2 | 1 << 32), Some(Answer::Refused));
    }

    #[test]
    fn what_it_computes_is_the_kernels() {
        let returned = |steps: &[sock_filter]| {
            let mut program = vec![step(LOAD, 0, 0, 0)];
            program.extend_from_slice(steps);
            program.push(step(EQUAL, 0, 1, 7));
            program.push(step(libc::BPF_RET, 0, 0, libc::SECCOMP_RET_ALLOW));
            program.push(step(libc::BPF_RET, 0, 0, libc::SECCOMP_RET_TRAP));
            answer_to(&program, 21, 0)
        };
        let alu = |operation: u32, by: u32| step(libc::BPF_ALU | operation, 0, 0, by);
        let operations =
            [(libc::BPF_SUB, 14), (libc::BPF_DIV, 3), (libc::BPF_MOD, 14), (libc::BPF_XOR, 18)];
        for (operation, by) in operations {
            assert_eq!(returned(&[alu(operation, by)]), Some(Answer::Made), "{operation:#x}");
            assert_eq!(
                returned(&[alu(operation, by + 1)]),
                Some(Answer::Trapped),
                "{operation:#x}"
            );
        }
        // By way of a word of memory and the other register.
        let around = [
            step(libc::BPF_ST, 0, 0, 3),
            step(libc::BPF_LDX | libc::BPF_MEM, 0, 0, 3),
            step(libc::BPF_LD | libc::BPF_IMM, 0, 0, 28),
            step(libc::BPF_ALU | libc::BPF_SUB | libc::BPF_X, 0, 0, 0),
        ];
        assert_eq!(returned(&around), Some(Answer::Made));
        assert_eq!(returned(&[alu(libc::BPF_DIV, 0)]), None);
        assert_eq!(answer_to(&[step(LOAD, 0, 0, 64)], 0, 0), None);
        assert_eq!(answer_to(&[step(LOAD, 0, 0, 0)], 0, 0), None, "without an end");
    }
}
