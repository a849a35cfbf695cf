//! The rival: the kernel's own swap, set up as an administrator would set it up for one program.
//!
//! A fresh swap file, or a device in compressed memory, with a priority above all others, a memory control group with the limit, the
//! system's own tuning otherwise. Whatever happens, it is all removed again: a cleaner process,
//! forked before anything exists, does that when its parent tells it to or is gone.

mod cgroup;
mod swapfile;
pub(crate) mod swapoff;
mod zram;
mod zswap;

use crate::interrupt::Interrupt;
use crate::process::{self, Course, Finished, Part, RunError};
use cgroup::{Cgroup, Hierarchy};
use clap::ValueEnum;
use std::ffi::CString;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, PipeWriter};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use thiserror::Error;
use userswap::internals::bench::cleaner::{self, LeftOver, Remains, Removal};
use userswap::internals::bench::process::{self as sys, Pid};

/// Why the kernel's swap could not be measured.
#[derive(Debug, Error)]
pub enum KernelError {
    /// Swap and control groups are root's.
    #[error("the kernel's swap can be measured by root only: run as root or leave --vs away")]
    NotRoot,
    /// The directory for the swap file cannot be used.
    #[error("cannot use the directory {path} for a swap file: {source}")]
    Directory {
        /// As it was given.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The directory's file system lives in RAM.
    #[error("{0} is in RAM (tmpfs), where the kernel cannot swap to: name a directory on a disk")]
    InRam(PathBuf),
    /// The system offers no way to limit a program's memory.
    #[error("no memory control group is mounted (neither v1 nor v2): mount one")]
    NoMemoryController,
    /// The control group could not be set up.
    #[error("cannot set up the control group: {path}: {source}")]
    Cgroup {
        /// The file or directory of the failed step.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The swap file could not be made or used.
    #[error("cannot swap to {path}: {source}")]
    SwapFile {
        /// The swap file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The device in memory could not be made.
    #[error("cannot make a zram device: {path}: {source}: have the module zram loaded")]
    Zram {
        /// Of the kernel's interface.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The kernel's zram does not have this algorithm.
    #[error(
        "the kernel's zram has {has}, not {algorithm}: give --swap zram:SIZE,algo=NAME with one of these"
    )]
    Algorithm {
        /// What was asked for.
        algorithm: String,
        /// What there is.
        has: String,
    },
    /// There is no compressed memory in front of swap files.
    #[error(
        "cannot use zswap: {path}: {source}: take a kernel that has it (CONFIG_ZSWAP), or --vs kernel"
    )]
    Zswap {
        /// Of the kernel's interface.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Readahead could not be tuned.
    #[error("cannot tune the kernel: {path}: {source}")]
    Tuning {
        /// Below `/proc/sys`.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A load's memory did not leave.
    #[error("{used} of {bytes} bytes are in swap: the load could not be paged out")]
    NotOut {
        /// What is in swap.
        used: u64,
        /// What should be.
        bytes: u64,
    },
    /// A load failed.
    #[error("the load failed: {status}\n{stderr}")]
    Load {
        /// How it ended.
        status: ExitStatus,
        /// What it said.
        stderr: String,
    },
    /// The load itself.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The cleaner could not be started or waited for.
    #[error("cannot run the cleaner: {0}")]
    Cleaner(io::Error),
    /// Something could not be removed afterwards.
    #[error("could not remove {what} ({swap_file}, {cgroup}): swapoff and remove by hand")]
    LeftOver {
        /// What is left, in words.
        what: String,
        /// The swap file.
        swap_file: PathBuf,
        /// The control group.
        cgroup: PathBuf,
    },
}

/// Swap beyond a load itself: page tables' and the program's own pages, the last partial cluster.
pub(crate) const SWAP_SPARE_BYTES: u64 = 64 << 20;

/// What userswap is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Rival {
    /// The kernel's own swap: a memory control group and a new swap file (needs root)
    Kernel,
    /// The kernel's own swap, to a device in compressed memory instead of a file (needs root)
    Zram,
    /// The kernel's own swap, with its compressed memory in front of the file (needs root)
    Zswap,
}

impl Rival {
    /// What the kernel swaps to, with its swap file, if it has one, in `directory`.
    /// That of a device in compressed memory is `algorithm`, or the kernel's own choice.
    pub(crate) fn place<'a>(
        self,
        directory: &'a Path,
        algorithm: Option<&'static str>,
    ) -> Place<'a> {
        match self {
            Self::Kernel => Place::FileIn(directory),
            Self::Zswap => Place::Zswap { directory, algorithm },
            Self::Zram => Place::Zram { algorithm },
        }
    }
}

