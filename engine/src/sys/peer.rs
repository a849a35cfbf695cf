//! Which process, and which user, is at the other end of a Unix socket.
//!
//! rustix has this call too, but gives the process as a number that cannot be zero, which it is for a peer
//! in an outer pid namespace.
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

/// Who is at the other end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// The process that called connect(2), or listen(2) if this end has connected; 0 if it is not in this process's pid
    /// namespace.
    pub process: u32,
    /// The user that it acted as when it did.
    pub user: u32,
}

/// Who is at the other end of a socket.
///
/// # Errors
/// It is not a Unix socket.
pub fn of(socket: impl AsFd) -> io::Result<Peer> {
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
    let peer = unsafe { peer.assume_init() };
    Ok(Peer { process: peer.pid as u32, user: peer.uid })
}
