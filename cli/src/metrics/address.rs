//! Where metrics are served: an address of this machine, or a socket that only this user can open.

use std::fmt;
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use rustix::fs::Mode;
use rustix::process::umask;
use userswap::internals::directory;

use crate::failure::Failure;

/// As it is named on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// `127.0.0.1:9877`, `[::1]:9877`, or only a port of the loopback address.
    Tcp(SocketAddr),
    /// `unix:PATH`
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Self::Unix(path.into()));
        }
        let loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let address = text.parse().or_else(|_| text.parse().map(loopback)).map_err(|_| {
            format!("\"{text}\" is no address: use one such as 127.0.0.1:9877, 9877 or unix:/run/userswap.sock")
        })?;
        Ok(Self::Tcp(address))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "http://{address}/metrics"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// What connections come in by; dropping it removes its socket's name.
pub enum Listener {
    Tcp(TcpListener),
    Unix { listener: UnixListener, path: PathBuf, inode: u64 },
}

/// A connection to somebody who wants metrics.
pub trait Connection: Read + Write + Send {}

impl Connection for TcpStream {}
impl Connection for UnixStream {}

impl Listener {
    /// Listens at an address.
    ///
    /// # Errors
    /// It is taken, or not ours to take.
    pub fn new(address: &Address) -> Result<Listener, Failure> {
        let listening = match address {
            Address::Tcp(address) => TcpListener::bind(address).map(Self::Tcp),
            Address::Unix(path) => Self::unix(path.clone()),
        };
        let refuse = |error: io::Error| {
            let remedy = match (address, error.kind()) {
                (_, ErrorKind::AddrInUse) => "choose another one",
                (Address::Tcp(_), _) => "choose an address of this machine and a port from 1024 on",
                (Address::Unix(_), _) => "choose a path in a directory that you can write to",
            };
            Failure::unavailable(format!("--listen: {address}: {error}: {remedy}"))
        };
        let listener = listening.map_err(refuse)?;
        match &listener {
            Self::Tcp(tcp) => tcp.set_nonblocking(true),
            Self::Unix { listener, .. } => listener.set_nonblocking(true),
        }
        .map_err(refuse)?;
        Ok(listener)
    }

    fn unix(path: PathBuf) -> io::Result<Self> {
        // What a killed process has left refuses connections; anything else is not ours to remove.
        let is_socket =
            fs::symlink_metadata(&path).is_ok_and(|found| found.file_type().is_socket());
        let refuses = |error: io::Error| error.kind() == ErrorKind::ConnectionRefused;
        if is_socket && directory::connect(&path).is_err_and(refuses) {
            fs::remove_file(&path)?;
        }
        // From the first moment on nobody else can connect; there is no other thread yet.
        let before = umask(Mode::RWXG | Mode::RWXO | Mode::XUSR);
        let listener = UnixListener::bind(&path);
        umask(before);
        let inode = fs::symlink_metadata(&path).map(|found| found.ino());
        Ok(Self::Unix { listener: listener?, path, inode: inode? })
    }

    /// Where it really listens: port 0 is any that is free.
    pub fn address(&self) -> Address {
        match self {
            Self::Tcp(listener) => Address::Tcp(listener.local_addr().expect("it listens")),
            Self::Unix { path, .. } => Address::Unix(path.clone()),
        }
    }

    /// The next connection, if there is one, which waits at most as long for bytes.
    ///
    /// # Errors
    /// Nobody is there any more.
    pub fn accept(&self, patience: Duration) -> io::Result<Box<dyn Connection>> {
        let patience = Some(patience);
        Ok(match self {
            Self::Tcp(listener) => {
                let stream = listener.accept()?.0;
                stream
                    .set_read_timeout(patience)
                    .and_then(|()| stream.set_write_timeout(patience))?;
                Box::new(stream)
            }
            Self::Unix { listener, .. } => {
                let stream = listener.accept()?.0;
                stream
                    .set_read_timeout(patience)
                    .and_then(|()| stream.set_write_timeout(patience))?;
                Box::new(stream)
            }
        })
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix { listener, .. } => listener.as_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let Self::Unix { path, inode, .. } = self else { return };
        let is_ours = |found: Metadata| found.ino() == *inode;
        if fs::symlink_metadata(&*path).is_ok_and(is_ours) {
            let _ = fs::remove_file(path);
        }
    }
}
