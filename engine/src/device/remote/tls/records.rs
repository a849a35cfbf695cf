//! What goes over a connection once hands are shaken: records of TLS 1.3 (RFC 8446, 5), sealed and opened by `ring`.
//!
//! The library that shakes hands allocates for each record, which a fault by signal may not. So it hands over its keys, and
//! what is left is this: a header of five bytes, at most 16 KiB and a tag, under numbers that count up. Whatever is not
//! as it should be ends the connection, and another one takes its place: keys are never changed on one (KeyUpdate),
//! tickets are not used.
use crate::sys::PAGE_BYTES;
use crate::sys::mapping::Mapping;
use crate::sys::pages;
use ring::aead::{self, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use rustls::{ConnectionTrafficSecrets, ExtractedSecrets};
use std::io;
use std::ops::Range;

/// The most that one record carries.
const CONTENT_BYTES: usize = 1 << 14;

/// Kind, version and length.
const HEADER_BYTES: usize = 5;

/// What a record may be longer than its content: its real kind, its tag, and padding.
const EXTRA_BYTES: usize = 256;

/// What ours is longer.
const SEALED_EXTRA_BYTES: usize = HEADER_BYTES + 1 + 16;

/// The most that is sealed at once.
pub const SEAL_BYTES: usize = 4 * CONTENT_BYTES;

/// Room for that.
const OUTPUT_BYTES: usize = SEAL_BYTES + PAGE_BYTES;
const _: () = assert!(4 * SEALED_EXTRA_BYTES <= PAGE_BYTES);

/// Room for what comes: more than one call receives, and always a record.
const INPUT_BYTES: usize = 96 << 10;

/// Records under one key, after which there is another connection; RFC 8446 allows 24 million with AES-GCM.
const RECORDS_MAX: u64 = 1 << 23;

/// Kinds of records.
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;

/// Both directions of a connection. It is large, and the stack of a signal handler is small: it stays in its box, which only a
/// thread that may free memory lets go of (`wire`).
pub struct Session {
    sending: Half,
    receiving: Half,
    /// Output before input.
    buffers: Mapping,
    /// Where in the input there is what was received, and not looked at yet.
    sealed: Range<usize>,
    /// Where in it there is what is opened, and not taken yet: before that.
    opened: Range<usize>,
}

/// One direction.
struct Half {
    key: LessSafeKey,
    iv: [u8; NONCE_LEN],
    /// That of the next record.
    number: u64,
}

/// What a look at the input has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// A record: there may be something to be taken now.
    Record,
    /// More must be received.
    Nothing,
}

fn error(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

/// It cannot go on, by a connection that is new it can.
fn ended() -> io::Error {
    error(libc::ECONNRESET)
}

impl Half {
    /// # Errors
    /// Keys of a kind that is not for TLS 1.3.
    fn new((number, secrets): (u64, ConnectionTrafficSecrets)) -> io::Result<Self> {
        let (algorithm, key, iv) = match &secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&aead::AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&aead::AES_256_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => {
                (&aead::CHACHA20_POLY1305, key, iv)
            }
            _ => return Err(error(libc::EPROTO)),
        };
        let key = UnboundKey::new(algorithm, key.as_ref()).map_err(|_| error(libc::EPROTO))?;
        let iv = iv.as_ref().try_into().map_err(|_| error(libc::EPROTO))?;
        Ok(Self { key: LessSafeKey::new(key), iv, number })
    }

    /// The nonce of the next record, which no other has.
    fn next(&mut self) -> Nonce {
        let mut nonce = self.iv;
        let number = self.number.to_be_bytes();
        nonce[NONCE_LEN - number.len()..].iter_mut().zip(number).for_each(|(to, of)| *to ^= of);
        self.number += 1;
        Nonce::assume_unique_for_key(nonce)
    }

    /// Seals what is in a record after its header, its kind included; returns the length of the record.
    fn seal(&mut self, record: &mut [u8], inner: usize) -> usize {
        let (nonce, sealed) = (self.next(), inner + self.key.algorithm().tag_len());
        let header = header_of(sealed);
        record[..HEADER_BYTES].copy_from_slice(&header);
        let (inner, rest) = record[HEADER_BYTES..].split_at_mut(inner);
        let tag = self.key.seal_in_place_separate_tag(nonce, Aad::from(header), inner);
        let tag = tag.expect("a record is not too long to be sealed");
        rest[..tag.as_ref().len()].copy_from_slice(tag.as_ref());
        HEADER_BYTES + sealed
    }

    /// Opens a record; returns its kind and the length of its content, which is after the header.
    fn open(&mut self, record: &mut [u8]) -> io::Result<(u8, usize)> {
        let (header, sealed) = record.split_at_mut(HEADER_BYTES);
        let header: [u8; HEADER_BYTES] = (&*header).try_into().expect("split there");
        let nonce = self.next();
        let inner = self.key.open_in_place(nonce, Aad::from(header), sealed);
        let inner = inner.map_err(|_| ended())?;
        let last = inner.iter().rposition(|byte| *byte != 0).ok_or_else(ended)?;
        Ok((inner[last], last))
    }
}

