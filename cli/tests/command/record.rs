//! `run --record`, `record` and `report` on programs whose use of memory is known.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::preload_support::{compile, directory, run, succeed, with};
use serde_json::Value;
use userswap_report::{Cost, Record, words};

/// Pages of the program that goes round and round.
const LOOP_PAGES: u64 = (48 << 20) / 4096;

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain name")
}

fn userswap(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_userswap"));
    command.args(args).output().expect("the command starts")
}

/// Runs a program with a record and with statistics, which it must survive.
fn record(directory: &Path, fault: &str, program: &Path) -> (PathBuf, Value) {
    let (file, stats) = (directory.join("record"), directory.join("stats.json"));
    let options = ["--record", text(&file), "--stats", text(&stats)];
    succeed(with(&run("16M", fault), &options).arg(program));
    (file, serde_json::from_slice(&fs::read(stats).unwrap()).unwrap())
}

fn opened(file: &Path) -> Record {
    Record::open(file).unwrap_or_else(|bad| panic!("{bad}"))
}

#[test]
fn the_curve_of_a_loop_falls_where_all_of_it_fits() {
    for fault in ["thread", "signal"] {
        let directory = directory();
        let program = compile(directory.path(), "loop_then_hot.c");
        let (file, stats) = record(directory.path(), fault, &program);
        let record = opened(&file);
        assert!(record.has_ended && record.lost == 0 && !record.header.forked);
        // Samples are differences: their sum is what was counted, up to the last one.
        for name in ["pgfault", "pgmajfault"] {
            assert_eq!(stats[name].as_u64(), Some(record.counter(name)), "{name}");
        }
        // What the engine does by itself goes on after it.
        for name in ["pswpin", "pswpout"] {
            let (recorded, counted) = (record.counter(name), stats[name].as_u64().unwrap());
            assert!(
                recorded <= counted && recorded * 10 > counted * 9,
                "{name}: {recorded}, {counted}"
            );
        }
        assert!(record.counter("pswpin") > LOOP_PAGES, "{:?}", record.totals.counters);
        let faults: u64 = record.totals.fault_latency.values().sum();
        assert!(faults > 0 && faults <= record.counter("pgfault"), "{faults}");
        assert!(record.totals.read_bytes >= record.counter("pswpin") * 4096);
        assert!(record.totals.stall_ns > 0 && record.totals.fault_ns > 0);
        let now = record.curve.reads(record.budget_pages());
        let [before, after] = [LOOP_PAGES * 8 / 10, LOOP_PAGES * 13 / 10];
        assert!(record.curve.reads(before) * 10 > now * 7, "{fault}: {:?}", record.curve);
        assert!(record.curve.reads(after) * 10 < now, "{fault}: {:?}", record.curve);
        // It is what the one large mapping cost.
        let dearest = &record.costs[0];
        assert!(u64::from(dearest.mapping.count) >= LOOP_PAGES, "{:?}", record.costs);
        assert!(dearest.back * 10 > now * 7, "{:?}", record.costs);
    }
}

#[test]
fn mappings_are_called_by_the_program_s_names_and_by_the_functions_that_asked_for_them() {
    for fault in ["thread", "signal"] {
        let directory = directory();
        let program = compile(directory.path(), "origins.c");
        let (file, _) = record(directory.path(), fault, &program);
        let record = opened(&file);
        let named = |begins: &str| {
            let of = |cost: &&Cost| words::place(&record, cost).starts_with(begins);
            let found: Vec<&Cost> = record.costs.iter().filter(of).collect();
            let [cost] = found[..] else {
                panic!("{fault}: {begins}: {found:?}: {:?}", record.origins)
            };
            *cost
        };
        let pages = |mib: u64| mib << 20 >> 12;
        // In this order: grown, four neighbours of one call, and named.
        for (begins, mib) in
            [("load_table ← main: ", 44), ("map ← map_part ← main: ", 16), ("page cache: ", 20)]
        {
            let cost = named(begins);
            assert!(cost.back > pages(mib) && cost.mapping.count > 0, "{fault}: {cost:?}");
            // A mapping may be one of several by the time at which it is looked at.
            assert!(u64::from(cost.mapping.count) <= pages(mib), "{fault}: {cost:?}");
        }
        // Neither by the name that was taken away nor by one that is none.
        let names: Vec<&str> = record.origins.iter().map(String::as_str).collect();
        assert!(!names.iter().any(|name| ["for a while", "\n", "odd"].contains(name)), "{names:?}");
        let said = succeed(Command::new(env!("CARGO_BIN_EXE_userswap")).arg("report").arg(&file));
        assert!(said.contains("load_table ← main: "), "{said}");
        // Without its files there are places instead of functions.
        fs::remove_file(&program).unwrap();
        let places = opened(&file).origins;
        assert!(places.iter().any(|place| place.starts_with("origins+0x")), "{places:?}");
        assert!(!places.iter().any(|place| place.contains("load_table")), "{places:?}");
    }
}

