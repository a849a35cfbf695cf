//! userfaultfd, our own thin layer: the features up to MOVE and POISON, which no crate offers.
//!
//! Numbers are those of the kernel's `linux/userfaultfd.h` (6.8): distributions still ship older headers.
use super::kept_file::KeptFile;
use super::own_fd::Own;
use super::pagemap::Pagemap;
use super::{PAGE_BYTES, fd};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

const API: u64 = 0xAA;
const TYPE: u64 = 0xAA;
const FLAG_USER_MODE_ONLY: i32 = 1;

/// Feature bits of the API handshake.
pub mod feature {
    /// Faults raise SIGBUS instead of sending a message.
    pub const SIGBUS: u64 = 1 << 7;
    /// Messages name the faulting thread.
    pub const THREAD_ID: u64 = 1 << 8;
    /// UFFDIO_POISON (6.6).
    pub const POISON: u64 = 1 << 14;
    /// UFFDIO_MOVE (6.8).
    pub const MOVE: u64 = 1 << 16;
    /// Write-protect faults (5.7).
    pub const WRITEPROTECT: u64 = 1 << 0;
}

const REGISTER_MISSING: u64 = 1 << 0;
const REGISTER_WP: u64 = 1 << 1;
const WP_SET: u64 = 1 << 0;
const EVENT_PAGEFAULT: u8 = 0x12;
const FAULT_WRITE: u64 = 1 << 0;
const FAULT_WP: u64 = 1 << 1;
const COPY_WP: u64 = 1 << 1;

const fn iowr(number: u64, bytes: usize) -> u64 {
    (3 << 30) | ((bytes as u64) << 16) | (TYPE << 8) | number
}
const fn ior(number: u64, bytes: usize) -> u64 {
    (2 << 30) | ((bytes as u64) << 16) | (TYPE << 8) | number
}

#[repr(C)]
struct ApiArg {
    api: u64,
    features: u64,
    ioctls: u64,
}
#[repr(C)]
struct RangeArg {
    start: u64,
    bytes: u64,
}
#[repr(C)]
struct RegisterArg {
    range: RangeArg,
    mode: u64,
    ioctls: u64,
}
#[repr(C)]
struct TransferArg {
    to: u64,
    from: u64,
    bytes: u64,
    mode: u64,
    done: i64,
}
#[repr(C)]
struct ModeArg {
    range: RangeArg,
    mode: u64,
}
#[repr(C)]
struct PoisonArg {
    range: RangeArg,
    mode: u64,
    done: i64,
}
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Message {
    event: u8,
    reserved: [u8; 7],
    flags: u64,
    address: u64,
    thread: u64,
}

/// A fault that the kernel reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fault {
    /// Address of the page.
    pub address: usize,
    /// The faulting thread, when the kernel names it.
    pub thread: i32,
    /// What the thread was about to do.
    pub access: Access,
}

/// What a thread that faults was about to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// To read a missing page.
    #[default]
    Read,
    /// To write to a missing page; also when that is not known.
    Write,
    /// To write to a page that is there, but protected against it.
    Protected,
}

impl Access {
    fn of_flags(flags: u64) -> Self {
        match (flags & FAULT_WP, flags & FAULT_WRITE) {
            (0, 0) => Self::Read,
            (0, _) => Self::Write,
            _ => Self::Protected,
        }
    }
}

/// How far a transfer got before it stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// Bytes transferred before.
    pub done: usize,
    /// The error number that stopped it.
    pub error: i32,
}

/// Faults read in one system call.
pub const FAULTS_MAX: usize = 16;

/// A userfaultfd with the features that were agreed on.
#[derive(Debug)]
pub struct Uffd {
    fd: Own<OwnedFd>,
    features: u64,
    serves_kernel: AtomicBool,
    /// Gives a forked child its own, whatever rights are left then.
    maker: KeptFile,
    /// Which pages are mapped.
    pub pagemap: Pagemap,
}

