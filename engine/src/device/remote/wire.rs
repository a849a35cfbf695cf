//! One connection: commands go out and replies come in, through two buffers that are there from the start.
//!
//! What is here is called in signal handlers: it allocates nothing, and its system calls are the kernel's own, not the
//! C library's, which `run` stands in front of.
use super::line::{Line, connect};
use super::tls::Tls;
use super::tls::records::Session;
use crate::sys::PAGE_BYTES;
use crate::sys::mapping::Mapping;
use crate::sys::pages;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// Each of the two buffers: as much as a loopback passes in one call.
const BUFFER_BYTES: usize = 16 * PAGE_BYTES;

/// What is kept of an error's text: its code, and where to ask instead.
const REFUSAL_BYTES: usize = 160;

/// What begins the answer of a server that expected TLS: an alert of it.
const TLS_ALERT: u8 = 21;

/// A connection, or room for one.
pub struct Wire {
    line: Option<Line>,
    /// Of a connection that has ended: freed by the thread that makes the next one.
    spent: Option<Box<Session>>,
    /// Output before input.
    buffers: Mapping,
    filled: usize,
    read: usize,
    end: usize,
    refusal: Refusal,
}

/// The text of the last error that a server answered with.
pub struct Refusal {
    bytes: [u8; REFUSAL_BYTES],
    length: usize,
}

/// What a server has answered. A bulk's bytes are still to be taken, an array's replies to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It is done.
    Simple,
    /// A number.
    Number(i64),
    /// So many bytes, followed by an end of line.
    Bulk(usize),
    /// Nothing is there.
    Nothing,
    /// So many replies.
    Array(usize),
    /// An error, whose text is kept.
    Refused,
}

/// What a server has said that is not in the protocol.
pub fn nonsense() -> io::Error {
    io::Error::from_raw_os_error(libc::EREMOTEIO)
}

fn unconnected() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOTCONN)
}

impl Wire {
    /// Room for a connection; nothing is connected.
    ///
    /// # Errors
    /// No address space.
    pub fn new() -> io::Result<Self> {
        let buffers = Mapping::undumped(2 * BUFFER_BYTES)?;
        let refusal = Refusal { bytes: [0; REFUSAL_BYTES], length: 0 };
        Ok(Self { line: None, spent: None, buffers, filled: 0, read: 0, end: 0, refusal })
    }

    /// Whether there is a connection that goes on.
    pub fn is_open(&self) -> bool {
        self.line.as_ref().is_some_and(|line| !line.is_worn())
    }

    /// Connects to a server; by TLS if there is one.
    ///
    /// # Errors
    /// It is not there, or not the one that it should be.
    pub fn open(&mut self, to: SocketAddr, tls: Option<&Arc<Tls>>) -> io::Result<()> {
        self.close();
        self.line = Some(match tls {
            None => Line::plain(connect(to)?),
            Some(tls) => tls.dial(to, self.spent.take())?,
        });
        Ok(())
    }

    /// Ends the connection, and forgets what is in the buffers.
    pub fn close(&mut self) {
        if let Some(session) = self.line.take().and_then(Line::close) {
            self.spent = Some(session);
        }
        (self.filled, self.read, self.end) = (0, 0, 0);
    }

    /// What the last error said.
    pub fn refusal(&self) -> &Refusal {
        &self.refusal
    }

    fn output(&mut self) -> &mut [u8] {
        pages::view_mut(self.buffers.address(), BUFFER_BYTES)
    }

    fn input(&mut self) -> &mut [u8] {
        pages::view_mut(self.buffers.address() + BUFFER_BYTES, BUFFER_BYTES)
    }

    /// Begins a command of so many words.
    ///
    /// # Errors
    /// The connection is broken, as for all that follow.
    pub fn command(&mut self, words: usize) -> io::Result<()> {
        self.put(b"*")?;
        self.put_number(words as u64)?;
        self.put(b"\r\n")
    }

    /// The next word of a command.
    pub fn word(&mut self, word: &[u8]) -> io::Result<()> {
        self.put(b"$")?;
        self.put_number(word.len() as u64)?;
        self.put(b"\r\n")?;
        self.put(word)?;
        self.put(b"\r\n")
    }

    /// The same, a number.
    pub fn number(&mut self, number: u64) -> io::Result<()> {
        let mut digits = [0; 20];
        self.word(written(number, &mut digits))
    }

    /// A command whose words are all texts.
    pub fn say(&mut self, words: &[&[u8]]) -> io::Result<()> {
        self.command(words.len())?;
        words.iter().try_for_each(|word| self.word(word))
    }

    fn put_number(&mut self, number: u64) -> io::Result<()> {
        let mut digits = [0; 20];
        self.put(written(number, &mut digits))
    }

