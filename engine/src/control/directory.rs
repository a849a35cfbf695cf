//! Where sockets are: a directory that only this user can enter, and the names in it.
//!
//! The injected library lies beside it, where children of other users find it too. The directory decides already
//! which users may connect: no other gets past a mode of 0700. A name in it is always a socket that a process listens
//! to, or one that no process ever will again: sockets get their name after they listen, so a socket that refuses a
//! connection is stale.
use crate::sys::directory;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The longest directory, in bytes: an address of a socket has 107, a name here takes up to 25.
const DIRECTORY_BYTES_MAX: usize = 80;
/// The most engines of one process that get a name.
pub const ENGINES_MAX: u32 = 64;
/// Names that a starting engine looks at to clean up: each start leaves at most one.
pub const SWEEP_MAX: usize = 64;

/// Directories for a user's sockets in the order of preference; `variable` looks the user's environment up.
pub fn candidates(user: u32, variable: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let of_user = format!("userswap-{user}");
    let set = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let temporary = set("TMPDIR").unwrap_or_else(|| "/tmp".into());
    set("XDG_RUNTIME_DIR")
        .map(|directory| directory.join("userswap"))
        .into_iter()
        .chain([Path::new("/run").join(&of_user), temporary.join(&of_user)])
        .chain([Path::new("/var/tmp").join(&of_user)])
        .collect()
}

/// As [`candidates`], for the user and the environment of this process.
pub fn candidates_here() -> Vec<PathBuf> {
    candidates(user(), |name| std::env::var_os(name))
}

/// The user that this process acts as.
pub fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The first candidate that is private, or can be made, and is short enough for sockets.
///
/// # Errors
/// There is none; the text says why for each.
pub fn choose(candidates: &[PathBuf]) -> Result<PathBuf, String> {
    let mut reasons = Vec::new();
    for candidate in candidates {
        match check_length(candidate).and_then(|()| make_private(candidate)) {
            Ok(()) => return Ok(candidate.clone()),
            Err(reason) => reasons.push(format!("{}: {reason}", candidate.display())),
        }
    }
    Err(reasons.join("; "))
}

fn check_length(directory: &Path) -> Result<(), String> {
    match directory.as_os_str().len() {
        ..=DIRECTORY_BYTES_MAX => Ok(()),
        _ => Err(format!("its name is too long for sockets (over {DIRECTORY_BYTES_MAX} bytes)")),
    }
}

/// Makes `directory` unless it exists, and checks that only this user can enter it.
///
/// # Errors
/// It cannot be made or written to, or is not private; the text says why.
pub fn make_private(directory: &Path) -> Result<(), String> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error.to_string()),
    }
    check_private(directory, user())?;
    check_writable(directory)
}

/// Makes `directory` unless it exists, readable by every user, and checks that only this one can change it.
///
/// # Errors
/// It cannot be made or written to, or others can change it; the text says why.
pub fn make_public(directory: &Path) -> Result<(), String> {
    if DirBuilder::new().create(directory).is_ok() {
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(directory, mode).map_err(|error| error.to_string())?;
    }
    check(directory, user(), 0o022)?;
    check_writable(directory)
}

/// One that was made earlier may be in a file system that is read-only by now, as in a container.
fn check_writable(directory: &Path) -> Result<(), String> {
    match rustix::fs::access(directory, rustix::fs::Access::WRITE_OK) {
        Err(error @ rustix::io::Errno::ROFS) => Err(error.to_string()),
        _ => Ok(()),
    }
}

/// Checks that `directory` is one that only `user` can enter, and no link to one.
///
/// # Errors
/// It is not; the text says why.
pub fn check_private(directory: &Path, user: u32) -> Result<(), String> {
    check(directory, user, 0o077)
}

/// Whether others have none of the `forbidden` rights to it.
fn check(directory: &Path, user: u32, forbidden: u32) -> Result<(), String> {
    let found = fs::symlink_metadata(directory).map_err(|error| error.to_string())?;
    if !found.is_dir() {
        return Err("is not a directory".to_owned());
    }
    if found.uid() != user {
        return Err("belongs to somebody else".to_owned());
    }
    if found.mode() & forbidden != 0 {
        return Err(format!("is open to others (mode {:04o})", found.mode() & 0o777));
    }
    Ok(())
}

/// How an engine is named: `4711`, or `4711-2` for the second engine of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EngineName {
    /// The process's number.
    pub pid: u32,
    /// Which of its engines, from 1.
    pub number: u32,
}

impl EngineName {
    /// The name of its socket in the directory.
    pub fn file(self) -> String {
        format!("{self}.sock")
    }

    fn from_file(file: &str) -> Option<Self> {
        file.strip_suffix(".sock")?.parse().ok()
    }
}

impl fmt::Display for EngineName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number {
            1 => write!(f, "{}", self.pid),
            number => write!(f, "{}-{number}", self.pid),
        }
    }
}

impl FromStr for EngineName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refusal = || format!("\"{text}\" is not a process: give its number, such as 4711");
        let (pid, number) = match text.split_once('-') {
            Some((pid, number)) => (pid, number.parse().ok().filter(|number| *number > 1)),
            None => (text, Some(1)),
        };
        // A number with a sign would be parsed, but is meant as something else.
        let pid = pid.parse().ok().filter(|_| pid.bytes().all(|byte| byte.is_ascii_digit()));
        match (pid.filter(|pid: &u32| (1..=i32::MAX as u32).contains(pid)), number) {
            (Some(pid), Some(number)) => Ok(Self { pid, number }),
            _ => Err(refusal()),
        }
    }
}

