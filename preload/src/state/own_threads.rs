//! Threads of ours beside those of the program: which they are, and that they end for a while (`lifecycle/alone.rs`).
use std::fs;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::Builder;

/// All threads of this process.
pub const TASKS: &std::ffi::CStr = c"/proc/self/task";
/// How the names of ours begin, and of those that io_uring makes for them.
const OURS: [&str; 2] = ["userswap", "iou-"];

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

/// How many threads there are, and how many of them are ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Number {
    pub all: usize,
    pub ours: usize,
}

/// Counts them now: threads of a program's own come and go.
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

fn by_names() -> Number {
    let mut number = Number { all: 0, ours: 0 };
    for task in fs::read_dir(TASKS.to_str().unwrap_or_default()).into_iter().flatten().flatten() {
        let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        number.all += 1;
        number.ours += usize::from(OURS.iter().any(|begin| name.starts_with(begin)));
    }
    number
}
