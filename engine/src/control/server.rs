//! The control thread: lets clients in, each to a thread of its own.
//!
//! A swapoff or a slow device keeps one client waiting, not the others. Descriptors are made and closed
//! inside the gate: a fork meets either none or one that is in the table, and its child closes what is in
//! the table.
use super::connection::{self, Connection, Stop};
use super::directory;
use super::protocol::Answer;
use super::requests;
use crate::base::error::Error;
use crate::state::core::Core;
use crate::sys::own_fd::Own;
use crate::sys::thread::Thread;
use crate::sys::{fd, peer};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// Connections at once; one more client is told to try again later.
pub const CONNECTIONS_MAX: usize = 8;
/// How the refusal of one more client ends.
pub const TRY_AGAIN: &str = "try again later";
/// Pause after an accept that failed, in ms: without descriptors or memory it is no use trying again at once.
const REST_MS: i32 = 100;
/// The descriptors of all connections, to be closed in a child.
#[derive(Debug)]
pub struct Connections {
    fds: [AtomicI32; CONNECTIONS_MAX],
}

/// No descriptor.
const NONE: RawFd = -1;

impl Default for Connections {
    fn default() -> Self {
        Self { fds: [const { AtomicI32::new(NONE) }; CONNECTIONS_MAX] }
    }
}

impl Connections {
    /// In a forked child: the connections are the parent's.
    pub fn close_inherited(&self) {
        for fd in &self.fds {
            let fd = fd.swap(NONE, Ordering::Relaxed);
            if fd != NONE {
                fd::close_inherited(fd);
            }
        }
    }

    /// Notes a connection; None when there are too many. Only the control thread does this.
    fn add(&self, fd: RawFd) -> Option<()> {
        let free = self.fds.iter().find(|entry| entry.load(Ordering::Relaxed) == NONE);
        free.map(|entry| entry.store(fd, Ordering::Relaxed))
    }

    fn remove(&self, fd: RawFd) {
        let own = self.fds.iter().find(|entry| entry.load(Ordering::Relaxed) == fd);
        own.expect("an open connection is in the table").store(NONE, Ordering::Relaxed);
    }
}

/// What the threads of one engine's control have in common.
pub struct Shared {
    /// The engine.
    pub core: Arc<Core>,
    /// The socket; accepting never blocks.
    pub listener: Own<UnixListener>,
    /// Ends all threads.
    pub stop: Stop,
    /// The open connections.
    pub connections: Arc<Connections>,
    /// A client has a device emptied.
    pub swapoff_under_way: AtomicBool,
}

/// A client that was let in.
struct Client {
    shared: Arc<Shared>,
    /// Taken only to be dropped.
    stream: Option<Own<UnixStream>>,
}

impl Drop for Client {
    fn drop(&mut self) {
        let Some(stream) = self.stream.take() else { return };
        let _inside = self.shared.core.gate.enter();
        self.shared.connections.remove(stream.as_raw_fd());
        drop(stream);
    }
}

/// Starts the control thread; the caller has signals blocked.
///
/// # Errors
/// The system starts no thread.
pub fn start(shared: Arc<Shared>) -> Result<Thread, Error> {
    Thread::spawn("userswap-contro", move || run(&shared)).map_err(Error::Thread)
}

fn run(shared: &Arc<Shared>) {
    let mut clients: Vec<Thread> = Vec::new();
    let stop = shared.stop.event.as_raw_fd();
    while !shared.stop.is_now() {
        clients.extract_if(.., |client| client.has_ended()).for_each(Thread::join);
        match let_in(shared) {
            Ok(Some(client)) => clients.extend(start_client(client)),
            Ok(None) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                fd::poll(&[shared.listener.as_raw_fd(), stop, -1], -1);
            }
            Err(_) => {
                fd::poll(&[stop, -1, -1], REST_MS);
            }
        }
    }
    clients.into_iter().for_each(Thread::join);
}

/// The next client, if it is one of the same user or root and there are not too many.
fn let_in(shared: &Arc<Shared>) -> io::Result<Option<Client>> {
    let inside = shared.core.gate.enter();
    let outcome = shared.listener.accept().map(|(stream, _)| {
        let stream = Own::raised(stream);
        match admit(shared, &stream) {
            Ok(()) => Some(stream),
            Err(refusal) => {
                // Whether it still listens or not, it does not come in.
                let _ = connection::send_if_room(&stream, &Answer::error(refusal));
                None
            }
        }
    });
    drop(inside);
    let stream = outcome?;
    Ok(stream.map(|stream| Client { shared: shared.clone(), stream: Some(stream) }))
}

fn admit(shared: &Shared, stream: &UnixStream) -> Result<(), String> {
    let peer = peer::of(stream).map_err(|error| error.to_string())?.user;
    let (own, root) = (directory::user(), 0);
    if peer != own && peer != root {
        return Err(format!("this program belongs to user {own}: ask as that user or as root"));
    }
    match shared.connections.add(stream.as_raw_fd()) {
        Some(()) => Ok(()),
        None => Err(format!("{CONNECTIONS_MAX} clients are connected already: {TRY_AGAIN}")),
    }
}

fn start_client(client: Client) -> Option<Thread> {
    // Without a thread the client finds its connection closed.
    Thread::spawn("userswap-client", move || talk(&client)).ok()
}

fn talk(client: &Client) {
    let stream = client.stream.as_ref().expect("a client has a stream until it is dropped");
    if let Ok(mut connection) = Connection::new(stream, &client.shared.stop) {
        requests::serve(&client.shared, &mut connection);
    }
}