/// Of a record with so much after the header.
fn header_of(sealed: usize) -> [u8; HEADER_BYTES] {
    let [high, low] = (sealed as u16).to_be_bytes();
    // The version is what was in use when middle boxes learned to look at it.
    [DATA, 3, 3, high, low]
}

impl Session {
    /// Goes on where the library has stopped.
    ///
    /// # Errors
    /// No address space, or keys of another protocol.
    pub fn new(secrets: ExtractedSecrets) -> io::Result<Box<Self>> {
        Ok(Box::new(Self {
            sending: Half::new(secrets.tx)?,
            receiving: Half::new(secrets.rx)?,
            buffers: Mapping::undumped(OUTPUT_BYTES + INPUT_BYTES)?,
            sealed: 0..0,
            opened: 0..0,
        }))
    }

    /// Whether its keys have been in use for long enough.
    pub fn is_worn(&self) -> bool {
        self.sending.number.max(self.receiving.number) > RECORDS_MAX
    }

    /// Seals at most [`SEAL_BYTES`], as records to be sent.
    pub fn seal(&mut self, plain: &[u8]) -> &[u8] {
        let output = pages::view_mut(self.buffers.address(), OUTPUT_BYTES);
        let mut filled = 0;
        for content in plain.chunks(CONTENT_BYTES) {
            let record = &mut output[filled..];
            record[HEADER_BYTES..][..content.len()].copy_from_slice(content);
            record[HEADER_BYTES + content.len()] = DATA;
            filled += self.sending.seal(record, content.len() + 1);
        }
        &output[..filled]
    }

    fn input(&mut self) -> &mut [u8] {
        pages::view_mut(self.buffers.address() + OUTPUT_BYTES, INPUT_BYTES)
    }

    /// Takes what is opened, as much as there is room for.
    pub fn take(&mut self, into: &mut [u8]) -> usize {
        let part = into.len().min(self.opened.len());
        let from = self.opened.start..self.opened.start + part;
        into[..part].copy_from_slice(&self.input()[from]);
        self.opened.start += part;
        part
    }

    /// Where to receive; nothing is left to be taken.
    pub fn room(&mut self) -> &mut [u8] {
        let sealed = self.sealed.clone();
        if sealed.is_empty()
            || INPUT_BYTES - sealed.start < HEADER_BYTES + CONTENT_BYTES + EXTRA_BYTES
        {
            self.input().copy_within(sealed.clone(), 0);
            self.sealed = 0..sealed.len();
        }
        let end = self.sealed.end;
        &mut self.input()[end..]
    }

    /// So much was received there.
    pub fn received(&mut self, bytes: usize) {
        self.sealed.end += bytes;
    }

    /// Opens the next record.
    ///
    /// # Errors
    /// The server has ended the connection, or says why it does not want it.
    pub fn open(&mut self) -> io::Result<Found> {
        let sealed = self.sealed.clone();
        if sealed.len() < HEADER_BYTES {
            return Ok(Found::Nothing);
        }
        let start = sealed.start;
        let header = &self.input()[start..][..HEADER_BYTES];
        let (kind, length) = (header[0], usize::from(u16::from_be_bytes([header[3], header[4]])));
        if kind != DATA || length > CONTENT_BYTES + EXTRA_BYTES {
            return Err(ended());
        }
        if sealed.len() < HEADER_BYTES + length {
            return Ok(Found::Nothing);
        }
        self.sealed.start += HEADER_BYTES + length;
        let record =
            pages::view_mut(self.buffers.address() + OUTPUT_BYTES + start, HEADER_BYTES + length);
        let (kind, content) = self.receiving.open(record)?;
        match (kind, &record[HEADER_BYTES..][..content]) {
            (DATA, _) => self.opened = start + HEADER_BYTES..start + HEADER_BYTES + content,
            (HANDSHAKE, message) if message.first() != Some(&KEY_UPDATE) => {}
            (ALERT, [_, alert]) => return Err(error_of(*alert)),
            _ => return Err(ended()),
        }
        Ok(Found::Record)
    }
}

/// The message that would change keys.
const KEY_UPDATE: u8 = 24;

