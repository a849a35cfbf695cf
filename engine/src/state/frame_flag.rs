//! The state of a frame's write, next to the page word that points to the frame.
//!
//! A fault may take a page while its device still reads from the frame. Then two threads are done with the frame at
//! some moment, the fault's and the one that completes the write; whichever comes last frees frame and slot, and the
//! flag tells it that it is the last.
use crate::base::index::FrameIndex;
use crate::sys::mapping::ZeroedSlice;
use std::io;
use std::sync::atomic::{AtomicU8, Ordering};

/// What is known of a frame's write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum FrameFlag {
    /// Nothing under way.
    Idle,
    /// The device reads from the frame.
    Writing,
    /// The page has gone elsewhere; the completion of the write frees frame and slot.
    Orphan,
    /// The write has finished, but the page has gone; the thread that takes the page frees frame and slot.
    Finished,
    /// As `Finished`, but the device refused: the slot is bad.
    Failed,
}

impl FrameFlag {
    const ALL: [Self; 5] = [Self::Idle, Self::Writing, Self::Orphan, Self::Finished, Self::Failed];
}

/// A flag for each frame, all `Idle` at first.
pub struct FrameFlags {
    flags: ZeroedSlice<AtomicU8>,
}

impl FrameFlags {
    /// Flags of `frames` frames.
    ///
    /// # Errors
    /// What mmap says.
    pub fn new(frames: u32) -> io::Result<Self> {
        Ok(Self { flags: ZeroedSlice::new(frames as usize)? })
    }

    /// Number of frames.
    pub fn len(&self) -> usize {
        self.flags.len()
    }

    /// Sets the flag of a frame that only the caller looks at.
    pub fn set(&self, frame: FrameIndex, flag: FrameFlag) {
        self.flags[frame as usize].store(flag as u8, Ordering::Release);
    }

    /// Sets the flag and returns the one before: of two threads that swap, the second sees the first one's.
    pub fn swap(&self, frame: FrameIndex, flag: FrameFlag) -> FrameFlag {
        let before = self.flags[frame as usize].swap(flag as u8, Ordering::AcqRel);
        FrameFlag::ALL[usize::from(before)]
    }

    /// Changes `from` to `to`; false when the flag is not `from`.
    pub fn change(&self, frame: FrameIndex, from: FrameFlag, to: FrameFlag) -> bool {
        let flag = &self.flags[frame as usize];
        flag.compare_exchange(from as u8, to as u8, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}
