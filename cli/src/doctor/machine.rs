//! The files in which a machine tells about itself, below a root that tests replace, and what they say.

use std::env;
use std::fs;
use std::path::PathBuf;

use userswap::ByteSize;

use super::finding::Finding;
use crate::memory;

/// What this process is packed in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Packed {
    Not,
    /// A container of this engine, by the name of its command.
    By(&'static str),
    Kubernetes,
}

/// A budget below this is for trials only.
const SMALL_BYTES: u64 = 64 << 20;
/// What Linux permits unless it is told otherwise.
const MAPPINGS: u64 = 65_530;

pub struct Machine {
    root: PathBuf,
}

impl Machine {
    /// The one this process runs on.
    pub fn here() -> Machine {
        Machine { root: PathBuf::from("/") }
    }

    fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.root.join(path)).ok()
    }

    pub fn number(&self, path: &str) -> Option<u64> {
        self.read(path)?.trim().parse().ok()
    }

    /// Whether a seccomp filter looks at this process's calls.
    pub fn is_filtered(&self) -> bool {
        let status = self.read("proc/self/status").unwrap_or_default();
        status
            .lines()
            .any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "2"))
    }

    pub fn packed(&self) -> Packed {
        let has = |path: &str| self.root.join(path).exists();
        if has("var/run/secrets/kubernetes.io") || env::var_os("KUBERNETES_SERVICE_HOST").is_some()
        {
            Packed::Kubernetes
        } else if has("run/.containerenv") {
            Packed::By("podman")
        } else if has(".dockerenv") {
            Packed::By("docker")
        } else {
            Packed::Not
        }
    }

    /// Where this process is, and what filters its calls.
    pub fn container(&self) -> Finding {
        let place = match self.packed() {
            Packed::Not => "none seen",
            Packed::By(engine) => engine,
            Packed::Kubernetes => "kubernetes",
        };
        let filter = if self.is_filtered() {
            "a seccomp filter looks at system calls"
        } else {
            "no seccomp filter"
        };
        Finding::good("container", format!("{place}; {filter}"))
    }

    /// What a program may have, and what the machine or its groups keep from it.
    pub fn memory(&self) -> Vec<Finding> {
        vec![self.available(), self.huge_pages(), self.overcommit(), self.mappings()]
    }

    fn available(&self) -> Finding {
        let topic = "memory";
        let limit = memory::limit_below(&self.root);
        let (Some(available), limit) = (memory::available_below(&self.root), limit) else {
            let fix = "mount /proc, or give --ram with every run";
            return Finding::limited(topic, "/proc/meminfo does not say what is available", fix);
        };
        let group = limit.map_or_else(
            || "no memory cgroup limits it".to_owned(),
            |limit| {
                format!(
                    "{} has a limit of {}",
                    limit.group.display(),
                    ByteSize(limit.bytes).rounded()
                )
            },
        );
        let found = format!("{} available; {group}", ByteSize(available).rounded());
        match available / 2 {
            SMALL_BYTES.. => Finding::good(topic, found),
            _ => Finding::limited(
                topic,
                found,
                "end other programs, or raise the group's memory.max (memory.limit_in_bytes)",
            ),
        }
    }

    fn huge_pages(&self) -> Finding {
        let setting = self.read("sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
        let chosen = setting.split(['[', ']']).nth(1).unwrap_or("none");
        Finding::good("huge pages", format!("{chosen}; memory that is served does without them"))
    }

    fn overcommit(&self) -> Finding {
        match self.number("proc/sys/vm/overcommit_memory") {
            Some(2) => Finding::limited(
                "overcommit",
                "is strict: less address space is managed, and mappings fail that would fit",
                "sysctl -w vm.overcommit_memory=0",
            ),
            _ => Finding::good("overcommit", "is not strict"),
        }
    }

    fn mappings(&self) -> Finding {
        match self.number("proc/sys/vm/max_map_count") {
            Some(most @ ..MAPPINGS) => Finding::limited(
                "mappings",
                format!("a process may have {most}"),
                format!("sysctl -w vm.max_map_count={MAPPINGS}"),
            ),
            most => Finding::good(
                "mappings",
                format!("a process may have {}", most.unwrap_or(MAPPINGS)),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::State;
    use super::*;

    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Machine) {
        let root = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let machine = Machine { root: root.path().to_owned() };
        (root, machine)
    }

    #[test]
    fn a_group_with_a_small_limit_is_named_with_its_remedy() {
        let meminfo = ("proc/meminfo", "MemAvailable: 8388608 kB\n");
        let (_root, roomy) = machine(&[meminfo]);
        assert_eq!(
            roomy.available(),
            Finding::good("memory", "8G available; no memory cgroup limits it")
        );
        for (mount, membership, limit, usage) in [
            (
                "29 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw",
                "0::/box",
                "memory.max",
                "memory.current",
            ),
            (
                "29 23 0:26 / /sys/fs/cgroup rw - cgroup cgroup rw,memory",
                "4:memory:/box",
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
            ),
        ] {
            let group = "sys/fs/cgroup/box";
            let (_root, narrow) = machine(&[
                meminfo,
                ("proc/self/mountinfo", mount),
                ("proc/self/cgroup", membership),
                (&format!("{group}/{limit}"), "67108864\n"),
                (&format!("{group}/{usage}"), "1048576\n"),
            ]);
            let found = narrow.available();
            assert_eq!(found.state, State::Limited, "{found:?}");
            assert!(found.found.starts_with("63M available"), "{found:?}");
            assert!(found.found.ends_with("/box has a limit of 64M"), "{found:?}");
            assert!(found.fix.unwrap().contains(limit));
        }
    }

    #[test]
    fn a_filter_and_a_container_are_seen() {
        let (_root, bare) = machine(&[("proc/self/status", "Seccomp:\t0\nSeccomp_filters:\t0\n")]);
        assert!(!bare.is_filtered());
        let (_root, podman) =
            machine(&[("proc/self/status", "Seccomp:\t2\n"), ("run/.containerenv", "")]);
        assert!(podman.is_filtered());
        assert_eq!(podman.packed(), Packed::By("podman"));
    }

    #[test]
    fn strict_overcommit_and_few_mappings_come_with_the_command_that_ends_them() {
        let (_root, strict) = machine(&[
            ("proc/sys/vm/overcommit_memory", "2\n"),
            ("proc/sys/vm/max_map_count", "1000\n"),
        ]);
        for (finding, fix) in [
            (strict.overcommit(), "overcommit_memory=0"),
            (strict.mappings(), "max_map_count=65530"),
        ] {
            assert_eq!(finding.state, State::Limited);
            assert!(finding.fix.unwrap().contains(fix));
        }
        let (_root, usual) = machine(&[]);
        assert_eq!([usual.overcommit().state, usual.mappings().state], [State::Good; 2]);
    }
}
