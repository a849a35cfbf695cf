//! Threads without the standard library's locks.
//!
//! In a program whose `main` is Rust's, a thread of the standard library's takes a lock as it begins and as it ends. The
//! child of a fork at such a moment could start no thread: those that come and go while a program forks are made here.
use std::ffi::{CString, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A thread, to be joined.
#[derive(Debug)]
pub struct PlainThread {
    thread: libc::pthread_t,
    has_ended: Arc<AtomicBool>,
}

struct Start<F> {
    name: CString,
    body: F,
    has_ended: Arc<AtomicBool>,
}

impl PlainThread {
    /// Starts a thread; its name has at most 15 bytes. A panic in it ends the process.
    ///
    /// # Errors
    /// No thread is to be had.
    pub fn spawn<F>(name: &str, stack_bytes: usize, body: F) -> io::Result<Self>
    where
        F: FnOnce() + Send + 'static,
    {
        let has_ended = Arc::new(AtomicBool::new(false));
        let start = Start { name: CString::new(name)?, body, has_ended: has_ended.clone() };
        let start = Box::into_raw(Box::new(start));
        let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
        // SAFETY: makes them valid.
        unsafe { libc::pthread_attr_init(attributes.as_mut_ptr()) };
        // SAFETY: they are valid; a size that is refused leaves the usual one.
        unsafe { libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), stack_bytes) };
        let mut thread = MaybeUninit::uninit();
        // SAFETY: `run` takes the box, of this very type, and what is in it may be sent to another thread.
        let error = unsafe {
            libc::pthread_create(thread.as_mut_ptr(), attributes.as_ptr(), run::<F>, start.cast())
        };
        // SAFETY: they are not used any more.
        unsafe { libc::pthread_attr_destroy(attributes.as_mut_ptr()) };
        if error != 0 {
            // SAFETY: no thread has taken the box.
            drop(unsafe { Box::from_raw(start) });
            return Err(io::Error::from_raw_os_error(error));
        }
        // SAFETY: written by the call that has succeeded.
        Ok(Self { thread: unsafe { thread.assume_init() }, has_ended })
    }

    /// Whether joining it would not wait for its body.
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// Waits for its end.
    pub fn join(self) {
        // SAFETY: a thread that nobody has joined, as this takes its only handle.
        unsafe { libc::pthread_join(self.thread, std::ptr::null_mut()) };
    }
}

/// What the thread runs; a panic does not get past it, and ends the process.
extern "C" fn run<F: FnOnce()>(start: *mut c_void) -> *mut c_void {
    // SAFETY: `spawn` made the box for this thread.
    let start = unsafe { Box::from_raw(start.cast::<Start<F>>()) };
    let Start { name, body, has_ended } = *start;
    // SAFETY: names this thread; of a longer name the kernel takes the beginning.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    body();
    has_ended.store(true, Ordering::Release);
    std::ptr::null_mut()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn a_thread_runs_its_body_under_its_name_and_is_waited_for() {
        let sum = Arc::new(AtomicU32::new(0));
        let threads: Vec<_> = (1..=10)
            .map(|part| {
                let sum = sum.clone();
                let body = move || {
                    let name = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
                    assert_eq!(name, "userswap-plain\n");
                    sum.fetch_add(part, Ordering::Relaxed);
                };
                PlainThread::spawn("userswap-plain", 256 << 10, body).unwrap()
            })
            .collect();
        threads.into_iter().for_each(PlainThread::join);
        assert_eq!(sum.load(Ordering::Relaxed), 55);
    }
}
