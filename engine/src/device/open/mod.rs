//! Opens a swap device, or says in one line why not.
//!
//! The rules are those of swapon(8): nothing that could be a user's data is written to, nothing
//! that other swap uses is taken, and a refused device is exactly as it was before. A directory gets
//! an unlinked temporary file, so that nothing stays behind whatever happens to the process. All
//! looking is done before the first change; [`check`] is the looking alone. The first page of a
//! device is its header (slot 0, never used for a page): on files and block devices it keeps the
//! signature by which the device is accepted again. Driving the device is left to the I/O back ends.

mod direct;
mod existing;
mod room;
mod temporary;

use crate::sys::file_limit;
use crate::sys::own_fd::Own;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use crate::base::open_error::OpenError;
use room::Room;

use super::DEVICE_SLOTS;
use super::far::Far;
use super::remote::Address;
use super::remote::open::{self as remote_open, Opened};
use super::s3;
use super::spec::{SwapPath, SwapSpec};
use super::throttle::Throttle;
use super::zram::options::Compression;
use crate::base::limits::DEVICE_MIN_BYTES;
use crate::base::size::ByteSize;
use userswap_policy::faulty::Plan;

/// The unit of device space.
const PAGE_BYTES: u64 = crate::sys::PAGE_BYTES as u64;

/// The largest part of a device that is used, in bytes: what a slot's number has room for.
pub const DEVICE_MAX_BYTES: u64 = DEVICE_SLOTS as u64 * PAGE_BYTES;

/// How long a device that another process uses may take to become free.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long to sleep before such a device is tried again.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// Where swap goes when no path is given and `TMPDIR` is of no use: on disk, and kept at reboot.
const FALLBACK_DIRECTORY: &str = "/var/tmp";

/// A swap device that is ours until its file is closed.
#[derive(Debug)]
pub struct OpenDevice {
    /// The open and locked file; `None` for memory.
    pub file: Option<File>,
    /// The path as the user named it.
    pub path: PathBuf,
    /// What the path turned out to be.
    pub kind: DeviceKind,
    /// Size in whole pages, the header page included.
    pub bytes: u64,
    /// Whether the file bypasses the kernel's page cache.
    pub direct: Direct,
    /// Something the user should know, in one line.
    pub warning: Option<String>,
    /// The priority asked for.
    pub priority: Option<i16>,
    /// The tier asked for.
    pub tier: Option<u8>,
    /// The NUMA node asked for.
    pub node: Option<u16>,
    /// How slow it is made to be.
    pub throttle: Option<Throttle>,
    /// By which plan it fails, for tests.
    pub faulty: Option<Plan>,
    /// Whether what is written there is to be encrypted.
    pub encrypt: bool,
    /// The directory of a temporary file, in which more of them can be made.
    pub directory: Option<Own<OwnedFd>>,
    /// The servers, if it is a remote store.
    pub remote: Option<Box<dyn Far>>,
}

impl OpenDevice {
    /// What was found at a path, with nothing asked for.
    pub(super) fn new(path: PathBuf, kind: DeviceKind, bytes: u64, direct: Direct) -> Self {
        Self {
            file: None,
            path,
            kind,
            bytes,
            direct,
            warning: None,
            priority: None,
            tier: None,
            node: None,
            throttle: None,
            faulty: None,
            encrypt: false,
            directory: None,
            remote: None,
        }
    }

    /// A device of so many bytes whose pages are compressed in slots of another.
    pub fn packed(bytes: u64, tier: Option<u8>) -> Self {
        Self { tier, ..Self::new(PathBuf::from("packed"), DeviceKind::Packed, bytes, Direct::Yes) }
    }
}

/// What a device is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceKind {
    /// An unlinked file in a directory.
    Temporary,
    /// A file that stays.
    File,
    /// A block device.
    Block,
    /// Memory.
    Memory,
    /// Memory in which pages are compressed.
    Compressed(Compression),
    /// Slots of another device, with several compressed pages in each.
    Packed,
    /// The memory of servers.
    Remote,
    /// Objects of a store.
    S3,
}

