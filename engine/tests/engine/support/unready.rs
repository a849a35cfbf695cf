//! What stands in front of a server, and says now and then that it is not ready: 503.
use super::front::{behind, front};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// It ends with the test.
pub struct Unready {
    pub port: u16,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    refuses: AtomicBool,
    refused: AtomicU32,
    open: Mutex<Vec<TcpStream>>,
}

impl Unready {
    /// In front of the server on a port.
    pub fn start(server: u16) -> Self {
        let shared = Arc::new(Shared::default());
        let ours = shared.clone();
        let port = front(move |client| ours.serve(client, server));
        Self { port, shared }
    }

    /// Whether it refuses everything from now on, or nothing; connections end with the change.
    pub fn refuse(&self, everything: bool) {
        self.shared.refuses.store(everything, Ordering::SeqCst);
        for stream in self.shared.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// How many requests it has refused.
    pub fn refused(&self) -> u32 {
        self.shared.refused.load(Ordering::SeqCst)
    }
}

impl Shared {
    fn serve(&self, mut client: TcpStream, server: u16) {
        if self.refuses.load(Ordering::SeqCst) {
            self.refuse(client);
            return;
        }
        let mut server = behind(&client, server);
        let streams = [client.try_clone().unwrap(), server.try_clone().unwrap()];
        self.open.lock().unwrap().extend(streams);
        let _ = std::io::copy(&mut client, &mut server);
        let _ = server.shutdown(Shutdown::Both);
    }

    /// Hears a request to its end, so that the answer is read, too.
    fn refuse(&self, mut client: TcpStream) {
        let (mut heard, mut part) = (Vec::new(), [0; 1 << 16]);
        let mut wanted = None;
        while wanted.is_none_or(|wanted| heard.len() < wanted) {
            match client.read(&mut part) {
                Ok(count) if count > 0 => heard.extend_from_slice(&part[..count]),
                _ => return,
            }
            if let Some(end) = heard.windows(4).position(|four| four == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&heard[..end]).into_owned();
                let bytes = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                wanted = Some(end + 4 + bytes.unwrap().parse::<usize>().unwrap());
            }
        }
        self.refused.fetch_add(1, Ordering::SeqCst);
        let said = "HTTP/1.1 503 Slow Down\r\ncontent-length: 5\r\nconnection: close\r\n\r\nsorry";
        let _ = client.write_all(said.as_bytes());
    }
}
