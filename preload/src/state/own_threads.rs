//! Threads of ours beside those of the program: which they are, and that they end for a while (`lifecycle/alone.rs`).
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::Builder;
use std::{fs, io};
use userswap::internals::directories;

/// The directory of this process's threads; /proc/self is empty once the main thread has ended.
pub const TASKS: &CStr = c"/proc/thread-self/..";
/// How the names of ours begin.
pub const OURS: &str = "userswap";
/// How those of threads begin that io_uring makes for another, and the number of that one follows.
const FOR_ANOTHER: &str = "iou-wrk-";
/// Those of ours that stay to the end of the process.
const STAYING: [&str; 2] = ["userswap-last", "userswap-join"];

static ARE_LEAVING: AtomicBool = AtomicBool::new(false);
/// Those that have been made, and are called as the thread that made them so far.
static COMING: AtomicU32 = AtomicU32::new(0);

/// Makes one, with such a stack.
///
/// # Errors
/// The system has none.
pub fn spawn(name: &str, stack_bytes: usize, run: fn()) -> io::Result<()> {
    COMING.fetch_add(1, Ordering::SeqCst);
    let builder = Builder::new().name(name.into()).stack_size(stack_bytes);
    let thread = builder.spawn(move || {
        COMING.fetch_sub(1, Ordering::SeqCst);
        run();
    });
    if thread.is_err() {
        COMING.fetch_sub(1, Ordering::SeqCst);
    }
    thread.map(drop)
}

/// In the child of a fork, which has none.
pub fn renew() {
    COMING.store(0, Ordering::SeqCst);
    may_come();
}

/// Those beside an engine's are to end; they have to be woken.
pub fn ask_to_leave() {
    // Release pairs with the acquire of who is woken after it.
    ARE_LEAVING.store(true, Ordering::Release);
}

/// Others may begin.
pub fn may_come() {
    ARE_LEAVING.store(false, Ordering::Release);
}

/// Whether a thread of ours is to end.
pub fn are_leaving() -> bool {
    ARE_LEAVING.load(Ordering::Acquire)
}

/// How many threads there are, how many of them are ours, and how many of those stay.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Number {
    pub all: usize,
    pub ours: usize,
    pub staying: usize,
}

/// Counts them now: threads of a program's own come and go. Allocates nothing of the program's.
pub fn count() -> Number {
    loop {
        let coming = COMING.load(Ordering::SeqCst);
        let mut number = by_names();
        if COMING.load(Ordering::SeqCst) == coming {
            number.ours += coming as usize;
            return number;
        }
    }
}

/// Those that have names by now; none where they cannot be looked at.
pub fn by_names() -> Number {
    let mut number = Number::default();
    for task in directories::names(directory(), usize::MAX).unwrap_or_default() {
        // Nothing of one that has ended.
        let name = name_of(&task).unwrap_or_default();
        let served = name.strip_prefix(FOR_ANOTHER);
        let served = served.map(|task| name_of(OsStr::new(task.trim())).unwrap_or_default());
        let is_ours = served.as_ref().unwrap_or(&name).starts_with(OURS);
        number.all += 1;
        number.ours += usize::from(is_ours);
        number.staying += usize::from(STAYING.contains(&name.trim()));
    }
    number
}

/// [`TASKS`] as a path.
pub fn directory() -> &'static Path {
    Path::new(OsStr::from_bytes(TASKS.to_bytes()))
}

/// The name of a thread in [`TASKS`].
///
/// # Errors
/// It has ended.
pub fn name_of(task: &OsStr) -> io::Result<String> {
    fs::read_to_string(directory().join(task).join("comm"))
}