impl DeviceKind {
    /// Whether its slots are in a file or a block device.
    pub fn is_file(self) -> bool {
        matches!(self, Self::Temporary | Self::File | Self::Block)
    }
}

/// Whether reads and writes go straight to the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Direct {
    /// They do, tried with a real page.
    Yes,
    /// They go through the page cache.
    No {
        /// Why.
        reason: String,
    },
}

/// Opens the device that `spec` names, `default_bytes` large (or as large as there is room for)
/// when neither the specification nor an existing device gives a size.
///
/// # Errors
/// Whatever makes the device unusable; nothing is changed on disk then.
pub fn open(spec: &SwapSpec, default_bytes: u64) -> Result<OpenDevice, OpenError> {
    let device = prepare_patiently(spec, default_bytes)?;
    match device.change {
        Change::None => Ok(device.opened),
        Change::Resize => existing::resize(device.opened),
        Change::Format => existing::format(device.opened),
        Change::Create => existing::create(device.opened),
    }
}

/// What [`open`] would open.
pub struct Checked {
    /// How large it would be.
    pub bytes: u64,
    /// See [`OpenDevice::warning`].
    pub warning: Option<String>,
}

/// Finds out whether [`open`] would succeed and changes nothing.
///
/// # Errors
/// As for [`open`].
pub fn checked(spec: &SwapSpec, default_bytes: u64) -> Result<Checked, OpenError> {
    let OpenDevice { bytes, warning, .. } = prepare_patiently(spec, default_bytes)?.opened;
    Ok(Checked { bytes, warning })
}

/// The same; returns the warning.
///
/// # Errors
/// As for [`open`].
pub fn check(spec: &SwapSpec, default_bytes: u64) -> Result<Option<String>, OpenError> {
    checked(spec, default_bytes).map(|checked| checked.warning)
}

/// The same with addresses in the place of names, for a program in which nobody may look names up.
///
/// # Errors
/// There is no such host.
pub fn resolved(spec: SwapSpec) -> Result<SwapSpec, OpenError> {
    s3::open::resolved(remote_open::resolved(spec)?)
}

/// The kernel keeps the files of a process that has just ended, or of a ring that has just let go of them, for
/// a moment.
fn prepare_patiently(spec: &SwapSpec, default_bytes: u64) -> Result<Prepared, OpenError> {
    let begun = Instant::now();
    loop {
        match prepare(spec, default_bytes) {
            Err(OpenError::Locked { .. } | OpenError::Busy { .. })
                if begun.elapsed() < PATIENCE =>
            {
                std::thread::sleep(BETWEEN_LOOKS);
            }
            outcome => return outcome,
        }
    }
}

/// The directory for swap when none is named: `TMPDIR` when it is a writable directory on a real
/// file system, else `/var/tmp`.
pub fn default_directory() -> PathBuf {
    directory_or_fallback(std::env::var_os("TMPDIR").map(PathBuf::from))
}

fn directory_or_fallback(wanted: Option<PathBuf>) -> PathBuf {
    use rustix::fs::{Access, access};
    wanted
        .filter(|directory| directory.is_absolute() && directory.is_dir())
        .filter(|directory| access(directory, Access::WRITE_OK | Access::EXEC_OK).is_ok())
        .filter(|directory| File::open(directory).is_ok_and(|file| !room::is_memory(&file)))
        .unwrap_or_else(|| PathBuf::from(FALLBACK_DIRECTORY))
}

/// What is still to be done to the disk once everything has been looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    /// Nothing.
    None,
    /// One of ours becomes longer.
    Resize,
    /// An empty file gets its size and our mark.
    Format,
    /// The file does not exist yet.
    Create,
}

/// A device that passed every check, before anything on disk was changed.
struct Prepared {
    opened: OpenDevice,
    change: Change,
}

/// How large a device is to be.
#[derive(Debug, Clone, Copy)]
struct SizeWanted {
    asked: Option<u64>,
    /// Without a size asked for, the most that is taken of what there is room for.
    default_bytes: u64,
}

/// What a path leads to.
enum Target {
    Directory,
    New { parent: PathBuf },
    Existing(fs::Metadata),
}