/// The keys that each kind of event must have in the format of chrome://tracing, which the Perfetto UI opens.
fn check_event(event: &Value, last: &mut f64) {
    assert!(event["name"].as_str().is_some_and(|name| !name.is_empty()), "{event}");
    assert!(event["pid"].is_u64(), "{event}");
    let values = event["args"].as_object().unwrap_or_else(|| panic!("{event}"));
    match event["ph"].as_str() {
        Some("M") => assert!(event["name"] == "process_name" && values["name"].is_string()),
        Some("C") => {
            assert!(!values.is_empty() && values.values().all(Value::is_number), "{event}");
        }
        Some("i") => {
            assert!(event["s"] == "p" && values.values().all(Value::is_string), "{event}");
        }
        _ => panic!("{event}"),
    }
    if event["ph"] != "M" {
        let at = event["ts"].as_f64().unwrap_or_else(|| panic!("{event}"));
        assert!(at >= *last && at.is_finite(), "{event}");
        *last = at;
    }
}

#[test]
fn record_runs_a_program_and_writes_what_perfetto_opens() {
    let (directory, program) = (directory(), "loop_then_hot.c");
    let program = compile(directory.path(), program);
    let here = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_userswap"));
        command.arg("record").args(args).current_dir(directory.path());
        command
    };
    let small = ["--ram", "16M", "--swap", "/var/tmp", "--", text(&program)];
    succeed(&mut here(&small));
    succeed(here(&["-o", "job.record"]).args(small));
    let files = ["userswap.record", "job.record"].map(|name| directory.path().join(name));
    assert!(files.iter().all(|file| opened(file).has_ended));
    // The form without a record takes the one that is made without -o.
    succeed(&mut here(&["--perfetto", "default.json"]));
    succeed(&mut here(&["--perfetto", "job.json", "job.record"]));
    for (events, file) in ["default.json", "job.json"].iter().zip(&files) {
        let events = fs::read(directory.path().join(events)).unwrap();
        let events: Value = serde_json::from_slice(&events).unwrap();
        let all = events["traceEvents"].as_array().unwrap();
        assert!(all.len() > 10 * opened(file).moments.len(), "{}", all.len());
        let mut last = 0.0;
        all.iter().for_each(|event| check_event(event, &mut last));
    }
    // The user's defaults are those of run.
    let mut defaults = here(&["--", "true"]);
    let output = defaults.env("USERSWAP_RAM", "1M").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && said.contains("USERSWAP_RAM"), "{said}");
}

/// Fills three times its budget, changes a setting of its own, forks, and reads everything back.
const EVENTFUL: &str = "
import os, subprocess, sys
b = bytearray(48 << 20)
for i in range(0, len(b), 4096): b[i:i+4] = i.to_bytes(4, 'little')
subprocess.run([sys.argv[1], 'set', str(os.getpid()), 'swap_ra_policy', 'fixed'], check=True)
if os.fork() == 0:
    assert all(int.from_bytes(b[i:i+4], 'little') == i for i in range(0, len(b), 4096))
    sys.exit(0)
assert os.wait()[1] == 0
assert all(int.from_bytes(b[i:i+4], 'little') == i for i in range(0, len(b), 4096))
";

