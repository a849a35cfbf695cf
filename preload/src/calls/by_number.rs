//! What is called by number gets what is called by name: `syscall()`, and calls that were caught as such.
//!
//! Calls that this library interposes go to its functions, so that memory which is mapped, unmapped or
//! protected by number is managed as well. All others are made here, with their memory kept in RAM.
use super::arguments::{self, Arguments};
use super::{descriptors, filters, forks, lending, locks, raw_signals};
use crate::abi::next::call_at;
use crate::abi::system_call::{make, to_c};
use crate::state::process;
use libc::{c_int, c_long};
use std::sync::OnceLock;

/// A function of this library's that stands for a call; integers and pointers travel alike.
enum Served {
    /// It returns an int.
    Int(*const ()),
    Long(*const ()),
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> usize {
    serve(number, &[a, b, c, d, e, f])
}

/// Makes a call; what it returns to C.
pub fn serve(number: c_long, arguments: &Arguments) -> usize {
    if process::current().is_some() {
        if let Some(returned) = forks::serve_number(number, arguments) {
            return to_c(returned);
        }
        if number == libc::SYS_mprotect {
            // The function knows its callers, and this library's mean something else by it.
            let [address, bytes, protection, ..] = *arguments;
            let keyless = arguments::of([address, bytes, protection, usize::MAX]);
            return serve(libc::SYS_pkey_mprotect, &keyless);
        }
        if let Some(returned) = raw_signals::serve(number, arguments) {
            return to_c(returned);
        }
        if let Some(returned) = MEMORY.get().and_then(|serve| serve(number, arguments)) {
            return returned;
        }
        match served(number) {
            Some(Served::Int(function)) => {
                // SAFETY: one of the functions below, called as the program called syscall.
                return unsafe { call_at(function.cast(), arguments) } as c_int as isize as usize;
            }
            // SAFETY: as above.
            Some(Served::Long(function)) => return unsafe { call_at(function.cast(), arguments) },
            None => {}
        }
        if let (libc::SYS_exit, Some(end)) = (number, BEFORE_THREAD_ENDS.get()) {
            end(arguments[0] as c_int);
        }
        if gives_rights_up(number) && number != libc::SYS_seccomp {
            gather_rights();
        }
    }
    raw_signals::with_mask_of(number, *arguments, |arguments| plain(number, arguments))
}

/// Serves calls that a library may take over by writing a jump to itself where their functions begin (UCX does, and with
/// it MPI), and which it then makes by number: the functions would come back to it, for ever. What they return to C.
static MEMORY: OnceLock<ServeMemory> = OnceLock::new();

/// None for all other calls.
type ServeMemory = fn(c_long, &Arguments) -> Option<usize>;

/// In the constructor.
pub fn serve_memory(serve: ServeMemory) {
    let _ = MEMORY.set(serve);
}

/// What is done before a call by which the process can lose rights, and which is made for one thread only where
/// the C library's function makes it for all.
static BEFORE_RIGHTS_GO: OnceLock<fn()> = OnceLock::new();

/// What is done before a thread ends by a call, and with which status; ours do not end with the program's last one.
static BEFORE_THREAD_ENDS: OnceLock<fn(c_int)> = OnceLock::new();

/// In the constructor.
pub fn before_thread_ends(end: fn(c_int)) {
    let _ = BEFORE_THREAD_ENDS.set(end);
}

/// In the constructor.
pub fn before_rights_go(gather: fn()) {
    let _ = BEFORE_RIGHTS_GO.set(gather);
}

/// Takes what an engine will need.
pub fn gather_rights() {
    if let Some(gather) = BEFORE_RIGHTS_GO.get() {
        gather();
    }
}

fn gives_rights_up(number: c_long) -> bool {
    matches!(
        number,
        libc::SYS_setuid
            | libc::SYS_setgid
            | libc::SYS_setreuid
            | libc::SYS_setregid
            | libc::SYS_setresuid
            | libc::SYS_setresgid
            | libc::SYS_setgroups
            | libc::SYS_seccomp
            | libc::SYS_landlock_restrict_self
    )
}

/// Whether a call changes memory, or processes that have it: such calls are never to be missed.
pub fn is_about_memory(number: c_long) -> bool {
    const SERVED_APART: [c_long; 12] = [
        libc::SYS_mmap,
        libc::SYS_munmap,
        libc::SYS_mremap,
        libc::SYS_madvise,
        libc::SYS_process_madvise,
        libc::SYS_mseal,
        libc::SYS_mprotect,
        libc::SYS_brk,
        libc::SYS_clone,
        libc::SYS_clone3,
        libc::SYS_vfork,
        libc::SYS_io_uring_setup,
    ];
    SERVED_APART.contains(&number) || gives_rights_up(number) || other(number).is_some()
}

/// Makes a call of no special kind.
fn plain(number: c_long, arguments: &Arguments) -> usize {
    if number == libc::SYS_futex {
        return locks::futex(arguments);
    }
    if number == libc::SYS_io_uring_setup {
        lending::note();
    }
    let filters = filters::prepare(number, arguments);
    if number == libc::SYS_seccomp && !filters.refuses_engine() {
        gather_rights();
    }
    let _held = arguments::hold_if_needed(number, arguments);
    let returned = to_c(make(number, *arguments));
    if returned != usize::MAX {
        filters::note(filters);
    }
    returned
}

/// What this library interposes, with the same arguments in the same order.
fn served(number: c_long) -> Option<Served> {
    if number == libc::SYS_sigaltstack {
        return Some(Served::Int(libc::sigaltstack as *const ()));
    }
    transfer(number).map(Served::Long).or_else(|| other(number))
}

/// What reads or writes as much as it is asked for.
fn transfer(number: c_long) -> Option<*const ()> {
    Some(match number {
        libc::SYS_read => libc::read as *const (),
        libc::SYS_write => libc::write as *const (),
        libc::SYS_pread64 => libc::pread64 as *const (),
        libc::SYS_pwrite64 => libc::pwrite64 as *const (),
        libc::SYS_readv => libc::readv as *const (),
        libc::SYS_writev => libc::writev as *const (),
        libc::SYS_preadv => libc::preadv as *const (),
        libc::SYS_pwritev => libc::pwritev as *const (),
        libc::SYS_sendto => libc::sendto as *const (),
        libc::SYS_recvfrom => libc::recvfrom as *const (),
        libc::SYS_sendmsg => libc::sendmsg as *const (),
        libc::SYS_recvmsg => libc::recvmsg as *const (),
        libc::SYS_vmsplice => libc::vmsplice as *const (),
        libc::SYS_process_vm_readv => libc::process_vm_readv as *const (),
        libc::SYS_process_vm_writev => libc::process_vm_writev as *const (),
        _ => return None,
    })
}

fn other(number: c_long) -> Option<Served> {
    use Served::Int;
    Some(match number {
        libc::SYS_pkey_mprotect => Int(pkey_mprotect as *const ()),
        libc::SYS_mincore => Int(libc::mincore as *const ()),
        libc::SYS_mlock => Int(libc::mlock as *const ()),
        libc::SYS_mlock2 => Int(libc::mlock2 as *const ()),
        libc::SYS_munlock => Int(libc::munlock as *const ()),
        libc::SYS_mlockall => Int(libc::mlockall as *const ()),
        libc::SYS_munlockall => Int(libc::munlockall as *const ()),
        libc::SYS_close => Int(descriptors::close_for_program as *const ()),
        libc::SYS_dup2 => Int(libc::dup2 as *const ()),
        libc::SYS_dup3 => Int(descriptors::duplicate_for_program as *const ()),
        libc::SYS_close_range => Int(libc::close_range as *const ()),
        libc::SYS_fork => Int(libc::fork as *const ()),
        libc::SYS_execve => Int(libc::execve as *const ()),
        libc::SYS_execveat => Int(libc::execveat as *const ()),
        libc::SYS_setsockopt => Int(libc::setsockopt as *const ()),
        libc::SYS_chroot => Int(libc::chroot as *const ()),
        libc::SYS_pivot_root => Int(pivot_root as *const ()),
        libc::SYS_unshare => Int(libc::unshare as *const ()),
        libc::SYS_setns => Int(libc::setns as *const ()),
        libc::SYS_capset => Int(capset as *const ()),
        libc::SYS_prctl => Int(libc::prctl as *const ()),
        libc::SYS_prlimit64 => Int(libc::prlimit64 as *const ()),
        _ => return None,
    })
}

unsafe extern "C" {
    fn pivot_root(root: *const libc::c_char, old: *const libc::c_char) -> c_int;
    fn capset(header: *mut u64, data: *const u32) -> c_int;
    fn pkey_mprotect(
        address: *mut libc::c_void,
        bytes: usize,
        protection: c_int,
        key: c_int,
    ) -> c_int;
}
