//! Timers that call a function of the program's, in a thread that the C library makes past `create_thread`.
//!
//! Such a thread blocks all signals and has no signal stack: a page that it misses would end the program where faults come as
//! SIGBUS. So the C library is given a function of ours, which makes the thread one like the program's others and then
//! calls the program's. What to call is found in a list by number, and not by address: a thread may begin when its timer
//! has been deleted, and has nothing to call then.
use super::aio_events::Event;
use super::arguments;
use super::reading::Reader;
use super::signal_stacks::{self, begin_unseen};
use crate::abi::next::next_functions;
use crate::abi::thread_locals;
use crate::state::process;
use libc::{c_int, clockid_t, sigevent, timer_t};
use std::sync::atomic::{AtomicUsize, Ordering};
use userswap::internals::lock::Lock;
use userswap::internals::signal::Blocked;

next_functions! {
    fn timer_create(clock: clockid_t, event: *const sigevent, timer: *mut timer_t) -> c_int;
    fn timer_delete(timer: timer_t) -> c_int;
}

/// What a timer calls.
#[derive(Clone, Copy)]
struct Told {
    number: usize,
    /// As the C library calls it; 0 until it has made it.
    timer: usize,
    function: usize,
    value: usize,
}

/// Those that have not been deleted; taken with signals blocked only. The C library goes through a list of its own as long at each
/// expiry.
static TOLD: Lock<Vec<Told>> = Lock::new(Vec::new());
/// Of the last one.
static NUMBER: AtomicUsize = AtomicUsize::new(0);

/// Before fork: no other thread has the list then.
pub fn hold() {
    TOLD.hold();
}

/// After fork, on both sides.
pub fn release() {
    TOLD.release();
}

/// In the child of a fork, which has no timers.
pub fn renew() {
    with_list(Vec::clear);
}

fn with_list<R>(act: impl FnOnce(&mut Vec<Told>) -> R) -> R {
    let _blocked = Blocked::new();
    act(&mut TOLD.lock())
}

/// What the C library calls at each expiry.
extern "C-unwind" fn call(number: usize) {
    let found = with_list(|list| list.iter().find(|told| told.number == number).copied());
    let Some(Told { function, value, .. }) = found else { return };
    begin_unseen();
    // SAFETY: the program named a function of this type.
    let function = unsafe { std::mem::transmute::<usize, extern "C-unwind" fn(usize)>(function) };
    function(value);
}

fn create_calling(
    clock: clockid_t,
    event: &sigevent,
    timer: *mut timer_t,
    (function, value): (usize, usize),
) -> c_int {
    // Relaxed: only that each is another.
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    with_list(|list| list.push(Told { number, timer: 0, function, value }));
    let event = Event::redirected(event, call, number);
    let mut made = std::ptr::null_mut();
    let status = timer_create(clock, &event, &mut made);
    with_list(|list| match status {
        0 => list
            .iter_mut()
            .filter(|told| told.number == number)
            .for_each(|told| told.timer = made.addr()),
        _ => list.retain(|told| told.number != number),
    });
    if status == 0 {
        // SAFETY: room for one; the C library writes there by itself, too.
        unsafe { timer.write(made) };
    }
    status
}

mod exported {
    use super::*;

    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn timer_create(
        clock: clockid_t,
        event: *mut sigevent,
        timer: *mut timer_t,
    ) -> c_int {
        if !thread_locals::are_here() || process::current().is_none() {
            return super::timer_create(clock, event, timer);
        }
        let passed = arguments::of([clock as usize, event as usize, timer as usize]);
        let _held = arguments::hold_if_needed(libc::SYS_timer_create, &passed);
        let Some(event) = Reader::default().value::<sigevent>(event as usize) else {
            return super::timer_create(clock, event, timer);
        };
        match Event::of(&event) {
            Event::Thread { function, attributes, value } => {
                signal_stacks::keep_stack_of(attributes as *const _);
                create_calling(clock, &event, timer, (function, value))
            }
            Event::None | Event::Signal { .. } => super::timer_create(clock, &event, timer),
        }
    }

    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn timer_delete(timer: timer_t) -> c_int {
        if thread_locals::are_here() {
            with_list(|list| list.retain(|told| told.timer != timer.addr() || told.timer == 0));
        }
        super::timer_delete(timer)
    }
}
