//! Calls that wait with another mask. A handler that runs meanwhile runs under it, so what is ours stays out of it.
//!
//! The entry points are as safe as the functions that they stand in for; a thread may be cancelled in them.
use super::arguments;
use super::held::Held;
use super::signals::without_reserved;
use super::transfers::check;
use crate::abi::next::next_functions;
use crate::abi::raw::set_errno;
use libc::{c_int, c_long, epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec};

next_functions! {
    fn sigsuspend(mask: *const sigset_t) -> c_int;
    fn ppoll(polls: *mut pollfd, count: nfds_t, limit: *const timespec, mask: *const sigset_t) -> c_int;
    fn pselect(
        count: c_int, reads: *mut fd_set, writes: *mut fd_set, errors: *mut fd_set,
        limit: *const timespec, mask: *const sigset_t
    ) -> c_int;
    fn epoll_pwait(
        epoll: c_int, events: *mut epoll_event, count: c_int, limit: c_int, mask: *const sigset_t
    ) -> c_int;
    fn epoll_pwait2(
        epoll: c_int, events: *mut epoll_event, count: c_int, limit: *const timespec, mask: *const sigset_t
    ) -> c_int;
}

fn hold<const COUNT: usize>(number: c_long, named: [usize; COUNT]) -> Option<Held> {
    arguments::hold_if_needed(number, &arguments::of(named))
}

mod exported {
    use super::*;

    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn sigsuspend(mask: *const sigset_t) -> c_int {
        let _held = hold(libc::SYS_rt_sigsuspend, [mask as usize]);
        without_reserved(mask, super::sigsuspend)
    }

    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn ppoll(
        polls: *mut pollfd,
        count: nfds_t,
        limit: *const timespec,
        mask: *const sigset_t,
    ) -> c_int {
        let named = [polls as usize, count as usize, limit as usize, mask as usize];
        let _held = hold(libc::SYS_ppoll, named);
        without_reserved(mask, |mask| super::ppoll(polls, count, limit, mask))
    }

    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn __ppoll_chk(
        polls: *mut pollfd,
        count: nfds_t,
        limit: *const timespec,
        mask: *const sigset_t,
        room: size_t,
    ) -> c_int {
        check((count as usize).saturating_mul(size_of::<pollfd>()), room);
        // SAFETY: the same.
        unsafe { ppoll(polls, count, limit, mask) }
    }

    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn pselect(
        count: c_int,
        reads: *mut fd_set,
        writes: *mut fd_set,
        errors: *mut fd_set,
        limit: *const timespec,
        mask: *const sigset_t,
    ) -> c_int {
        let sets = [reads, writes, errors].map(|set| set as usize);
        let named = [count as usize, sets[0], sets[1], sets[2], limit as usize, mask as usize];
        let _held = hold(libc::SYS_pselect6, named);
        without_reserved(mask, |mask| super::pselect(count, reads, writes, errors, limit, mask))
    }

    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn epoll_pwait(
        epoll: c_int,
        events: *mut epoll_event,
        count: c_int,
        limit: c_int,
        mask: *const sigset_t,
    ) -> c_int {
        let named =
            [epoll as usize, events as usize, count as usize, limit as usize, mask as usize];
        let _held = hold(libc::SYS_epoll_pwait, named);
        without_reserved(mask, |mask| super::epoll_pwait(epoll, events, count, limit, mask))
    }

    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn epoll_pwait2(
        epoll: c_int,
        events: *mut epoll_event,
        count: c_int,
        limit: *const timespec,
        mask: *const sigset_t,
    ) -> c_int {
        let named =
            [epoll as usize, events as usize, count as usize, limit as usize, mask as usize];
        // Since glibc 2.35.
        if super::epoll_pwait2::NEXT.address().is_null() {
            set_errno(libc::ENOSYS);
            return -1;
        }
        let _held = hold(libc::SYS_epoll_pwait2, named);
        without_reserved(mask, |mask| super::epoll_pwait2(epoll, events, count, limit, mask))
    }
}
