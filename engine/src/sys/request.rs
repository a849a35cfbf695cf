//! Device requests done at once by the calling thread: safe in a signal handler.
use super::own_table::Here;
use super::{PAGE_BYTES, clock, pages};
use std::io;
use std::os::fd::RawFd;

/// The smallest part of a page that a disk writes.
const BLOCK_BYTES: usize = 512;

/// Pieces of memory that one request gathers.
pub const PIECES_MAX: usize = 64;

/// One contiguous piece of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// The address of its first byte.
    pub address: usize,
    /// Length in bytes.
    pub bytes: usize,
}

/// A request's pieces, without allocation.
#[derive(Clone, Copy, Debug)]
pub struct Pieces {
    pieces: [Piece; PIECES_MAX],
    count: usize,
}

impl Default for Pieces {
    fn default() -> Self {
        Self { pieces: [Piece::default(); PIECES_MAX], count: 0 }
    }
}

impl Pieces {
    /// One page more; false when there is no room.
    pub fn push_page(&mut self, address: usize) -> bool {
        self.push(address, PAGE_BYTES)
    }

    /// One piece more, merged with the last one where it follows it; false when there is no room.
    pub fn push(&mut self, address: usize, bytes: usize) -> bool {
        if let Some(last) = self.pieces[..self.count].last_mut()
            && last.address + last.bytes == address
        {
            last.bytes += bytes;
            return true;
        }
        if self.count == PIECES_MAX {
            return false;
        }
        self.pieces[self.count] = Piece { address, bytes };
        self.count += 1;
        true
    }

    /// Forgets all pieces.
    pub fn clear(&mut self) {
        self.count = 0;
    }

    /// A request of one piece.
    pub fn one(address: usize, bytes: usize) -> Self {
        let mut pieces = Self::default();
        pieces.pieces[0] = Piece { address, bytes };
        pieces.count = 1;
        pieces
    }

    /// Length of all pieces together.
    pub fn bytes(&self) -> usize {
        self.pieces[..self.count].iter().map(|piece| piece.bytes).sum()
    }

    /// The pieces, in order.
    pub fn iter(&self) -> impl Iterator<Item = Piece> {
        self.pieces[..self.count].iter().copied()
    }

    /// The first piece; an empty one when there is none.
    pub fn first(&self) -> Piece {
        self.pieces[0]
    }

    /// Number of pieces, at most [`PIECES_MAX`].
    pub fn count(&self) -> usize {
        self.count
    }

    /// Where the pieces lie; layout-compatible with `struct iovec`.
    pub fn as_ptr(&self) -> *const libc::iovec {
        self.pieces.as_ptr().cast()
    }

    /// Keeps the first half, in whole blocks of a disk.
    pub fn halve(&mut self) {
        let mut left = self.bytes() / 2 / BLOCK_BYTES * BLOCK_BYTES;
        let mut kept = 0;
        for piece in &mut self.pieces[..self.count] {
            piece.bytes = piece.bytes.min(left);
            left -= piece.bytes;
            kept += usize::from(piece.bytes > 0);
        }
        self.count = kept;
    }

    pub(super) fn skip(&mut self, mut bytes: usize) {
        let mut first = 0;
        while first < self.count && bytes >= self.pieces[first].bytes {
            bytes -= self.pieces[first].bytes;
            first += 1;
        }
        self.pieces.copy_within(first..self.count, 0);
        self.count -= first;
        if self.count > 0 {
            self.pieces[0].address += bytes;
            self.pieces[0].bytes -= bytes;
        }
    }
}

const _: () = assert!(size_of::<Piece>() == size_of::<libc::iovec>());

/// Which way the bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From the device.
    Read,
    /// To the device.
    Write,
}

/// A request to a device.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The device's descriptor.
    pub fd: RawFd,
    /// Which way the bytes go.
    pub direction: Direction,
    /// Where on the device, in bytes.
    pub offset: u64,
    /// The moment of the monotonic clock before which it shall not end; 0 for as soon as it can.
    pub not_before_ns: u64,
    /// What happens to it instead of what would.
    pub injected: Option<Injected>,
}

/// A failure that is made, for tests, the same for every way in which requests are driven.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Injected {
    /// It fails with this error number, and nothing is transferred.
    Fails(i32),
    /// Half of it is transferred, and it says that all was.
    Torn,
    /// All of it is transferred, and then a bit of it changes.
    Flipped,
    /// Half of it is transferred, and it says so.
    Short,
}

