//! An engine's socket in the file system: made, named, and removed.
use super::directory::{self, ENGINES_MAX, EngineName, SWEEP_MAX};
use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Numbers the sockets of this process until they have their names: two threads may make one at once.
static UNFINISHED: AtomicU32 = AtomicU32::new(0);

/// The name of a socket, and the process that it belongs to.
#[derive(Clone, Debug)]
pub struct Socket {
    /// Its name in the file system.
    pub path: PathBuf,
    /// The process it was made for; a child must not remove it.
    owner: u32,
}

impl Socket {
    /// Listens in `directory`, which must be private, under the first free name of this process.
    ///
    /// # Errors
    /// What the system says, and [`ENGINES_MAX`] engines in this process.
    pub fn bind(directory: &Path) -> io::Result<(UnixListener, Self)> {
        directory::sweep(directory, SWEEP_MAX);
        let owner = std::process::id();
        let unique = UNFINISHED.fetch_add(1, Ordering::Relaxed);
        let unfinished = directory.join(format!("{owner}-{unique}.new"));
        // Left by a process of the same number: the directory is ours alone.
        let _ = fs::remove_file(&unfinished);
        let listener = UnixListener::bind(&unfinished)?;
        let named = fs::set_permissions(&unfinished, Permissions::from_mode(0o600))
            .and_then(|()| listener.set_nonblocking(true))
            .and_then(|()| name(&unfinished, directory, owner));
        let _ = fs::remove_file(&unfinished);
        named.map(|path| (listener, Self { path, owner }))
    }

    /// Removes the name, in the process it was made for; the socket goes on listening.
    pub fn withdraw(&self) {
        if std::process::id() == self.owner {
            // An error means that it was swept away already.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Gives a listening socket its final name: a link never replaces what has the name already.
fn name(unfinished: &Path, directory: &Path, pid: u32) -> io::Result<PathBuf> {
    for number in 1..=ENGINES_MAX {
        let path = directory.join(EngineName { pid, number }.file());
        let mut linked = fs::hard_link(unfinished, &path);
        let taken = |linked: &io::Result<()>| {
            linked.as_ref().is_err_and(|error| error.kind() == ErrorKind::AlreadyExists)
        };
        // A process of the same number that ended, or this one before it became another program.
        if taken(&linked) && directory::is_stale(&path) {
            let _ = fs::remove_file(&path);
            linked = fs::hard_link(unfinished, &path);
        }
        if !taken(&linked) {
            return linked.map(|()| path);
        }
    }
    let message = format!("this process has {ENGINES_MAX} engines with sockets: drop one");
    Err(io::Error::other(message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_socket_is_named_for_its_process_and_replaces_only_a_stale_one() {
        let directory = tempfile::tempdir().unwrap();
        let pid = std::process::id();
        let (first, first_name) = Socket::bind(directory.path()).unwrap();
        let (_second, second_name) = Socket::bind(directory.path()).unwrap();
        assert_eq!(first_name.path, directory.path().join(format!("{pid}.sock")));
        assert_eq!(second_name.path, directory.path().join(format!("{pid}-2.sock")));
        assert_eq!(fs::metadata(&first_name.path).unwrap().mode() & 0o777, 0o600);
        assert!(UnixStream::connect(&first_name.path).is_ok());
        drop(first);
        let (_again, again_name) = Socket::bind(directory.path()).unwrap();
        assert_eq!(again_name.path, first_name.path);
        again_name.withdraw();
        second_name.withdraw();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