    /// Bytes to be sent, as they are.
    pub fn put(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            if self.filled == BUFFER_BYTES {
                self.flush()?;
            }
            let (filled, part) = (self.filled, bytes.len().min(BUFFER_BYTES - self.filled));
            self.output()[filled..filled + part].copy_from_slice(&bytes[..part]);
            self.filled += part;
            bytes = &bytes[part..];
        }
        Ok(())
    }

    /// Sends what is still in the buffer.
    pub fn flush(&mut self) -> io::Result<()> {
        let line = self.line.as_mut().ok_or_else(unconnected)?;
        line.send(pages::view(self.buffers.address(), self.filled))?;
        self.filled = 0;
        Ok(())
    }

    /// Has at least one byte more in the input.
    fn fill(&mut self) -> io::Result<()> {
        if self.read == self.end || self.end == BUFFER_BYTES {
            self.make_room();
        }
        let line = self.line.as_mut().ok_or_else(unconnected)?;
        let free = self.buffers.address() + BUFFER_BYTES + self.end;
        self.end += line.receive(pages::view_mut(free, BUFFER_BYTES - self.end))?;
        Ok(())
    }

    /// Moves what is still to be read to the front.
    fn make_room(&mut self) {
        let (read, end) = (self.read, self.end);
        self.input().copy_within(read..end, 0);
        (self.read, self.end) = (0, end - read);
    }

    /// The next line, without its end.
    ///
    /// # Errors
    /// The connection is broken, or the line is longer than any should be.
    pub fn line(&mut self) -> io::Result<&[u8]> {
        let mut looked = 0;
        let length = loop {
            let (read, end) = (self.read, self.end);
            let line = &self.input()[read..end];
            match line[looked..].windows(2).position(|pair| pair == b"\r\n") {
                Some(at) => break looked + at,
                None if line.first() == Some(&TLS_ALERT) => {
                    return Err(io::Error::from_raw_os_error(libc::EPROTO));
                }
                None => looked = line.len().saturating_sub(1),
            }
            self.fill()?;
        };
        let start = self.read;
        self.read += length + 2;
        Ok(pages::view(self.buffers.address() + BUFFER_BYTES + start, length))
    }

    /// The next reply.
    ///
    /// # Errors
    /// The connection is broken, or what comes is no reply.
    pub fn reply(&mut self) -> io::Result<Reply> {
        let line = self.line()?;
        let line = pages::view(line.as_ptr() as usize, line.len());
        let (kind, rest) = line.split_first().ok_or_else(nonsense)?;
        let number = || std::str::from_utf8(rest).ok().and_then(|text| text.parse::<i64>().ok());
        let number = || number().ok_or_else(nonsense);
        match kind {
            b'+' => Ok(Reply::Simple),
            b':' => Ok(Reply::Number(number()?)),
            b'$' => Ok(number()?.try_into().map_or(Reply::Nothing, Reply::Bulk)),
            b'*' => Ok(number()?.try_into().map_or(Reply::Nothing, Reply::Array)),
            b'-' => {
                let kept = rest.len().min(REFUSAL_BYTES);
                self.refusal.bytes[..kept].copy_from_slice(&rest[..kept]);
                self.refusal.length = kept;
                Ok(Reply::Refused)
            }
            _ => Err(nonsense()),
        }
    }

    /// Takes the bytes of a bulk, as many as `into` has, and the end of line behind them.
    pub fn take(&mut self, into: &mut [u8]) -> io::Result<()> {
        self.take_bytes(into)?;
        self.skip(2)
    }

    /// Takes as many bytes as `into` has.
    pub fn take_bytes(&mut self, into: &mut [u8]) -> io::Result<()> {
        let (read, here) = (self.read, into.len().min(self.end - self.read));
        into[..here].copy_from_slice(&self.input()[read..read + here]);
        self.read += here;
        let mut done = here;
        while done < into.len() {
            // The buffer is empty: what is large enough comes straight to its place, but for the last page of all,
            // with which the next reply comes, too.
            self.fill()?;
            let (read, here) = (self.read, (into.len() - done).min(self.end - self.read));
            into[done..done + here].copy_from_slice(&self.input()[read..read + here]);
            self.read += here;
            done += here;
        }
        Ok(())
    }

    /// A bulk of a few lines, as a whole, and the end of line behind it passed over.
    pub fn bulk(&mut self, bytes: usize) -> io::Result<&[u8]> {
        if bytes + 2 > BUFFER_BYTES {
            return Err(nonsense());
        }
        while self.end - self.read < bytes + 2 {
            self.make_room();
            self.fill()?;
        }
        let start = self.read;
        self.read += bytes + 2;
        Ok(pages::view(self.buffers.address() + BUFFER_BYTES + start, bytes))
    }

    /// Passes over bytes of a bulk.
    pub fn skip(&mut self, mut bytes: usize) -> io::Result<()> {
        loop {
            let here = bytes.min(self.end - self.read);
            self.read += here;
            bytes -= here;
            if bytes == 0 {
                return Ok(());
            }
            self.fill()?;
        }
    }
}

impl Refusal {
    /// Its text.
    pub fn text(&self) -> &str {
        let bytes = &self.bytes[..self.length];
        std::str::from_utf8(bytes).unwrap_or_else(|error| {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default()
        })
    }

    /// Whether it will be another in a while.
    pub fn is_passing(&self) -> bool {
        self.error().raw_os_error() == Some(libc::EAGAIN)
    }

    /// The error number that says the same.
    pub fn error(&self) -> io::Error {
        let code = match self.text().split(' ').next().unwrap_or_default() {
            "OOM" => libc::ENOSPC,
            // It will be there in a moment, or another server takes its place.
            "LOADING" | "BUSY" | "TRYAGAIN" | "CLUSTERDOWN" | "MASTERDOWN" | "READONLY" => {
                libc::EAGAIN
            }
            // A password is given, and it has none.
            _ if self.text().starts_with("ERR AUTH") => libc::EKEYREVOKED,
            "NOAUTH" | "WRONGPASS" | "NOPERM" => libc::EACCES,
            // A key of ours is no hash: what was written is not there any more, as where the key is gone.
            "WRONGTYPE" => libc::ENODATA,
            _ => libc::EREMOTEIO,
        };
        io::Error::from_raw_os_error(code)
    }
}

/// The digits of a number.
fn written(mut number: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[start..];
        }
    }
}