impl Uffd {
    /// Opens a userfaultfd with `required` features and as many of `wished` as there are; `user_mode_only`
    /// gives one that any process may have, but which leaves system calls on missing pages with EFAULT.
    ///
    /// # Errors
    /// EPERM without the right, ENOSYS without the system call, EINVAL without the features.
    pub fn open(required: u64, wished: u64, rights: Rights) -> io::Result<Self> {
        let available = Self::features_of(rights)?;
        if available & required != required {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let features = required | (available & wished);
        let maker = if rights == Rights::Kernel { maker() } else { KeptFile::none() };
        // The handshake is possible once per descriptor: a second one asks for what the first has shown.
        let fd = Own::raised(new_fd(rights, &maker)?);
        handshake(&fd, features)?;
        let serves_kernel = AtomicBool::new(rights == Rights::Kernel);
        Ok(Self { fd, features, serves_kernel, maker, pagemap: Pagemap::open() })
    }

    /// After fork, in the child: another one under the same number, with the same features, as this one is the
    /// parent's. It serves the kernel's faults as far as rights that are left, or a maker, allow; says whether.
    ///
    /// # Errors
    /// As [`Uffd::open`], and what dup3 says.
    pub fn renew(&self) -> io::Result<Rights> {
        self.pagemap.renew();
        let (new, rights) = match self.rights() {
            Rights::UserOnly => (new_fd(Rights::UserOnly, &self.maker)?, Rights::UserOnly),
            Rights::Kernel => match new_fd(Rights::Kernel, &self.maker) {
                Ok(new) => (new, Rights::Kernel),
                Err(_) => (new_fd(Rights::UserOnly, &self.maker)?, Rights::UserOnly),
            },
        };
        handshake(&new, self.features)?;
        fd::replace(self.fd.as_raw_fd(), new.as_raw_fd())?;
        // Relaxed: the child has one thread.
        self.serves_kernel.store(rights == Rights::Kernel, Ordering::Relaxed);
        Ok(rights)
    }

    /// Whose faults it serves.
    pub fn rights(&self) -> Rights {
        // Relaxed: changed only in a child that has one thread.
        match self.serves_kernel.load(Ordering::Relaxed) {
            true => Rights::Kernel,
            false => Rights::UserOnly,
        }
    }

    /// All features this kernel offers.
    ///
    /// # Errors
    /// As [`Uffd::open`].
    pub fn features_of(rights: Rights) -> io::Result<u64> {
        handshake(&new_fd(rights, &maker())?, 0)
    }

    /// Which of the ways to one is open to this process, the first that is tried first.
    ///
    /// # Errors
    /// None: what the system call says.
    pub fn way() -> io::Result<Way> {
        if new_fd(Rights::Kernel, &KeptFile::none()).is_ok() {
            return Ok(Way::Call);
        }
        if make_fd(&maker()).is_ok() {
            return Ok(Way::Device);
        }
        new_fd(Rights::UserOnly, &KeptFile::none()).map(|_| Way::UserOnly)
    }

    /// Whether `feature` was agreed on.
    pub fn has(&self, feature: u64) -> bool {
        self.features & feature != 0
    }

    /// Registers a range for missing and, where the kernel can, write-protect faults.
    ///
    /// # Errors
    /// What the kernel says, for instance EBUSY when another userfaultfd has it.
    pub fn register(&self, address: usize, bytes: usize) -> io::Result<()> {
        let wp = if self.has(feature::WRITEPROTECT) { REGISTER_WP } else { 0 };
        let mut argument =
            RegisterArg { range: range(address, bytes), mode: REGISTER_MISSING | wp, ioctls: 0 };
        self.ioctl(iowr(0x00, size_of::<RegisterArg>()), &mut argument)
    }

    /// Takes plain memory out of a registered range: what is missing there is the kernel's from then on, and the
    /// threads that wait for it try again.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn unregister(&self, address: usize, bytes: usize) -> io::Result<()> {
        let mut argument = range(address, bytes);
        self.ioctl(ior(0x01, size_of::<RangeArg>()), &mut argument)
    }

