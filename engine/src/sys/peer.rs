//! Which user is at the other end of a Unix socket.
//!
//! rustix has this call too, but gives the process as a number that cannot be zero, which it is for a peer
//! in an outer pid namespace.
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

/// The user that the peer acted as when it connected.
///
/// # Errors
/// It is not a Unix socket.
pub fn user_of(socket: impl AsFd) -> io::Result<u32> {
    let mut peer = MaybeUninit::<libc::ucred>::uninit();
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `peer` is a buffer for a ucred, whose length `bytes` says.
    let outcome = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            peer.as_mut_ptr().cast(),
            &mut bytes,
        )
    };
    if outcome != 0 {
        return Err(io::Error::last_os_error());
    }
    assert_eq!(bytes as usize, size_of::<libc::ucred>(), "the kernel fills in the whole of it");
    // SAFETY: getsockopt succeeded and filled it in.
    Ok(unsafe { peer.assume_init() }.uid)
}
