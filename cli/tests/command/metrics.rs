//! `userswap metrics`: what it tells is what the engines say, a real Prometheus takes it, and it ends in order.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

use crate::preload_support::directory;
use crate::preload_support::served::{
    Served, eventually, is_refusal, printed, runtime, userswap_in,
};
use serde_json::Value;
use tempfile::TempDir;

/// Fills three times its budget, and again for each line that it is sent.
const PROGRAM: &str = "
import os, sys
b = bytearray(48 << 20)
def fill():
    for i in range(0, len(b), 4096): b[i:i+4] = i.to_bytes(4, 'little')
    print(os.getpid(), flush=True)
fill()
for line in sys.stdin: fill()
";

/// A program with an engine; at rest unless it is told to fill its memory.
fn served(runtime: &TempDir) -> Served {
    let options = ["--ram", "16M", "--swap", "/var/tmp"];
    let mut program = Served::start(runtime, &options, &["python3", "-c", PROGRAM]);
    assert_eq!(program.hear(), program.pid());
    program
}

fn end(child: &mut Child) {
    // It may have ended in order.
    let _ = child.kill();
    let _ = child.wait();
}

/// `userswap metrics` that goes on, and what it says.
struct Serving {
    child: Child,
    said: BufReader<ChildStderr>,
}

impl Serving {
    fn start(runtime: &TempDir, arguments: &[&str]) -> Self {
        let mut child = userswap_in(runtime, &["metrics"])
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stderr.take().unwrap());
        Self { child, said }
    }

    /// The address that it says it serves.
    fn address(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        let address = line.trim_end().strip_prefix("userswap: metrics at ").expect(&line);
        address.trim_start_matches("http://").trim_end_matches("/metrics").to_owned()
    }

    /// Ends it by a signal, in order and without a word.
    fn stop(mut self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{signal}");
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "");
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// An answer's head and body.
fn got(mut connection: impl Read + Write, path: &str, accept: &str) -> (String, String) {
    write!(connection, "GET {path} HTTP/1.1\r\nHost: here\r\nAccept: {accept}\r\n\r\n").unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect(&answer);
    (head.to_owned(), body.to_owned())
}

/// The samples of a text, by name and labels.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').expect(line);
            (name.to_owned(), value.parse().expect(line))
        })
        .collect()
}

/// The one sample of a program that begins so.
fn value(samples: &BTreeMap<String, f64>, name: &str, pid: &str) -> f64 {
    let pid = format!("pid=\"{pid}\"");
    let mut found = samples.iter().filter(|(sample, _)| {
        sample.strip_prefix(name).is_some_and(|rest| rest.starts_with('{')) && sample.contains(&pid)
    });
    let (_, value) = found.next().unwrap_or_else(|| panic!("no {name} of {pid}: {samples:?}"));
    assert!(found.next().is_none(), "one {name} only");
    *value
}

fn promtool(text: &str) {
    let mut child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool is installed (Debian: prometheus): .ci/run does that");
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success() && said.is_empty(), "{}", String::from_utf8_lossy(&said));
}

/// What an engine at rest says, and what metrics tell of it then.
fn at_rest(runtime: &TempDir, pid: &str) -> (Value, String) {
    let look = || -> Value {
        let text = printed(runtime, &["status", pid, "--json"]);
        let mut status: Value = serde_json::from_str(&text).unwrap();
        // Being asked changes these two.
        status["unmanaged_bytes"] = Value::Null;
        status["list_lock"] = Value::Null;
        status
    };
    let (mut status, mut text) = (Value::Null, String::new());
    // What the reclaimer still does is over when two looks are the same.
    eventually("the engine rests", || {
        status = look();
        text = printed(runtime, &["metrics"]);
        status == look()
    });
    (status, text)
}

/// Some metrics of each kind, with what the status says of them.
fn expected(status: &Value) -> Vec<(&'static str, f64)> {
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{value}: {status}"));
    let pages = |value: &Value| number(value) * 4096.0;
    let seconds = |value: &Value| number(value) / 1e9;
    let (counters, node) = (&status["counters"], &status["nodes"][0]);
    let (device, latency) = (&status["devices"][0], &status["fault_latency"]);
    vec![
        ("engine_up", 1.0),
        ("budget_bytes", number(&status["ram_bytes"])),
        ("swap_in_bytes_total", pages(&counters["pswpin"])),
        ("swap_out_bytes_total", pages(&counters["pswpout"])),
        ("faults_total", number(&counters["pgfault"])),
        ("stall_seconds_total", seconds(&status["stall_ns"])),
        ("node_resident_bytes", pages(&node["resident_pages"])),
        ("node_low_watermark_bytes", pages(&node["low_pages"])),
        ("device_used_bytes", number(&device["used_bytes"])),
        ("device_read_bytes_total", number(&device["reads"]["bytes"])),
        ("device_writes_total", number(&device["writes"]["requests"])),
        ("device_busy_seconds_total", seconds(&device["busy_ns"])),
        ("fault_latency_seconds_count", number(&latency["count"])),
        ("fault_latency_seconds_sum", seconds(&latency["sum_ns"])),
    ]
}

