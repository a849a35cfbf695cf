//! What Rust's standard library in this library has to do at a thread's end.
//!
//! Rust registers destructors of thread-locals with the C library, which takes memory for each from the
//! program's malloc. An engine's thread must not wait for an allocator of the program's: what the allocator's
//! lock holder waits for may be a page that only this thread brings in. Ours are kept here instead.
use super::thread_key::ThreadKey;
use libc::{c_int, c_void};

type Destructor = unsafe extern "C" fn(*mut c_void);

/// What a thread has to end, the last first.
type Ends = Vec<(Destructor, *mut c_void)>;

/// Its value is a thread's `Ends`; among the first, whose values need no memory of their own.
static KEY: ThreadKey = ThreadKey::none();

/// Called once, by the constructor.
pub fn start() {
    KEY.make(end);
}

/// Registers a destructor of a thread-local of ours (build.rs).
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap___cxa_thread_atexit_impl(
    destructor: Destructor,
    object: *mut c_void,
    _: *mut c_void,
) -> c_int {
    if !KEY.is_made() {
        // Without a key, or before the constructor: what the thread leaves stays.
        return 0;
    }
    // SAFETY: null, or a list of this thread's that `end` has not had yet.
    match unsafe { KEY.get().cast::<Ends>().as_mut() } {
        Some(ends) => ends.push((destructor, object)),
        None => KEY.set(Box::into_raw(Box::new(vec![(destructor, object)])).cast()),
    }
    0
}

unsafe extern "C" fn end(ends: *mut c_void) {
    // SAFETY: `__wrap___cxa_thread_atexit_impl` made the box; the C library has cleared the thread's value.
    let mut ends = unsafe { Box::from_raw(ends.cast::<Ends>()) };
    while let Some((destructor, object)) = ends.pop() {
        // SAFETY: registered with this object, which lives in this thread.
        unsafe { destructor(object) };
    }
}
