//! process_madvise(2) of the process itself: what it advises of managed memory is for the engine, as with madvise.
//!
//! Since Linux 6.13 it takes all advice of the process itself, and allocators drop what they do not need by lists.
use super::advice;
use crate::abi::raw::{self, Errno, Span};
use crate::abi::system_call::{Arguments, make};
use crate::calls::arguments::entry;
use crate::calls::buffers::LIST_MAX;
use libc::{EFAULT, EINVAL, c_int, iovec};
use userswap::internals::signal::Blocked;

/// Descriptors that stand for whoever uses them, its thread or all of it, the latter by either of two numbers (Linux 6.15).
const PIDFD_SELF: [c_int; 3] = [-10_000, -10_001, -20_000];

/// None where another process is meant, or nobody.
pub fn advise(arguments: &Arguments) -> Option<Result<usize, Errno>> {
    let [descriptor, list, count, advice, flags, _] = *arguments;
    is_own(descriptor as c_int).then(|| {
        // Whether there is such advice, and who may give it, is the kernel's to say.
        let refused = make(libc::SYS_process_madvise, [descriptor, list, 0, advice, flags, 0]);
        match (refused as isize, count) {
            (error @ ..0, _) => Err(-error as Errno),
            (_, ..=LIST_MAX) => advise_each(list, count, advice as c_int),
            _ => Err(EINVAL),
        }
    })
}

/// How many bytes it was given for; an error only if that is for none.
fn advise_each(list: usize, count: usize, advice: c_int) -> Result<usize, Errno> {
    let mut done = 0;
    for index in 0..count {
        let part = entry::<iovec>(list, index).ok_or(EFAULT);
        let advised = part.and_then(|part| {
            advice::advise(Span::of(part.iov_base, part.iov_len), advice).map(|_| part.iov_len)
        });
        match advised {
            Ok(bytes) => done += bytes,
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(done)
}

fn is_own(descriptor: c_int) -> bool {
    if PIDFD_SELF.contains(&descriptor) {
        return true;
    }
    let _blocked = Blocked::new();
    let process = std::process::id();
    if !raw::is_in_pidfs(descriptor) {
        let said = std::fs::read_to_string(format!("/proc/self/fdinfo/{descriptor}"));
        let own = format!("Pid:\t{process}");
        return said.is_ok_and(|said| said.lines().any(|line| line == own));
    }
    let own = make(libc::SYS_pidfd_open, [process as usize, 0, 0, 0, 0, 0]);
    let Ok(own) = c_int::try_from(own) else { return false };
    let is_own = raw::is_same_file(descriptor, own);
    make(libc::SYS_close, [own as usize, 0, 0, 0, 0, 0]);
    is_own
}
