//! What stands between a client and a server, and can hold back what the client has said.
use super::front::{behind, front};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// A proxy; it ends with the test.
pub struct Proxy {
    pub port: u16,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    connections: AtomicU32,
    /// What comes on connections with a lower number is held back.
    held_below: AtomicU32,
    /// How many have been.
    held: AtomicU32,
    released: AtomicBool,
    /// How many of them were passed on at last, or could not be.
    passed_on: AtomicU32,
}

impl Proxy {
    /// In front of the server on a port.
    pub fn start(server: u16) -> Self {
        let shared = Arc::new(Shared::default());
        let ours = shared.clone();
        let port = front(move |client| ours.pass(client, server));
        Self { port, shared }
    }

    /// From now on holds back what comes on the connections that there are; others pass.
    pub fn hold(&self) {
        let there = self.shared.connections.load(Ordering::SeqCst);
        self.shared.held_below.store(there, Ordering::SeqCst);
    }

    /// How many connections something was held back of.
    pub fn held(&self) -> u32 {
        self.shared.held.load(Ordering::SeqCst)
    }

    /// Passes on what was held back, and returns when the server has heard it.
    pub fn release(&self, server: &super::Redis) {
        self.shared.released.store(true, Ordering::SeqCst);
        super::eventually("all is passed on", || {
            self.shared.passed_on.load(Ordering::SeqCst) == self.held()
        });
        // It looks at all connections that have something to say before it answers a new one.
        assert_eq!(server.say("PING"), "PONG");
    }
}

impl Shared {
    fn pass(&self, mut client: TcpStream, server: u16) {
        let number = self.connections.fetch_add(1, Ordering::SeqCst);
        let mut server = behind(&client, server);
        let (mut bytes, mut held) = (vec![0; 1 << 16], Vec::new());
        while let Ok(count @ 1..) = client.read(&mut bytes) {
            if number < self.held_below.load(Ordering::SeqCst) {
                self.held.fetch_add(u32::from(held.is_empty()), Ordering::SeqCst);
                held.extend_from_slice(&bytes[..count]);
            } else if server.write_all(&bytes[..count]).is_err() {
                return;
            }
        }
        if !held.is_empty() {
            super::eventually("it is released", || self.released.load(Ordering::SeqCst));
            // The server may have ended the connection. What it answers goes where nobody listens any more.
            let _ = server.write_all(&held);
            self.passed_on.fetch_add(1, Ordering::SeqCst);
        }
        let _ = server.shutdown(Shutdown::Write);
    }
}