/// What a program gets from the kernel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits<'a> {
    pub(crate) ram_bytes: u64,
    pub(crate) swap_bytes: u64,
    pub(crate) place: Place<'a>,
    /// What zswap's pages may take at most where the control group does not contain them; as the machine has it where that is
    /// None.
    pub(crate) pool_bytes_max: Option<u64>,
}

/// What the kernel swaps to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place<'a> {
    /// A new file in this directory.
    FileIn(&'a Path),
    /// The same, with compressed memory in front of it.
    Zswap {
        directory: &'a Path,
        /// As it is where none is named, or the kernel has not this one.
        algorithm: Option<&'static str>,
    },
    /// A new device in compressed memory.
    Zram {
        /// The kernel's own choice where none is named.
        algorithm: Option<&'static str>,
    },
}

impl Place<'_> {
    /// Finds out, without changing anything, whether this can be used.
    pub(crate) fn check(self) -> Result<(), KernelError> {
        match self {
            Self::FileIn(directory) => check(directory),
            Self::Zswap { directory, .. } => zswap::check().and_then(|()| check(directory)),
            Self::Zram { algorithm } => {
                check_rights()?;
                zram::check(algorithm)
            }
        }
    }

    /// What zswap compresses with now.
    fn compressor(self) -> Option<String> {
        matches!(self, Self::Zswap { .. }).then(zswap::algorithm).flatten()
    }

    /// What of the kernel is another while it is used.
    fn tuning(self) -> Result<Vec<Tuning>, KernelError> {
        match self {
            Self::Zswap { .. } => zswap::tuning(),
            Self::FileIn(_) | Self::Zram { .. } => Ok(Vec::new()),
        }
    }
}

/// A file of the kernel's tuning, and what has to be in it again.
#[derive(Debug)]
struct Tuning {
    file: &'static str,
    before: Vec<u8>,
}

/// Runs `command` with `ram_bytes` of RAM and a new swap file of `swap_bytes` in `dir`, and
/// removes the file again.
///
/// The command's output is captured; a use of the same `Command` afterwards would fail, because
/// its control group is gone. Needs root. An interrupting signal (SIGINT, SIGTERM, SIGHUP,
/// SIGQUIT) kills the program, and is returned as [`RunError::Interrupted`] after the clean-up.
///
/// # Errors
/// When the swap file or the control group cannot be made, the program cannot be started, or
/// something cannot be removed. A program that fails is not an error: see [`Finished::status`].
pub fn run_limited(
    command: &mut Command,
    ram_bytes: u64,
    swap_bytes: u64,
    dir: &Path,
) -> Result<Finished, KernelError> {
    let limits = Limits { ram_bytes, swap_bytes, place: Place::FileIn(dir), pool_bytes_max: None };
    Ok(run(command, &limits, &Course::new(Part::Whole))?.finished)
}

/// Finds out, without changing anything, whether [`run_limited`] has what it needs.
///
/// # Errors
/// Without root, a memory control group, or a directory on a disk.
pub fn check(dir: &Path) -> Result<(), KernelError> {
    check_rights()?;
    swapfile::check_directory(dir)
}

/// Whether control groups here do not contain what zswap's pages take.
pub(crate) fn leaves_zswap_out() -> Result<bool, KernelError> {
    Hierarchy::find().map(|hierarchy| !hierarchy.contains_zswap())
}

/// What a swap device of any kind needs.
fn check_rights() -> Result<(), KernelError> {
    if !sys::is_root() {
        return Err(KernelError::NotRoot);
    }
    Hierarchy::find().map(drop)
}

/// Refuses a directory that does not exist or has no disk below it.
pub(crate) fn check_disk(dir: &Path) -> Result<(), KernelError> {
    swapfile::check_directory(dir)
}

/// As [`run_limited`], followed in a way of choice.
pub(crate) fn run(
    command: &mut Command,
    limits: &Limits<'_>,
    course: &Course,
) -> Result<Limited, KernelError> {
    limits.place.check()?;
    let interrupt = Interrupt::hold().map_err(RunError::from)?;
    let baseline = Baseline::set_up(limits, limits.place.tuning()?)?;
    interrupt.check().map_err(RunError::from)?;
    baseline.cgroup.enter(command)?;
    let pool = match limits.place {
        Place::Zswap { algorithm, .. } => {
            let is_outside = leaves_zswap_out()?;
            zswap::switch_on(algorithm, limits.pool_bytes_max.filter(|_| is_outside))?;
            is_outside.then(zswap::Pool::watch).transpose()?
        }
        Place::FileIn(_) | Place::Zram { .. } => None,
    };
    let finished = process::run(command, course);
    let compressor = limits.place.compressor();
    let pool_bytes = pool.map(zswap::Pool::bytes_max);
    let compressed_bytes_max = match limits.place {
        Place::FileIn(_) | Place::Zswap { .. } => Ok(pool_bytes),
        Place::Zram { .. } => zram::bytes_max(&baseline.cleaner.swap_file).map(Some),
    };
    baseline.tear_down()?;
    Ok(Limited { finished: finished?, compressed_bytes_max: compressed_bytes_max?, compressor })
}

