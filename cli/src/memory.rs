//! How much memory a program could have here: the machine's, or less in a memory cgroup.
//!
//! The files are found below a root that tests replace. Where a limit cannot be read there is none.

use std::fs;
use std::path::{Path, PathBuf};

/// The engine's page, in the type of all sizes here.
pub const PAGE_BYTES: u64 = userswap::internals::PAGE_BYTES as u64;

/// The names that the two versions of cgroups give to the same three figures.
struct Names {
    limit: &'static str,
    usage: &'static str,
    cache: &'static str,
}

const V1: Names = Names {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    cache: "total_inactive_file",
};

const V2: Names = Names { limit: "memory.max", usage: "memory.current", cache: "inactive_file" };

/// Bytes that a program started now can take without anything having to leave.
pub fn available_bytes() -> Option<u64> {
    available_below(Path::new("/"))
}

/// The same, of the machine whose files are below `root`.
pub fn available_below(root: &Path) -> Option<u64> {
    let machine = machine_bytes(&fs::read_to_string(root.join("proc/meminfo")).ok()?)?;
    let of_groups = groups(root).into_iter().filter_map(|Group { directory, mount, names }| {
        let path = directory.ancestors().take_while(|path| path.starts_with(&mount));
        path.filter_map(|group| group_bytes(group, &names)).min()
    });
    Some(of_groups.fold(machine, u64::min))
}

/// What a memory group may have at most.
pub struct Limit {
    pub group: PathBuf,
    pub bytes: u64,
}

/// The tightest limit of a memory group of this process, on the machine whose files are below `root`.
pub fn limit_below(root: &Path) -> Option<Limit> {
    let limits = groups(root).into_iter().flat_map(|Group { directory, mount, names }| {
        let path = directory.ancestors().take_while(|path| path.starts_with(&mount));
        let limit = |group: &Path| {
            let text = fs::read_to_string(group.join(names.limit)).ok()?;
            // The first version's word for none is a number that no machine has.
            let bytes = text.trim().parse().ok().filter(|bytes| *bytes < NO_LIMIT_BYTES)?;
            Some(Limit { group: group.to_owned(), bytes })
        };
        path.filter_map(limit).collect::<Vec<_>>()
    });
    limits.min_by_key(|limit| limit.bytes)
}

/// More than any address space.
const NO_LIMIT_BYTES: u64 = 1 << 60;

fn machine_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Bytes that a group still allows; file cache that is not in use gives way like free memory.
fn group_bytes(group: &Path, names: &Names) -> Option<u64> {
    let number = |name| fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
    let limit = number(names.limit)?;
    let statistics = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let cache = statistics.lines().find_map(|line| {
        let (name, value) = line.split_once(' ')?;
        if name == names.cache { value.parse::<u64>().ok() } else { None }
    });
    let used = number(names.usage)?.saturating_sub(cache.unwrap_or(0));
    Some(limit.saturating_sub(used))
}

/// A memory group of this process.
struct Group {
    directory: PathBuf,
    /// The mount point above it, where its hierarchy ends.
    mount: PathBuf,
    names: Names,
}

fn groups(root: &Path) -> Vec<Group> {
    let memberships = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mounts = fs::read_to_string(root.join("proc/self/mountinfo")).unwrap_or_default();
    let mut groups = Vec::new();
    for line in memberships.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else { continue };
        let (names, kind) = match controllers {
            "" => (V2, "cgroup2"),
            list if list.split(',').any(|name| name == "memory") => (V1, "cgroup"),
            _ => continue,
        };
        if let Some(Mount { point, top }) = mounts.lines().find_map(|line| mount(line, kind)) {
            let mount = root.join(point.trim_start_matches('/'));
            // In a namespace of its own the process may see its group as the top of the mount.
            let below = Path::new(group).strip_prefix(top).unwrap_or(Path::new(""));
            groups.push(Group { directory: mount.join(below), mount, names });
        }
    }
    groups
}

/// Where a hierarchy of groups is mounted.
struct Mount<'a> {
    point: &'a str,
    /// The group that is seen at the mount point.
    top: &'a str,
}

/// A line of `mountinfo`, when it mounts memory groups of `kind`.
fn mount<'a>(line: &'a str, kind: &str) -> Option<Mount<'a>> {
    let (mounted, system) = line.split_once(" - ")?;
    let mut mounted = mounted.split(' ').skip(3);
    let (top, point) = (mounted.next()?, mounted.next()?);
    let mut system = system.split(' ');
    let is_kind = system.next()? == kind;
    let options = system.nth(1).unwrap_or_default();
    let is_memory = kind == "cgroup2" || options.split(',').any(|option| option == "memory");
    (is_kind && is_memory).then_some(Mount { point, top })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    struct Machine(tempfile::TempDir);

    impl Machine {
        fn with(files: &[(&str, &str)]) -> Machine {
            let machine = Machine(tempfile::tempdir().unwrap());
            machine.add("proc/meminfo", "MemTotal: 9 kB\nMemAvailable:  1048576 kB\n");
            files.iter().for_each(|(path, content)| machine.add(path, content));
            machine
        }

        fn add(&self, path: &str, content: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }

        fn available(&self) -> Option<u64> {
            available_below(self.0.path())
        }
    }

    const MOUNT_V2: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";

    #[test]
    fn without_groups_it_is_what_the_machine_has() {
        assert_eq!(Machine::with(&[]).available(), Some(1024 * MIB));
    }

    #[test]
    fn the_tightest_group_up_the_hierarchy_counts() {
        let machine = Machine::with(&[
            ("proc/self/cgroup", "0::/outer/inner\n"),
            ("proc/self/mountinfo", MOUNT_V2),
            ("sys/fs/cgroup/outer/memory.max", "209715200\n"),
            ("sys/fs/cgroup/outer/memory.current", "104857600\n"),
            ("sys/fs/cgroup/outer/memory.stat", "anon 5\ninactive_file 52428800\n"),
            ("sys/fs/cgroup/outer/inner/memory.max", "max\n"),
            ("sys/fs/cgroup/outer/inner/memory.current", "5\n"),
        ]);
        assert_eq!(machine.available(), Some(150 * MIB));
    }

    #[test]
    fn groups_of_the_first_version_are_read_by_their_own_names() {
        let machine = Machine::with(&[
            ("proc/self/cgroup", "5:cpu:/x\n4:memory:/docker/abc\n0::/\n"),
            (
                "proc/self/mountinfo",
                "36 25 0:31 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
            ),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "104857600\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "20971520\n"),
        ]);
        assert_eq!(machine.available(), Some(80 * MIB));
    }

    #[test]
    fn a_group_beyond_its_limit_leaves_nothing() {
        let machine = Machine::with(&[
            ("proc/self/cgroup", "0::/\n"),
            ("proc/self/mountinfo", MOUNT_V2),
            ("sys/fs/cgroup/memory.max", "1000\n"),
            ("sys/fs/cgroup/memory.current", "2000\n"),
        ]);
        assert_eq!(machine.available(), Some(0));
    }
}
