//! Dropping memory that nobody needs: the kernel takes its pages back.
//!
//! The program may have locked it, by calls that the engine does not see; the lock goes with the content.
use crate::base::index::{PageIndex, Slot};
use crate::state::core::Core;
use crate::state::page::Mapped;
use crate::sys::{mapping, process};
use crate::transfer::verdict::{Call, Extent, Verdict, verdict};

/// Times that memory is unlocked which the program goes on locking.
const UNLOCKS_MAX: u32 = 8;

/// Drops the memory of a range, of held frames or of pages that the caller owns.
pub(crate) fn drop_memory(call: Call, address: usize, bytes: usize) {
    let mut unlocks = 0;
    while let Err(errno) = mapping::drop_memory(address, bytes) {
        match verdict(call, Extent::Run, errno) {
            Verdict::Gone => return,
            Verdict::Unlock if unlocks < UNLOCKS_MAX => {
                mapping::unlock(address, bytes);
                unlocks += 1;
            }
            _ => process::die("userswap: cannot drop memory", errno),
        }
    }
}

impl Core {
    /// Frees the slot of a mapped page; false if it is not its slot any more.
    pub(crate) fn forget_slot(&self, page: PageIndex, slot: Slot) -> bool {
        let seen = self.pages.load(page);
        let Some(Mapped { slot: Some(held), .. }) = seen.state().mapped() else { return false };
        let drops = held == slot && self.pages.drop_slot(page, seen);
        if drops {
            self.free_slot(slot);
        }
        drops
    }

    /// Frees the slot, if there is one, of a page that has lost its content.
    pub(crate) fn free_any_slot(&self, slot: Option<Slot>) {
        if let Some(slot) = slot {
            self.free_slot(slot);
        }
    }
}
