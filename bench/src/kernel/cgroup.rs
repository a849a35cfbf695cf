//! A memory control group, version 1 or 2, for the program that runs on the kernel's swap.

use super::KernelError;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use userswap::internals::bench::process;

/// Which of the two interfaces limits memory here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// The mounted hierarchy that limits memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hierarchy {
    root: PathBuf,
    version: Version,
}

impl Hierarchy {
    /// Finds the hierarchy that has the memory controller.
    pub(super) fn find() -> Result<Self, KernelError> {
        let mounts = Path::new("/proc/self/mountinfo");
        let text = fs::read_to_string(mounts).map_err(|source| failed(mounts, source))?;
        let has_memory = |root: &Path| {
            let controllers = fs::read_to_string(root.join("cgroup.controllers"));
            controllers.is_ok_and(|names| names.split_whitespace().any(|name| name == "memory"))
        };
        Self::among(&text, has_memory).ok_or(KernelError::NoMemoryController)
    }

    fn among(mountinfo: &str, v2_has_memory: impl Fn(&Path) -> bool) -> Option<Self> {
        mountinfo.lines().find_map(|line| {
            let (mount, kind) = line.split_once(" - ")?;
            let root = PathBuf::from(unescape(mount.split(' ').nth(4)?));
            let mut kind = kind.split(' ');
            let version = match kind.next()? {
                "cgroup" if kind.nth(1)?.split(',').any(|option| option == "memory") => Version::V1,
                "cgroup2" if v2_has_memory(&root) => Version::V2,
                _ => return None,
            };
            Some(Self { root, version })
        })
    }

    /// Whether what zswap's pages take is part of a group.
    pub(super) fn contains_zswap(&self) -> bool {
        self.version == Version::V2
    }

    /// The group `name` at the top of the hierarchy, not made yet. At the top, because a limit on
    /// the group that this process is in would fall on the program as well.
    pub(super) fn child(&self, name: &str) -> Cgroup {
        Cgroup { directory: self.root.join(name), hierarchy: self.clone() }
    }
}

/// mountinfo writes space, tab, newline and backslash as octal numbers.
fn unescape(text: &str) -> String {
    let pairs = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    pairs.iter().fold(text.to_owned(), |text, (octal, plain)| text.replace(octal, plain))
}

/// One group; it is removed by the cleaner, not here.
#[derive(Debug)]
pub(super) struct Cgroup {
    directory: PathBuf,
    hierarchy: Hierarchy,
}

impl Cgroup {
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(super) fn procs(&self) -> PathBuf {
        self.directory.join("cgroup.procs")
    }

    /// Makes the group and limits its RAM; its swap is not limited.
    pub(super) fn create(&self, ram_bytes: u64) -> Result<(), KernelError> {
        let root = &self.hierarchy.root;
        match self.hierarchy.version {
            Version::V1 => {
                self.make()?;
                write(&self.directory.join("memory.limit_in_bytes"), &ram_bytes.to_string())
            }
            Version::V2 => {
                enable_memory(&root.join("cgroup.subtree_control"))?;
                self.make()?;
                write(&self.directory.join("memory.max"), &ram_bytes.to_string())?;
                write(&self.directory.join("memory.swap.max"), "max")
            }
        }
    }

    /// Has the kernel reclaim whatever it can: a page that was written to swap stays in the swap cache until
    /// the memory is needed.
    pub(super) fn reclaim(&self) -> Result<(), KernelError> {
        let (name, amount) = match self.hierarchy.version {
            Version::V1 => ("memory.force_empty", "0".to_owned()),
            Version::V2 => ("memory.reclaim", self.usage_bytes()?.to_string()),
        };
        let path = self.directory.join(name);
        match fs::write(&path, amount) {
            // Less than was asked for could be reclaimed.
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => Ok(()),
            other => other.map_err(|source| failed(&path, source)),
        }
    }

    /// Memory that the group has in RAM.
    pub(super) fn usage_bytes(&self) -> Result<u64, KernelError> {
        let name = match self.hierarchy.version {
            Version::V1 => "memory.usage_in_bytes",
            Version::V2 => "memory.current",
        };
        let path = self.directory.join(name);
        let text = fs::read_to_string(&path).map_err(|source| failed(&path, source))?;
        text.trim().parse().map_err(|error| failed(&path, io::Error::other(error)))
    }

    fn make(&self) -> Result<(), KernelError> {
        fs::create_dir(&self.directory).map_err(|source| failed(&self.directory, source))
    }

    /// Has `command` start inside the group.
    pub(super) fn enter(&self, command: &mut Command) -> Result<(), KernelError> {
        let path = self.procs();
        let procs =
            File::options().write(true).open(&path).map_err(|source| failed(&path, source))?;
        process::start_inside(command, procs);
        Ok(())
    }
}

/// Lets children of the hierarchy's top have memory limits; it stays so, as others may rely on it
/// by the time we leave.
fn enable_memory(control: &Path) -> Result<(), KernelError> {
    let enabled = fs::read_to_string(control).map_err(|source| failed(control, source))?;
    if enabled.split_whitespace().any(|name| name == "memory") {
        return Ok(());
    }
    write(control, "+memory")
}

fn write(path: &Path, text: &str) -> Result<(), KernelError> {
    fs::write(path, text).map_err(|source| failed(path, source))
}

fn failed(path: &Path, source: io::Error) -> KernelError {
    KernelError::Cgroup { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "\
30 24 0:26 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw,nsdelegate
31 24 0:27 / /sys/fs/cgroup/cpuset rw,nosuid shared:9 - cgroup cgroup rw,cpuset
32 24 0:28 / /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory
";
    const V2: &str = "\
28 1 8:1 / / rw - ext4 /dev/root rw
30 24 0:26 / /sys/fs/my\\040cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate
";

    #[test]
    fn on_a_hybrid_system_the_hierarchy_with_the_memory_controller_is_found() {
        let found = Hierarchy::among(V1, |_| false).unwrap();
        let root = PathBuf::from("/sys/fs/cgroup/memory");
        assert_eq!(found, Hierarchy { root, version: Version::V1 });
    }

    #[test]
    fn on_a_unified_system_the_one_hierarchy_is_found_whatever_its_name() {
        let found = Hierarchy::among(V2, |_| true).unwrap();
        let root = PathBuf::from("/sys/fs/my cgroup");
        assert_eq!(found, Hierarchy { root, version: Version::V2 });
    }

    #[test]
    fn without_a_memory_controller_there_is_none() {
        assert_eq!(Hierarchy::among(V2, |_| false), None);
    }
}
