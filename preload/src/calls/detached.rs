//! Threads that nobody waits for, on stacks of the program's own making, where faults come by signal.
//!
//! As such a thread ends, the C library frees its table of thread-locals with all signals blocked. The table comes from
//! the program's allocator, so it may be swapped out, and so may be whatever that looks at. A thread that somebody
//! joins leaves this to the one who does: so they are made joinable, and a thread of ours joins each. The entry
//! points are as safe as the functions that they stand in for.
use super::signals::{is_by_signal, unblock_reserved};
use crate::abi::allocator;
use crate::abi::next::next_functions;
use crate::abi::raw::{Errno, Span};
use libc::{c_int, c_void, pthread_attr_t, pthread_t};
use userswap::internals::lock::Lock;
use userswap::internals::signal::Blocked;

next_functions! {
    /// Returns its error.
    fn pthread_detach(thread: pthread_t) -> Errno;
}

/// To wait on, and to serve faults of the program's allocator.
const WAITER_STACK_BYTES: usize = 256 << 10;

/// A stack of the program's making with a thread on it, whose number is an address there.
struct Stack {
    span: Span,
    is_detached: bool,
}

/// At most as many as there are such stacks: one that is used again is the same.
static STACKS: Lock<Vec<Stack>> = Lock::new(Vec::new());

impl Stack {
    fn has(&self, thread: pthread_t) -> bool {
        (thread as usize).wrapping_sub(self.span.address) < self.span.bytes
    }

    fn overlaps(&self, span: Span) -> bool {
        self.span.address < span.address + span.bytes
            && span.address < self.span.address + self.span.bytes
    }
}

/// The stack that attributes name, if they do.
pub fn stack_of(attributes: *const pthread_attr_t) -> Option<Span> {
    let (mut start, mut bytes) = (std::ptr::null_mut(), 0);
    if attributes.is_null() {
        return None;
    }
    // SAFETY: the program passes attributes.
    let error = unsafe { pthread_attr_getstack(attributes, &mut start, &mut bytes) };
    // Without one its upper end is nowhere.
    let is_named = error == 0 && (start as usize).wrapping_add(bytes) != 0;
    is_named.then_some(Span { address: start as usize, bytes })
}

/// A thread of the program's that is about to be made.
pub struct Making {
    stack: Span,
    /// What it is made with, if that is to be other than the program's.
    joinable: Option<pthread_attr_t>,
}

impl Making {
    /// One that nobody may be going to join, on the stack that its attributes name.
    pub fn new(stack: Span, attributes: *const pthread_attr_t) -> Option<Self> {
        if !is_by_signal() || !allocator::is_foreign() {
            return None;
        }
        take(stack);
        let mut state = libc::PTHREAD_CREATE_JOINABLE;
        // SAFETY: attributes, as they were above.
        let error = unsafe { pthread_attr_getdetachstate(attributes, &mut state) };
        let is_detached = error == 0 && state == libc::PTHREAD_CREATE_DETACHED;
        // SAFETY: as above; a copy refers to the same lists, which nothing changes meanwhile.
        let joinable = is_detached.then(|| unsafe { attributes.read() }).map(|mut copy| {
            // SAFETY: attributes of this function's own.
            unsafe { libc::pthread_attr_setdetachstate(&mut copy, libc::PTHREAD_CREATE_JOINABLE) };
            copy
        });
        Some(Self { stack, joinable })
    }

    pub fn attributes(&self) -> Option<*const pthread_attr_t> {
        self.joinable.as_ref().map(std::ptr::from_ref)
    }

    /// Whether nobody is going to join it, so that its number is asked for.
    pub fn is_detached(&self) -> bool {
        self.joinable.is_some()
    }

    /// The thread was made, or was not.
    pub fn finish(self, thread: Result<Option<pthread_t>, Errno>) {
        match thread {
            Ok(Some(thread)) => drop(detach(thread)),
            Ok(None) => {}
            Err(_) => forget(|stack| stack.overlaps(self.stack)),
        }
    }
}

/// Notes a stack, once ours has let go of the thread that was there before.
fn take(span: Span) {
    loop {
        let blocked = Blocked::new();
        let mut stacks = STACKS.lock();
        if !stacks.iter().any(|stack| stack.is_detached && stack.overlaps(span)) {
            // Others there have been joined by the program.
            stacks.retain(|stack| !stack.overlaps(span));
            return stacks.push(Stack { span, is_detached: false });
        }
        drop(stacks);
        drop(blocked);
        // The thread has ended, or the program could not use its stack: it is joined in a moment.
        std::thread::yield_now();
    }
}

fn forget(which: impl Fn(&Stack) -> bool) {
    let _blocked = Blocked::new();
    STACKS.lock().retain(|stack| !which(stack));
}

/// Detaches a thread on such a stack as far as the program can tell; what pthread_detach returns, or None if it is
/// on another.
fn detach(thread: pthread_t) -> Option<Errno> {
    let blocked = Blocked::new();
    let mut stacks = STACKS.lock();
    let stack = stacks.iter_mut().find(|stack| stack.has(thread))?;
    if std::mem::replace(&mut stack.is_detached, true) {
        return Some(libc::EINVAL);
    }
    drop(stacks);
    let waiter = std::thread::Builder::new().name("userswap-join".into());
    let waiting = waiter.stack_size(WAITER_STACK_BYTES).spawn(move || {
        unblock_reserved();
        // SAFETY: nobody else joins it: it is detached, as far as the program can tell.
        unsafe { libc::pthread_join(thread, std::ptr::null_mut()) };
        forget(|stack| stack.has(thread));
    });
    drop(blocked);
    match waiting {
        Ok(_) => Some(0),
        // There is no room for one more thread: better without ours than without the program's.
        Err(_) => {
            forget(|stack| stack.has(thread));
            None
        }
    }
}

/// Before fork: no other thread has the list then.
pub fn hold() {
    STACKS.hold();
}

/// After fork, in the parent.
pub fn release() {
    STACKS.release();
}

/// In the child, which has none of these threads.
pub fn renew() {
    STACKS.release();
    forget(|_| true);
}

unsafe extern "C" {
    fn pthread_attr_getstack(
        attributes: *const pthread_attr_t,
        start: *mut *mut c_void,
        bytes: *mut usize,
    ) -> c_int;
    fn pthread_attr_getdetachstate(attributes: *const pthread_attr_t, state: *mut c_int) -> c_int;
}

mod exported {
    use super::*;

    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn pthread_detach(thread: pthread_t) -> Errno {
        super::detach(thread).unwrap_or_else(|| super::pthread_detach(thread))
    }
}
