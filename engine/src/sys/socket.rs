//! Connections to servers, as handlers of faults make and use them.
//!
//! Each call goes by `syscall` of the C library's: neither to a function that is interposed, which may wait for the engine, nor by an
//! instruction of our own. Where raw calls are caught (syscall user dispatch), one of those would raise SIGSYS, whose
//! handler runs at the signal stack's end and over the frames of the handler that has gone to another stack.
use super::own_table::{self, Here};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// What a call returned that returns a length, a descriptor or nothing of interest.
fn checked(result: libc::c_long) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// A stream's end that is connected to nothing.
///
/// # Errors
/// What socket says; EAGAIN in a thread with a descriptor table of its own: others could not use it.
pub fn stream(to: &SocketAddr) -> io::Result<OwnedFd> {
    if own_table::is_apart() {
        return Err(io::Error::from_raw_os_error(libc::EAGAIN));
    }
    let family = if to.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: takes numbers.
    let number = checked(unsafe { libc::syscall(libc::SYS_socket, family, kind, 0) })?;
    // SAFETY: the descriptor is new and ours.
    Ok(unsafe { OwnedFd::from_raw_fd(number as RawFd) })
}

/// Sets what a socket does: `value` is of the option's type.
fn set<T>(socket: &impl AsRawFd, level: i32, name: i32, value: &T) -> io::Result<()> {
    let (number, bytes) = (socket.as_raw_fd(), size_of::<T>());
    // SAFETY: the value is readable for its size.
    let result = unsafe {
        libc::syscall(libc::SYS_setsockopt, number, level, name, std::ptr::from_ref(value), bytes)
    };
    checked(result).map(drop)
}

/// Calls end after so long, and small pieces are sent at once.
///
/// # Errors
/// What setsockopt says.
pub fn set_up(socket: &impl AsRawFd, patience: Duration) -> io::Result<()> {
    let time = libc::timeval { tv_sec: patience.as_secs() as i64, tv_usec: 0 };
    set(socket, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &time)?;
    set(socket, libc::SOL_SOCKET, libc::SO_SNDTIMEO, &time)?;
    set(socket, libc::IPPROTO_TCP, libc::TCP_NODELAY, &1i32)
}

/// Connects a stream.
///
/// # Errors
/// What connect says.
pub fn connect(socket: &impl AsRawFd, to: &SocketAddr) -> io::Result<()> {
    match to {
        SocketAddr::V4(to) => connect_to(
            socket,
            &libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: to.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(to.ip().octets()) },
                sin_zero: [0; 8],
            },
        ),
        SocketAddr::V6(to) => connect_to(
            socket,
            &libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: to.port().to_be(),
                sin6_flowinfo: to.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: to.ip().octets() },
                sin6_scope_id: to.scope_id(),
            },
        ),
    }
}

fn connect_to<T>(socket: &impl AsRawFd, address: &T) -> io::Result<()> {
    let (number, bytes) = (socket.as_raw_fd(), size_of::<T>());
    // SAFETY: the address is readable for its size.
    let result =
        unsafe { libc::syscall(libc::SYS_connect, number, std::ptr::from_ref(address), bytes) };
    checked(result).map(drop)
}

/// Sends bytes, and returns how many; a connection that is closed raises no signal.
///
/// # Errors
/// What sendto says.
pub fn send(socket: &impl AsRawFd, bytes: &[u8]) -> io::Result<usize> {
    let here = Here::of(socket.as_raw_fd())?;
    let (number, nobody) = (here.number(), std::ptr::null::<libc::sockaddr>());
    let (from, count) = (bytes.as_ptr(), bytes.len());
    // SAFETY: the bytes are readable.
    checked(unsafe {
        libc::syscall(libc::SYS_sendto, number, from, count, libc::MSG_NOSIGNAL, nobody, 0)
    })
}

/// Receives bytes, and returns how many; none at the connection's end.
///
/// # Errors
/// What recvfrom says.
pub fn receive(socket: &impl AsRawFd, into: &mut [u8]) -> io::Result<usize> {
    let here = Here::of(socket.as_raw_fd())?;
    let (number, nobody) = (here.number(), std::ptr::null_mut::<libc::sockaddr>());
    let (to, count) = (into.as_mut_ptr(), into.len());
    // SAFETY: the bytes are writable.
    checked(unsafe { libc::syscall(libc::SYS_recvfrom, number, to, count, 0, nobody, nobody) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    #[test]
    fn bytes_go_both_ways_by_either_protocol() {
        for name in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(name) else {
                assert_ne!(name, "127.0.0.1:0", "a machine may have no IPv6");
                continue;
            };
            let address = listener.local_addr().unwrap();
            let socket = stream(&address).unwrap();
            set_up(&socket, Duration::from_secs(5)).unwrap();
            connect(&socket, &address).unwrap();
            let (mut peer, _) = listener.accept().unwrap();
            assert_eq!(send(&socket, b"there").unwrap(), 5);
            let mut bytes = [0; 5];
            peer.read_exact(&mut bytes).unwrap();
            assert_eq!(&bytes, b"there");
            peer.write_all(b"here").unwrap();
            assert_eq!(receive(&socket, &mut bytes).unwrap(), 4);
            drop(peer);
            assert_eq!(receive(&socket, &mut bytes).unwrap(), 0);
        }
    }

    #[test]
    fn what_refuses_says_so() {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let socket = stream(&address).unwrap();
        let refused = connect(&socket, &address).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::ECONNREFUSED));
    }
}
