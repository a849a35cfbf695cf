//! Waiting for other threads, by words in memory that may be missing when the kernel looks at them.
use super::arguments::{self, Arguments};
use super::held::{Held, is_needed};
use super::kept::pass_on;
use super::robust;
use crate::abi::next::Next;
use crate::abi::raw::{Span, errno, set_errno};
use crate::abi::system_call::{make, to_c};
use crate::state::process;
use std::sync::atomic::{AtomicI32, Ordering};

/// How often a wait is tried whose word has left again before the kernel looked; then it is kept.
const REPEATS_MAX: u32 = 100;

/// futex, by number.
///
/// A plain wait only reads its word, and has not begun when that is missing. It is brought in and tried again,
/// so that a thread that waits for long keeps no page. All else writes to the word, also at the end of a wait.
pub fn futex(arguments: &Arguments) -> usize {
    let [word, operation, _, _, second, _] = *arguments;
    let is_written =
        || is_written(operation) && [word, second].into_iter().any(process::is_managed);
    let enter = || to_c(make(libc::SYS_futex, *arguments));
    if !is_needed() && !is_written() {
        return enter();
    }
    if is_plain_wait(operation) {
        for _ in 0..REPEATS_MAX {
            drop(hold(arguments));
            let result = enter();
            if result != usize::MAX || errno() != libc::EFAULT {
                return result;
            }
        }
    }
    let _held = hold(arguments);
    enter()
}

fn hold(arguments: &Arguments) -> Held {
    arguments::hold(libc::SYS_futex, arguments)
}

fn command(operation: usize) -> i32 {
    operation as i32 & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME)
}

fn is_plain_wait(operation: usize) -> bool {
    matches!(command(operation), libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET)
}

/// Whether the kernel writes to a word, the second one too, where it cannot wait for a page: also with the right to have its
/// faults served.
fn is_written(operation: usize) -> bool {
    matches!(
        command(operation),
        libc::FUTEX_LOCK_PI
            | libc::FUTEX_LOCK_PI2
            | libc::FUTEX_UNLOCK_PI
            | libc::FUTEX_TRYLOCK_PI
            | libc::FUTEX_WAIT_REQUEUE_PI
            | libc::FUTEX_CMP_REQUEUE_PI
            | libc::FUTEX_WAKE_OP
    )
}

/// Whether a lock with this kind of mutex needs its memory kept; a static one costs a comparison.
#[inline]
fn is_concerned(mutex: usize) -> bool {
    process::is_managed(mutex) && (is_needed() || kind(mutex) & PRIO_INHERIT != 0)
}

#[inline]
fn kind(mutex: usize) -> i32 {
    // SAFETY: the program passes a mutex, whose layout static initialisers have made part of the ABI.
    unsafe { ((mutex + MUTEX_KIND) as *const i32).read_volatile() }
}

/// Where a mutex says of what kind it is, in bytes.
const MUTEX_KIND: usize = 16;
/// PTHREAD_MUTEX_ROBUST_NORMAL_NP.
const ROBUST: i32 = 16;
/// PTHREAD_MUTEX_PRIO_INHERIT_NP.
const PRIO_INHERIT: i32 = 32;
/// Bytes of the C library's largest object that threads wait for (a rwlock).
const OBJECT_BYTES: usize = 56;

fn object(address: usize) -> Span {
    Span { address, bytes: OBJECT_BYTES }
}

/// Locks a mutex by `lock`; one that is free is had without the kernel, and without more ado.
#[inline]
fn lock(lock: &Next, trylock: &Next, arguments: &Arguments) -> usize {
    let mutex = arguments[0];
    note_robust(mutex);
    if !is_concerned(mutex) {
        return pass_on(lock, arguments);
    }
    let result = pass_on(trylock, arguments);
    if result as i32 != libc::EBUSY {
        return result;
    }
    let _held = Held::new(&arguments.map(object));
    pass_on(lock, arguments)
}

/// The same without waiting.
#[inline]
fn try_to_lock(trylock: &Next, arguments: &Arguments) -> usize {
    note_robust(arguments[0]);
    pass_on(trylock, arguments)
}

/// This thread may end with it.
#[inline]
fn note_robust(mutex: usize) {
    if process::is_managed(mutex) && kind(mutex) & ROBUST != 0 {
        robust::note();
    }
}

fn unlock(unlock: &Next, arguments: &Arguments) -> usize {
    let mutex = arguments[0];
    if !process::is_managed(mutex) || kind(mutex) & PRIO_INHERIT == 0 {
        return pass_on(unlock, arguments);
    }
    let _held = Held::new(&[object(mutex)]);
    pass_on(unlock, arguments)
}

