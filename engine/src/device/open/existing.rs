//! Files and block devices with a name: accepted when empty or marked as swap, never else.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{ErrorKind, Seek, SeekFrom};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;

use super::room::Room;
use super::{Change, DeviceKind, Direct, OpenDevice, OpenError, PAGE_BYTES, Prepared, SizeWanted};
use super::{direct, whole_pages};

/// What mkswap(8) leaves at the end of the first page.
const KERNEL_MARK: &[u8; 10] = b"SWAPSPACE2";

/// What this program leaves there instead.
pub(super) const OUR_MARK: &[u8; 10] = b"USERSWAP01";

/// Where the mark is, in bytes from the start of the device.
const MARK_OFFSET: usize = PAGE_BYTES as usize - KERNEL_MARK.len();

/// The first page of a device, aligned as O_DIRECT demands.
#[repr(align(4096))]
pub(super) struct HeaderPage(pub(super) [u8; PAGE_BYTES as usize]);

impl HeaderPage {
    pub(super) fn zeroed() -> Box<HeaderPage> {
        Box::new(HeaderPage([0; PAGE_BYTES as usize]))
    }

    pub(super) fn marked(mark: &[u8; 10]) -> Box<HeaderPage> {
        let mut page = HeaderPage::zeroed();
        page.0[MARK_OFFSET..].copy_from_slice(mark);
        page
    }
}

/// What the first page says about a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    Empty,
    Ours,
    KernelsUnused,
    SomebodysData,
}

/// An open and locked file or block device, before anything is written to it.
struct Existing<'a> {
    path: &'a Path,
    file: &'a File,
    kind: DeviceKind,
    /// Its size in bytes.
    held: u64,
}

/// Opens and examines what `path` names.
pub(super) fn prepare(
    path: &Path,
    found: &Metadata,
    size: SizeWanted,
) -> Result<Prepared, OpenError> {
    if is_kernel_swap(found, &kernel_swaps()) {
        return Err(OpenError::KernelSwap { path: path.to_owned() });
    }
    let kind = match found.file_type().is_block_device() {
        true => DeviceKind::Block,
        false => DeviceKind::File,
    };
    let mut file = open_in_place(path, found, kind)?;
    let held = file
        .seek(SeekFrom::End(0))
        .map_err(|error| OpenError::io(path, "find the size of", error))?;
    let (bytes, change) = Existing { path, file: &file, kind, held }.judge(size)?;
    let bytes = whole_pages(path, bytes)?;
    let direct = match change {
        Change::Format => Direct::Yes, // Nothing to read yet: tried when the mark is written.
        _ => direct::try_with(&file, path, None)?,
    };
    let warning =
        join_warnings([open_to_others(path, found, kind), direct::warning(path, &direct)]);
    let opened = OpenDevice {
        file: Some(file),
        warning,
        ..OpenDevice::new(path.to_owned(), kind, bytes, direct)
    };
    Ok(Prepared { opened, change })
}

impl Existing<'_> {
    /// The size to use and what must be done for it, given what the device holds.
    fn judge(&self, size: SizeWanted) -> Result<(u64, Change), OpenError> {
        match (self.content()?, self.kind) {
            (Content::SomebodysData, _) | (Content::Empty, DeviceKind::Block) => {
                Err(OpenError::SomebodysData { path: self.path.to_owned() })
            }
            (Content::Empty, _) => {
                let bytes = Room::around(self.file, self.path)?.fit(self.path, size)?;
                Ok((bytes, Change::Format))
            }
            (Content::Ours, DeviceKind::File) => match size.asked {
                Some(asked) if asked > self.held => Ok((self.grown_to(asked)?, Change::Resize)),
                asked => Ok((asked.unwrap_or(self.held), Change::None)),
            },
            (Content::Ours | Content::KernelsUnused, _) => {
                Ok((self.size_within(size.asked)?, Change::None))
            }
        }
    }

    fn content(&self) -> Result<Content, OpenError> {
        if self.held == 0 {
            return Ok(Content::Empty);
        }
        if self.held < PAGE_BYTES {
            return Ok(Content::SomebodysData);
        }
        let mut page = HeaderPage::zeroed();
        self.file
            .read_exact_at(&mut page.0, 0)
            .map_err(|error| OpenError::io(self.path, "read", error))?;
        Ok(match &page.0[MARK_OFFSET..] {
            mark if mark == OUR_MARK => Content::Ours,
            mark if mark == KERNEL_MARK => Content::KernelsUnused,
            _ => Content::SomebodysData,
        })
    }

    /// The size of a device that cannot grow.
    fn size_within(&self, asked: Option<u64>) -> Result<u64, OpenError> {
        match asked {
            Some(asked) if asked > self.held => Err(OpenError::TooLarge {
                path: self.path.to_owned(),
                asked,
                room: self.held,
                limit: "there",
                other: "device",
            }),
            asked => Ok(asked.unwrap_or(self.held)),
        }
    }

    /// The size of a file of ours that grows into the free space.
    fn grown_to(&self, asked: u64) -> Result<u64, OpenError> {
        let room = Room::around(self.file, self.path)?;
        let size = SizeWanted { asked: Some(asked), default_bytes: asked };
        Room { bytes: room.bytes.saturating_add(self.held), ..room }.fit(self.path, size)
    }
}

