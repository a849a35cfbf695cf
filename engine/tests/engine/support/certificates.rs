//! Certificates of a test's own, made by `openssl`, which end with it.
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// An authority, and what it has signed.
pub struct Certificates {
    directory: TempDir,
}

const KEY: [&str; 5] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];

impl Certificates {
    /// With a certificate `server` for 127.0.0.1 and localhost.
    pub fn new() -> Self {
        let certificates = Self { directory: tempfile::tempdir().unwrap() };
        // A server may run as another user.
        let everyone = fs::Permissions::from_mode(0o755);
        fs::set_permissions(certificates.directory.path(), everyone).unwrap();
        let files = ["-keyout", "ca.key", "-out", "ca.pem"];
        certificates.openssl(
            &[&["req", "-x509", "-days", "2", "-subj", "/CN=authority"], &KEY[..], &files].concat(),
        );
        certificates.sign("server", "IP:127.0.0.1,DNS:localhost", 2);
        certificates
    }

    /// Signs a certificate for names and days; its files are NAME.pem and NAME.key.
    pub fn sign(&self, name: &str, names: &str, days: i32) {
        let file = |ending: &str| format!("{name}.{ending}");
        let files = ["-keyout", &file("key"), "-out", &file("csr")];
        self.openssl(&[&["req", "-new", "-subj", "/CN=somebody"], &KEY[..], &files].concat());
        let extensions = format!("subjectAltName={names}\nbasicConstraints=critical,CA:FALSE\n");
        fs::write(self.directory.path().join(file("ext")), extensions).unwrap();
        let by =
            ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", &days.to_string()];
        let files = ["-in", &file("csr"), "-out", &file("pem"), "-extfile", &file("ext")];
        self.openssl(&[&["x509", "-req"][..], &by, &files].concat());
    }

    fn openssl(&self, arguments: &[&str]) {
        let mut command = Command::new("openssl");
        let output = command.current_dir(&self.directory).args(arguments).output();
        let output = output.expect("Debian's package openssl is installed");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Where a file of them is.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The same, as a text.
    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// The options of a server that speaks TLS with one of them, besides its port.
    pub fn of_server(&self, name: &str) -> Vec<String> {
        let files = [("cert", "pem"), ("key", "key")].map(|(what, ending)| {
            [format!("--tls-{what}-file"), self.text(&format!("{name}.{ending}"))]
        });
        let authority = ["--tls-ca-cert-file".to_owned(), self.text("ca.pem")];
        let others = ["--tls-replication", "yes", "--tls-cluster", "yes"].map(str::to_owned);
        [files.concat(), authority.to_vec(), others.to_vec()].concat()
    }
}
