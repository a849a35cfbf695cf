//! Calls by which a process gives rights up: what its engine will need is gathered before them.
//!
//! Another user, another root directory, no leave to look into itself, fewer descriptors, a filter of system
//! calls: any of them can keep an engine that starts later from its devices, its page map or its userfaultfd.
//! Landlock and seccomp are system calls without functions; both want PR_SET_NO_NEW_PRIVS before them, which
//! has one. The entry points are as safe as the functions that they stand in for.
use super::alone;
use crate::abi::next::next_functions;
use crate::abi::raw::{self, Span};
use crate::abi::thread_locals;
use crate::calls::held::is_needed;
use crate::calls::{arguments, by_number, filters, trap};
use crate::memory::{engagement, origins};
use crate::state::{owner, process};
use libc::{c_char, c_int, c_ulong, gid_t, uid_t};

/// In the constructor: calls by number are made for one thread, and not by the functions below.
pub fn start() {
    by_number::before_rights_go(gather);
}

/// Takes what an engine needs, as long as the process has the right to.
pub fn gather() {
    // A child that shares its parent's memory (vfork) has descriptors of its own, and will call exec.
    if let Some(process) = process::current().filter(|_| owner::is_here()) {
        engagement::gather(process);
    }
}

/// Starts the engine, if what it needs is there: there will be no more threads.
pub fn engage() {
    gather();
    if let Some(process) = process::current().filter(|_| owner::is_here()) {
        engagement::engage_if_gathered(process);
    }
}

/// Declares entry points that gather what an engine needs and then do what the function does.
macro_rules! giving_up {
    ($(
        fn $name:ident($($argument:ident: $type:ty),* $(,)?) by $call:ident if $condition:expr
            $(, with $changed:ident = $value:expr)? $(, unless $refused:expr)? $(, alone if $alone:expr)? $(, then $after:expr)?;
    )+) => {
        next_functions! { $( fn $name($($argument: $type),*) -> c_int; )+ }
        mod exported {
            use super::*;
            $(
                #[unsafe(no_mangle)]
                pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
                    if !thread_locals::are_here() {
                        return super::$name($($argument),*);
                    }
                    $(if $refused {
                        raw::set_errno(libc::EINVAL);
                        return -1;
                    })?
                    $(let $changed = $value;)?
                    let arguments = arguments::of([$($argument as usize),*]);
                    let filters = filters::prepare(libc::$call, &arguments);
                    if $condition && !filters.refuses_engine() {
                        gather();
                    }
                    let _held = is_needed().then(|| arguments::hold(libc::$call, &arguments));
                    let call = || super::$name($($argument),*);
                    let status = call();
                    $(let status = if status == -1 && $alone { alone::again(call) } else { status };)?
                    if status >= 0 {
                        filters::note(filters);
                    }
                    $($after;)?
                    status
                }
            )+
        }
    };
}

giving_up! {
    fn setuid(user: uid_t) by SYS_setuid if is_root();
    fn setgid(group: gid_t) by SYS_setgid if is_root();
    fn seteuid(user: uid_t) by SYS_setresuid if is_root();
    fn setegid(group: gid_t) by SYS_setresgid if is_root();
    fn setreuid(real: uid_t, effective: uid_t) by SYS_setreuid if is_root();
    fn setregid(real: gid_t, effective: gid_t) by SYS_setregid if is_root();
    fn setresuid(real: uid_t, effective: uid_t, saved: uid_t) by SYS_setresuid if is_root();
    fn setresgid(real: gid_t, effective: gid_t, saved: gid_t) by SYS_setresgid if is_root();
    fn initgroups(user: *const c_char, group: gid_t) by SYS_setgid if is_root();
    fn setgroups(count: usize, groups: *const gid_t) by SYS_setgroups if is_root();
    fn capset(header: *mut u64, data: *const u32) by SYS_capset if true;
    fn chroot(path: *const c_char) by SYS_chroot if true;
    fn pivot_root(root: *const c_char, old: *const c_char) by SYS_pivot_root if true;
    fn unshare(flags: c_int) by SYS_unshare if true, with flags = owner::with_our_table(flags, libc::CLONE_FILES), alone if alone::may_help(flags);
    fn setns(namespace: c_int, kind: c_int) by SYS_setns if true, alone if alone::may_help(kind);
    fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) by SYS_prctl if gives_up(option),
        unless option == trap::PR_SET_SYSCALL_USER_DISPATCH && trap::leave_to_program(),
        then origins::named(option, a, Span { address: b as usize, bytes: c as usize }, d as *const c_char);
}

/// An ordinary user has nothing to lose by becoming the same one again.
fn is_root() -> bool {
    let users = raw::users();
    users.real == 0 || users.effective == 0
}

fn gives_up(option: c_int) -> bool {
    matches!(option, libc::PR_SET_DUMPABLE | libc::PR_SET_NO_NEW_PRIVS | libc::PR_SET_SECCOMP)
}