    /// Moves physical pages from one registered range to another and wakes the threads that wait for them.
    ///
    /// # Errors
    /// How far it got, and why it stopped: EBUSY pinned or shared page, EEXIST present, ENOENT missing.
    pub fn move_pages(&self, to: usize, from: usize, bytes: usize) -> Result<(), Stopped> {
        let mut moved = 0;
        loop {
            let code = iowr(0x05, size_of::<TransferArg>());
            let Err(stopped) = self.transfer(code, to + moved, from + moved, bytes - moved) else {
                return Ok(());
            };
            moved += stopped.done;
            // What 6.18 moves only at its second try (the page was migrated or touched meanwhile, or a huge one is split)
            // it forgets to count, and to wake those who wait for it.
            let uncounted = stopped.error == libc::EEXIST
                && self.was_moved(to + moved, from + moved).unwrap_or(false);
            if !uncounted {
                return Err(Stopped { done: moved, error: stopped.error });
            }
            self.wake(to + moved, PAGE_BYTES);
            moved += PAGE_BYTES;
            if moved == bytes {
                return Ok(());
            }
        }
    }

    /// Copies bytes into missing pages and wakes the threads that wait for them.
    ///
    /// # Errors
    /// How far it got, and why it stopped: EEXIST present, ENOMEM.
    pub fn copy(&self, to: usize, from: usize, bytes: usize) -> Result<(), Stopped> {
        self.transfer(iowr(0x03, size_of::<TransferArg>()), to, from, bytes)
    }

    /// Copies a page's bytes into a missing page, which is protected against writing from the start.
    ///
    /// # Errors
    /// As [`Uffd::copy`]; EINVAL where the range is not registered for write-protect faults.
    pub fn copy_protected(&self, to: usize, from: usize) -> Result<(), Stopped> {
        let code = iowr(0x03, size_of::<TransferArg>());
        self.transfer_with(COPY_WP, code, [to, from, PAGE_BYTES])
    }

    /// Protects a range against writing, or lifts that and wakes the writers.
    ///
    /// # Errors
    /// The error number; parts of the range may be as wanted by then.
    pub fn write_protect(&self, address: usize, bytes: usize, on: Protect) -> Result<(), i32> {
        let mode = if on == Protect::On { WP_SET } else { 0 };
        let mut argument = ModeArg { range: range(address, bytes), mode };
        loop {
            let outcome = self.ioctl(iowr(0x06, size_of::<ModeArg>()), &mut argument);
            match outcome.map_err(|error| error.raw_os_error().unwrap_or(libc::EIO)) {
                Err(libc::EAGAIN) => {}
                outcome => return outcome,
            }
        }
    }

    /// Makes a missing page one that raises SIGBUS, as a memory error does.
    ///
    /// # Errors
    /// What the kernel says; EINVAL before 6.6.
    pub fn poison(&self, address: usize) -> io::Result<()> {
        let mut argument = PoisonArg { range: range(address, PAGE_BYTES), mode: 0, done: 0 };
        self.ioctl(iowr(0x08, size_of::<PoisonArg>()), &mut argument)
    }

    /// Lets the threads that wait in the range try again.
    pub fn wake(&self, address: usize, bytes: usize) {
        let mut argument = range(address, bytes);
        self.ioctl(ior(0x02, size_of::<RangeArg>()), &mut argument)
            .expect("waking a registered range cannot fail");
    }

    /// Reads pending faults without waiting; returns how many.
    pub fn read(&self, faults: &mut [Fault]) -> usize {
        let mut messages = [Message::default(); FAULTS_MAX];
        let bytes = size_of_val(&messages[..faults.len()]);
        // SAFETY: the buffer is valid for `bytes`, and the kernel writes whole messages.
        let got = unsafe { libc::read(self.fd.as_raw_fd(), messages.as_mut_ptr().cast(), bytes) };
        let count = got.max(0) as usize / size_of::<Message>();
        let mut kept = 0;
        for message in &messages[..count] {
            if message.event == EVENT_PAGEFAULT {
                faults[kept] = Fault {
                    address: message.address as usize & !(PAGE_BYTES - 1),
                    thread: message.thread as i32,
                    access: Access::of_flags(message.flags),
                };
                kept += 1;
            }
        }
        kept
    }