/// Makes the file and then what [`format`] does; a failure removes the file again.
pub(super) fn create(mut device: OpenDevice) -> Result<OpenDevice, OpenError> {
    let path = device.path.clone();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(OFlags::NOFOLLOW.bits() as i32)
        .open(&path)
        .map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => OpenError::Replaced { path: path.clone() },
            _ => OpenError::io(&path, "create", error),
        })?;
    let created = lock(&file, &path).and_then(|()| {
        device.file = Some(file);
        format(device)
    });
    if created.is_err() {
        // The refusal is what matters; a file that cannot be removed is empty and ours.
        let _ = fs::remove_file(&path);
    }
    created
}

/// Gives an empty file its size and our mark; a failure leaves it empty.
pub(super) fn format(mut device: OpenDevice) -> Result<OpenDevice, OpenError> {
    let file = device.file.as_ref().expect("only devices with a file are formatted");
    let (path, page) = (&device.path, HeaderPage::marked(OUR_MARK));
    let result = direct::try_with(file, path, Some(&page)).and_then(|direct| {
        file.set_len(device.bytes).map_err(|error| OpenError::io(path, "extend", error))?;
        Ok(direct)
    });
    match result {
        Ok(direct) => {
            let kept = device.warning.take().filter(|_| direct == Direct::Yes);
            device.warning = join_warnings([kept, direct::warning(path, &direct)]);
            device.direct = direct;
            Ok(device)
        }
        Err(error) => {
            // As it was; when even that fails the first error still says why.
            let _ = file.set_len(0);
            Err(error)
        }
    }
}

/// Makes one of our files longer.
pub(super) fn resize(device: OpenDevice) -> Result<OpenDevice, OpenError> {
    let file = device.file.as_ref().expect("only devices with a file are resized");
    match file.set_len(device.bytes) {
        Ok(()) => Ok(device),
        Err(error) => Err(OpenError::io(&device.path, "extend", error)),
    }
}

fn open_in_place(path: &Path, found: &Metadata, kind: DeviceKind) -> Result<File, OpenError> {
    // Non-blocking: the path may have become a pipe since it was examined.
    let mut flags = OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::NONBLOCK;
    if kind == DeviceKind::Block {
        flags |= OFlags::EXCL; // The kernel's own lock of mounted and claimed devices.
    }
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(flags.bits() as i32)
        .open(path)
        .map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::BUSY) => OpenError::Busy { path: path.to_owned() },
            Some(Errno::TXTBSY) => OpenError::KernelSwap { path: path.to_owned() },
            Some(Errno::LOOP) => OpenError::Replaced { path: path.to_owned() },
            _ => OpenError::io(path, "open", error),
        })?;
    let opened = file.metadata().map_err(|error| OpenError::io(path, "examine", error))?;
    if (opened.dev(), opened.ino()) != (found.dev(), found.ino()) {
        return Err(OpenError::Replaced { path: path.to_owned() });
    }
    lock(&file, path)?;
    Ok(file)
}

fn lock(file: &File, path: &Path) -> Result<(), OpenError> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(OpenError::Locked { path: path.to_owned() }),
        Err(error) => Err(OpenError::io(path, "lock", error)),
    }
}

fn open_to_others(path: &Path, found: &Metadata, kind: DeviceKind) -> Option<String> {
    // The disk group may reach block devices by convention.
    let forbidden = if kind == DeviceKind::Block { 0o007 } else { 0o077 };
    let mode = found.mode() & 0o777;
    let path = path.display();
    (mode & forbidden != 0).then(|| {
        format!("{path}: mode {mode:04o} lets others at swapped memory; run chmod 0600 {path}")
    })
}

fn join_warnings(warnings: [Option<String>; 2]) -> Option<String> {
    let warnings: Vec<String> = warnings.into_iter().flatten().collect();
    (!warnings.is_empty()).then(|| warnings.join("; "))
}

fn kernel_swaps() -> Vec<Metadata> {
    let text = fs::read("/proc/swaps").unwrap_or_default();
    swap_paths(&text).iter().flat_map(fs::metadata).collect()
}

fn is_kernel_swap(found: &Metadata, swaps: &[Metadata]) -> bool {
    swaps.iter().any(|swap| match found.file_type().is_block_device() {
        true => swap.file_type().is_block_device() && swap.rdev() == found.rdev(),
        false => (swap.dev(), swap.ino()) == (found.dev(), found.ino()),
    })
}

/// The paths in a text like `/proc/swaps`, where spaces in names are written `\040`.
fn swap_paths(text: &[u8]) -> Vec<PathBuf> {
    let lines = text.split(|byte| *byte == b'\n').skip(1).filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let end = line.iter().position(|byte| matches!(byte, b' ' | b'\t'));
            unescape(&line[..end.unwrap_or(line.len())])
        })
        .collect()
}

fn unescape(name: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name;
    while let [first, tail @ ..] = rest {
        let octal = tail.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if *first == b'\\' => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_the_kernels_list_are_read_with_their_escapes() {
        let text = b"Filename\t\tType\n/dev/sda2   partition 5\n/my\\040swap\tfile\t9\n";
        assert_eq!(swap_paths(text), [PathBuf::from("/dev/sda2"), PathBuf::from("/my swap")]);
        assert_eq!(swap_paths(b""), [] as [PathBuf; 0]);
    }

    #[test]
    fn a_file_that_the_kernel_swaps_to_is_recognised_under_any_name() {
        let directory = tempfile::tempdir().unwrap();
        let (a, b) = (directory.path().join("a"), directory.path().join("b"));
        fs::write(&a, "").unwrap();
        fs::hard_link(&a, &b).unwrap();
        let (a, b) = (fs::metadata(a).unwrap(), fs::metadata(b).unwrap());
        assert!(is_kernel_swap(&b, &[a]));
        assert!(!is_kernel_swap(&b, &[fs::metadata(directory.path()).unwrap()]));
    }
}
