//! Servers of a test's own, on free ports of the loopback, which end with it.
use super::certificates::Certificates;
use super::eventually;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use tempfile::TempDir;

/// A server.
pub struct Redis {
    process: Child,
    pub port: u16,
    password: Option<String>,
    /// Its authority, where it speaks TLS and nothing else.
    pub certificates: Option<Arc<Certificates>>,
    _directory: TempDir,
}

/// How a test's servers are started: the same with and without TLS.
pub const STARTS: [fn(&[&str]) -> Redis; 2] = [Redis::start, Redis::start_tls];

/// Works with a server of every kind, all at once.
pub fn with_each_kind(work: impl Fn(Redis) + Sync) {
    std::thread::scope(|scope| {
        let work = &work;
        for start in STARTS {
            // The ways of a test follow from its name.
            let name = std::thread::current().name().unwrap_or_default().to_owned();
            let thread = std::thread::Builder::new().name(name);
            thread.spawn_scoped(scope, move || work(start(&[]))).unwrap();
        }
    });
}

impl Redis {
    /// Starts one with these options, and waits until it answers.
    pub fn start(options: &[&str]) -> Self {
        Self::start_with(options, None)
    }

    /// One that speaks TLS, and does not ask for certificates.
    pub fn start_tls(options: &[&str]) -> Self {
        Self::start_by(options, &Arc::new(Certificates::new()))
    }

    /// The same, by certificates that are there.
    pub fn start_by(options: &[&str], certificates: &Arc<Certificates>) -> Self {
        let own = certificates.of_server("server");
        let own = own.iter().map(String::as_str).chain(["--tls-auth-clients", "no"]);
        let options: Vec<_> = own.chain(options.iter().copied()).collect();
        Self::start_with(&options, Some(certificates.clone()))
    }

    fn start_with(options: &[&str], certificates: Option<Arc<Certificates>>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let port_options = match certificates {
            None => vec!["--port".to_owned(), port.to_string()],
            Some(_) => ["--port", "0", "--tls-port", &port.to_string()].map(str::to_owned).to_vec(),
        };
        let process = Command::new("setpriv")
            // Also when the test ends by a signal.
            .args(["--pdeathsig", "KILL", "redis-server", "--bind", "127.0.0.1", "--save", ""])
            .args(port_options)
            .args(["--dir", directory.path().to_str().unwrap()])
            .args(options)
            .stdout(Stdio::null())
            .spawn()
            .expect("Debian's packages redis-server and util-linux are installed");
        let password = options.iter().position(|option| *option == "--requirepass");
        let password = password.map(|index| options[index + 1].to_owned());
        let mut server = Self { process, port, password, certificates, _directory: directory };
        let number = format!("process_id:{}\r", server.pid());
        let mut has_ended = false;
        eventually("a server answers", || {
            has_ended = server.process.try_wait().unwrap().is_some();
            has_ended || server.say("INFO server").contains(&number)
        });
        // A port that another has taken in between ends the server; then another one is tried.
        match has_ended {
            true => Self::start_with(options, server.certificates.clone()),
            false => server,
        }
    }

    /// What names a device on it.
    pub fn spec(&self, rest: &str) -> String {
        self.spec_at(self.port, rest)
    }

    /// The same by way of another port.
    pub fn spec_at(&self, port: u16, rest: &str) -> String {
        match &self.certificates {
            None => format!("redis://127.0.0.1:{port}/{rest}"),
            Some(some) => {
                format!("rediss://127.0.0.1:{port}/{rest},cacert={}", some.text("ca.pem"))
            }
        }
    }

    /// What it is called as a device.
    pub fn name(&self, prefix: &str) -> String {
        let spec = self.spec(prefix);
        spec.split_once(',').map_or(spec.clone(), |(name, _)| name.to_owned())
    }

    /// `redis-cli`, as it talks to it.
    fn cli(&self) -> Command {
        let mut cli = Command::new("redis-cli");
        if let Some(some) = &self.certificates {
            let [ca, cert, key] =
                ["ca.pem", "server.pem", "server.key"].map(|file| some.text(file));
            cli.args(["--tls", "--insecure", "--cacert", &ca, "--cert", &cert, "--key", &key]);
        }
        self.password.iter().for_each(|password| _ = cli.env("REDISCLI_AUTH", password));
        cli
    }

    /// What it answers to a command.
    pub fn say(&self, command: &str) -> String {
        self.say_words(command.split(' '))
    }