fn prepare(spec: &SwapSpec, default_bytes: u64) -> Result<Prepared, OpenError> {
    // No warning that a default is smaller than it could be.
    let default_bytes = default_bytes.min(DEVICE_MAX_BYTES);
    let mut device = prepare_any(spec, default_bytes)?;
    device.opened.faulty = spec.faulty;
    device.opened.encrypt = spec.encrypt;
    if spec.faulty.is_some() {
        add_warning(
            &mut device,
            format!("{spec}: fails on purpose, for tests: pages will be lost"),
        );
    }
    if device.opened.bytes > DEVICE_MAX_BYTES {
        let (path, size) = (device.opened.path.display(), ByteSize(device.opened.bytes));
        let most = ByteSize(DEVICE_MAX_BYTES);
        let warning =
            format!("{path}: only the first {most} of {size} are used: add another device");
        add_warning(&mut device, warning);
    }
    Ok(device)
}

fn add_warning(device: &mut Prepared, warning: String) {
    let others = device.opened.warning.take().map(|others| format!("{others}; "));
    device.opened.warning = Some(others.unwrap_or_default() + &warning);
}

fn prepare_any(spec: &SwapSpec, default_bytes: u64) -> Result<Prepared, OpenError> {
    let path = match &spec.path {
        SwapPath::Memory => return prepare_memory(spec, DeviceKind::Memory, default_bytes),
        SwapPath::Compressed(compression) => {
            return prepare_memory(spec, DeviceKind::Compressed(*compression), default_bytes);
        }
        SwapPath::Remote(address) => return prepare_remote(spec, address, default_bytes),
        SwapPath::S3(address) => return prepare_s3(spec, address, default_bytes),
        SwapPath::Path(path) => path,
    };
    let size = SizeWanted { asked: spec.size, default_bytes };
    let mut device = match look_at(path)? {
        Target::Directory => prepare_temporary(path, size)?,
        Target::New { parent } => {
            // A temporary file beside it shows that the directory can be written to and has room.
            let mut device = prepare_temporary(&parent, size)?;
            device.opened.kind = DeviceKind::File;
            device.opened.file = None;
            device.opened.directory = None;
            device.change = Change::Create;
            device
        }
        Target::Existing(found) => existing::prepare(path, &found, size)?,
    };
    // As others name it, without a `/` at its end.
    device.opened.path = path.components().collect();
    device.opened.priority = spec.priority;
    device.opened.tier = spec.tier;
    device.opened.node = spec.node;
    device.opened.throttle = spec.throttle;
    Ok(device)
}

fn prepare_remote(
    spec: &SwapSpec,
    address: &Address,
    default_bytes: u64,
) -> Result<Prepared, OpenError> {
    let path = remote_open::path_of(address);
    let bytes = whole_pages(&path, spec.size.unwrap_or(default_bytes))?;
    let Opened { remote, warning } = remote_open::open(spec, address, bytes)?;
    let mut device = prepare_memory(spec, DeviceKind::Remote, default_bytes)?;
    device.opened.path = path;
    device.opened.direct = Direct::Yes;
    device.opened.warning = warning;
    device.opened.remote = Some(Box::new(remote));
    Ok(device)
}

fn prepare_s3(
    spec: &SwapSpec,
    address: &s3::address::Address,
    default_bytes: u64,
) -> Result<Prepared, OpenError> {
    let path = PathBuf::from(address.to_string());
    let bytes = whole_pages(&path, spec.size.unwrap_or(default_bytes))?;
    let far = s3::open::open(spec, address, bytes)?;
    let mut device = prepare_memory(spec, DeviceKind::S3, default_bytes)?;
    device.opened.path = path;
    device.opened.direct = Direct::Yes;
    device.opened.remote = Some(far);
    Ok(device)
}

fn prepare_memory(
    spec: &SwapSpec,
    kind: DeviceKind,
    default_bytes: u64,
) -> Result<Prepared, OpenError> {
    let name = if kind == DeviceKind::Memory { "mem" } else { "zram" };
    let path = PathBuf::from(name);
    let bytes = whole_pages(&path, spec.size.unwrap_or(default_bytes))?;
    let direct = Direct::No { reason: "it is memory".to_owned() };
    let opened = OpenDevice {
        priority: spec.priority,
        tier: spec.tier,
        node: spec.node,
        throttle: spec.throttle,
        ..OpenDevice::new(path, kind, bytes, direct)
    };
    Ok(Prepared { opened, change: Change::None })
}