/// What an alert means to us.
fn error_of(alert: u8) -> io::Error {
    match alert {
        // certificate_required: nobody asks for it before hands are shaken.
        116 => error(libc::ENOKEY),
        // Of certificates: bad, unsupported, revoked, expired, unknown; unknown_ca, access_denied, decrypt_error.
        42..=46 | 48 | 49 | 51 => error(libc::EKEYREJECTED),
        _ => ended(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn half(number: u64) -> Half {
        let key = UnboundKey::new(&aead::AES_256_GCM, &[7; 32]).unwrap();
        Half { key: LessSafeKey::new(key), iv: [9; NONCE_LEN], number }
    }

    fn session() -> Session {
        let buffers = Mapping::undumped(OUTPUT_BYTES + INPUT_BYTES).unwrap();
        let (sending, receiving) = (half(3), half(3));
        Session { sending, receiving, buffers, sealed: 0..0, opened: 0..0 }
    }

    /// Has a session receive these bytes, in parts of so many, and returns what it opens.
    fn pass(session: &mut Session, mut bytes: &[u8], part: usize) -> io::Result<Vec<u8>> {
        let mut opened = Vec::new();
        loop {
            let mut into = [0; 1000];
            let taken = session.take(&mut into);
            opened.extend(&into[..taken]);
            if taken > 0 || session.open()? == Found::Record {
                continue;
            }
            if bytes.is_empty() {
                return Ok(opened);
            }
            let room = session.room();
            let here = part.min(bytes.len()).min(room.len());
            room[..here].copy_from_slice(&bytes[..here]);
            session.received(here);
            bytes = &bytes[here..];
        }
    }

    fn said(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|index| (index * 31 % 251) as u8).collect()
    }

    #[test]
    fn what_is_sealed_is_opened_however_it_is_cut() {
        for part in [1, 7, 1000, 16_400, usize::MAX] {
            let (mut here, mut there) = (session(), session());
            for bytes in [1, 5, 4096, CONTENT_BYTES, CONTENT_BYTES + 1, SEAL_BYTES, 3, SEAL_BYTES] {
                let plain = said(bytes);
                let sealed = here.seal(&plain).to_vec();
                let begin = &plain[..bytes.min(16)];
                assert!(bytes < 16 || sealed.windows(16).all(|some| some != begin));
                assert!(pass(&mut there, &sealed, part).unwrap() == plain, "{bytes} in {part}");
            }
        }
    }

    #[test]
    fn what_was_changed_left_out_or_sent_again_ends_the_connection() {
        let sealed = session().seal(&said(100)).to_vec();
        for index in 0..sealed.len() {
            // The version in the header and the length are authenticated, too; a longer one is waited for.
            let mut changed = sealed.clone();
            changed[index] ^= 1;
            let outcome = pass(&mut session(), &changed, 64);
            let is_short = index == 3 || index == 4;
            assert!(outcome.is_err() || is_short && outcome.unwrap().is_empty(), "{index}");
        }
        let mut there = session();
        assert!(pass(&mut there, &sealed, 64).is_ok());
        assert!(pass(&mut there, &sealed, 64).is_err(), "it comes again");
        let mut here = session();
        here.seal(&said(100));
        let second = here.seal(&said(100)).to_vec();
        assert!(pass(&mut session(), &second, 64).is_err(), "one is missing");
    }

    /// A record of another kind.
    fn record(kind: u8, content: &[u8], padding: usize) -> Vec<u8> {
        let mut record = vec![0; HEADER_BYTES + content.len() + 1 + padding + 16];
        record[HEADER_BYTES..][..content.len()].copy_from_slice(content);
        record[HEADER_BYTES + content.len()] = kind;
        let length = half(3).seal(&mut record, content.len() + 1 + padding);
        assert_eq!(length, record.len());
        record
    }

    #[test]
    fn tickets_are_passed_over_and_all_else_ends_the_connection() {
        let outcome = |record: &[u8]| {
            pass(&mut session(), record, 64).map_err(|error| error.raw_os_error().unwrap())
        };
        assert_eq!(outcome(&record(HANDSHAKE, &[4, 0, 0, 1, 9], 0)), Ok(vec![]));
        assert_eq!(outcome(&record(DATA, b"padded", 40)), Ok(b"padded".to_vec()));
        assert_eq!(outcome(&record(DATA, b"", 5)), Ok(vec![]));
        assert_eq!(
            outcome(&record(HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, 1], 0)),
            Err(libc::ECONNRESET)
        );
        assert_eq!(outcome(&record(ALERT, &[1, 0], 0)), Err(libc::ECONNRESET));
        assert_eq!(outcome(&record(ALERT, &[2, 116], 0)), Err(libc::ENOKEY));
        assert_eq!(outcome(&record(ALERT, &[2, 48], 0)), Err(libc::EKEYREJECTED));
        assert_eq!(outcome(&record(99, b"what", 0)), Err(libc::ECONNRESET));
        assert_eq!(outcome(&record(0, b"", 3)), Err(libc::ECONNRESET), "only padding");
        assert_eq!(outcome(b"+OK\r\nand more"), Err(libc::ECONNRESET), "plain text");
    }

    #[test]
    fn the_numbers_of_records_change_their_nonces() {
        let mut half = half(255);
        let nonces = [half.next(), half.next(), half.next()].map(|nonce| *nonce.as_ref());
        assert_eq!(nonces[0], [9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9 ^ 255]);
        assert_eq!(nonces[1], [9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9 ^ 1, 9]);
        assert_ne!(nonces[1], nonces[2]);
    }
}
