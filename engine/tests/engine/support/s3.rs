//! A store of objects of a test's own, which ends with it.
use super::{Certificates, eventually};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

/// A server with a bucket `bucket`.
pub struct S3 {
    process: Child,
    pub port: u16,
    /// What it speaks TLS by.
    certificates: Option<Arc<Certificates>>,
}

impl S3 {
    /// Starts one, and waits until it answers.
    pub fn start() -> Self {
        Self::start_by(None)
    }

    /// The same, one that speaks TLS with the certificate `server`.
    pub fn start_tls(certificates: &Arc<Certificates>) -> Self {
        Self::start_by(Some(certificates.clone()))
    }

    fn start_by(certificates: Option<Arc<Certificates>>) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/s3-server");
        let prepared = Command::new(program).arg("--prepare").status().unwrap();
        assert!(prepared.success(), "pip installs moto, of PyPI");
        let process = Command::new("setpriv")
            // Also when the test ends by a signal.
            .args(["--pdeathsig", "KILL", program, &port.to_string()])
            .args(certificates.iter().flat_map(|some| {
                let [cert, key] = ["server.pem", "server.key"].map(|file| some.text(file));
                ["--ssl-cert".to_owned(), cert, "--ssl-key".to_owned(), key]
            }))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("Debian's package util-linux is installed");
        let server = Self { process, port, certificates };
        eventually("a server answers", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        assert!(server.ask("PUT", "/bucket").starts_with("HTTP/1.1 200"));
        server
    }

    /// What names a device on it, behind others.
    pub fn spec(&self, rest: &str) -> String {
        let spec = spec(self.port, rest);
        match &self.certificates {
            None => spec,
            Some(some) => {
                format!("{},cacert={}", spec.replace("http:", "https:"), some.text("ca.pem"))
            }
        }
    }

    /// What it answers to a request.
    pub fn ask(&self, method: &str, path: &str) -> String {
        let signed = "AWS4-HMAC-SHA256 Credential=a/20130524/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0";
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: {signed}\r\n\
             content-length: 0\r\nconnection: close\r\n\r\n"
        );
        let at = ("127.0.0.1", self.port);
        let answer = match &self.certificates {
            None => {
                let mut stream = TcpStream::connect(at).unwrap();
                stream.write_all(request.as_bytes()).unwrap();
                everything(&mut stream)
            }
            Some(_) => by_openssl(&format!("{}:{}", at.0, at.1), &request),
        };
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

/// All that comes.
fn everything(from: &mut impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes).unwrap();
    bytes
}

fn by_openssl(at: &str, request: &str) -> Vec<u8> {
    let mut client = Command::new("openssl")
        .args(["s_client", "-quiet", "-connect", at])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("Debian's package openssl is installed");
    client.stdin.as_mut().unwrap().write_all(request.as_bytes()).unwrap();
    let answer = everything(client.stdout.as_mut().unwrap());
    client.wait().unwrap();
    answer
}