    fn was_moved(&self, to: usize, from: usize) -> io::Result<bool> {
        Ok(self.pagemap.is_present(to)? && !self.pagemap.is_present(from)?)
    }

    fn transfer(&self, code: u64, to: usize, from: usize, bytes: usize) -> Result<(), Stopped> {
        self.transfer_with(0, code, [to, from, bytes])
    }

    fn transfer_with(
        &self,
        mode: u64,
        code: u64,
        [to, from, bytes]: [usize; 3],
    ) -> Result<(), Stopped> {
        let mut done = 0;
        while done < bytes {
            let mut argument = TransferArg {
                to: (to + done) as u64,
                from: (from + done) as u64,
                bytes: (bytes - done) as u64,
                mode,
                done: 0,
            };
            let outcome = self.ioctl(code, &mut argument);
            done += argument.done.max(0) as usize;
            let Err(error) = outcome else { continue };
            let error = error.raw_os_error().unwrap_or(libc::EIO);
            // EAGAIN: mappings changed meanwhile, or it stopped part of the way; both want another call.
            if error != libc::EAGAIN {
                return Err(Stopped { done, error });
            }
        }
        Ok(())
    }

    fn ioctl<T>(&self, code: u64, argument: &mut T) -> io::Result<()> {
        ioctl(self.fd.as_raw_fd(), code, argument)
    }
}

impl AsRawFd for Uffd {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// Whose faults a userfaultfd serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rights {
    /// Also those the kernel takes for a system call.
    Kernel,
    /// Only the program's own.
    UserOnly,
}

/// How a process gets a userfaultfd.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// The system call permits it the kernel's faults: CAP_SYS_PTRACE, or `vm.unprivileged_userfaultfd`.
    Call,
    /// `/dev/userfaultfd` does.
    Device,
    /// It may serve its own faults only.
    UserOnly,
}

/// Whether write protection is put on or taken off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protect {
    /// Writes fault.
    On,
    /// Writes pass.
    Off,
}

fn range(address: usize, bytes: usize) -> RangeArg {
    RangeArg { start: address as u64, bytes: bytes as u64 }
}

fn new_fd(rights: Rights, maker: &KeptFile) -> io::Result<OwnedFd> {
    let user_only = if rights == Rights::UserOnly { FLAG_USER_MODE_ONLY } else { 0 };
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | user_only;
    // SAFETY: the call creates a descriptor and touches no memory.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
    if fd >= 0 {
        // SAFETY: the descriptor is new and ours.
        return Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) });
    }
    let refused = io::Error::last_os_error();
    if rights == Rights::Kernel { make_fd(maker).map_err(|_| refused) } else { Err(refused) }
}

/// The other way (6.1): a process that may open this file, or was left it open, may serve kernel faults.
fn maker() -> KeptFile {
    KeptFile::open("/dev/userfaultfd").unwrap_or_else(|_| KeptFile::none())
}

fn make_fd(maker: &KeptFile) -> io::Result<OwnedFd> {
    const NEW: u64 = TYPE << 8;
    let maker = maker.descriptor().map_err(io::Error::from_raw_os_error)?;
    // SAFETY: the request creates a descriptor from flags passed by value.
    let fd = unsafe { libc::ioctl(maker, NEW, libc::O_CLOEXEC | libc::O_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and ours.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn handshake(fd: &OwnedFd, features: u64) -> io::Result<u64> {
    let mut argument = ApiArg { api: API, features, ioctls: 0 };
    ioctl(fd.as_raw_fd(), iowr(0x3F, size_of::<ApiArg>()), &mut argument)?;
    Ok(argument.features)
}

fn ioctl<T>(fd: RawFd, code: u64, argument: &mut T) -> io::Result<()> {
    // SAFETY: `argument` is the structure that `code` was built for, and outlives the call.
    match unsafe { libc::ioctl(fd, code, std::ptr::from_mut(argument)) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
