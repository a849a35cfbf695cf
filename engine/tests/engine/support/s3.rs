//! A store of objects of a test's own, which ends with it.
use super::eventually;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

/// A server with a bucket `bucket`.
pub struct S3 {
    process: Child,
    pub port: u16,
}

impl S3 {
    /// Starts one, and waits until it answers.
    pub fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/s3-server");
        let prepared = Command::new(program).arg("--prepare").status().unwrap();
        assert!(prepared.success(), "pip installs moto, of PyPI");
        let process = Command::new("setpriv")
            // Also when the test ends by a signal.
            .args(["--pdeathsig", "KILL", program, &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("Debian's package util-linux is installed");
        let server = Self { process, port };
        eventually("a server answers", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        assert!(server.ask("PUT", "/bucket").starts_with("HTTP/1.1 200"));
        server
    }

    /// What names a device on it, behind others.
    pub fn spec(&self, rest: &str) -> String {
        spec(self.port, rest)
    }

    /// What it answers to a request.
    pub fn ask(&self, method: &str, path: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let signed = "AWS4-HMAC-SHA256 Credential=a/20130524/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0";
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: {signed}\r\n\
             content-length: 0\r\nconnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Has it put an object's content in the place of another's.
    pub fn copy(&self, from: &str, to: &str) {
        let answer = self.ask("PUT", &format!("{to} HTTP/1.1\r\nx-amz-copy-source: {from}\r\nx: "));
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    /// The names of its objects.
    pub fn names(&self) -> Vec<String> {
        let answer = self.ask("GET", "/bucket?list-type=2");
        let keys = answer.split("<Key>").skip(1);
        keys.map(|rest| rest.split("</Key>").next().unwrap().to_owned()).collect()
    }

    /// How many of them have pages.
    pub fn segments(&self) -> usize {
        self.names().iter().filter(|name| name.rsplit('/').next().unwrap().len() == 8).count()
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Its process.
    pub fn pid(&self) -> i32 {
        self.process.id() as i32
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What names a device on a server's port.
pub fn spec(port: u16, rest: &str) -> String {
    format!("s3://bucket/{rest},endpoint=http://127.0.0.1:{port},tier=1")
}
