//! The RFC's machine under QEMU's software emulation: four nodes, a CPU and swap devices on them.
use crate::outcome::Outcome;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// The program that emulates the machine.
pub const EMULATOR: &str = "qemu-system-x86_64";
/// Number of nodes, with one CPU each.
pub const NODES: u32 = 4;
const NODE_MIB: u32 = 512;
/// The devices' serial numbers and nodes, with the names of the RFC's examples.
pub const DEVICES: [(&str, u32); 5] = [("A", 0), ("B", 1), ("C", 2), ("D", 3), ("E", 2)];
const DEVICE_BYTES: u64 = 256 << 20;

/// What is booted, and how.
pub struct Boot<'a> {
    /// The kernel's image.
    pub kernel: &'a Path,
    /// The packed root.
    pub initramfs: &'a Path,
    /// The script that the guest runs.
    pub script: &'a str,
    /// A directory for the devices' images.
    pub images: &'a Path,
    /// Where the console's text is kept.
    pub log: &'a Path,
    /// The machine is stopped so long after it has booted.
    pub limit: Duration,
}

/// What the guest's first process says, once there is one.
const BOOTED: &str = "@boot ";
/// Fifteen times what a boot takes on a quiet host with two CPUs.
const BOOT_SECONDS_MAX: u64 = 60;

/// What became of a machine.
pub enum Run {
    /// It turned itself off; what was written to its console.
    Ended(String),
    /// Its kernel has not come to its first process.
    NotBooted,
}

/// Boots the machine.
///
/// # Errors
/// It cannot be started or, once it has booted, did not end in time.
pub fn run(boot: &Boot<'_>) -> Result<Run, Outcome> {
    let io = |error: std::io::Error| Outcome::failed(format!("{EMULATOR}: {error}"));
    let mut log = File::create(boot.log).map_err(io)?;
    let mut machine = Running(command(boot).map_err(io)?.spawn().map_err(io)?);
    let output = machine.0.stdout.take().expect("the output is a pipe");
    let (lines, console) = channel();
    std::thread::spawn(move || forward(output, &lines));
    let mut text = String::new();
    let mut until = Instant::now() + Duration::from_secs(BOOT_SECONDS_MAX);
    let mut is_booted = false;
    loop {
        match console.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                text.push_str(&line);
                // Only for people: the test goes on without it.
                let _ = log.write_all(line.as_bytes());
                if !is_booted && line.starts_with(BOOTED) {
                    (is_booted, until) = (true, Instant::now() + boot.limit);
                }
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) if is_booted => return Err(not_done(boot)),
            Err(RecvTimeoutError::Timeout) => return Ok(Run::NotBooted),
        }
    }
    machine.0.wait().map_err(io)?;
    Ok(Run::Ended(text))
}

fn not_done(boot: &Boot<'_>) -> Outcome {
    let (script, seconds, log) = (boot.script, boot.limit.as_secs(), boot.log.display());
    Outcome::failed(format!("{script}: not done after {seconds} s, stopped: see {log}"))
}

/// Sends the lines of a console, whose firmware writes what is not UTF-8.
fn forward(output: impl Read, lines: &Sender<String>) {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
        let text = String::from_utf8_lossy(&line).replace('\r', "");
        if lines.send(text).is_err() {
            return;
        }
        line.clear();
    }
}

/// A machine that is stopped when its owner goes.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Fails when it has ended already, as it should have.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn command(boot: &Boot<'_>) -> std::io::Result<Command> {
    // Killed with this process, even if this process is killed.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", EMULATOR]);
    command.args("-machine q35 -accel tcg,thread=multi -no-reboot".split(' '));
    command.args("-nodefaults -display none -vga none -serial stdio".split(' '));
    command.args(["-m", &format!("{}M", NODES * NODE_MIB)]);
    command.args(["-smp", &format!("{NODES},sockets={NODES}")]);
    command.arg("-kernel").arg(boot.kernel).arg("-initrd").arg(boot.initramfs);
    let append = format!("console=ttyS0 panic=-1 quiet guest={}", boot.script);
    command.args(["-append", &append]);
    for node in 0..NODES {
        let memory = format!("memory-backend-ram,id=memory{node},size={NODE_MIB}M");
        let bus = node * 32 + 32;
        command.args(["-object", &memory]);
        command.args(["-numa", &format!("node,nodeid={node},cpus={node},memdev=memory{node}")]);
        let bridge = format!("pxb-pcie,id=bus{node},bus_nr={bus},bus=pcie.0,numa_node={node}");
        command.args(["-device", &bridge]);
    }
    for (index, (serial, node)) in DEVICES.iter().enumerate() {
        let image = boot.images.join(serial);
        File::create(&image)?.set_len(DEVICE_BYTES)?;
        let port = format!("pcie-root-port,id=port{serial},bus=bus{node},chassis={}", index + 1);
        let image = image.display();
        // Nothing on it is needed after the boot: the host need not write it back.
        let drive = format!("file={image},if=none,id=drive{serial},format=raw,cache=unsafe");
        let device = format!("nvme,drive=drive{serial},serial={serial},bus=port{serial}");
        command.args(["-device", &port, "-drive", &drive, "-device", &device]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    Ok(command)
}
