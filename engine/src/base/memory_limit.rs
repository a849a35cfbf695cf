//! What a message says where the kernel refuses memory: a limit of the process's own may be why.
use crate::base::size::ByteSize;
use crate::sys::process;
use std::io;

/// A limit, by its name, what the shell calls it, and what it limits.
struct Kind {
    resource: libc::__rlimit_resource_t,
    name: &'static str,
    option: &'static str,
    what: &'static str,
}

/// Those on memory.
const KINDS: [Kind; 2] = [
    Kind { resource: libc::RLIMIT_DATA, name: "RLIMIT_DATA", option: "-d", what: "data" },
    Kind { resource: libc::RLIMIT_AS, name: "RLIMIT_AS", option: "-v", what: "address space" },
];

/// So much of either is enough for a small program, its engine and that of a forked child: the tables of two engines take 3 to 6
/// GiB, and the arena is the largest power of two that the limit leaves room for.
const ENOUGH_BYTES: u64 = 16 << 30;

/// So much is in nobody's way: more than an arena and all tables. `run` sets a limit that a program sets itself for so much more.
const ROOMY_BYTES: u64 = 8 << 40;

/// What to do about limits on memory, if they can be why the kernel refuses. A thread's stack that there is no room for is
/// refused as if there were too many threads (EAGAIN).
pub fn remedy(error: &io::Error) -> Option<String> {
    match error.raw_os_error() {
        Some(libc::ENOMEM | libc::EAGAIN) => {
            remedy_of(|kind| process::limit_in_force(kind.resource))
        }
        _ => None,
    }
}

/// Whether one of them can be why, without allocating.
pub fn is_tight() -> bool {
    KINDS.iter().any(|kind| process::limit_in_force(kind.resource) < ROOMY_BYTES)
}

fn remedy_of(limit_of: impl Fn(&Kind) -> u64) -> Option<String> {
    let tight = KINDS.iter().map(|kind| (kind, limit_of(kind)));
    let lines = tight.filter(|(_, bytes)| *bytes < ROOMY_BYTES).map(|(kind, bytes)| {
        let Kind { name, option, what, .. } = kind;
        let enough = (bytes + 1).next_power_of_two().max(ENOUGH_BYTES);
        format!(
            "{what} is limited to {} ({name}), and an engine's tables count: raise that to {} (ulimit {option} {}), or lift it",
            ByteSize(bytes).rounded(),
            ByteSize(enough),
            enough >> 10
        )
    });
    let lines: Vec<String> = lines.collect();
    (!lines.is_empty()).then(|| lines.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_named_with_what_would_do_and_none_is_where_none_is_tight() {
        let of = |data: u64, space: u64| {
            remedy_of(|kind| if kind.name == "RLIMIT_DATA" { data } else { space })
        };
        assert_eq!(of(u64::MAX, u64::MAX), None);
        assert_eq!(of(u64::MAX, (8 << 40) + (1 << 30)), None, "of a program under run");
        let said = of(2 << 30, u64::MAX).unwrap();
        let line = "data is limited to 2G (RLIMIT_DATA)";
        assert!(said.contains(line) && said.contains("16G (ulimit -d 16777216)"), "{said}");
        assert!(!said.contains("RLIMIT_AS"), "{said}");
        let said = of(u64::MAX, 20 << 30).unwrap();
        assert!(said.contains("20G (RLIMIT_AS)") && said.contains("32G (ulimit -v"), "{said}");
        assert_eq!(of(1 << 30, 1 << 30).unwrap().matches("(ulimit").count(), 2);
    }

    #[test]
    fn other_errors_have_other_remedies() {
        assert_eq!(remedy(&io::Error::from_raw_os_error(libc::EMFILE)), None);
    }
}
