//! What a device's refusals say about another try, and how long a device is waited for.
//!
//! One table, by error number. A device that outlasted the patience once gets none until it has answered again: a
//! program whose device is gone is told page by page, and not after half a minute for each.
use super::Devices;
use crate::base::index::{NodeId, Slot};
use crate::sys::request::{Direction, Pieces};
use crate::sys::{PAGE_BYTES, clock, file_limit};
use std::io;
use std::sync::atomic::Ordering;
use userswap_policy::retry::{Tries, Trouble};

/// How long trouble that passes is waited for at the start: longer than a path's or a controller's failover, for which
/// the kernel's own drivers take up to 30 s.
pub const PATIENCE_NS: u64 = 40_000_000_000;

/// What an error means for the next try.
fn trouble_of(error: &io::Error) -> Trouble {
    match error.raw_os_error() {
        // Of ours, see `device::queue`: fewer bytes than asked for.
        None if error.kind() == io::ErrorKind::WriteZero => Trouble::Interrupted,
        // The second: an io_uring had no worker for it, and the queue is done with that.
        Some(libc::EINTR | libc::ECANCELED) => Trouble::Interrupted,
        // By the limit of a file's size, from where it is known on.
        Some(libc::EFBIG) => Trouble::Interrupted,
        // Short of something for the moment, or the way to a remote store is.
        Some(
            libc::EAGAIN
            | libc::ENOMEM
            | libc::ENOBUFS
            | libc::EBUSY
            | libc::ETIMEDOUT
            | libc::ETIME
            | libc::ENOLINK
            | libc::ENETDOWN
            | libc::ENETUNREACH
            | libc::EHOSTDOWN
            | libc::EHOSTUNREACH
            | libc::ECONNRESET
            | libc::ECONNREFUSED
            | libc::ECONNABORTED
            | libc::ENOTCONN
            | libc::EPIPE
            // Certificates, which are renewed.
            | libc::EPROTO
            | libc::ENOKEY
            | libc::EKEYREJECTED
            | libc::ESTALE,
        ) => Trouble::Passing,
        // A bad spot, the device between two paths, or a server that has not been told its password yet.
        Some(
            libc::EIO | libc::ENXIO | libc::ENODEV | libc::EREMOTEIO | libc::EKEYREVOKED,
        ) => Trouble::Doubtful,
        // The device has ended before the slot, there is no room, it is read-only: it will say so again.
        _ => Trouble::Lasting,
    }
}

/// Whether an error is of the kind that usually passes.
pub fn is_passing(error: &io::Error) -> bool {
    trouble_of(error) == Trouble::Passing
}

/// Whether what a request failed to bring can be asked for in parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parts {
    /// It is of several slots, one of which may be the reason.
    Several,
    /// It is of one, or of several that belong together.
    One,
}

impl Parts {
    /// Of a request of so many bytes whose slots can be asked for alone.
    pub fn of(bytes: usize) -> Self {
        if bytes > PAGE_BYTES { Self::Several } else { Self::One }
    }
}

/// Whether a read that has failed has met a bad spot, as far as can be told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadSpot(pub bool);

impl Devices {
    /// A request has failed: the moment to repeat it, or None when it is to be given up. A write that others have room for is
    /// sooner, and its device not with it.
    pub fn again(
        &self,
        (direction, slot): (Direction, Slot),
        tries: &mut Tries,
        error: &io::Error,
        parts: Parts,
    ) -> Option<u64> {
        let device = self.device_of(self.under(slot));
        let patience_ns = match device.is_given_up.load(Ordering::Relaxed) {
            true => 0,
            false => self.patience_ns.load(Ordering::Relaxed),
        };
        let now_ns = clock::now_ns();
        let trouble = trouble_of(error);
        if error.raw_os_error() == Some(libc::EFBIG) {
            file_limit::note_refused();
        }
        if direction == Direction::Write
            && trouble == Trouble::Passing
            && let Some(shorter_ns) = self.patience_to_write_ns(device)
        {
            return tries.again(trouble, now_ns, shorter_ns.min(patience_ns));
        }
        match (trouble, parts) {
            // A bad spot among them: the others are there for the asking.
            (Trouble::Doubtful, Parts::Several) => tries.again(Trouble::Lasting, now_ns, 0),
            (trouble @ (Trouble::Passing | Trouble::Doubtful), _) => {
                let next = tries.again(trouble, now_ns, patience_ns);
                device.is_given_up.fetch_or(next.is_none(), Ordering::Relaxed);
                next
            }
            (trouble, _) => tries.again(trouble, now_ns, patience_ns),
        }
    }