/// A new file in RAM.
pub(super) fn memory_device(bytes: u64) -> std::io::Result<File> {
    let file = crate::sys::fd::memory_file()?;
    file_limit::set_len(&file, bytes)?;
    Ok(file)
}

fn prepare_temporary(directory: &Path, size: SizeWanted) -> Result<Prepared, OpenError> {
    let opened = temporary::open_directory(directory)?;
    let mut device = prepare_in(opened.as_fd(), directory, size)?;
    device.opened.directory = Some(opened);
    Ok(device)
}

/// One more temporary file like a device's, in its directory, which may have no path any more.
///
/// # Errors
/// It cannot be made.
pub fn open_beside(directory: BorrowedFd, path: &Path, bytes: u64) -> Result<File, OpenError> {
    let size = SizeWanted { asked: None, default_bytes: bytes };
    let opened = prepare_in(directory, path, size)?.opened;
    Ok(opened.file.expect("a directory gives a file"))
}

fn prepare_in(
    opened: BorrowedFd,
    directory: &Path,
    size: SizeWanted,
) -> Result<Prepared, OpenError> {
    let file = temporary::create(opened, directory)?;
    let bytes = Room::around(&file, directory)?.fit(directory, size)?;
    let bytes = whole_pages(directory, bytes)?;
    let direct = direct::try_on_empty(&file, directory)?;
    file.set_len(bytes).map_err(|error| OpenError::io(directory, "make a swap file in", error))?;
    let opened = OpenDevice {
        warning: direct::warning(directory, &direct),
        file: Some(file),
        ..OpenDevice::new(directory.to_owned(), DeviceKind::Temporary, bytes, direct)
    };
    Ok(Prepared { opened, change: Change::None })
}

/// Finds out what is at `path` without opening it: opening alone can set a device in motion.
fn look_at(path: &Path) -> Result<Target, OpenError> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() => look_through_link(path),
        Ok(found) if found.is_dir() => Ok(Target::Directory),
        Ok(found) => match type_name(found.file_type()) {
            None => Ok(Target::Existing(found)),
            Some(name) => Err(OpenError::WrongType { path: path.to_owned(), found: name }),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => match parent(path) {
            Some(parent) => Ok(Target::New { parent }),
            None => Err(OpenError::NoSuchDirectory { path: path.to_owned() }),
        },
        Err(error) => Err(OpenError::io(path, "use", error)),
    }
}

/// A link to a directory is as good as the directory; a link to anything that would be written in
/// place could be a trap.
fn look_through_link(path: &Path) -> Result<Target, OpenError> {
    if path.is_dir() {
        return Ok(Target::Directory);
    }
    let target = fs::canonicalize(path).or_else(|_| fs::read_link(path)).unwrap_or_default();
    Err(OpenError::Link { path: path.to_owned(), target })
}

/// The existing directory in which a new file `path` would be made.
fn parent(path: &Path) -> Option<PathBuf> {
    if path.to_string_lossy().ends_with('/') {
        return None; // A directory was meant.
    }
    path.file_name()?;
    let parent = match path.parent()? {
        parent if parent.as_os_str().is_empty() => Path::new("."),
        parent => parent,
    };
    parent.is_dir().then(|| parent.to_owned())
}

/// The name of a file type that cannot hold slots.
fn type_name(found: fs::FileType) -> Option<&'static str> {
    if found.is_fifo() {
        Some("a pipe")
    } else if found.is_char_device() {
        Some("a character device")
    } else if found.is_socket() {
        Some("a socket")
    } else {
        None
    }
}

/// `bytes` rounded down to pages, if that is enough for a device.
fn whole_pages(path: &Path, bytes: u64) -> Result<u64, OpenError> {
    if bytes < DEVICE_MIN_BYTES {
        return Err(OpenError::TooSmall { path: path.to_owned(), bytes });
    }
    Ok(bytes - bytes % PAGE_BYTES)
}

#[cfg(test)]
mod tests;
