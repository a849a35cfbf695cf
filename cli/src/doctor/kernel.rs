//! What the kernel has, and lets this process use.

use std::io::ErrorKind;

use userswap::internals::{Means, Way};
use userswap::{Error, Support};

use super::finding::Finding;
use super::machine::{Machine, Packed};

/// The ways to a userfaultfd that serves the kernel's faults, in the order of how little else they permit.
const MORE_RIGHTS: &str = "give this user access to /dev/userfaultfd (as root: setfacl -m u:NAME:rw /dev/userfaultfd), \
     or sysctl -w vm.unprivileged_userfaultfd=1, or CAP_SYS_PTRACE";

/// How a container is told to permit calls; the profile's making is in docs/install.md.
fn profile_of(packed: &Packed) -> String {
    match packed {
        Packed::Kubernetes => {
            "make the profile with packaging/seccomp and name it in securityContext.seccompProfile \
             (type: Localhost)"
                .to_owned()
        }
        Packed::By(engine) => format!(
            "make the profile with packaging/seccomp and start with {engine} run --security-opt seccomp=FILE"
        ),
        Packed::Not => {
            "have what filters this process's system calls (seccomp) permit them".to_owned()
        }
    }
}

/// How more rights are had where this is.
fn more_rights(packed: &Packed) -> String {
    match packed {
        Packed::By(engine) => {
            format!("start with {engine} run --device /dev/userfaultfd, and {MORE_RIGHTS}")
        }
        Packed::Kubernetes | Packed::Not => MORE_RIGHTS.to_owned(),
    }
}

/// Whether and how userfaultfd is had.
pub fn userfaultfd(means: &Means, machine: &Machine) -> Finding {
    let topic = "userfaultfd";
    match &means.way {
        Ok(Way::Call) if machine.number("proc/sys/vm/unprivileged_userfaultfd") == Some(1) => {
            Finding::good(topic, "serves all faults, by vm.unprivileged_userfaultfd=1")
        }
        Ok(Way::Call) => Finding::good(topic, "serves all faults, by CAP_SYS_PTRACE"),
        Ok(Way::Device) => Finding::good(topic, "serves all faults, by /dev/userfaultfd"),
        Ok(Way::UserOnly) => Finding::limited(
            topic,
            "serves the program's own faults only: io_uring's requests fail on swapped memory, and with --raw-calls \
             pass all calls that bypass the C library",
            more_rights(&machine.packed()),
        ),
        Err(error) if error.kind() == ErrorKind::Unsupported => Finding::missing(
            topic,
            format!("this kernel has none ({error})"),
            "use Linux 5.7 or newer, built with CONFIG_USERFAULTFD",
        ),
        Err(error) if machine.is_filtered() => {
            Finding::missing(topic, format!("is filtered ({error})"), profile_of(&machine.packed()))
        }
        Err(error) => Finding::missing(topic, format!("is not allowed ({error})"), MORE_RIGHTS),
    }
}

/// The features of userfaultfd, as far as there is one.
pub fn features(means: &Means, support: &Result<Support, Error>) -> Vec<Finding> {
    let Ok(support) = support else { return Vec::new() };
    let newer = |version: &str| format!("use Linux {version} or newer");
    let one = |topic, has, without: &str, fix: String| match has {
        true => Finding::good(topic, "there"),
        false => Finding::limited(topic, without, fix),
    };
    vec![
        one("MOVE", support.moving, "pages are copied, which is slower", newer("6.8")),
        match means.protecting {
            true => Finding::good("write protection", "there"),
            false if support.moving => Finding::limited(
                "write protection",
                "what is only read is written when it leaves",
                newer("5.7, with write-protect faults"),
            ),
            false => Finding::missing(
                "write protection",
                "pages can neither be moved nor copied safely",
                newer("5.7, with write-protect faults"),
            ),
        },
        one(
            "POISON",
            support.poison,
            "a page that can never be read back stops its program instead of raising SIGBUS",
            newer("6.6"),
        ),
        one("SIGBUS", means.signalling, "--fault signal cannot be used", newer("4.14")),
    ]
}

/// How devices are driven, and pages dropped.
pub fn speed(means: &Means, machine: &Machine) -> Vec<Finding> {
    let uring = match &means.uring {
        Ok(()) => Finding::good("io_uring", "drives devices"),
        Err(error) => Finding::limited(
            "io_uring",
            format!("is not allowed ({error}): threads drive devices, which costs more CPU"),
            uring_fix(machine),
        ),
    };
    let scattered = match means.scattered {
        true => Finding::good("batched drop", "clean pages leave in hundreds by one call"),
        false => Finding::limited(
            "batched drop",
            "process_madvise does not drop this process's own pages: clean pages leave one run at a time",
            if machine.is_filtered() {
                profile_of(&machine.packed())
            } else {
                "use Linux 6.16 or newer".to_owned()
            },
        ),
    };
    let blocks = match &means.blocks {
        Ok(()) => Finding::good("block reclaim", "scattered pages leave by the block of 2 MiB"),
        Err(error) => Finding::limited(
            "block reclaim",
            format!("scattered pages leave one by one ({error})"),
            match machine.is_filtered() {
                true => {
                    "have the filter (seccomp) permit fork, mremap, vmsplice, readv and madvise; before Linux 5.9 run without one"
                }
                false => {
                    "usual reasons are vm.overcommit_memory=2 and pipes over fs.pipe-user-pages-soft: change these"
                }
            },
        ),
    };
    vec![uring, scattered, blocks]
}

fn uring_fix(machine: &Machine) -> String {
    match machine.number("proc/sys/kernel/io_uring_disabled") {
        None => "use Linux 5.1 or newer, built with CONFIG_IO_URING".to_owned(),
        Some(0) => profile_of(&machine.packed()),
        Some(1) => "sysctl -w kernel.io_uring_disabled=0, or add this user to the group of kernel.io_uring_group".to_owned(),
        Some(_) => "sysctl -w kernel.io_uring_disabled=0".to_owned(),
    }
}
