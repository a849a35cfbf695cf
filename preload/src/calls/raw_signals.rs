//! Calls about signals by number, as the kernel takes them: sets of one word.
//!
//! What is ours stays unblocked in every set, also in those that a call puts in force only for as long as it waits. One
//! that was caught is made in a handler, whose return puts back the mask that it reads here.
use super::arguments::{self, Arguments};
use super::reading::Reader;
use super::signals::{reserved, set_action};
use crate::abi::context::Context;
use crate::abi::system_call::{error, make, to_kernel};
use libc::{c_int, c_long};
use std::mem::MaybeUninit;

const SET_BYTES: usize = size_of::<u64>();
/// Signals whose handlers are the C library's own, and which its sigaction refuses.
const INTERNAL: [usize; 2] = [32, 33];

/// rt_sigaction's.
#[repr(C)]
#[derive(Clone, Copy)]
struct Action {
    handler: usize,
    flags: usize,
    restorer: usize,
    mask: u64,
}

impl Action {
    fn of(action: &libc::sigaction) -> Self {
        // SAFETY: the kernel's set is the first word of the C library's.
        let mask = unsafe { (&raw const action.sa_mask).cast::<u64>().read() };
        let restorer = action.sa_restorer.map_or(0, |restorer| restorer as usize);
        Self { handler: action.sa_sigaction, flags: action.sa_flags as usize, restorer, mask }
    }

    /// The C library puts a restorer of its own in.
    fn to_c(self) -> libc::sigaction {
        // SAFETY: an all-zero sigaction is valid.
        let mut action = unsafe { MaybeUninit::<libc::sigaction>::zeroed().assume_init() };
        action.sa_sigaction = self.handler;
        action.sa_flags = self.flags as c_int;
        // SAFETY: as in `of`.
        unsafe { (&raw mut action.sa_mask).cast::<u64>().write(self.mask) };
        action
    }
}

/// What concerns our signals; None for any other call.
pub fn serve(number: c_long, arguments: &Arguments) -> Option<usize> {
    match number {
        libc::SYS_rt_sigprocmask => Some(set_mask(arguments)),
        libc::SYS_rt_sigaction => Some(change_action(arguments)),
        _ => None,
    }
}

fn set_mask(arguments: &Arguments) -> usize {
    let [how, new, old, bytes, ..] = *arguments;
    let _held = arguments::hold_if_needed(libc::SYS_rt_sigprocmask, arguments);
    let changed = if how == libc::SIG_UNBLOCK as usize { None } else { without_reserved(new) };
    let new = changed.as_ref().map_or(new, |mask| std::ptr::from_ref(mask).addr());
    make(libc::SYS_rt_sigprocmask, [how, new, old, bytes, 0, 0])
}

/// rt_sigprocmask, caught.
pub fn change_mask(context: &mut Context, arguments: &Arguments) -> usize {
    let result = set_mask(arguments);
    let mut now = context.mask();
    make(libc::SYS_rt_sigprocmask, [0, 0, (&raw mut now).addr(), SET_BYTES, 0, 0]);
    context.set_mask(now);
    result
}

fn without_reserved(set: usize) -> Option<u64> {
    Reader::default().value::<u64>(set).map(|set| set & !reserved())
}

fn change_action(arguments: &Arguments) -> usize {
    let [number, new, old, bytes, ..] = *arguments;
    if bytes != SET_BYTES {
        return error(libc::EINVAL);
    }
    if INTERNAL.contains(&number) {
        return make(libc::SYS_rt_sigaction, *arguments);
    }
    let mut reader = Reader::default();
    let (asked, new) = (new, reader.value::<Action>(new).map(Action::to_c));
    if asked != 0 && new.is_none() || old != 0 && reader.value::<Action>(old).is_none() {
        return error(libc::EFAULT);
    }
    let mut before = MaybeUninit::<libc::sigaction>::zeroed();
    let new = new.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let result = set_action(number as c_int, new, before.as_mut_ptr());
    // SAFETY: null, or room for an action.
    if let (0, Some(old)) = (result, unsafe { (old as *mut Action).as_mut() }) {
        // SAFETY: an all-zero sigaction is valid.
        *old = Action::of(unsafe { before.assume_init_ref() });
    }
    to_kernel(result as isize as usize)
}

/// Makes a call that waits with another mask, if it is one, with what that mask may be.
pub fn with_mask_of(
    number: c_long,
    arguments: Arguments,
    call: impl FnOnce(&Arguments) -> usize,
) -> usize {
    let index = match number {
        libc::SYS_rt_sigsuspend => 0,
        libc::SYS_ppoll => 3,
        libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => 4,
        libc::SYS_pselect6 => return with_select_mask(arguments, call),
        _ => return call(&arguments),
    };
    let Some(mask) = without_reserved(arguments[index]) else { return call(&arguments) };
    let mut changed = arguments;
    changed[index] = (&raw const mask).addr();
    call(&changed)
}

/// pselect6 has the mask and its length in memory.
fn with_select_mask(arguments: Arguments, call: impl FnOnce(&Arguments) -> usize) -> usize {
    let Some([mask, bytes]) = Reader::default().value::<[usize; 2]>(arguments[5]) else {
        return call(&arguments);
    };
    let Some(mask) = without_reserved(mask) else { return call(&arguments) };
    let pair = [(&raw const mask).addr(), bytes];
    let mut changed = arguments;
    changed[5] = pair.as_ptr().addr();
    call(&changed)
}
