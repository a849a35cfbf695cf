//! Orphans: frames whose page has gone elsewhere while the device still reads from them.
//!
//! Such a frame belongs to its write alone, and its slot holds nothing of worth. The frame's flag
//! (`state::frame_flag`) tells which of the two was last to let go: it frees both.
use crate::base::index::{FrameIndex, Slot};
use crate::device::{SlotEnd, SlotSpan};
use crate::state::core::Core;
use crate::state::frame_flag::FrameFlag;
use userswap_policy::frames::FrameRun;

impl Core {
    /// The page of a frame under write has gone: the later of this call and the write's completion frees frame
    /// and slot.
    pub(crate) fn orphan(&self, frame: FrameIndex, slot: Slot) {
        // Pairs with the swap in `finish_page`: exactly one of the two sees the other's flag.
        let before = self.frame_flags.swap(frame, FrameFlag::Orphan);
        assert_ne!(before, FrameFlag::Orphan, "a frame is orphaned once");
        match before {
            FrameFlag::Finished => self.free_orphan(frame, slot, SlotEnd::Free),
            FrameFlag::Failed => self.free_orphan(frame, slot, SlotEnd::Bad),
            _ => {}
        }
    }

    /// Frees an orphan and its slot, once the write has ended.
    pub(crate) fn free_orphan(&self, frame: FrameIndex, slot: Slot, end: SlotEnd) {
        self.frame_flags.set(frame, FrameFlag::Idle);
        self.node_of_frame(frame).lock().put_free(FrameRun { first: frame, count: 1 });
        let span = SlotSpan { first: slot, count: 1 };
        self.devices.end(span, end);
        self.announce_freed();
    }
}
