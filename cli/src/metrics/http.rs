//! As much of HTTP as a scrape needs: one request on a connection, one answer, and the end.

use std::io::{self, ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use super::exposition::Format;

/// The longest head of a request: a browser's is a quarter of it.
const HEAD_BYTES_MAX: usize = 8 << 10;

/// Headers of a request.
const HEADERS_MAX: usize = 64;

/// How long a request may take to come, and a wait for bytes of it.
pub const REQUEST_TIME_MAX: Duration = Duration::from_secs(5);

/// What is wanted.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    Metrics(Format),
    /// A status that refuses.
    Nothing(&'static str),
}

/// Serves one connection; `metrics` makes the text.
///
/// # Errors
/// The other side has gone, or is too slow.
pub fn serve<C: Read + Write + ?Sized>(
    connection: &mut C,
    metrics: impl FnOnce(Format) -> String,
) -> io::Result<()> {
    match wanted(&head(connection)?) {
        Wanted::Metrics(format) => {
            answer(connection, "200 OK", content_type(format), &metrics(format))
        }
        Wanted::Nothing(status) => answer(
            connection,
            status,
            "text/plain; charset=utf-8",
            &format!("{status}: GET /metrics\n"),
        ),
    }
}

/// What comes up to the empty line.
fn head<C: Read + ?Sized>(connection: &mut C) -> io::Result<Vec<u8>> {
    let (began, mut head) = (Instant::now(), Vec::new());
    let mut part = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < HEAD_BYTES_MAX {
        match connection.read(&mut part) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => head.extend_from_slice(&part[..bytes]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if began.elapsed() > REQUEST_TIME_MAX {
            return Err(ErrorKind::TimedOut.into());
        }
    }
    Ok(head)
}

fn wanted(head: &[u8]) -> Wanted {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => {
            return Wanted::Nothing("431 Request Header Fields Too Large");
        }
        Err(_) => return Wanted::Nothing("400 Bad Request"),
    }
    let path = request.path.unwrap_or_default().split('?').next().unwrap_or_default();
    match (request.method, path) {
        (Some("GET"), "/metrics") => {}
        (Some("GET"), _) => return Wanted::Nothing("404 Not Found"),
        _ => return Wanted::Nothing("405 Method Not Allowed"),
    }
    let accepts =
        request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("accept"));
    let knows =
        |value: &[u8]| String::from_utf8_lossy(value).contains("application/openmetrics-text");
    Wanted::Metrics(match accepts.map(|header| header.value).any(knows) {
        true => Format::OpenMetrics,
        false => Format::Prometheus,
    })
}

fn content_type(format: Format) -> &'static str {
    match format {
        Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
    }
}

fn answer<C: Write + ?Sized>(
    connection: &mut C,
    status: &str,
    content: &str,
    body: &str,
) -> io::Result<()> {
    let bytes = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content}\r\nContent-Length: {bytes}\r\nConnection: close\r\n\r\n"
    );
    connection.write_all(format!("{head}{body}").as_bytes())?;
    connection.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection on which `request` comes, a few bytes at a time.
    struct Wire<'a> {
        request: &'a [u8],
        answer: Vec<u8>,
    }

    impl Read for Wire<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let bytes = self.request.len().min(7).min(buffer.len());
            buffer[..bytes].copy_from_slice(&self.request[..bytes]);
            self.request = &self.request[bytes..];
            Ok(bytes)
        }
    }

    impl Write for Wire<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.answer.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn answered(request: &str) -> String {
        let mut wire = Wire { request: request.as_bytes(), answer: Vec::new() };
        match serve(&mut wire, |format| format!("{format:?}\n")) {
            Ok(()) => String::from_utf8(wire.answer).unwrap(),
            Err(error) => format!("{:?}", error.kind()),
        }
    }

    #[test]
    fn a_scrape_gets_the_format_that_it_accepts() {
        let plain = answered("GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: text/plain\r\n\r\n");
        assert!(plain.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"));
        assert!(
            plain.ends_with("Content-Length: 11\r\nConnection: close\r\n\r\nPrometheus\n"),
            "{plain}"
        );
        let open = answered(
            "GET /metrics?x=1 HTTP/1.1\r\naccept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n\r\n",
        );
        assert!(open.contains("application/openmetrics-text; version=1.0.0"), "{open}");
        assert!(open.ends_with("\r\n\r\nOpenMetrics\n"), "{open}");
    }

    #[test]
    fn everything_else_is_refused() {
        for (request, status) in [
            ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
            ("nonsense\r\n\r\n", "400"),
            (&format!("GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n", "y".repeat(9000)), "431"),
        ] {
            let answer = answered(request);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {answer}");
            assert!(!answer.contains("OpenMetrics"), "{answer}");
        }
        assert_eq!(answered("GET /metrics HTT"), "UnexpectedEof");
    }
}
