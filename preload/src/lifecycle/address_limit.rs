//! Limits that a process sets for itself; those of address space do not count what is ours, and those of a file's size
//! are told to the engine, which then writes to its files in another way.
//!
//! The kernel counts the arena and an engine's own mappings as the program's: a limit of some gibibytes would leave it no room for
//! a thread's stack. So such a limit (RLIMIT_AS) is set for so much more, and told for so much less. The arena's memory has
//! no limit but the budget and the devices. The entry points are as safe as the functions that they stand in for.
use super::rights;
use crate::abi::next::next_functions;
use crate::abi::raw;
use crate::abi::system_call::Arguments;
use crate::calls::arguments;
use crate::calls::held::is_needed;
use crate::calls::reading::Reader;
use crate::state::process;
use libc::{
    RLIM_INFINITY, RLIMIT_AS, RLIMIT_FSIZE, RLIMIT_NOFILE, RLIMIT_NPROC, c_int, c_long, c_uint,
    pid_t, rlim_t, rlimit,
};
use userswap::internals::file_limit;

/// More than the arena and all that an engine maps. One number for all: programs that are started later inherit the limit, and have
/// an arena of another size, or none.
const OURS_BYTES: rlim_t = 8 << 40;

/// The engine raises its descriptors to 900, and has some tens of them.
const DESCRIPTORS_MIN: rlim_t = 1024;

next_functions! {
    fn prlimit64(process: pid_t, resource: c_uint, new: *const rlimit, old: *mut rlimit) -> c_int;
}

/// An engine has some tens of them, and its user has others.
const THREADS_MIN: rlim_t = 1024;

/// Whether a limit leaves no room for the engine's descriptors or threads.
fn is_tight(resource: c_uint, limits: Option<&rlimit>) -> bool {
    limits.is_some_and(|limits| match resource {
        // Until it is raised again, which is done where one is needed.
        RLIMIT_NOFILE => limits.rlim_max < DESCRIPTORS_MIN,
        // Files that are there stay as long as they are.
        RLIMIT_FSIZE => limits.rlim_cur < in_force(RLIMIT_FSIZE),
        RLIMIT_NPROC => limits.rlim_cur < THREADS_MIN && lowers_threads(limits.rlim_cur),
        _ => false,
    })
}

/// Whether that is less than this process has, and applies to it: not to root.
fn lowers_threads(limit: rlim_t) -> bool {
    raw::users().real != 0 && limit < in_force(RLIMIT_NPROC)
}

/// 0 where it cannot be asked for.
fn in_force(resource: c_uint) -> rlim_t {
    let mut now = rlimit { rlim_cur: 0, rlim_max: 0 };
    prlimit64(0, resource, std::ptr::null(), &mut now);
    now.rlim_cur
}

/// A limit of a file's size that is being set: the engine is to know of it before it applies to its writes.
struct FileLimit;

impl FileLimit {
    fn set(limits: rlimit) -> Self {
        file_limit::lower(limits.rlim_cur);
        Self
    }
}

impl Drop for FileLimit {
    fn drop(&mut self) {
        file_limit::note();
    }
}

fn with_ours(limit: rlim_t) -> rlim_t {
    if limit >= RLIM_INFINITY - OURS_BYTES { RLIM_INFINITY } else { limit + OURS_BYTES }
}

/// A limit that was there before us is as it is.
fn without_ours(limit: rlim_t) -> rlim_t {
    if limit == RLIM_INFINITY || limit < OURS_BYTES { limit } else { limit - OURS_BYTES }
}

/// Whether the process may have what is ours on top: not with a limit from before us.
fn has_room() -> bool {
    let mut now = rlimit { rlim_cur: 0, rlim_max: 0 };
    prlimit64(0, RLIMIT_AS, std::ptr::null(), &mut now) == 0 && now.rlim_max >= OURS_BYTES
}

/// Sets and asks for limits, as prlimit does; `call` and `passed` are how the program has called it.
unsafe fn limit(
    process: pid_t,
    resource: c_uint,
    (new, old): (*const rlimit, *mut rlimit),
    (call, passed): (c_long, Arguments),
) -> c_int {
    // Of what the program could not read itself the kernel says so.
    let wanted = Reader::default().value::<rlimit>(new as usize);
    // SAFETY: has no conditions.
    let is_own = process == 0 || process == unsafe { libc::getpid() };
    if is_own && is_tight(resource, wanted.as_ref()) {
        match resource {
            RLIMIT_NPROC => rights::engage(),
            _ => rights::gather(),
        }
    }
    let _settled = wanted.filter(|_| is_own && resource == RLIMIT_FSIZE).map(FileLimit::set);
    let _held = is_needed().then(|| arguments::hold(call, &passed));
    if !is_own || resource != RLIMIT_AS || process::current().is_none() {
        return prlimit64(process, resource, new, old);
    }
    let raised = wanted.filter(|_| has_room()).map(|limits| rlimit {
        rlim_cur: with_ours(limits.rlim_cur),
        rlim_max: with_ours(limits.rlim_max),
    });
    let status = prlimit64(process, resource, raised.as_ref().map_or(new, |limits| limits), old);
    // SAFETY: as above; the kernel has just written there.
    if let (0, Some(old)) = (status, unsafe { old.as_mut() }) {
        old.rlim_cur = without_ours(old.rlim_cur);
        old.rlim_max = without_ours(old.rlim_max);
    }
    status
}

mod exported {
    use super::*;

    macro_rules! limits {
        ($( $set:ident $get:ident $both:ident; )+) => { $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $set(resource: c_uint, new: *const rlimit) -> c_int {
                let passed = arguments::of([resource as usize, new as usize]);
                // SAFETY: the caller's promise.
                unsafe { limit(0, resource, (new, std::ptr::null_mut()), (libc::SYS_setrlimit, passed)) }
            }

            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $get(resource: c_uint, old: *mut rlimit) -> c_int {
                let passed = arguments::of([resource as usize, old as usize]);
                // SAFETY: the caller's promise.
                unsafe { limit(0, resource, (std::ptr::null(), old), (libc::SYS_getrlimit, passed)) }
            }

            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $both(
                process: pid_t,
                resource: c_uint,
                new: *const rlimit,
                old: *mut rlimit,
            ) -> c_int {
                let passed = arguments::of([process as usize, resource as usize, new as usize, old as usize]);
                // SAFETY: the caller's promise.
                unsafe { limit(process, resource, (new, old), (libc::SYS_prlimit64, passed)) }
            }
        )+ };
    }

    limits! {
        setrlimit getrlimit prlimit;
        setrlimit64 getrlimit64 prlimit64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_told_and_infinity_stays() {
        for limit in [0, 4096, 1 << 31, 1 << 40, 100 << 40, RLIM_INFINITY] {
            assert_eq!(without_ours(with_ours(limit)), limit);
        }
        assert_eq!(without_ours(2 << 30), 2 << 30, "of before us");
        assert_eq!(with_ours(RLIM_INFINITY - 1), RLIM_INFINITY, "nothing has so much");
    }
}
