//! What a device has in common with others whose slots are on other machines, whatever they are asked by.
use super::remote::{Copy, Remote};
use crate::sys::request::{Direction, Pieces};
use std::fmt::Debug;
use std::io;
use std::sync::Arc;
use userswap_policy::lent::SlotWord;
use userswap_policy::slots::SlotRun;

/// What the slots of a forked child are in.
pub enum Inherited {
    /// Such a device of its own.
    Far(Box<dyn Far>),
    /// A file, to which all that is in use has to be copied.
    File,
}

/// The slots of a device, on other machines.
pub trait Far: Debug + Send + Sync {
    /// Transfers whole pages at once, also in a signal handler.
    ///
    /// # Errors
    /// What has gone wrong, as the number that a disk would say it with; ENODATA where there is nothing.
    fn transfer(&self, direction: Direction, offset: u64, pieces: &Pieces) -> io::Result<()>;

    /// Reads once more what has come wrong, or not at all: another copy, where there is one.
    ///
    /// # Errors
    /// As for `transfer`.
    fn read_again(&self, offset: u64, pieces: &Pieces) -> io::Result<()> {
        self.transfer(Direction::Read, offset, pieces)
    }

    /// Slots hold nothing of worth any more, to this process. The device's lock is held.
    fn forget(&self, run: SlotRun);

    /// Starts its threads, unless they run. A caller has signals blocked, which they inherit.
    ///
    /// # Errors
    /// No thread is to be had.
    fn start(self: Arc<Self>) -> io::Result<()>;

    /// The process has begun to end, or to become another.
    fn shorten(&self);

    /// The process goes on after all.
    fn lengthen(&self);

    /// It is used no more, at least not by this: its threads will end, which nobody waits for.
    fn leave(&self);

    /// After that: ends the threads and deletes everything, unless others still read it.
    fn end(&self, is_shared: bool);

    /// Whether other processes can read its slots.
    fn can_be_lent(&self) -> bool;

    /// In a forked child: an empty one beside this.
    ///
    /// # Errors
    /// No memory for tables, or no randomness.
    fn another(&self) -> io::Result<Box<dyn Far>>;

    /// In a forked child: what goes on reading these slots of the parent's.
    ///
    /// # Errors
    /// No memory for tables.
    fn borrowed(&self, slots: &mut dyn Iterator<Item = SlotWord>) -> io::Result<Box<dyn Far>>;

    /// A copy of slots for a child that cannot borrow them.
    ///
    /// # Errors
    /// A server cannot be reached, or has no room.
    fn copied(&self, slots: &mut dyn Iterator<Item = SlotWord>) -> io::Result<Inherited>;

    /// In a forked child: what its parent has made for it is its own.
    fn adopt(&mut self);
}

impl Far for Remote {
    fn transfer(&self, direction: Direction, offset: u64, pieces: &Pieces) -> io::Result<()> {
        Remote::transfer(self, direction, Copy::First, offset, pieces)
    }

    fn read_again(&self, offset: u64, pieces: &Pieces) -> io::Result<()> {
        Remote::transfer(self, Direction::Read, Copy::Second, offset, pieces)
    }

    fn forget(&self, run: SlotRun) {
        Remote::forget(self, run);
    }

    fn start(self: Arc<Self>) -> io::Result<()> {
        Remote::start(&self)
    }

    fn shorten(&self) {
        Remote::shorten(self);
    }

    fn lengthen(&self) {
        Remote::lengthen(self);
    }

    fn leave(&self) {
        Remote::leave(self);
    }

    fn end(&self, is_shared: bool) {
        Remote::end(self, is_shared);
    }

    fn can_be_lent(&self) -> bool {
        true
    }

    fn another(&self) -> io::Result<Box<dyn Far>> {
        Ok(Box::new(Remote::another(self)?))
    }

    fn borrowed(&self, slots: &mut dyn Iterator<Item = SlotWord>) -> io::Result<Box<dyn Far>> {
        Ok(Box::new(Remote::borrowed(self, slots)?))
    }

    fn copied(&self, slots: &mut dyn Iterator<Item = SlotWord>) -> io::Result<Inherited> {
        Ok(Inherited::Far(Box::new(Remote::copied(self, slots)?)))
    }

    fn adopt(&mut self) {
        Remote::adopt(self);
    }
}
