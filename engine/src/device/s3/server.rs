//! Requests to a store of objects, by connections that stay open: HTTP, as much of it as such stores speak.
//!
//! What is read in signal handlers is here: nothing on the way of a page allocates.
use super::sign::{Hex, Moment, NOTHING, Range, Request, Signer};
use crate::device::remote::tls::Tls;
use crate::device::remote::wire::Wire;
use crate::sys::lock::{Guard, Lock};
use crate::sys::request::{Piece, Pieces};
use crate::sys::{PAGE_BYTES, pages};
use ring::digest::{SHA256, digest};
use std::fmt::{self, Display, Write};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Connections: more threads than that wait for each other.
const WIRES: usize = 8;

/// The longest list that is read.
const TEXT_MAX: u64 = 16 << 20;

/// A store.
pub struct Server {
    address: SocketAddr,
    tls: Option<Arc<Tls>>,
    signer: Signer,
    wires: Box<[Lock<Wire>]>,
    /// Which one is waited for where all are in use.
    turn: AtomicUsize,
}

/// What a store has answered, before what comes with it.
#[derive(Clone, Copy, Debug)]
struct Answer {
    status: u16,
    /// Bytes that follow; None where that is not said before.
    bytes: Option<u64>,
    /// They come in chunks, each after its length.
    is_chunked: bool,
    /// The connection ends with it.
    is_last: bool,
}

/// A text, and when it was said.
pub struct Said {
    /// The text.
    pub text: String,
    /// The store's clock, as it writes it.
    pub date: String,
}

/// A request, and what is done with the answer.
struct Exchange<'a> {
    request: &'a Request<'a>,
    /// What is sent with it.
    content: &'a [u8],
    /// Where the store's clock is noted, if anybody asks.
    date: Option<&'a mut String>,
    /// Takes what comes with an answer that is no refusal.
    take: &'a mut dyn FnMut(&mut Wire, Answer) -> io::Result<()>,
}

/// Some of the pages of a request's memory.
#[derive(Clone, Copy)]
pub struct Part<'a> {
    /// The memory.
    pub pieces: &'a Pieces,
    /// Pages of it that are left out.
    pub skip: usize,
    /// Pages after those.
    pub count: usize,
}

impl Part<'_> {
    /// Where they are.
    pub fn pages(&self) -> impl Iterator<Item = usize> {
        let pages = |piece: Piece| {
            (0..piece.bytes / PAGE_BYTES).map(move |page| piece.address + page * PAGE_BYTES)
        };
        self.pieces.iter().flat_map(pages).skip(self.skip).take(self.count)
    }
}

/// Formatting goes to a connection.
struct Head<'a> {
    wire: &'a mut Wire,
    outcome: io::Result<()>,
}

impl Write for Head<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.outcome = self.wire.put(text.as_bytes());
        self.outcome.as_ref().map_or(Err(fmt::Error), |()| Ok(()))
    }
}

impl Server {
    /// A store at an address, to which nothing is connected; by TLS if there is one.
    ///
    /// # Errors
    /// No address space.
    pub fn new(address: SocketAddr, tls: Option<Arc<Tls>>, signer: Signer) -> io::Result<Self> {
        let wires = (0..WIRES).map(|_| Wire::new().map(Lock::new)).collect::<io::Result<_>>()?;
        Ok(Self { address, tls, signer, wires, turn: AtomicUsize::new(0) })
    }

    /// Closes the connections that nobody uses.
    pub fn disconnect(&self) {
        self.wires.iter().filter_map(Lock::try_lock).for_each(|mut wire| wire.close());
    }

    /// Reads consecutive pages of an object, from a page of it on.
    ///
    /// # Errors
    /// NotFound where there is no such object; what the store or the way to it says.
    pub fn read(&self, path: &dyn Display, first: u32, part: Part) -> io::Result<()> {
        let begin = u64::from(first) * PAGE_BYTES as u64;
        let bytes = part.count as u64 * PAGE_BYTES as u64;
        let range = Some(Range { first: begin, last: begin + bytes - 1 });
        let request = Request { method: "GET", path, query: "", range, content: NOTHING };
        let mut take = |wire: &mut Wire, answer: Answer| {
            if (answer.status, answer.bytes) != (206, Some(bytes)) || answer.is_chunked {
                return Err(nonsense());
            }
            part.pages().try_for_each(|page| wire.take_bytes(pages::view_mut(page, PAGE_BYTES)))
        };
        let (request, content) = (&request, [].as_slice());
        self.converse(&mut Exchange { request, content, date: None, take: &mut take })
    }

