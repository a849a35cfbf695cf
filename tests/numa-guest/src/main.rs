//! Boots the machine of the RFC on per-node swap devices under emulation, runs the same loads on the
//! kernel's own swap and under `userswap run`, and compares; then boots a kernel without UFFDIO_MOVE.
//!
//! Exit status 0: passed. 1: something is wrong. 3: this machine lacks what the test needs, nothing was
//! tested. It uses the `userswap` beside its own program and leaves files only in `numa-guest` in cargo's
//! target directory: the kernels' images and the consoles of the last run.
mod compare;
mod console;
mod initramfs;
mod kernels;
mod loads;
mod machine;
mod migrated;
mod outcome;
mod rfc;
mod table;

use console::Message;
use initramfs::Program;
use kernels::Image;
use machine::{Boot, Run};
use outcome::Outcome;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The exit status that says that nothing was tested.
const STATUS_UNAVAILABLE: u8 = 3;
/// The boots take about 80 and 12 s on a host with two CPUs, which may have other things to do.
const PLACEMENT_SECONDS_MAX: u64 = 600;
const COPY_SECONDS_MAX: u64 = 600;
/// Boots of a guest whose kernel the emulator breaks.
const BOOTS_MAX: u32 = 3;
/// What the kernel says then: a CPU has run an instruction that another had long changed back. It changes its own code
/// while it runs, and no machine, but sometimes the emulator, has a CPU that does not see it.
const EMULATOR_FAILED: &str = "Oops: int3";
/// Programs of the host that the test starts.
const TOOLS: [&str; 6] = [machine::EMULATOR, "busybox", "cpio", "ldd", "setpriv", "swapon"];

