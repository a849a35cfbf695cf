//! Servers of a test's own, on free ports of the loopback, which end with it.
use super::eventually;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// A server.
pub struct Redis {
    process: Child,
    pub port: u16,
    password: Option<String>,
    _directory: TempDir,
}

impl Redis {
    /// Starts one with these options, and waits until it answers.
    pub fn start(options: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let process = Command::new("setpriv")
            // Also when the test ends by a signal.
            .args(["--pdeathsig", "KILL", "redis-server", "--bind", "127.0.0.1", "--save", ""])
            .args(["--port", &port.to_string(), "--dir", directory.path().to_str().unwrap()])
            .args(options)
            .stdout(Stdio::null())
            .spawn()
            .expect("Debian's packages redis-server and util-linux are installed");
        let password = options.iter().position(|option| *option == "--requirepass");
        let password = password.map(|index| options[index + 1].to_owned());
        let mut server = Self { process, port, password, _directory: directory };
        let number = format!("process_id:{}\r", server.pid());
        let mut has_ended = false;
        eventually("a server answers", || {
            has_ended = server.process.try_wait().unwrap().is_some();
            has_ended || server.say("INFO server").contains(&number)
        });
        // A port that another has taken in between ends the server; then another one is tried.
        if has_ended { Self::start(options) } else { server }
    }

    /// What names a device on it.
    pub fn spec(&self, rest: &str) -> String {
        format!("redis://127.0.0.1:{}/{rest}", self.port)
    }

    /// What it answers to a command.
    pub fn say(&self, command: &str) -> String {
        let mut cli = Command::new("redis-cli");
        cli.args(["-p", &self.port.to_string()]).args(command.split(' '));
        self.password.iter().for_each(|password| _ = cli.env("REDISCLI_AUTH", password));
        let output = cli.output().expect("redis-cli comes with redis-server");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// How many keys it has.
    pub fn keys(&self) -> u64 {
        self.say("DBSIZE").parse().unwrap()
    }

    /// The names of its keys.
    pub fn names(&self) -> Vec<String> {
        self.say("KEYS *").lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }

    /// How many slots it holds.
    pub fn slots(&self) -> u64 {
        let length = |key: &String| self.say(&format!("HLEN {key}")).parse::<u64>().unwrap();
        self.names().iter().map(length).sum()
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

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Servers that are one cluster.
pub fn cluster(servers: usize) -> Vec<Redis> {
    let options = ["--cluster-enabled", "yes", "--cluster-require-full-coverage", "no"];
    let timeout = ["--cluster-node-timeout", "2000"];
    let all: Vec<Redis> =
        (0..servers).map(|_| Redis::start(&[options.as_slice(), &timeout].concat())).collect();
    let addresses = all.iter().map(|server| format!("127.0.0.1:{}", server.port));
    let output = Command::new("redis-cli")
        .args(["--cluster", "create", "--cluster-yes", "--cluster-replicas", "0"])
        .args(addresses)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    for server in &all {
        eventually("the cluster is whole", || {
            server.say("CLUSTER INFO").contains("cluster_state:ok")
        });
    }
    all
}
