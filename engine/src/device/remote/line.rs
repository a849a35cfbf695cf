//! A connection's bytes, plain or by TLS.
//!
//! What is here is called in signal handlers, as is `wire`: it allocates nothing, and its system calls are the kernel's own.
use super::tls::records::{Found, SEAL_BYTES, Session};
use crate::sys::own_fd::Own;
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// How long one call may take, to connect, to send or to receive.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Attempts to connect that signals interrupt.
const INTERRUPTIONS_MAX: u32 = 8;

/// The end of a connection that is ours.
pub type Socket = Own<OwnedFd>;

/// A connection.
pub struct Line {
    socket: Socket,
    /// What its bytes are sealed by.
    session: Option<Box<Session>>,
}

/// Connects to a server.
///
/// # Errors
/// What the kernel says.
pub fn connect(to: SocketAddr) -> io::Result<Socket> {
    // What a signal interrupts goes on without us: another attempt is of another socket.
    for _ in 0..INTERRUPTIONS_MAX {
        match connect_once(to) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
    Err(Errno::AGAIN.into())
}

fn connect_once(to: SocketAddr) -> io::Result<Socket> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let socket = Own::raised(socket);
    for way in [Timeout::Recv, Timeout::Send] {
        sockopt::set_socket_timeout(&*socket, way, Some(PATIENCE))?;
    }
    sockopt::set_tcp_nodelay(&*socket, true)?;
    match net::connect(&*socket, &to) {
        Ok(()) => Ok(socket),
        Err(Errno::INPROGRESS | Errno::AGAIN) => Err(Errno::TIMEDOUT.into()),
        Err(error) => Err(error.into()),
    }
}

/// Sends all of it.
///
/// # Errors
/// The connection is broken.
pub fn send(socket: &Socket, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match net::send(&**socket, bytes, SendFlags::NOSIGNAL) {
            Ok(part) => bytes = &bytes[part..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Err(Errno::TIMEDOUT.into()),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Receives at least one byte.
///
/// # Errors
/// The connection is broken, or there is no room, where a line is longer than any of the protocol.
pub fn receive(socket: &Socket, into: &mut [u8]) -> io::Result<usize> {
    loop {
        match net::recv(&**socket, &mut *into, RecvFlags::empty()) {
            Ok((0, _)) => return Err(Errno::CONNRESET.into()),
            Ok((part, _)) => return Ok(part),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Err(Errno::TIMEDOUT.into()),
            Err(error) => return Err(error.into()),
        }
    }
}

impl Line {
    /// One in plain text.
    pub fn plain(socket: Socket) -> Self {
        Self { socket, session: None }
    }

    /// One whose ends have shaken hands.
    pub fn sealed(socket: Socket, session: Box<Session>) -> Self {
        Self { socket, session: Some(session) }
    }

    /// Ends it. What is left is not to be freed by a signal handler.
    pub fn close(self) -> Option<Box<Session>> {
        self.session
    }

    /// Whether another one is to take its place.
    pub fn is_worn(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.is_worn())
    }

    /// Sends all of it.
    ///
    /// # Errors
    /// The connection is broken; or what the server has said of us as it ended it.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(session) = &mut self.session else { return send(&self.socket, bytes) };
        for part in bytes.chunks(SEAL_BYTES) {
            if let Err(error) = send(&self.socket, session.seal(part)) {
                return Err(self.last_words().unwrap_or(error));
            }
        }
        Ok(())
    }

    /// Why the server has ended the connection, if it is about our certificate.
    fn last_words(&mut self) -> Option<io::Error> {
        let error = self.receive(&mut [0]).err()?;
        matches!(error.raw_os_error(), Some(libc::ENOKEY | libc::EKEYREJECTED)).then_some(error)
    }

    /// Receives at least one byte.
    ///
    /// # Errors
    /// As for [`Self::send`].
    pub fn receive(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Some(session) = &mut self.session else { return receive(&self.socket, into) };
        loop {
            let taken = session.take(into);
            if taken > 0 {
                return Ok(taken);
            }
            if session.open()? == Found::Nothing {
                let bytes = receive(&self.socket, session.room())?;
                session.received(bytes);
            }
        }
    }
}