    /// A request of [`Self::request`] has ended.
    pub fn note_end(
        &self,
        direction: Direction,
        slot: Slot,
        bytes: usize,
        outcome: &io::Result<()>,
    ) {
        let device = self.device_of(slot);
        device.traffic.end(direction, bytes, outcome);
        let device = self.device_of(self.under(slot));
        // Almost always it says no already: no shared line is written to.
        if outcome.is_ok() && device.is_given_up.load(Ordering::Relaxed) {
            device.is_given_up.store(false, Ordering::Relaxed);
        }
        if outcome.is_ok() && direction == Direction::Write {
            self.note_answer(device);
        }
    }

    /// Reads consecutive slots on the calling thread, which sleeps where it has to wait for the device.
    ///
    /// # Errors
    /// What the device said last.
    pub fn read_patiently(&self, first: Slot, pieces: &Pieces, near: NodeId) -> io::Result<()> {
        self.read_until_it_comes(first, pieces, near, false)
    }

    /// The same where what does not come may stay where it is: no trouble is waited for.
    ///
    /// # Errors
    /// Whether it may be that of a bad spot, beside which others can be read.
    pub fn read_without_wait(
        &self,
        first: Slot,
        pieces: &Pieces,
        near: NodeId,
    ) -> Result<(), BadSpot> {
        let again = |tries: &mut Tries, error: &io::Error| {
            tries.again(trouble_of(error), clock::now_ns(), 0)
        };
        let outcome = self.read_while((first, pieces), near, false, again);
        outcome.map_err(|error| BadSpot(trouble_of(&error) == Trouble::Doubtful))
    }

    /// The same once more, from another copy where there is one: what came was wrong, or nothing.
    ///
    /// # Errors
    /// What the device said last.
    pub fn read_again_patiently(
        &self,
        first: Slot,
        pieces: &Pieces,
        near: NodeId,
    ) -> io::Result<()> {
        self.read_until_it_comes(first, pieces, near, true)
    }

    fn read_until_it_comes(
        &self,
        first: Slot,
        pieces: &Pieces,
        near: NodeId,
        is_repeated: bool,
    ) -> io::Result<()> {
        let parts = Parts::of(pieces.bytes());
        self.read_while((first, pieces), near, is_repeated, |tries, error| {
            self.again((Direction::Read, first), tries, error, parts)
        })
    }

    /// Reads until it comes, or `again` does not tell the moment for another try.
    fn read_while(
        &self,
        (first, pieces): (Slot, &Pieces),
        near: NodeId,
        is_repeated: bool,
        again: impl Fn(&mut Tries, &io::Error) -> Option<u64>,
    ) -> io::Result<()> {
        let (mut tries, mut not_before_ns) = (Tries::default(), 0);
        loop {
            let request = self.request(Direction::Read, first, pieces.bytes(), near);
            let request = request.repeated(is_repeated);
            let outcome = request.no_sooner_than(not_before_ns).transfer(pieces);
            self.note_end(Direction::Read, first, pieces.bytes(), &outcome);
            let Err(error) = outcome else { return Ok(()) };
            not_before_ns = again(&mut tries, &error).ok_or(error)?;
        }
    }

    /// How long trouble that passes is waited for from now on; 0 for not at all.
    pub fn set_patience_ns(&self, patience_ns: u64) {
        self.patience_ns.store(patience_ns, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_pass_is_waited_for() {
        for (code, expected) in [
            (libc::EINTR, Trouble::Interrupted),
            (libc::EFBIG, Trouble::Interrupted),
            (libc::ENOMEM, Trouble::Passing),
            (libc::EAGAIN, Trouble::Passing),
            (libc::ETIMEDOUT, Trouble::Passing),
            (libc::EIO, Trouble::Doubtful),
            (libc::ENODEV, Trouble::Doubtful),
            (libc::ENOSPC, Trouble::Lasting),
            (libc::EBADF, Trouble::Lasting),
        ] {
            assert_eq!(trouble_of(&io::Error::from_raw_os_error(code)), expected, "{code}");
        }
        assert_eq!(trouble_of(&io::ErrorKind::WriteZero.into()), Trouble::Interrupted);
        assert_eq!(trouble_of(&io::ErrorKind::UnexpectedEof.into()), Trouble::Lasting);
    }
}