/// A program that has ended on the kernel's swap.
#[derive(Debug)]
pub(crate) struct Limited {
    pub(crate) finished: Finished,
    /// The most memory that compressed pages took outside the control group: none contains zram's, and one of version 1 not
    /// zswap's.
    pub(crate) compressed_bytes_max: Option<u64>,
    /// What zswap compressed with, which may be another algorithm than was asked for.
    pub(crate) compressor: Option<String>,
}

/// A swap file in use and a control group, both removed when dropped.
#[derive(Debug)]
struct Baseline {
    cgroup: Cgroup,
    cleaner: Cleaner,
}

impl Baseline {
    /// `tuning` is what is going to be changed.
    fn set_up(limits: &Limits<'_>, tuning: Vec<Tuning>) -> Result<Self, KernelError> {
        let hierarchy = Hierarchy::find()?;
        let name = unique_name();
        let cgroup = hierarchy.child(&name);
        let (swap_file, removal) = match limits.place {
            Place::FileIn(directory) | Place::Zswap { directory, .. } => {
                (swapfile::path(directory, &name)?, Removal::Unlink)
            }
            Place::Zram { .. } => zram::add()?,
        };
        let cleaner = Cleaner::start(&swap_file, removal, &cgroup, tuning)?;
        cgroup.create(limits.ram_bytes)?;
        match limits.place {
            Place::FileIn(_) | Place::Zswap { .. } => {
                swapfile::create(&swap_file, limits.swap_bytes)
            }
            Place::Zram { algorithm } => zram::create(&swap_file, limits.swap_bytes, algorithm),
        }
        .map_err(|source| KernelError::SwapFile { path: swap_file, source })?;
        Ok(Self { cgroup, cleaner })
    }

    fn tear_down(mut self) -> Result<(), KernelError> {
        let left = self.cleaner.finish().map_err(KernelError::Cleaner)?;
        if left == LeftOver::NOTHING {
            return Ok(());
        }
        Err(KernelError::LeftOver {
            what: left.describe().join(", "),
            swap_file: self.cleaner.swap_file.clone(),
            cgroup: self.cgroup.directory().to_owned(),
        })
    }
}

/// A name that nothing has had before: what bears it may be removed.
pub(crate) fn unique_name() -> String {
    // A new RandomState is seeded by the system, which makes this a random number.
    let random = RandomState::new().hash_one(std::process::id());
    format!("userswap-bench-{}-{random:016x}", std::process::id())
}

/// The cleaner process and the pipe whose end starts it.
#[derive(Debug)]
struct Cleaner {
    swap_file: PathBuf,
    remains: Remains,
    running: Option<(Pid, PipeWriter)>,
}

impl Cleaner {
    fn start(
        swap_file: &Path,
        removal: Removal,
        cgroup: &Cgroup,
        tuning: Vec<Tuning>,
    ) -> Result<Self, KernelError> {
        let remains = Remains {
            swap_file: c_path(swap_file),
            removal,
            cgroup: c_path(cgroup.directory()),
            procs: c_path(&cgroup.procs()),
            tuned: tuning
                .into_iter()
                .map(|Tuning { file, before }| (c_path(Path::new(file)), before))
                .collect(),
        };
        let (reader, writer) = io::pipe().map_err(KernelError::Cleaner)?;
        let pid = cleaner::start(&remains, reader, &writer).map_err(KernelError::Cleaner)?;
        Ok(Self { swap_file: swap_file.to_owned(), remains, running: Some((pid, writer)) })
    }

    /// Has everything removed and says what could not be.
    fn finish(&mut self) -> io::Result<LeftOver> {
        let Some((pid, writer)) = self.running.take() else { return Ok(LeftOver::NOTHING) };
        drop(writer);
        let code = sys::wait(pid)?.status.code();
        // A cleaner that was killed cannot have done its work.
        Ok(code.map_or_else(|| cleaner::clean(&self.remains), LeftOver::from_exit_code))
    }
}

impl Drop for Cleaner {
    fn drop(&mut self) {
        // Reached with a running cleaner only on the way out of an error, which is told instead.
        drop(self.finish());
    }
}

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("a path that the kernel gave has no NUL")
}

fn open_directory(path: &Path) -> io::Result<File> {
    let directory = File::open(path)?;
    if directory.metadata()?.is_dir() {
        Ok(directory)
    } else {
        Err(io::Error::from(io::ErrorKind::NotADirectory))
    }
}
