//! How a program asks to be told of something (sigevent), and is told that requests of POSIX aio have ended, where threads of
//! ours carry them out.
use super::signal_stacks::create_thread;
use libc::{c_int, c_void, sigevent};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How the program is told (sigevent(3type)).
#[derive(Clone, Copy)]
pub enum Event {
    None,
    Signal { number: c_int, value: usize },
    Thread { function: usize, attributes: usize, value: usize },
}

impl Event {
    /// As the program describes it.
    pub fn of(event: &sigevent) -> Self {
        let value = event.sigev_value.sival_ptr.addr();
        match event.sigev_notify {
            libc::SIGEV_SIGNAL => Self::Signal { number: event.sigev_signo, value },
            libc::SIGEV_THREAD => {
                // SAFETY: what begins with the thread's number is a union with a function and its attributes.
                let words = unsafe {
                    (&raw const event.sigev_notify_thread_id).cast::<[usize; 2]>().read()
                };
                Self::Thread { function: words[0], attributes: words[1], value }
            }
            _ => Self::None,
        }
    }

    /// The same event by another function, which gets another value.
    pub fn redirected(
        event: &sigevent,
        function: extern "C-unwind" fn(usize),
        value: usize,
    ) -> sigevent {
        let mut event = *event;
        event.sigev_value.sival_ptr = std::ptr::without_provenance_mut(value);
        let word = (&raw mut event.sigev_notify_thread_id).cast::<usize>();
        // SAFETY: the function is the first word of the union that begins there.
        unsafe { word.write(function as usize) };
        event
    }

    pub fn tell(self) {
        match self {
            Self::None => {}
            Self::Signal { number, value } => queue_signal(number, value),
            Self::Thread { function, attributes, value } => {
                start_function(function, attributes, value)
            }
        }
    }
}

/// As sigqueue(3), with the code that tells aio's from others.
fn queue_signal(number: c_int, value: usize) {
    /// What the kernel takes for such a signal; as long as a siginfo_t.
    #[repr(C)]
    struct Info {
        number: c_int,
        error: c_int,
        code: c_int,
        _padding: c_int,
        process: libc::pid_t,
        user: libc::uid_t,
        value: usize,
        _rest: [usize; 12],
    }
    const { assert!(size_of::<Info>() == size_of::<libc::siginfo_t>()) };
    // SAFETY: has no conditions.
    let process = unsafe { libc::getpid() };
    // SAFETY: has no conditions.
    let user = unsafe { libc::getuid() };
    let code = libc::SI_ASYNCIO;
    let info = Info { number, error: 0, code, _padding: 0, process, user, value, _rest: [0; 12] };
    // SAFETY: the kernel reads a whole siginfo_t. It refuses what is no signal.
    unsafe { libc::syscall(libc::SYS_rt_sigqueueinfo, process, number, &raw const info) };
}

/// A function of the program's, and what it is to get.
struct Told {
    function: extern "C-unwind" fn(usize),
    value: usize,
}

extern "C" fn run_function(told: *mut c_void) -> *mut c_void {
    // SAFETY: `start_function` made the box for this thread.
    let Told { function, value } = *unsafe { Box::from_raw(told.cast::<Told>()) };
    let none = 0u64;
    // SAFETY: an empty set, of the size that the kernel knows, which is all that the C library looks at.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, [none; 16].as_ptr().cast(), std::ptr::null_mut())
    };
    function(value);
    std::ptr::null_mut()
}

/// In a thread with the program's attributes; nobody waits for one without.
fn start_function(address: usize, attributes: usize, value: usize) {
    // SAFETY: the program names a function of this type.
    let function = unsafe { std::mem::transmute::<usize, extern "C-unwind" fn(usize)>(address) };
    let told = Box::into_raw(Box::new(Told { function, value }));
    let mut thread = 0;
    let attributes = attributes as *const libc::pthread_attr_t;
    // It runs the program's code.
    let error = create_thread(&mut thread, attributes, run_function, told.cast(), address);
    if error != 0 {
        // SAFETY: no thread has taken the box. Nobody can be told of it: the C library drops it, too.
        drop(unsafe { Box::from_raw(told) });
    } else if attributes.is_null() {
        // SAFETY: made above, and nobody joins it.
        unsafe { libc::pthread_detach(thread) };
    }
}

/// Several that the program is told of when all have ended.
pub struct Group {
    left: AtomicUsize,
    event: Event,
}

impl Group {
    /// Of one, who leaves when all have joined.
    pub fn new(event: *const sigevent) -> Arc<Self> {
        // SAFETY: null, or an event of the program's.
        let event = unsafe { event.as_ref() }.map_or(Event::None, Event::of);
        Arc::new(Self { left: AtomicUsize::new(1), event })
    }

    /// One more.
    pub fn join(self: &Arc<Self>) -> Arc<Self> {
        self.left.fetch_add(1, Ordering::Relaxed);
        Arc::clone(self)
    }

    /// One fewer. The last one tells.
    pub fn leave(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.event.tell();
        }
    }
}