#[test]
fn what_is_told_is_what_the_engine_says_and_counters_only_grow() {
    let runtime = runtime();
    let mut program = served(&runtime);
    let pid = program.pid();
    let (status, text) = at_rest(&runtime, &pid);
    assert!(text.ends_with("\n# EOF\n"), "{text}");
    let told = samples(&text);
    for (name, expected) in expected(&status) {
        let seen = value(&told, &format!("userswap_{name}"), &pid);
        assert!((seen - expected).abs() <= expected * 1e-9, "{name}: {seen}, not {expected}");
    }
    assert!(value(&told, "userswap_swap_in_bytes_total", &pid) > 0.0, "{text}");
    assert_eq!(program.ask("fill"), program.pid());
    let later = samples(&printed(&runtime, &["metrics"]));
    let counts = |name: &str| {
        let name = name.split('{').next().unwrap();
        ["_total", "_bucket", "_sum", "_count"].iter().any(|end| name.ends_with(end))
    };
    // Another program may have ended meanwhile.
    let ours = |name: &str| name.contains(&format!("pid=\"{pid}\""));
    for (name, before) in told.iter().filter(|(name, _)| counts(name) && ours(name)) {
        assert!(later[name] >= *before, "{name}: {before}, then {}", later[name]);
    }
    let name = "userswap_swap_in_bytes_total";
    assert!(value(&later, name, &pid) > value(&told, name, &pid), "{later:?}");
    buckets_are_cumulative(&later, &pid);
}

fn buckets_are_cumulative(samples: &BTreeMap<String, f64>, pid: &str) {
    let bound = |name: &str| -> Option<f64> {
        let rest = name.strip_prefix("userswap_fault_latency_seconds_bucket{le=\"")?;
        rest.contains(pid).then(|| rest.split('"').next().unwrap().parse().unwrap())
    };
    let mut buckets: Vec<_> =
        samples.iter().filter_map(|(name, count)| Some((bound(name)?, *count))).collect();
    buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
    assert_eq!(buckets.len(), 26);
    assert!(buckets.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{buckets:?}");
    let count = value(samples, "userswap_fault_latency_seconds_count", pid);
    assert_eq!(buckets.last().unwrap(), &(f64::INFINITY, count));
}

#[test]
fn a_scrape_gets_its_format_and_promtool_finds_nothing_to_say() {
    let runtime = runtime();
    let program = served(&runtime);
    let mut serving = Serving::start(&runtime, &["--listen", "127.0.0.1:0"]);
    let address = serving.address();
    let connect = || TcpStream::connect(&address).unwrap();
    let (head, text) = got(connect(), "/metrics", "*/*");
    assert!(head.contains("200 OK") && head.contains("text/plain; version=0.0.4"), "{head}");
    assert!(text.contains(&format!("engine_up{{pid=\"{}\"}} 1", program.pid())), "{text}");
    promtool(&text);
    let (head, open) = got(connect(), "/metrics", "application/openmetrics-text;version=1.0.0");
    assert!(head.contains("application/openmetrics-text; version=1.0.0"), "{head}");
    assert!(open.ends_with("# EOF\n"), "{open}");
    assert!(got(connect(), "/", "*/*").0.contains("404 Not Found"));
    // Clients that say nothing keep nobody waiting.
    let _silent: Vec<_> = (0..8).map(|_| connect()).collect();
    assert!(got(connect(), "/metrics", "*/*").1.contains("userswap_engine_up"));
    serving.stop("-INT");
}

/// A real one, which asks `userswap metrics` every second.
struct Prometheus {
    child: Child,
    address: String,
    data: TempDir,
}

impl Prometheus {
    fn start(target: &str) -> Self {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let data = directory();
        let config = data.path().join("prometheus.yml");
        let text = format!(
            "scrape_configs:\n  - job_name: userswap\n    scrape_interval: 1s\n    static_configs: [{{ targets: [\"{target}\"] }}]\n"
        );
        fs::write(&config, text).unwrap();
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", data.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stderr(fs::File::create(data.path().join("log")).unwrap())
            .stdout(Stdio::null())
            .spawn()
            .expect("prometheus is installed: .ci/run does that");
        Self { child, address, data }
    }

    /// Its answer to a query; None as long as it does not listen.
    fn ask(&self, query: &str) -> Option<Value> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let encoded = query.bytes().map(|byte| match plain(byte) {
            true => (byte as char).to_string(),
            false => format!("%{byte:02X}"),
        });
        let path = format!("/api/v1/query?query={}", encoded.collect::<String>());
        let mut connection = BufReader::new(TcpStream::connect(&self.address).ok()?);
        write!(connection.get_mut(), "GET {path} HTTP/1.0\r\n\r\n").ok()?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer).ok()?;
        serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.data.path().join("log")).unwrap()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