fn main() -> ExitCode {
    let started = Instant::now();
    match run() {
        Ok(()) => {
            println!("numa-guest: passed in {} s", started.elapsed().as_secs());
            ExitCode::SUCCESS
        }
        Err(Outcome::Unavailable(reason)) => {
            eprintln!("numa-guest: cannot be run here: {reason}");
            ExitCode::from(STATUS_UNAVAILABLE)
        }
        Err(Outcome::Failed(reasons)) => {
            for reason in reasons {
                eprintln!("numa-guest: FAILED: {reason}");
            }
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Outcome> {
    let missing: Vec<&str> = TOOLS.into_iter().filter(|tool| find(tool).is_none()).collect();
    if !missing.is_empty() {
        return Err(Outcome::Unavailable(format!("{} missing", missing.join(", "))));
    }
    let build = own_directory()?;
    let kept = build.with_file_name("numa-guest");
    let images = kept.join("kernels");
    let with_move = kernels::image(&kernels::WITH_MOVE, &images)?;
    let without_move = kernels::image(&kernels::WITHOUT_MOVE, &images)?;
    let scratch = Scratch::new(&kept)?;
    let initramfs = initramfs::build(&scratch.0, &programs(&build))?;
    let boot = |script, image: &Image, seconds| {
        let boot = Boot {
            kernel: &image.path,
            initramfs: &initramfs,
            script,
            images: &scratch.0,
            log: &kept.join(format!("console-{script}.log")),
            limit: Duration::from_secs(seconds),
        };
        boot_and_read(&boot, image)
    };
    judge_placement(&boot("placement", &with_move, PLACEMENT_SECONDS_MAX)?)?;
    judge_copy(&boot("copy", &without_move, COPY_SECONDS_MAX)?)
}

/// Where this program and `userswap` were built.
fn own_directory() -> Result<PathBuf, Outcome> {
    let own = env::current_exe().map_err(|error| Outcome::failed(error.to_string()))?;
    let directory = own.parent().expect("a program is in a directory").to_owned();
    match directory.join("userswap").exists() && directory.join("numa-guest-load").exists() {
        true => Ok(directory),
        false => Err(Outcome::failed(
            "userswap is not built: cargo build --package userswap-cli --package userswap-numa-guest",
        )),
    }
}

fn programs(build: &Path) -> Vec<Program> {
    let tool = |name| find(name).expect("it was there a moment ago");
    vec![
        Program { from: tool("busybox"), to: "bin/busybox" },
        // Busybox has no priorities.
        Program { from: tool("swapon"), to: "sbin/swapon" },
        Program { from: build.join("userswap"), to: "bin/userswap" },
        Program { from: build.join("numa-guest-load"), to: "bin/numa-guest-load" },
    ]
}

/// A program of this machine; also where only root looks for it.
fn find(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let directories = env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    directories.map(|directory| directory.join(name)).find(|file| file.is_file())
}

/// A directory for one run.
struct Scratch(PathBuf);

impl Scratch {
    /// Makes one below `kept`, and removes those of runs that were killed.
    fn new(kept: &Path) -> Result<Self, Outcome> {
        for entry in fs::read_dir(kept).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let pid = name.to_str().and_then(|name| name.strip_prefix("run-"));
            if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
                // Another run may be doing the same now.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        let scratch = kept.join(format!("run-{}", std::process::id()));
        fs::create_dir_all(&scratch)
            .map_err(|error| Outcome::failed(format!("{}: {error}", scratch.display())))?;
        Ok(Self(scratch))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left is below cargo's target directory.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Boots; again if the emulator broke the guest's kernel.
fn boot_and_watch(boot: &Boot<'_>) -> Result<String, Outcome> {
    for _ in 0..BOOTS_MAX {
        let broken = match machine::run(boot)? {
            Run::Ended(console) if console.contains(EMULATOR_FAILED) => EMULATOR_FAILED,
            Run::Ended(console) => return Ok(console),
            Run::NotBooted => "it has no first process after a minute",
        };
        println!("numa-guest: the emulator broke the guest's kernel ({broken})");
    }
    let log = boot.log.display();
    Err(Outcome::failed(format!("no boot of {BOOTS_MAX} went well: see {log}")))
}

/// Boots and returns the guest's messages, if it came to its end.
fn boot_and_read(boot: &Boot<'_>, image: &Image) -> Result<Vec<Message>, Outcome> {
    let started = Instant::now();
    println!("numa-guest: {} on {}", boot.script, image.package);
    let messages = console::messages(&boot_and_watch(boot)?);
    let seconds = |kind: &str| {
        let message = messages.iter().find(|message| message.kind == kind)?;
        message.number::<f64>("seconds")
    };
    let (Some(up), Some(end)) = (seconds("boot"), seconds("end")) else {
        let (script, log) = (boot.script, boot.log.display());
        return Err(Outcome::failed(format!("{script}: the guest stopped early: see {log}")));
    };
    let total = started.elapsed().as_secs();
    println!("numa-guest: {total} s: {up:.0} to boot, {:.0} for the loads", end - up);
    Ok(messages)
}

fn judge_placement(messages: &[Message]) -> Result<(), Outcome> {
    let devices = loads::devices(messages);
    for (serial, node) in machine::DEVICES {
        let found = devices.get(serial).map(|device| device.node);
        if found != Some(node) {
            return Err(Outcome::failed(format!("{serial} is on node {found:?}, not on {node}")));
        }
    }
    let mut wrong = Vec::new();
    let loads = loads::loads(messages, &devices, &mut wrong);
    print!("{}", table::table(&loads, &devices));
    wrong.extend(compare::compare(&loads, &devices));
    wrong.extend(migrated::judge(&loads));
    if loads.iter().filter(|load| load.side == loads::Side::Kernel).count() < LOADS {
        wrong.push(format!("fewer than {LOADS} loads on the kernel's swap"));
    }
    if wrong.is_empty() { Ok(()) } else { Err(Outcome::Failed(wrong)) }
}

/// Loads of `guest/placement.sh` on each side.
const LOADS: usize = 9;

/// On a kernel without MOVE pages are copied, data is kept, and MOVE is refused in one line.
fn judge_copy(messages: &[Message]) -> Result<(), Outcome> {
    let mut wrong = Vec::new();
    let loads = loads::loads(messages, &loads::devices(messages), &mut wrong);
    if !loads.iter().any(|load| load.is_verified && load.status == Some(0)) {
        wrong.push("copy: the data was not verified".into());
    }
    let of_kind = |kind: &str| messages.iter().find(|message| message.kind == kind);
    let refusal = of_kind("refusal");
    let is_refused = refusal.is_some_and(|refusal| {
        refusal.word("status") == "2" && refusal.text().contains("no UFFDIO_MOVE")
    });
    if !is_refused {
        let text = refusal.map(Message::text);
        wrong.push(format!("copy: --transfer move is not refused with status 2: {text:?}"));
    }
    let stats = of_kind("stats").map(Message::text).unwrap_or_default();
    let stats: serde_json::Value = serde_json::from_str(&stats).unwrap_or_default();
    let counter = |name: &str| stats[name].as_u64();
    let counters = ["pgcopy", "pswpout", "pswpin", "pages_lost"].map(|name| (name, counter(name)));
    println!("numa-guest: copy: {counters:?}");
    for (name, count) in counters {
        if (name == "pages_lost") != (count == Some(0)) {
            wrong.push(format!("copy: {name} is {count:?}"));
        }
    }
    wrong.extend(judge_scattered(of_kind("scattered")));
    if wrong.is_empty() { Ok(()) } else { Err(Outcome::Failed(wrong)) }
}

/// What is wrong with writers at random: their pages leave by the block, without MOVE as well.
fn judge_scattered(message: Option<&Message>) -> Option<String> {
    let Some(message) = message else { return Some("copy: no writers at random".into()) };
    let text = message.text();
    let mut stats = serde_json::Deserializer::from_str(&text).into_iter();
    let stats: serde_json::Value = stats.next().and_then(Result::ok).unwrap_or_default();
    let counters = ["swpout_block", "swpout_block_kept", "pages_lost"]
        .map(|name| (name, stats[name].as_u64()));
    println!("numa-guest: copy: {counters:?}");
    let [left, _, lost] = counters.map(|(_, count)| count);
    let is_right = message.word("status") == "0" && left > Some(1000) && lost == Some(0);
    (!is_right).then(|| format!("copy: writers at random: {text}"))
}
