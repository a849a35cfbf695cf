//! The control socket: how an engine is asked and told things while its program runs.
//!
//! An engine listens in a private directory under its process's number (`directory`, `socket`); the
//! control thread lets the same user and root in (`server`), and each client's requests (`protocol`, one
//! line of JSON each) are answered by a thread of its own (`connection`, `requests`, `settings`). A program's own thread asks
//! another's (`other`).
//!
//! These threads are inside a program that knows nothing of them. They never touch managed memory, take the engine's
//! locks only inside the gate, have all signals blocked, and use descriptors that are out of the program's way. Each of
//! their waits has an end, and only the end of the engine waits for them.
pub mod collect;
mod connection;
pub mod directory;
pub mod other;
pub mod protocol;
mod requests;
mod server;
pub mod settings;
mod socket;

pub use server::CONNECTIONS_MAX;

use crate::base::error::Error;
use crate::state::core::Core;
use crate::sys::fd;
use crate::sys::own_fd::Own;
use crate::sys::signal::Blocked;
use crate::sys::thread::Thread;
use connection::Stop;
use server::{Connections, Shared};
use socket::Socket;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// The control of one engine, started or not.
#[derive(Default)]
pub(crate) struct Control {
    connections: Arc<Connections>,
    server: Mutex<Option<Server>>,
}

struct Server {
    shared: Arc<Shared>,
    socket: Socket,
    /// None where a child could not start one.
    thread: Option<Thread>,
    /// There is to be a thread again.
    is_paused: bool,
}

impl Control {
    /// Listens in the first of `candidates` that is private, or can be made.
    ///
    /// # Errors
    /// There is none, or no socket, descriptor or thread can be made.
    pub fn start(&self, core: &Arc<Core>, candidates: &[PathBuf]) -> Result<(), Error> {
        let _blocked = Blocked::new();
        let directory = directory::choose(candidates).map_err(Error::ControlDirectory)?;
        let (listener, socket) = listen(&directory)?;
        let shared = Arc::new(Shared {
            core: core.clone(),
            listener,
            stop: Stop::new().map_err(Error::Tables)?,
            connections: self.connections.clone(),
            swapoff_under_way: AtomicBool::new(false),
        });
        let thread = match server::start(shared.clone()) {
            Ok(thread) => Some(thread),
            Err(error) => {
                socket.withdraw();
                return Err(error);
            }
        };
        let mut server = self.server.lock().expect("nobody panics with the server");
        *server = Some(Server { shared, socket, thread, is_paused: false });
        Ok(())
    }

    /// In a forked child: a socket and a thread of its own, under the descriptors that it inherited. The parent's
    /// connections are closed here; its socket in the file system stays.
    ///
    /// # Errors
    /// No socket, descriptor or thread can be made: the child cannot be reached.
    pub fn renew(&self) -> Result<(), Error> {
        let mut server = self.server.lock().expect("the lock was free at fork");
        self.connections.close_inherited();
        let Some(server) = server.as_mut() else { return Ok(()) };
        // Not dropped: that would detach a thread that was never in this process.
        std::mem::forget(server.thread.take());
        let shared = &server.shared;
        shared.swapoff_under_way.store(false, Ordering::Relaxed);
        let stop = Stop::new().map_err(Error::Tables)?;
        replace(shared.stop.event.as_raw_fd(), stop.event.as_raw_fd())?;
        // Should there be no new one: the descriptor stays ours, and no socket listens under it.
        replace(shared.listener.as_raw_fd(), stop.event.as_raw_fd())?;
        let directory = server.socket.path.parent().expect("a socket is in a directory").to_owned();
        let (listener, socket) = listen(&directory).or_else(|_| {
            // The process may have become another user since.
            let candidates = directory::candidates(directory::user(), |_| None);
            listen(&directory::choose(&candidates).map_err(Error::ControlDirectory)?)
        })?;
        replace(shared.listener.as_raw_fd(), listener.as_raw_fd())?;
        server.socket = socket;
        server.thread = Some(server::start(server.shared.clone())?);
        Ok(())
    }

    /// The path of the socket, if there is one.
    pub fn socket(&self) -> Option<PathBuf> {
        let server = self.server.lock().expect("nobody panics with the server");
        server.as_ref().map(|server| server.socket.path.clone())
    }

    /// Removes the socket's name, unless another thread holds the lock: the process is about to end, in whatever state.
    pub fn withdraw(&self) {
        if let Ok(server) = self.server.try_lock()
            && let Some(server) = server.as_ref()
        {
            server.socket.withdraw();
        }
    }

    /// Ends the threads, as [`Self::stop`] does; the socket stays.
    pub fn pause(&self) {
        let mut server = self.server.lock().expect("nobody panics with the server");
        let Some(server) = server.as_mut() else { return };
        server.is_paused = server.thread.is_some();
        server.shared.stop.signal();
        server.thread.take().into_iter().for_each(Thread::join);
    }

    /// Lets clients in again.
    ///
    /// # Errors
    /// The system starts no thread.
    pub fn resume(&self) -> Result<(), Error> {
        let mut server = self.server.lock().expect("nobody panics with the server");
        let Some(server) = server.as_mut() else { return Ok(()) };
        server.shared.stop.clear();
        if !std::mem::take(&mut server.is_paused) {
            return Ok(());
        }
        server.thread = Some(server::start(server.shared.clone())?);
        Ok(())
    }

    /// Removes the socket and ends the threads; a swapoff that is under way is cancelled.
    pub fn stop(&mut self) {
        let server = self.server.get_mut().expect("nobody panics with the server").take();
        let Some(server) = server else { return };
        server.socket.withdraw();
        server.shared.stop.signal();
        if let Some(thread) = server.thread {
            thread.join();
        }
    }
}

fn listen(directory: &Path) -> Result<(Own<UnixListener>, Socket), Error> {
    let refuse = |source| Error::ControlSocket { directory: directory.to_owned(), source };
    let (listener, socket) = Socket::bind(directory).map_err(refuse)?;
    Ok((Own::raised(listener), socket))
}

fn replace(old: RawFd, new: RawFd) -> Result<(), Error> {
    fd::replace(old, new).map_err(Error::Tables)
}