    /// Writes an object.
    ///
    /// # Errors
    /// What the store or the way to it says; whether it is there then is not known.
    pub fn write(&self, path: &dyn Display, content: &[u8]) -> io::Result<()> {
        let hash = digest(&SHA256, content);
        let hash = Hex(hash.as_ref()).to_string();
        let request = Request { method: "PUT", path, query: "", range: None, content: &hash };
        let (request, take) = (&request, &mut pass_over);
        self.converse(&mut Exchange { request, content, date: None, take })
    }

    /// Deletes an object, if there is one.
    ///
    /// # Errors
    /// As for [`Self::write`].
    pub fn delete(&self, path: &dyn Display) -> io::Result<()> {
        let request = Request { method: "DELETE", path, query: "", range: None, content: NOTHING };
        let (request, content, take) = (&request, [].as_slice(), &mut pass_over);
        match self.converse(&mut Exchange { request, content, date: None, take }) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            outcome => outcome,
        }
    }

    /// Reads a text.
    ///
    /// # Errors
    /// As for [`Self::read`].
    pub fn ask(&self, path: &dyn Display, query: &str) -> io::Result<Said> {
        let request = Request { method: "GET", path, query, range: None, content: NOTHING };
        let (mut bytes, mut date) = (Vec::new(), String::new());
        let mut take = |wire: &mut Wire, answer: Answer| {
            bytes.clear();
            read_all(wire, answer, &mut bytes)
        };
        let (request, content) = (&request, [].as_slice());
        self.converse(&mut Exchange { request, content, date: Some(&mut date), take: &mut take })?;
        let text = String::from_utf8(bytes).map_err(|_| nonsense())?;
        Ok(Said { text, date })
    }

    /// Asks and is answered, by a connection that nobody else uses meanwhile; once more by a new one where the first turns
    /// out to have been closed while nobody used it. Every request can be repeated: objects do not change.
    fn converse(&self, exchange: &mut Exchange) -> io::Result<()> {
        let mut wire = self.claim();
        let was_open = wire.is_open();
        let mut outcome = self.talk(&mut wire, exchange);
        if was_open && outcome.as_ref().is_err_and(is_closed) {
            outcome = self.talk(&mut wire, exchange);
        }
        outcome
    }

    fn claim(&self) -> Guard<'_, Wire> {
        let free = self.wires.iter().find_map(Lock::try_lock);
        free.unwrap_or_else(|| {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed);
            self.wires[turn % WIRES].lock()
        })
    }

    fn talk(&self, wire: &mut Wire, exchange: &mut Exchange) -> io::Result<()> {
        if !wire.is_open() {
            wire.open(self.address, self.tls.as_ref())?;
        }
        let said = self.say(wire, exchange.request, exchange.content);
        let outcome = said.and_then(|()| hear(wire, exchange.date.as_deref_mut()));
        let answer = match outcome {
            Ok(answer) => answer,
            Err(error) => {
                wire.close();
                return Err(error);
            }
        };
        let is_refusal = !(200..300).contains(&answer.status);
        let heard = match is_refusal {
            true => pass_over(wire, answer),
            false => (exchange.take)(wire, answer),
        };
        // What was not heard to its end would be taken for the next answer.
        if heard.is_err() || answer.is_last || !is_bounded(answer) {
            wire.close();
        }
        if is_refusal { Err(error_of(answer.status)) } else { heard }
    }

    fn say(&self, wire: &mut Wire, request: &Request, content: &[u8]) -> io::Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let mut head = Head { wire, outcome: Ok(()) };
        let written = self.signer.write(&mut head, request, Moment { seconds: now });
        let written =
            written.and_then(|()| write!(head, "content-length: {}\r\n\r\n", content.len()));
        if written.is_err() {
            return head.outcome.and(Err(nonsense()));
        }
        wire.put(content)?;
        wire.flush()
    }
}

