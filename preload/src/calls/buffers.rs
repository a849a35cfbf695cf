//! Lists of buffers (iovec) that a program passes, and what comes next of them.
use super::held::Held;
use super::reading::Reader;
use super::transfers::Way;
use crate::abi::raw::Span;
use libc::{iovec, msghdr};

/// Buffers of one piece of a long transfer.
const PARTS_MAX: usize = 16;
/// The kernel takes no more buffers in one list (UIO_MAXIOV), and refuses longer ones.
pub const LIST_MAX: usize = 1024;
/// The kernel transfers no more in one call (MAX_RW_COUNT).
const TRANSFER_MAX_BYTES: usize = 0x7fff_f000;

/// The program's list of buffers.
pub struct List(pub *const iovec, pub usize);

impl List {
    /// Up to one that the program could not read; none of more than there may be.
    fn parts(&self) -> impl Iterator<Item = iovec> + '_ {
        let mut reader = Reader::default();
        let count = if self.1 <= LIST_MAX { self.1 } else { 0 };
        (0..count).map_while(move |index| reader.entry(self.0 as usize, index))
    }

    /// What the kernel would transfer of all of them; nothing of a list that it will refuse.
    pub fn bytes(&self) -> usize {
        let (mut count, mut sum) = (0, 0_usize);
        for part in self.parts().take_while(|part| is_of_programs(of_part(part))) {
            (count, sum) = (count + 1, sum.saturating_add(part.iov_len));
        }
        if count == self.1 { sum.min(TRANSFER_MAX_BYTES) } else { 0 }
    }

    /// A message of nothing else.
    pub fn message(&self) -> msghdr {
        msghdr {
            msg_name: std::ptr::null_mut(),
            msg_namelen: 0,
            msg_iov: self.0.cast_mut(),
            msg_iovlen: self.1,
            msg_control: std::ptr::null_mut(),
            msg_controllen: 0,
            msg_flags: 0,
        }
    }

    /// What comes after so many bytes, as far as there is room.
    pub fn after(&self, done: usize, mut room: usize) -> Parts {
        let mut skipped = done;
        let mut chosen = Parts::NONE;
        for part in self.parts() {
            let skip = skipped.min(part.iov_len);
            skipped -= skip;
            let bytes = (part.iov_len - skip).min(room);
            if chosen.count == PARTS_MAX || room == 0 {
                break;
            }
            if bytes > 0 {
                let address = part.iov_base.wrapping_byte_add(skip);
                chosen.list[chosen.count] = iovec { iov_base: address, iov_len: bytes };
                chosen.count += 1;
                room -= bytes;
            }
        }
        chosen
    }
}

/// Where programs' addresses end, unless they ask for more (five levels of page tables).
const PROGRAMS_END: usize = if cfg!(target_arch = "x86_64") { 1 << 47 } else { 1 << 48 };

/// Whether a buffer has a length that the kernel takes, and lies where programs are.
fn is_of_programs(buffer: Span) -> bool {
    buffer.address.checked_add(buffer.bytes).is_some_and(|end| end < PROGRAMS_END)
}

fn of_part(part: &iovec) -> Span {
    Span::of(part.iov_base, part.iov_len)
}

/// What the kernel would transfer of a buffer in one call; None of one that it refuses, or has to judge, before any byte moves.
pub fn taken(buffer: Span) -> Option<Span> {
    let bytes = buffer.bytes.min(TRANSFER_MAX_BYTES);
    is_of_programs(buffer).then_some(Span { bytes, ..buffer })
}

/// Some parts of a list, in a list of its own.
pub struct Parts {
    pub list: [iovec; PARTS_MAX],
    pub count: usize,
}

impl Parts {
    const NONE: Self =
        Self { list: [iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; PARTS_MAX], count: 0 };

    pub fn hold(&self) -> Held {
        let mut held = Held::none();
        for part in &self.list[..self.count] {
            held.add(of_part(part));
        }
        held
    }

    /// Whether its first part may go alone: of what is written, a pipe takes so many bytes as a whole (PIPE_BUF).
    pub fn may_be_cut(&self, way: Way) -> bool {
        match way {
            Way::Read => self.count > 0,
            Way::Write => self.count == 1 || self.count > 1 && self.bytes() > libc::PIPE_BUF,
        }
    }

    /// A message with these parts instead of its own.
    pub fn message(&mut self, whole: &msghdr) -> msghdr {
        msghdr { msg_iov: self.list.as_mut_ptr(), msg_iovlen: self.count, ..*whole }
    }

    pub fn bytes(&self) -> usize {
        self.list[..self.count].iter().map(|part| part.iov_len).sum()
    }
}
