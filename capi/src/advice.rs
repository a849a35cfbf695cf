//! Advice: what is to be done with memory, or how it will be used.
use crate::engine::us_engine;
use crate::failure::{Failure, code_of};
use crate::handle::find;
use std::ffi::{c_int, c_void};
use userswap::Advice;

/// What is to be done with memory, or how it will be used. None changes what is in it.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum us_advice {
    /// Takes back US_SEQUENTIAL and US_RANDOM.
    US_NORMAL = 0,
    /// It will be used in order: read ahead in large windows.
    US_SEQUENTIAL = 1,
    /// It will be used in no order: read nothing ahead.
    US_RANDOM = 2,
    /// It will be needed soon: start to swap it in, and do not wait.
    US_WILL_NEED = 3,
    /// It will not be needed soon: reclaim it next.
    US_COLD = 4,
    /// Swap it in, as far as the budget goes without reclaiming other pages, and wait.
    US_PREFETCH = 5,
    /// Swap it out now.
    US_PAGE_OUT = 6,
    /// Swap it in, and keep it in RAM until it is unpinned as often; at most three quarters of the budget.
    US_PIN = 7,
    /// Undo one US_PIN of the same bytes.
    US_UNPIN = 8,
}
use us_advice::*;

/// What a number from C stands for.
pub fn advice_of(number: c_int) -> Result<Advice, Failure> {
    const ALL: [(us_advice, Advice); 9] = [
        (US_NORMAL, Advice::Normal),
        (US_SEQUENTIAL, Advice::Sequential),
        (US_RANDOM, Advice::Random),
        (US_WILL_NEED, Advice::WillNeed),
        (US_COLD, Advice::Cold),
        (US_PREFETCH, Advice::Prefetch),
        (US_PAGE_OUT, Advice::PageOut),
        (US_PIN, Advice::Pin),
        (US_UNPIN, Advice::Unpin),
    ];
    let known = ALL.iter().find(|(code, _)| *code as c_int == number);
    known.map(|(_, advice)| *advice).ok_or_else(|| {
        Failure::invalid(format!("{number} is no us_advice: use US_NORMAL (0) to US_UNPIN (8)"))
    })
}

/// Gives a us_advice for the pages that a range of addresses touches, in regions or in blocks of heaps (small ones share
/// their pages with others).
#[unsafe(no_mangle)]
pub extern "C" fn us_advise(
    engine: *mut us_engine,
    address: *const c_void,
    bytes: usize,
    advice: c_int,
) -> c_int {
    code_of(|| Ok(find(engine)?.advise(address.addr(), bytes, advice_of(advice)?)?))
}