/// Whether it is known where an answer ends.
fn is_bounded(answer: Answer) -> bool {
    answer.bytes.is_some() || answer.is_chunked || answer.status == 204
}

/// Reads an answer's head.
fn hear(wire: &mut Wire, mut date: Option<&mut String>) -> io::Result<Answer> {
    let line = wire.line()?;
    let rest = line.strip_prefix(b"HTTP/1.").ok_or_else(nonsense)?;
    let status = rest.get(2..5).and_then(number_of).ok_or_else(nonsense)? as u16;
    let is_last = rest[0] == b'0';
    let mut answer = Answer { status, bytes: None, is_chunked: false, is_last };
    loop {
        let line = wire.line()?;
        if line.is_empty() {
            return Ok(answer);
        }
        let colon = line.iter().position(|byte| *byte == b':').ok_or_else(nonsense)?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"content-length") {
            answer.bytes = Some(number_of(value).ok_or_else(nonsense)?);
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            answer.is_chunked = value.eq_ignore_ascii_case(b"chunked");
        } else if name.eq_ignore_ascii_case(b"connection") {
            answer.is_last |= value.eq_ignore_ascii_case(b"close");
        } else if name.eq_ignore_ascii_case(b"date")
            && let Some(date) = &mut date
        {
            date.clear();
            date.push_str(&String::from_utf8_lossy(value));
        }
    }
}

fn number_of(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// What comes is of no interest.
fn pass_over(wire: &mut Wire, answer: Answer) -> io::Result<()> {
    if answer.is_chunked {
        return in_chunks(wire, &mut |wire, bytes| wire.skip(bytes));
    }
    match answer.bytes.unwrap_or(0) {
        bytes if bytes <= TEXT_MAX => wire.skip(bytes as usize),
        _ => Err(nonsense()),
    }
}

/// Reads all that comes.
fn read_all(wire: &mut Wire, answer: Answer, to: &mut Vec<u8>) -> io::Result<()> {
    let mut take = |wire: &mut Wire, bytes: usize| {
        let before = to.len();
        if (before + bytes) as u64 > TEXT_MAX {
            return Err(nonsense());
        }
        to.resize(before + bytes, 0);
        wire.take_bytes(&mut to[before..])
    };
    match (answer.is_chunked, answer.bytes) {
        (true, _) => in_chunks(wire, &mut take),
        (false, Some(bytes)) if bytes <= TEXT_MAX => take(wire, bytes as usize),
        _ => Err(nonsense()),
    }
}

fn in_chunks(
    wire: &mut Wire,
    take: &mut dyn FnMut(&mut Wire, usize) -> io::Result<()>,
) -> io::Result<()> {
    loop {
        let line = wire.line()?;
        let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
        let digits = std::str::from_utf8(digits.trim_ascii()).map_err(|_| nonsense())?;
        let bytes = usize::from_str_radix(digits, 16).map_err(|_| nonsense())?;
        if bytes == 0 {
            break;
        }
        if bytes as u64 > TEXT_MAX {
            return Err(nonsense());
        }
        take(wire, bytes)?;
        wire.skip(2)?;
    }
    // Whatever headers follow.
    while !wire.line()?.is_empty() {}
    Ok(())
}

/// The error number that says what a store says.
fn error_of(status: u16) -> io::Error {
    io::Error::from_raw_os_error(match status {
        404 => libc::ENOENT,
        401 | 403 => libc::EACCES,
        // Ask again, more slowly.
        408 | 429 | 500 | 502 | 503 | 504 => libc::EAGAIN,
        507 => libc::ENOSPC,
        300..=399 => libc::EREMCHG,
        _ => libc::EREMOTEIO,
    })
}

fn nonsense() -> io::Error {
    io::Error::from_raw_os_error(libc::EREMOTEIO)
}

/// Whether the other side has closed the connection.
fn is_closed(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ECONNRESET | libc::EPIPE | libc::ECONNABORTED))
}
