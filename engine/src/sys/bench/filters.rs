//! Filters of system calls, as a container or a program's own sandbox has them.
use super::check;
use std::io;

/// What a forbidden call comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// EPERM.
    Refused,
    /// The end of the process.
    Killed,
}

const LOAD_NUMBER: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;

/// Filters a call of all threads of this process, from now on.
///
/// # Errors
/// What the system says.
pub fn forbid(call: libc::c_long, outcome: Outcome) -> io::Result<()> {
    let result = match outcome {
        Outcome::Refused => libc::SECCOMP_RET_ERRNO | libc::EPERM as u32,
        Outcome::Killed => libc::SECCOMP_RET_KILL_PROCESS,
    };
    let step = |code, jf, k| libc::sock_filter { code, jt: 0, jf, k };
    let mut steps = [
        step(LOAD_NUMBER, 0, 0),
        step(JUMP_IF_EQUAL, 1, call as u32),
        step(RETURN, 0, result),
        step(RETURN, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: changes only what programs that are executed may become.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
    let (set, all) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_TSYNC);
    // SAFETY: reads the program, which lives until then.
    let filtered = unsafe { libc::syscall(libc::SYS_seccomp, set, all, &raw const program) };
    check(filtered as libc::c_int).map(drop)
}
