//! Looks for system calls in the code of what is loaded: the instruction, with a number set for it just before.
//!
//! Go's programs, which can be large, are known by a note of their linker's instead: their runtime makes them all so.
//! The instruction's two bytes turn up in any code by chance, about once in 150 to 300 KiB; with a number before them hardly
//! ever. What is found by chance costs time (each call is looked at), what is missed is served as if it were not looked for.
use super::symbols::{Object, each_object};
use libc::c_long;
use memchr::memmem;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// `mov eax, NUMBER`, without the number.
const MOVE_NUMBER: u8 = 0xb8;
/// Calls that Linux has numbers for, with some to come.
const NUMBERS: Range<u32> = 0..512;
/// How far before the instruction its number is set: compilers set arguments in between.
const DISTANCE_MAX: usize = 24;

/// When an object is looked through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    /// At every start, of whatever program.
    AtStart,
    /// When a program that runs longer has loaded it.
    Later,
}

impl Look {
    /// Objects with more code are not read: 20 MiB take 4 to 6 ms, most of it for mapping them.
    const fn bytes_max(self) -> usize {
        match self {
            Self::AtStart => 16 << 20,
            Self::Later => 32 << 20,
        }
    }

    /// Calls that have to be found in so much code. Of large libraries some seem to make one: OpenJDK's has four such places in
    /// 13 MiB, none of them a call, where wasmtime's has 232 in 19.
    const fn calls_min(self, bytes: usize) -> usize {
        match self {
            Self::AtStart => 1,
            Self::Later => 1 + bytes / (2 << 20),
        }
    }
}

/// Objects that have been loaded, as far as they were looked at.
static LOOKED_AT: AtomicU64 = AtomicU64::new(0);

/// Whether something that was loaded since the last look, other than what this library knows, makes such calls.
pub fn is_any_new(look: Look, matters: impl Fn(Number) -> bool) -> bool {
    let (mut count, mut loads) = (0_usize, 0);
    each_object(|object| {
        (count, loads) = (count + 1, object.loads());
        None::<()>
    });
    // Two threads may look at the same.
    let seen = LOOKED_AT.fetch_max(loads, Ordering::Relaxed);
    let new = usize::try_from(loads.saturating_sub(seen)).unwrap_or(usize::MAX);
    // The linker's order is that of loading.
    let mut old = count.saturating_sub(new);
    let found = each_object(|object| {
        let is_new = old == 0;
        old = old.saturating_sub(1);
        (is_new && makes_calls(object, look, &matters)).then_some(())
    });
    found.is_some()
}

fn makes_calls(object: &Object, look: Look, matters: &impl Fn(Number) -> bool) -> bool {
    let is_known =
        object.is_libc() || object.is_loader() || object.is_ours() || object.is_kernels();
    let mut code = object.code().filter(|text| text.len() <= look.bytes_max());
    let makes = |text: &[u8]| {
        let needed = look.calls_min(text.len());
        calls_in(text).filter(|number| matters(*number)).take(needed).count() == needed
    };
    !is_known && (object.is_go() || code.any(makes))
}

/// What is known of a call's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Number {
    Constant(c_long),
    /// It comes from another register, or from the stack.
    Variable,
}

fn calls_in(text: &[u8]) -> impl Iterator<Item = Number> {
    memmem::find_iter(text, &SYSCALL)
        .filter_map(|at| number_before(&text[at.saturating_sub(DISTANCE_MAX)..at]))
}

fn number_before(code: &[u8]) -> Option<Number> {
    if let [.., 0x89, modes] = code
        && modes & 0xc7 == 0xc0
    {
        return Some(Number::Variable);
    }
    if let [.., 0x48, 0x8b, 0x44, 0x24, _] = code {
        return Some(Number::Variable);
    }
    let constant = |code: &[u8]| match code {
        [MOVE_NUMBER, a, b, c, d] => Some(u32::from_le_bytes([*a, *b, *c, *d])),
        _ => None,
    };
    let mut constants = code.windows(5).rev().filter_map(constant);
    constants.find(|number| NUMBERS.contains(number)).map(|number| Number::Constant(number.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_known_by_the_number_before_it() {
        let mmap = [0x90, 0xb8, 9, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05, 0xc3];
        let go = [0x48, 0x8b, 0x44, 0x24, 0x08, 0x0f, 0x05];
        let liburing = [0x44, 0x89, 0xe0, 0x0f, 0x05];
        let found = |code: &[u8]| calls_in(code).collect::<Vec<_>>();
        assert_eq!(found(&mmap), [Number::Constant(9)]);
        assert_eq!(found(&go), [Number::Variable]);
        assert_eq!(found(&liburing), [Number::Variable]);
        assert_eq!(found(&[mmap, mmap].concat()).len(), 2);
    }

    #[test]
    fn what_is_there_by_chance_is_no_call() {
        for code in [&[0x0f, 0x05][..], &[0xb8, 9, 0, 0, 1, 0x0f, 0x05], &[0x0f, 0x0f], &[]] {
            assert_eq!(calls_in(code).next(), None, "{code:x?}");
        }
        let far = [&[0xb8, 9, 0, 0, 0][..], &[0x90; 20], &[0x0f, 0x05]].concat();
        assert_eq!(calls_in(&far).next(), None);
    }
}