#[test]
fn a_real_prometheus_scrapes_it() {
    let runtime = runtime();
    let program = served(&runtime);
    let mut serving = Serving::start(&runtime, &["--listen", "0"]);
    let prometheus = Prometheus::start(&serving.address());
    let labels = format!("{{pid=\"{}\"}}", program.pid());
    for name in [
        "userswap_swap_out_bytes_total",
        "userswap_node_resident_bytes",
        "userswap_fault_latency_seconds_count",
    ] {
        eventually(&format!("{name}{labels} is known: {}", prometheus.log()), || {
            let answer = prometheus.ask(&format!("{name}{labels}"));
            answer.is_some_and(|it| it["data"]["result"][0]["value"][1].is_string())
        });
    }
    drop(prometheus);
    serving.stop("-TERM");
}

/// All queries of docs/grafana.json, with what a user may have chosen for its variables.
fn queries(of: &Value, pid: &str, found: &mut Vec<String>) {
    match of {
        Value::Object(fields) => {
            for (key, value) in fields {
                match (key.as_str(), value) {
                    ("expr", Value::String(text)) => found.push(
                        text.replace("$pid", pid)
                            .replace("$program", "python.*")
                            .replace("$__rate_interval", "20s"),
                    ),
                    _ => queries(value, pid, found),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| queries(value, pid, found)),
        _ => {}
    }
}

#[test]
fn a_real_prometheus_has_an_answer_to_every_query_of_the_dashboard() {
    let runtime = runtime();
    let program = served(&runtime);
    let mut serving = Serving::start(&runtime, &["--listen", "0"]);
    let prometheus = Prometheus::start(&serving.address());
    let dashboard = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/grafana.json");
    let dashboard: Value = serde_json::from_slice(&fs::read(dashboard).unwrap()).unwrap();
    let mut all = Vec::new();
    queries(&dashboard, &program.pid(), &mut all);
    assert!(all.len() > 30, "{all:?}");
    for query in all {
        assert!(!query.contains('$'), "{query}: a variable that the dashboard does not have");
        let mut answer = Value::Null;
        eventually(&format!("{query} has an answer"), || {
            answer = prometheus.ask(&query).unwrap_or_default();
            // What is refused once is refused for ever.
            assert_ne!(answer["status"], "error", "{query}: {answer}");
            answer["data"]["result"].as_array().is_some_and(|result| !result.is_empty())
        });
    }
    drop(prometheus);
    serving.stop("-TERM");
}

#[test]
fn a_socket_is_for_its_user_only_and_goes_with_the_server() {
    let runtime = runtime();
    let path = runtime.path().join("metrics.sock");
    let listen = format!("unix:{}", path.display());
    // What a killed server has left is taken over.
    drop(UnixListener::bind(&path).unwrap());
    let mut serving = Serving::start(&runtime, &["--listen", &listen]);
    assert_eq!(serving.address(), listen);
    let found = fs::symlink_metadata(&path).unwrap();
    assert!(found.file_type().is_socket() && found.mode() & 0o777 == 0o600, "{:o}", found.mode());
    let connect = || UnixStream::connect(&path).unwrap();
    assert!(got(connect(), "/metrics", "*/*").0.contains("200 OK"));
    let second = userswap_in(&runtime, &["metrics", "--listen", &listen]).output().unwrap();
    is_refusal(&second, 1, &["--listen", &listen, "choose another one"]);
    assert!(got(connect(), "/metrics", "*/*").0.contains("200 OK"), "the first one goes on");
    serving.stop("-TERM");
    assert_eq!(fs::symlink_metadata(&path).unwrap_err().kind(), ErrorKind::NotFound);
    fs::write(&path, "a file of the user's").unwrap();
    let refused = userswap_in(&runtime, &["metrics", "--listen", &listen]).output().unwrap();
    is_refusal(&refused, 1, &[&listen]);
    assert_eq!(fs::read_to_string(&path).unwrap(), "a file of the user's");
}

#[test]
fn a_file_is_replaced_as_a_whole_again_and_again() {
    let runtime = runtime();
    let program = served(&runtime);
    let home = directory();
    let file = home.path().join("userswap.prom");
    let name = file.to_str().unwrap();
    assert_eq!(printed(&runtime, &["metrics", "--textfile", name]), "");
    promtool(&fs::read_to_string(&file).unwrap());
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o644);
    let serving = Serving::start(&runtime, &["--textfile", name, "--every", "1"]);
    let mut moments = std::collections::BTreeSet::new();
    let up = format!("engine_up{{pid=\"{}\"}} 1\n", program.pid());
    eventually("it is written twice more", || {
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains(&up), "never half of it: {text}");
        moments.insert(fs::metadata(&file).unwrap().mtime_nsec());
        moments.len() > 2
    });
    serving.stop("-TERM");
    assert_eq!(names_in(home.path()), ["userswap.prom"]);
    let nowhere = home.path().join("no/such.prom");
    let refused = userswap_in(&runtime, &["metrics", "--textfile", nowhere.to_str().unwrap()]);
    is_refusal(&{ refused }.output().unwrap(), 1, &["--textfile", "no/such.prom", "directory"]);
}