/// The engines that have a name in `directory`, in order; some may have ended.
pub fn names(directory: &Path) -> Vec<EngineName> {
    let files = directory::names(directory, usize::MAX).unwrap_or_default();
    let files = files.into_iter().filter_map(|file| file.into_string().ok());
    let mut names: Vec<_> = files.filter_map(|file| EngineName::from_file(&file)).collect();
    names.sort_unstable();
    names
}

/// Removes what processes that have ended left in `directory`, looking at `most` names.
pub fn sweep(directory: &Path, most: usize) {
    for file in directory::names(directory, most).unwrap_or_default() {
        let path = directory.join(&file);
        let Some(pid) = file.to_str().and_then(process_of) else { continue };
        // A process may listen all the same: in another namespace processes have other numbers.
        if !is_running(pid) && is_stale(&path) {
            // An error means that another engine was faster.
            let _ = fs::remove_file(path);
        }
    }
}

/// The process that a socket, finished or not, was named for.
fn process_of(file: &str) -> Option<u32> {
    let unfinished = || file.strip_suffix(".new")?.split('-').next()?.parse().ok();
    EngineName::from_file(file).map(|name| name.pid).or_else(unfinished)
}

/// Whether a process of that number exists, of whichever user.
pub fn is_running(pid: u32) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) else {
        return false;
    };
    rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH)
}

/// Whether no process listens at a socket any more.
pub fn is_stale(socket: &Path) -> bool {
    connect(socket).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

/// Connects to a socket without waiting: one that has not been listened to for long, as its process is stopped, has no
/// room for another connection.
///
/// # Errors
/// What the system says; `WouldBlock` where there is no room.
pub fn connect(socket: &Path) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(socket)?;
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let descriptor = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    net::connect(&descriptor, &address)?;
    let stream = UnixStream::from(descriptor);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_socket_that_nobody_listens_to_is_not_waited_for() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("1.sock");
        let listener = UnixListener::bind(&path).unwrap();
        // Room for one.
        net::listen(&listener, 0).unwrap();
        let mut waiting = Vec::new();
        let full = loop {
            match connect(&path) {
                Ok(stream) => waiting.push(stream),
                Err(error) => break error,
            }
        };
        assert_eq!(full.kind(), ErrorKind::WouldBlock);
        assert!(!waiting.is_empty() && !is_stale(&path));
        drop(listener);
        assert!(is_stale(&path));
    }

    #[test]
    fn a_directory_is_made_private_and_one_that_is_not_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let mine = parent.path().join("mine");
        assert_eq!(make_private(&mine), Ok(()));
        assert_eq!(fs::metadata(&mine).unwrap().mode() & 0o777, 0o700);
        assert_eq!(make_private(&mine), Ok(()), "and used again");
        assert!(check_private(&mine, user() + 1).unwrap_err().contains("somebody else"));
        fs::set_permissions(&mine, fs::Permissions::from_mode(0o750)).unwrap();
        assert!(make_private(&mine).unwrap_err().contains("open to others"));
        let link = parent.path().join("link");
        symlink(parent.path(), &link).unwrap();
        assert!(make_private(&link).unwrap_err().contains("not a directory"));
        assert!(make_private(&parent.path().join("no/such")).is_err());
    }

    #[test]
    fn the_runtime_directory_comes_first_and_long_names_are_passed_over() {
        let parent = tempfile::tempdir().unwrap();
        let long = parent.path().join("x".repeat(DIRECTORY_BYTES_MAX));
        let short = parent.path().join("short");
        assert_eq!(choose(&[long.clone(), short.clone()]), Ok(short));
        assert!(!long.exists());
        assert!(choose(&[long]).unwrap_err().contains("too long"));
        let found = candidates(7, |name| (name == "XDG_RUNTIME_DIR").then(|| "/run/user/7".into()));
        assert_eq!(found[..2], [PathBuf::from("/run/user/7/userswap"), "/run/userswap-7".into()]);
        assert_eq!(candidates(7, |_| Some("relative".into()))[0], Path::new("/run/userswap-7"));
    }

    #[test]
    fn names_read_back_as_they_are_printed() {
        for text in ["1", "4711", "4711-2"] {
            assert_eq!(text.parse::<EngineName>().unwrap().to_string(), text);
        }
        for text in ["", "0", "-1", "+1", "1-1", "1-0", "1-", "x", "4294967295", "1.sock"] {
            let refusal = text.parse::<EngineName>().expect_err(text);
            assert!(refusal.contains(&format!("\"{text}\"")), "{refusal}");
        }
    }

    #[test]
    fn only_what_ended_processes_left_is_swept_away() {
        let directory = tempfile::tempdir().unwrap();
        let path = |file: &str| directory.path().join(file);
        let dead = u32::try_from(i32::MAX).unwrap() - 1;
        let bind = |file: &str| UnixListener::bind(path(file)).unwrap();
        drop((bind(&format!("{dead}.sock")), bind(&format!("{dead}-2.sock"))));
        drop((bind(&format!("{dead}-5.new")), bind(&format!("{}.sock", std::process::id()))));
        let _elsewhere = bind(&format!("{dead}-3.sock"));
        fs::write(path("libuserswap.so"), "").unwrap();
        sweep(directory.path(), SWEEP_MAX);
        let mut left: Vec<_> = fs::read_dir(directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort_unstable();
        let mut kept = [
            format!("{dead}-3.sock"),
            format!("{}.sock", std::process::id()),
            "libuserswap.so".to_owned(),
        ];
        kept.sort_unstable();
        assert_eq!(left, kept);
    }
}