/// A lock for readers and writers, or one of C11's: had without more ado where it is free, as by `lock`.
fn try_first(lock: &Next, trylock: &Next, arguments: &Arguments) -> usize {
    /// What C11's say of one that is not free (thrd_busy).
    const BUSY: i32 = 1;
    if is_needed() {
        let result = pass_on(trylock, arguments);
        if !matches!(result as i32, libc::EBUSY | BUSY) {
            return result;
        }
    }
    wait(lock, arguments)
}

/// A semaphore, the same.
fn take(wait_for: &Next, try_to: &Next, arguments: &Arguments) -> usize {
    unsafe extern "C-unwind" {
        fn pthread_testcancel();
    }
    if is_needed() {
        // SAFETY: the thread may be cancelled here, as in the function that this stands in for.
        unsafe { pthread_testcancel() };
        let before = errno();
        let result = pass_on(try_to, arguments);
        if result as i32 == 0 || errno() != libc::EAGAIN {
            return result;
        }
        set_errno(before);
    }
    wait(wait_for, arguments)
}

/// What is to be done once: a word says that it has been.
fn once(next: &Next, arguments: &Arguments) -> usize {
    /// Of the C library's word: all of it is done.
    const DONE: i32 = 2;
    // SAFETY: the program passes one, whose static initialiser has made its size part of the ABI.
    let word = unsafe { AtomicI32::from_ptr(arguments[0] as *mut i32) };
    // Acquire: what was done is seen.
    if is_needed() && word.load(Ordering::Acquire) & DONE != 0 {
        return 0;
    }
    wait(next, arguments)
}

/// Waits for something, perhaps up to a time.
fn wait(next: &Next, arguments: &Arguments) -> usize {
    if !is_needed() {
        return pass_on(next, arguments);
    }
    let _held = Held::new(&arguments.map(object));
    pass_on(next, arguments)
}

/// Waits on a condition variable, and then for its mutex.
fn wait_with_mutex(next: &Next, arguments: &Arguments) -> usize {
    if !is_needed() && !is_concerned(arguments[1]) {
        return pass_on(next, arguments);
    }
    let _held = Held::new(&arguments.map(object));
    pass_on(next, arguments)
}

/// Functions that do not wait.
macro_rules! tries {
    ($($name:ident)+) => {
        mod tries {
            use super::Next;
            $(
                #[allow(non_upper_case_globals, reason = "named as the C function")]
                pub static $name: Next = Next::new($crate::abi::next::name!($name));
            )+
            pub fn look_up() {
                $( $name.look_up(); )+
            }
        }
    };
}

tries!(pthread_mutex_trylock pthread_rwlock_tryrdlock pthread_rwlock_trywrlock mtx_trylock sem_trywait);

macro_rules! entries {
    ($($act:ident { $($name:ident $count:literal $(by $try:ident)?),+ $(,)? })+) => {
        mod next {
            use super::Next;
            $($(
                #[allow(non_upper_case_globals, reason = "named as the C function")]
                pub static $name: Next = Next::new($crate::abi::next::name!($name));
            )+)+
        }
        /// Looks all of them up.
        pub fn look_up() {
            $($( next::$name.look_up(); )+)+
            tries::look_up();
        }
        mod exported {
            use super::*;
            $($(
                #[unsafe(no_mangle)]
                pub unsafe extern "C-unwind" fn $name(a: usize, b: usize, c: usize, d: usize) -> usize {
                    $act(&next::$name, $(&tries::$try,)? &first($count, [a, b, c, d]))
                }
            )+)+
        }
    };
}

/// As many as the function has: what is in the registers of others is the program's own.
#[inline]
fn first(count: usize, given: [usize; 4]) -> Arguments {
    let mut arguments = [0; 6];
    arguments[..count].copy_from_slice(&given[..count]);
    arguments
}

entries! {
    lock {
        pthread_mutex_lock 1 by pthread_mutex_trylock,
        pthread_mutex_timedlock 2 by pthread_mutex_trylock,
        pthread_mutex_clocklock 3 by pthread_mutex_trylock,
    }
    try_to_lock { pthread_mutex_trylock 1 }
    unlock { pthread_mutex_unlock 1 }
    wait_with_mutex {
        pthread_cond_wait 2, pthread_cond_timedwait 3, pthread_cond_clockwait 4, cnd_wait 2, cnd_timedwait 3,
    }
    try_first {
        pthread_rwlock_rdlock 1 by pthread_rwlock_tryrdlock,
        pthread_rwlock_wrlock 1 by pthread_rwlock_trywrlock,
        mtx_lock 1 by mtx_trylock,
    }
    take { sem_wait 1 by sem_trywait }
    once { pthread_once 2, call_once 2 }
    // Those with a time refuse one that is none, also where they would not wait.
    wait {
        pthread_barrier_wait 1, pthread_rwlock_timedrdlock 2, pthread_rwlock_timedwrlock 2,
        pthread_rwlock_clockrdlock 3, pthread_rwlock_clockwrlock 3, sem_timedwait 2, sem_clockwait 3,
        mtx_timedlock 2,
    }
}
