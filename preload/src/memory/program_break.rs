//! The program break (brk, sbrk): memory that grows and shrinks at its end, managed like all other.
//!
//! Where the executable has a fixed address the arena begins behind its data, and the break is where the kernel has it. Else
//! it is anywhere, and the kernel's own, far above the arena, stays as it is. As with the kernel's, it goes on until it meets
//! something.
use super::{engagement, ranges};
use crate::abi::raw::Errno;
use crate::state::process::Process;
use libc::{ENOMEM, PROT_READ, PROT_WRITE};
use std::cmp::Ordering;
use userswap::internals::PAGE_BYTES;
use userswap::internals::PageRange;
use userswap::internals::lock::Lock;
use userswap::internals::process::program_break;
use userswap::internals::signal::Blocked;

/// Where the break is, once it was asked for; held across fork.
pub static BREAK: Lock<Option<Break>> = Lock::new(None);

/// Addresses.
pub struct Break {
    start: usize,
    now: usize,
}

/// What a call asks for.
#[derive(Clone, Copy, Debug)]
pub enum To {
    /// brk.
    Address(usize),
    /// sbrk.
    By(isize),
}

/// What became of a call.
pub struct Moved {
    /// Where the break was.
    pub before: usize,
    /// Where it is.
    pub now: usize,
    wanted: usize,
}

impl Moved {
    /// What the C library makes of it: only a break that is too low is too little.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn outcome(&self) -> Result<(), Errno> {
        if self.now < self.wanted { Err(ENOMEM) } else { Ok(()) }
    }
}

/// Moves the break, as the kernel does: where it may not go, it stays.
pub fn go(process: &Process, to: To) -> Moved {
    let blocked = Blocked::new();
    let moved = BREAK.lock().get_or_insert_with(|| Break::new(process)).go(process, to);
    drop(blocked);
    engagement::engage_if_needed(process);
    moved
}

impl Break {
    fn new(process: &Process) -> Self {
        let (kernels, ours) = (program_break(), process.arena.data_end());
        // The last page of the executable's data may be in use in part.
        let is_behind = kernels.next_multiple_of(PAGE_BYTES) == ours;
        let start = if is_behind { kernels } else { ours };
        Self { start, now: start }
    }

    fn go(&mut self, process: &Process, to: To) -> Moved {
        let before = self.now;
        let wanted = match to {
            To::Address(address) => address,
            // Beyond all addresses.
            To::By(bytes) => before.checked_add_signed(bytes).unwrap_or(usize::MAX),
        };
        if self.change(process, wanted).is_ok() {
            self.now = wanted;
        }
        Moved { before, now: self.now, wanted }
    }

    fn change(&self, process: &Process, wanted: usize) -> Result<(), Errno> {
        let arena_end = process.arena.address() + process.arena.bytes();
        if !(self.start..arena_end).contains(&wanted) {
            return Err(ENOMEM);
        }
        let [old, new] = [self.now, wanted].map(|address| address.next_multiple_of(PAGE_BYTES));
        match new.cmp(&old) {
            Ordering::Greater => self.grow(process, process.pages_between(old..new)),
            Ordering::Less => ranges::unmap(process, process.pages_between(new..old)),
            Ordering::Equal => Ok(()),
        }
    }

    fn grow(&self, process: &Process, range: PageRange) -> Result<(), Errno> {
        match process.arena.address_of(range.first) <= self.start.next_multiple_of(PAGE_BYTES) {
            // What lies before it is another's.
            true => ranges::take_at(process, range)?,
            false => ranges::extend(process, range)?,
        }
        ranges::open(process, range, PROT_READ | PROT_WRITE)
    }
}