impl Injected {
    /// Leaves of `pieces` what is really transferred; false for nothing. In place: on a signal's stack there is no room for
    /// one more copy.
    #[must_use]
    pub fn cut(self, pieces: &mut Pieces) -> bool {
        match self {
            Self::Fails(_) => return false,
            Self::Torn | Self::Short => pieces.halve(),
            Self::Flipped => {}
        }
        true
    }

    /// What the request ends with, after its pieces ended with `outcome`; `first` is the first of all its pieces.
    pub fn outcome(self, outcome: io::Result<()>, first: Piece) -> io::Result<()> {
        match self {
            Self::Fails(code) => Err(io::Error::from_raw_os_error(code)),
            Self::Short => outcome.and(Err(io::ErrorKind::WriteZero.into())),
            Self::Torn => outcome,
            Self::Flipped => {
                // The memory that was just read into; its holder waits for the request.
                pages::view_mut(first.address, PAGE_BYTES)[0] ^= 1;
                outcome
            }
        }
    }
}

impl Request {
    /// As soon as it can, and as it comes.
    pub fn new(fd: RawFd, direction: Direction, offset: u64) -> Self {
        Self { fd, direction, offset, not_before_ns: 0, injected: None }
    }

    /// The same, not before a moment.
    #[must_use]
    pub fn no_sooner_than(self, moment_ns: u64) -> Self {
        Self { not_before_ns: self.not_before_ns.max(moment_ns), ..self }
    }

    /// Does it at once, on the calling thread.
    ///
    /// # Errors
    /// What the kernel says; `UnexpectedEof` when the device ends before the pieces do; what [`Here::of`] says.
    pub fn transfer(self, pieces: &Pieces) -> io::Result<()> {
        self.transfer_by(pieces, |pieces| {
            let here = Here::of(self.fd)?;
            transfer(here.number(), self.direction, self.offset, pieces)
        })
    }

    /// As [`Self::transfer`], by another way than the kernel's.
    ///
    /// # Errors
    /// What that says.
    pub fn transfer_by(
        self,
        pieces: &Pieces,
        transfer: impl Fn(&Pieces) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.not_before_ns > 0 {
            clock::sleep_until(self.not_before_ns);
        }
        let Some(injected) = self.injected else {
            return transfer(pieces);
        };
        let mut part = *pieces;
        let outcome = if injected.cut(&mut part) { transfer(&part) } else { Ok(()) };
        injected.outcome(outcome, pieces.first())
    }
}

/// Transfers all of `pieces` at `offset`.
///
/// # Errors
/// What the kernel says; `UnexpectedEof` when the device ends before the pieces do.
pub fn transfer(fd: RawFd, direction: Direction, offset: u64, pieces: &Pieces) -> io::Result<()> {
    let mut left = *pieces;
    let mut offset = offset as i64;
    while left.count > 0 {
        let number = match direction {
            Direction::Read => libc::SYS_preadv,
            Direction::Write => libc::SYS_pwritev,
        };
        // SAFETY: the pieces are frames that the caller holds. The raw system call passes by an interposed one, which
        // would keep the list in RAM: it may be on a handler's stack, and the engine waits for nobody here.
        let done = unsafe { libc::syscall(number, fd, left.as_ptr(), left.count, offset, 0) };
        match done {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            done if done > 0 => {
                left.skip(done as usize);
                offset += done;
            }
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_follow_each_other_become_one_piece() {
        let mut pieces = Pieces::default();
        for address in [0x1000, 0x2000, 0x5000, 0x6000] {
            assert!(pieces.push_page(address));
        }
        assert_eq!((pieces.count(), pieces.bytes()), (2, 4 * PAGE_BYTES));
    }

    #[test]
    fn half_of_a_request_ends_at_a_block_in_the_middle_of_a_piece() {
        let mut pieces = Pieces::default();
        pieces.push_page(0x1000);
        pieces.push_page(0x5000);
        pieces.push_page(0x9000);
        let mut half = pieces;
        half.halve();
        assert_eq!((half.count(), half.bytes()), (2, PAGE_BYTES + PAGE_BYTES / 2));
        assert_eq!(half.pieces[1].address, 0x5000);
        let mut half = Pieces::one(0x1000, PAGE_BYTES);
        half.halve();
        assert_eq!(half.bytes(), PAGE_BYTES / 2);
    }

    #[test]
    fn a_short_transfer_continues_in_the_middle_of_a_piece() {
        let mut pieces = Pieces::default();
        pieces.push_page(0x1000);
        pieces.push_page(0x5000);
        pieces.skip(PAGE_BYTES + 512);
        assert_eq!(pieces.count(), 1);
        assert_eq!(pieces.pieces[0], Piece { address: 0x5200, bytes: PAGE_BYTES - 512 });
    }
}
