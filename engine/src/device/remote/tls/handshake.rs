//! Shaking hands: by the library, on a thread that may allocate.
use super::records::Session;
use super::trust::Trust;
use crate::device::remote::line::{Line, PATIENCE, Socket, connect, receive, send};
use crate::sys::clock;
use rustls::{ClientConnection, Error};
use std::io;
use std::net::SocketAddr;

/// Kind, version and length of a record.
const HEADER_BYTES: usize = 5;

/// Connects to a server, and makes sure that it is the one that it should be.
///
/// # Errors
/// What the kernel says; EPROTO where the ends do not agree, for a reason that is then noted.
pub fn shake_hands(trust: &Trust, to: SocketAddr) -> io::Result<Line> {
    let socket = connect(to)?;
    let refuse = |error: &Error| {
        trust.note(to, error);
        io::Error::from_raw_os_error(libc::EPROTO)
    };
    let connection = ClientConnection::new(trust.config.clone(), trust.name_of(to));
    let mut connection = connection.map_err(|error| refuse(&error))?;
    let until = clock::now_ns() + PATIENCE.as_nanos() as u64;
    let mut record = Vec::new();
    loop {
        send_all(&mut connection, &socket)?;
        if !connection.is_handshaking() {
            break;
        }
        // One by one: of what comes after the handshake the library would not give anything back.
        receive_record(&socket, &mut record, until)?;
        connection.read_tls(&mut record.as_slice())?;
        if let Err(error) = connection.process_new_packets() {
            // The server is told why.
            let _ = send_all(&mut connection, &socket);
            return Err(refuse(&error));
        }
    }
    let secrets = connection.dangerous_extract_secrets().map_err(|error| refuse(&error))?;
    Ok(Line::sealed(socket, Session::new(secrets)?))
}

fn send_all(connection: &mut ClientConnection, socket: &Socket) -> io::Result<()> {
    let mut bytes = Vec::new();
    while connection.wants_write() {
        connection.write_tls(&mut bytes)?;
    }
    send(socket, &bytes)
}

/// A whole record. What is none is for the library to refuse.
fn receive_record(socket: &Socket, record: &mut Vec<u8>, until_ns: u64) -> io::Result<()> {
    record.clear();
    let mut wanted = HEADER_BYTES;
    while record.len() < wanted {
        let filled = record.len();
        record.resize(wanted, 0);
        let bytes = receive(socket, &mut record[filled..])?;
        record.truncate(filled + bytes);
        if record.len() == HEADER_BYTES && wanted == HEADER_BYTES && is_record(record) {
            wanted += usize::from(u16::from_be_bytes([record[3], record[4]]));
        }
        if clock::now_ns() > until_ns {
            return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT));
        }
    }
    Ok(())
}

/// Change of cipher, alert, handshake or data.
fn is_record(header: &[u8]) -> bool {
    (20..=23).contains(&header[0]) && header[1] == 3
}