    /// The same, word by word.
    pub fn say_words<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> String {
        let mut cli = self.cli();
        cli.args(["-p", &self.port.to_string()]).args(words);
        let output = cli.output().expect("redis-cli comes with redis-server");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// The same to a script about a key.
    pub fn eval(&self, script: &str, key: &str) -> String {
        self.say_words(["EVAL", script, "1", key])
    }

    /// How many keys it has.
    pub fn keys(&self) -> u64 {
        self.say("DBSIZE").parse().unwrap()
    }

    /// How many slots it holds.
    pub fn slots(&self) -> u64 {
        let count = "local count = 0
            for _, key in ipairs(redis.call('KEYS', '*')) do count = count + redis.call('HLEN', key) end
            return count";
        self.say_words(["EVAL", count, "0"]).parse().unwrap()
    }

    /// How often it was told to do something.
    pub fn calls(&self, command: &str) -> u64 {
        let said = self.say("INFO commandstats");
        let name = format!("cmdstat_{command}:calls=");
        let line = said.lines().find_map(|line| line.strip_prefix(&name));
        line.and_then(|line| line.split(',').next()?.parse().ok()).unwrap_or(0)
    }

    /// Whether it takes writes of its own.
    pub fn is_master(&self) -> bool {
        self.say("INFO replication").contains("role:master")
    }

    /// Whether its replica has all that it has.
    pub fn is_replicated(&self) -> bool {
        let said = self.say("INFO replication");
        let after = |name: &str| said.split_once(name)?.1.split([',', '\r']).next();
        let copied = after("state=online,offset=");
        copied.is_some() && copied == after("master_repl_offset:")
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
    cluster_by(servers, Redis::start)
}

/// The same of masters that have a replica each: these come after them.
pub fn cluster_with_replicas(masters: usize) -> Vec<Redis> {
    // A replica is there at once, and not after five seconds in which others could come.
    let start =
        |options: &[&str]| Redis::start(&[options, &["--repl-diskless-sync-delay", "0"]].concat());
    joined(2 * masters, start, "1")
}

/// The same of servers that are started so.
pub fn cluster_by(servers: usize, start: impl Fn(&[&str]) -> Redis) -> Vec<Redis> {
    joined(servers, start, "0")
}

/// What servers of a cluster are started with.
const OF_CLUSTER: [&str; 6] = [
    "--cluster-enabled",
    "yes",
    "--cluster-require-full-coverage",
    "no",
    "--cluster-node-timeout",
    "2000",
];

/// The same of three servers, of which only the first have slots: redis-cli makes none so small.
pub fn cluster_of_masters(masters: usize) -> Vec<Redis> {
    let slots = 16_384 / masters;
    let range = |index| format!("{} {}", index * slots, (index + 1) * slots - 1);
    cluster_laid_out(&(0..masters).map(range).collect::<Vec<_>>())
}

/// The same, of which the first have these ranges of slots: each is its first and its last one, and so on.
pub fn cluster_laid_out(ranges: &[impl AsRef<str>]) -> Vec<Redis> {
    let all: Vec<Redis> = (0..3).map(|_| Redis::start(&OF_CLUSTER)).collect();
    let masters = ranges.len();
    for (index, (server, ranges)) in all.iter().zip(ranges).enumerate() {
        assert_eq!(server.say(&format!("CLUSTER ADDSLOTSRANGE {}", ranges.as_ref())), "OK");
        server.say(&format!("CLUSTER SET-CONFIG-EPOCH {}", index + 1));
    }
    for other in &all[1..] {
        assert_eq!(all[0].say(&format!("CLUSTER MEET 127.0.0.1 {}", other.port)), "OK");
    }
    let owning = format!("cluster_size:{masters}\r");
    let whole = ["cluster_state:ok", "cluster_known_nodes:3\r", &owning];
    for server in &all {
        eventually("the cluster is whole", || {
            let said = server.say("CLUSTER INFO");
            whole.iter().all(|has| said.contains(has))
        });
    }
    all
}

fn joined(servers: usize, start: impl Fn(&[&str]) -> Redis, replicas: &str) -> Vec<Redis> {
    let all: Vec<Redis> = (0..servers).map(|_| start(&OF_CLUSTER)).collect();
    let addresses = all.iter().map(|server| format!("127.0.0.1:{}", server.port));
    let output = all[0]
        .cli()
        .args(["--cluster", "create", "--cluster-yes", "--cluster-replicas", replicas])
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