#[test]
fn metrics_take_the_place_of_metrics_only() {
    let (runtime, home) = (runtime(), directory());
    let file = home.path().join("file.prom");
    let name = file.to_str().unwrap();
    for there in ["", "#", "# HELP x y\n"] {
        fs::write(&file, there).unwrap();
        assert_eq!(printed(&runtime, &["metrics", "--textfile", name]), "");
        assert!(fs::read_to_string(&file).unwrap().starts_with("# HELP userswap"));
    }
    fs::write(&file, "a list").unwrap();
    let output = userswap_in(&runtime, &["metrics", "--textfile", name]).output().unwrap();
    is_refusal(&output, 2, &["--textfile", name, "something else than metrics"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "a list");
}

fn names_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_program_that_is_stopped_is_told_as_such_and_hides_no_other() {
    let runtime = runtime();
    let (stopped, running) = (served(&runtime), served(&runtime));
    let pid = stopped.pid();
    let signal = |name: &str| Command::new("kill").args([name, &pid]).status().unwrap();
    assert!(signal("-STOP").success());
    let told = samples(&printed(&runtime, &["metrics"]));
    assert_eq!(value(&told, "userswap_engine_up", &stopped.pid()), 0.0);
    assert_eq!(value(&told, "userswap_engine_up", &running.pid()), 1.0);
    assert!(value(&told, "userswap_swap_out_bytes_total", &running.pid()) > 0.0);
    assert!(told.keys().filter(|name| name.contains(&stopped.pid())).count() == 1, "{told:?}");
    assert!(signal("-CONT").success());
    let told = samples(&printed(&runtime, &["metrics"]));
    assert_eq!(value(&told, "userswap_engine_up", &stopped.pid()), 1.0);
}

#[test]
fn nobody_is_told_of_the_programs_of_others() {
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    assert!(is_root, "this test needs root, to become another user: run it as root");
    let runtime = runtime();
    let mine = served(&runtime);
    let program = runtime.path().join("userswap-for-all");
    fs::copy(env!("CARGO_BIN_EXE_userswap"), &program).unwrap();
    let output = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--"])
        .arg(&program)
        .arg("metrics")
        .env("XDG_RUNTIME_DIR", runtime.path())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("# TYPE userswap_engine_up gauge"), "{text}");
    assert!(!text.contains(&format!("pid=\"{}\"", mine.pid())), "{text}");
}

#[test]
fn bad_input_is_refused_in_one_line() {
    let runtime = runtime();
    let metrics =
        |arguments: &[&str]| userswap_in(&runtime, &["metrics"]).args(arguments).output().unwrap();
    for (arguments, parts) in [
        (["--listen", "nonsense"], ["--listen", "\"nonsense\"", "127.0.0.1:9877"]),
        (["--listen", "unix:"], ["--listen", "\"unix:\"", "unix:/"]),
        (["--listen", "1.2.3.4:99999"], ["--listen", "99999", "127.0.0.1:9877"]),
    ] {
        is_refusal(&metrics(&arguments), 2, &parts);
    }
    is_refusal(&metrics(&["--textfile", "x", "--every", "0"]), 2, &["--every", "0", "1..=86400"]);
    for arguments in [&["--every", "5"][..], &["--listen", "0", "--textfile", "x"], &["x"]] {
        assert_eq!(metrics(arguments).status.code(), Some(2), "{arguments:?}");
    }
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    is_refusal(&metrics(&["--listen", &taken]), 1, &["--listen", &taken]);
}