#[test]
fn settings_that_change_and_forks_are_in_the_record_and_for_perfetto() {
    let (directory, runtime) = (directory(), directory());
    let script = directory.path().join("script.py");
    fs::write(&script, EVENTFUL).unwrap();
    let file = directory.path().join("record");
    let mut command = with(&run("16M", "thread"), &["--record", text(&file)]);
    command.env("XDG_RUNTIME_DIR", runtime.path());
    succeed(command.args(["python3", text(&script), env!("CARGO_BIN_EXE_userswap")]));
    let record = opened(&file);
    let settings = record.moments.iter().map(|moment| moment.sample.settings.get("swap_ra_policy"));
    let settings: Vec<&str> = settings.flatten().map(String::as_str).collect();
    assert_eq!(settings, ["stream", "fixed"]);
    // subprocess may start its child by vfork, which is none.
    assert!(record.counter("forks") >= 1, "{:?}", record.totals.counters);
    let children = fs::read_dir(directory.path()).unwrap().flatten();
    let is_child = |name: &Path| name.to_str().is_some_and(|name| name.contains("record."));
    let children: Vec<PathBuf> =
        children.map(|entry| entry.path()).filter(|name| is_child(name)).collect();
    let forked = children.iter().map(|file| opened(file)).filter(|record| record.header.forked);
    let forked: Vec<Record> = forked.collect();
    assert!(!forked.is_empty(), "{children:?}");
    // What was counted before the fork is the parent's.
    assert!(record.counter("pages_adopted") > 0, "{:?}", record.totals.counters);
    assert!(forked.iter().all(|child| child.counter("pages_adopted") == 0));
    let events = directory.path().join("events.json");
    let written = userswap(&["report", text(&file), "--perfetto", text(&events)]);
    assert!(written.status.success() && written.stdout.is_empty(), "{written:?}");
    let events: Value = serde_json::from_slice(&fs::read(events).unwrap()).unwrap();
    let events = events["traceEvents"].as_array().unwrap();
    let named = |name: &str| events.iter().filter(|event| event["name"] == name).count();
    assert_eq!((named("engaged"), named("settings changed")), (1, 1));
    assert_eq!(named("RAM, MiB"), record.moments.len());
    assert!(events.iter().all(|event| event["pid"] == record.header.pid));
}

/// Reads three times its budget back, fails to become what is not there, asks for its count of faults, and becomes another
/// program that does nearly the same.
const BECOMES: &str = "
import json, os, subprocess, sys
def go_through():
    b = bytearray(48 << 20)
    for i in range(0, len(b), 4096): b[i:i+4] = i.to_bytes(4, 'little')
    assert all(int.from_bytes(b[i:i+4], 'little') == i for i in range(0, len(b), 4096))
    return b
b = go_through()
if len(sys.argv) > 2:
    for become in [lambda: os.execv('/no/such/program', ['x']), lambda: subprocess.run(['/no/such/child'])]:
        try: become()
        except FileNotFoundError: pass
    assert all(int.from_bytes(b[i:i+4], 'little') == i for i in range(0, len(b), 4096))
    status = subprocess.run([sys.argv[1], 'status', '--json', str(os.getpid())], check=True, capture_output=True)
    print(json.loads(status.stdout)['counters']['pgfault'], flush=True)
    os.execvp('python3', ['python3', sys.argv[0], 'another'])
";

#[test]
fn a_process_that_becomes_another_program_has_a_whole_record_of_each() {
    for fault in ["thread", "signal"] {
        let (directory, runtime) = (directory(), directory());
        let script = directory.path().join("script.py");
        fs::write(&script, BECOMES).unwrap();
        let file = directory.path().join("record");
        let mut command = with(&run("16M", fault), &["--record", text(&file)]);
        command.env("XDG_RUNTIME_DIR", runtime.path());
        command.args(["python3", text(&script), env!("CARGO_BIN_EXE_userswap"), "exec"]);
        let faults: u64 = succeed(&mut command).trim().parse().unwrap();
        let first = opened(&file);
        let tried = first.moments.iter().map(|moment| moment.sample.exec.as_str());
        let tried: Vec<&str> = tried.filter(|program| !program.is_empty()).collect();
        let [failed, done] = tried[..] else { panic!("{fault}: {tried:?}") };
        assert_eq!(failed, "/no/such/program");
        assert!(done.ends_with("/python3") && first.became() == Some(done), "{fault}: {tried:?}");
        assert!(!first.has_ended && first.lost == 0, "{fault}");
        assert!(first.counter("pgfault") >= faults, "{fault}: {:?}", first.totals.counters);
        let pid = first.header.pid;
        let second = opened(&directory.path().join(format!("record.{pid}")));
        assert!(second.has_ended && second.became().is_none() && !second.header.forked, "{fault}");
        assert_eq!(second.header.pid, pid);
        let called = &second.header.record.as_ref().unwrap().command;
        assert!(called.ends_with(" another"), "{called}");
        assert!(second.counter("pswpin") > 0, "{fault}");
        let said = succeed(Command::new(env!("CARGO_BIN_EXE_userswap")).arg("report").arg(&file));
        assert!(said.contains(&format!("{done}, by exec")), "{said}");
        let events = directory.path().join("events.json");
        assert!(userswap(&["report", text(&file), "--perfetto", text(&events)]).status.success());
        let events = fs::read_to_string(events).unwrap();
        assert!(events.contains("\"exec /no/such/program\""), "{events}");
    }
}

/// What a browser makes of a page: in words of its own, and as it looks.
struct Seen {
    dom: String,
    errors: String,
    looks: [Vec<u8>; 2],
}

/// Opens a page three times at once, with nothing to reach outside: as a document, in light and in dark.
fn browse(directory: &Path, page: &Path) -> Seen {
    let start = |name: &str, options: &[&str]| {
        let profile = directory.join(format!("profile-{name}"));
        Command::new("chromium")
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"])
            .args(["--proxy-server=127.0.0.1:9", "--window-size=1000,2600"])
            .arg(format!("--user-data-dir={}", profile.display()))
            .args(options)
            .arg(page)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("chromium is installed: .ci/run does so")
    };
    let files = ["light.png", "dark.png"].map(|name| directory.join(name));
    let shot = |file: &Path| format!("--screenshot={}", file.display());
    let scheme = |number| format!("--blink-settings=preferredColorScheme={number}");
    let children = [
        start("dom", &["--dump-dom"]),
        start("light", &[&shot(&files[0]), &scheme(1)]),
        start("dark", &[&shot(&files[1]), &scheme(0)]),
    ];
    let outputs = children.map(|child| child.wait_with_output().unwrap());
    let of = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let errors = outputs.iter().map(|output| of(&output.stderr)).collect();
    Seen { dom: of(&outputs[0].stdout), errors, looks: files.map(|file| fs::read(file).unwrap()) }
}

#[test]
fn a_report_opens_in_a_browser_in_light_and_dark_and_asks_nobody() {
    let directory = directory();
    let program = compile(directory.path(), "loop_then_hot.c");
    let (file, _) = record(directory.path(), "thread", &program);
    let page = directory.path().join("report.html");
    let written = userswap(&["report", text(&file), "-o", text(&page)]);
    assert!(written.status.success(), "{written:?}");
    let html = fs::read_to_string(&page).unwrap();
    // The name of SVG is the only address in it.
    let addresses = html.replace("http://www.w3.org/2000/svg", "");
    for outside in ["http:", "https:", "url(", "@import", "src=", "<script"] {
        assert!(!addresses.contains(outside), "{outside}");
    }
    let seen = browse(directory.path(), &page);
    for id in ["ram", "throughput", "stalled", "latency", "access", "curve"] {
        assert!(seen.dom.contains(&format!("<svg id=\"{id}\"")), "{id}: {}", seen.dom);
    }
    assert_eq!(seen.dom.matches("<svg").count(), seen.dom.matches("</svg>").count());
    assert!(!seen.errors.contains("CONSOLE"), "{}", seen.errors);
    let [light, dark] = seen.looks;
    assert!(light.starts_with(b"\x89PNG") && light.len() > 20_000 && light != dark);
    let svg = directory.path().join("report.svg");
    assert!(userswap(&["report", text(&file), "-o", text(&svg)]).status.success());
    assert!(fs::read_to_string(svg).unwrap().contains("prefers-color-scheme: dark"));
}

#[test]
fn words_say_what_more_ram_would_do_and_two_records_are_compared() {
    let directory = directory();
    let program = compile(directory.path(), "loop_then_hot.c");
    let (file, _) = record(directory.path(), "thread", &program);
    let said = succeed(Command::new(env!("CARGO_BIN_EXE_userswap")).arg("report").arg(&file));
    for part in
        ["RECORD", "loop_then_hot", "More RAM: ", "MAPPING", "PAGES BACK", "How sure that is"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    let compared = userswap(&["report", "--compare", text(&file), text(&file)]);
    let compared = String::from_utf8_lossy(&compared.stdout).into_owned();
    assert!(
        compared.contains("Both took the same time") && compared.contains("1.00"),
        "{compared}"
    );
    let page = directory.path().join("both.html");
    let args = ["report", "--compare", text(&file), text(&file), "-o", text(&page)];
    assert!(userswap(&args).status.success());
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("id=\"first-curve\"") && page.contains("id=\"second-curve\""));
}

/// Standard output, which is a pipe here.
const PIPE: &str = "/proc/self/fd/1";

#[test]
fn a_record_is_kept_from_what_is_drawn_from_it() {
    let directory = directory();
    let program = compile(directory.path(), "loop_then_hot.c");
    let (file, _) = record(directory.path(), "thread", &program);
    let whole = fs::read(&file).unwrap();
    let at = |name: &str| directory.path().join(name);
    let [link, html] = [at("link.json"), at("record.html")];
    std::os::unix::fs::symlink("record", &link).unwrap();
    fs::write(&html, &whole).unwrap();
    let kept = "is a record, which would be lost: name another file";
    for to in [&file, &link, &html] {
        refused(&["record", "--perfetto", text(to), text(&file)], &["--perfetto", text(to), kept]);
        refused(&["report", text(&file), "--perfetto", text(to)], &["--perfetto", text(to), kept]);
    }
    // Meant as what is read.
    refused(&["record", "--perfetto", text(&file)], &[text(&file), kept]);
    refused(&["report", text(&file), "-o", text(&html)], &["-o", text(&html), kept]);
    assert!([&file, &link, &html].iter().all(|file| fs::read(file).unwrap() == whole));
    // What is no record may be there, and so may a pipe.
    let events = at("events.json");
    fs::write(&events, "older").unwrap();
    for to in [text(&events), PIPE] {
        let written = userswap(&["report", text(&file), "--perfetto", to]);
        assert!(written.status.success(), "{written:?}");
        let printed = if to == PIPE { written.stdout } else { fs::read(to).unwrap() };
        let value: Value = serde_json::from_slice(&printed).unwrap();
        assert!(value["traceEvents"].is_array());
    }
    let names = fs::read_dir(directory.path()).unwrap().flatten().map(|entry| entry.file_name());
    assert!(!names.into_iter().any(|name| name.to_string_lossy().ends_with(".tmp")));
}

#[test]
fn a_record_that_is_cut_is_reported_up_to_there() {
    let directory = directory();
    let program = compile(directory.path(), "loop_then_hot.c");
    let (file, _) = record(directory.path(), "thread", &program);
    let whole = fs::read(&file).unwrap();
    fs::write(&file, &whole[..whole.len() * 2 / 3]).unwrap();
    let said = succeed(Command::new(env!("CARGO_BIN_EXE_userswap")).arg("report").arg(&file));
    assert!(said.contains("in the middle of a block: what came after is not in it"), "{said}");
    assert!(said.contains("the record has no end: "), "{said}");
}

#[test]
fn what_is_no_record_gets_one_line_and_status_2() {
    let directory = directory();
    let program = compile(directory.path(), "loop_then_hot.c");
    let (file, _) = record(directory.path(), "thread", &program);
    let whole = fs::read(&file).unwrap();
    let bad = directory.path().join("bad");
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    for (content, said) in [
        (&b"nonsense"[..], "is no trace: name a file"),
        (userswap_trace::recorded::NUMPY_SORT, "is a trace without samples"),
        (&damaged, "is damaged at byte"),
    ] {
        fs::write(&bad, content).unwrap();
        refused(&["report", text(&bad)], &[text(&bad), said]);
    }
    let good = text(&file);
    refused(&["report", "/no/such"], &["/no/such", "name a file of userswap record"]);
    let inside = format!("{good}/inside");
    refused(&["report", &inside], &[&inside, "Not a directory", "name a file that can be read"]);
    refused(&["report", good, "-o", "report.png"], &["report.png", "ends in .html or .svg"]);
    refused(&["report", good, "-o", "/no/such/a.svg"], &["/no/such/a.svg", "can be written"]);
    refused(&["report", good, good], &["--compare"]);
    refused(&["report", "--compare", good], &["name one more"]);
    let args = ["report", "--compare", good, good, "-o", "a.svg"];
    refused(&args, &["--compare draws .html"]);
    refused(&["record", "--perfetto", "a.json", good, "more"], &["more", "name one record"]);
    refused(
        &["record", "--perfetto", "/no/such/a.json", good],
        &["/no/such/a.json", "can be written"],
    );
    refused(&["record", "--perfetto", "a.json", "/no/such"], &["/no/such", "userswap record"]);
    refused(
        &["record", "-o", "/no/such/a", "--", "true"],
        &["-o /no/such/a", "writable directory"],
    );
}

fn refused(args: &[&str], parts: &[&str]) {
    let output = userswap(args);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    let (status, lines) = (output.status.code(), error.lines().count());
    assert_eq!((status, lines), (Some(2), 1), "{args:?}: {error}");
    assert!(parts.iter().all(|part| error.contains(part)), "{parts:?} are not in {error}");
}
