//! What went wrong: a code, and one line with the value and the remedy, kept for the thread that called.
use crate::text;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use userswap::Error;

/// What a function returns that can fail. Later versions may add more.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum us_error {
    /// It worked.
    US_OK = 0,
    /// An argument is NULL, no text, no number, or none of the values that are allowed.
    US_INVALID = 1,
    /// A handle was closed before, or never open, or this process was forked without its engine.
    US_CLOSED = 2,
    /// Bytes that lie outside the region or block, or are not memory of this engine.
    US_RANGE = 3,
    /// No block of this heap that is in use begins there.
    US_NOT_A_BLOCK = 4,
    /// No memory, address space or room in the budget.
    US_NO_MEMORY = 5,
    /// The budget is too small or too large for what is wanted of it.
    US_BUDGET = 6,
    /// This process may not use userfaultfd.
    US_NOT_PERMITTED = 7,
    /// This kernel cannot do what was asked for by name.
    US_UNSUPPORTED = 8,
    /// A swap device cannot be used, or is not in use.
    US_DEVICE = 9,
    /// Another swapon or swapoff is under way.
    US_BUSY = 10,
    /// The system refuses a thread, a socket or a copy, or there are too many engines.
    US_SYSTEM = 11,
    /// A defect of the library; what has happened is on standard error.
    US_PANIC = 12,
}
use us_error::*;

const CODES: [us_error; 13] = [
    US_OK,
    US_INVALID,
    US_CLOSED,
    US_RANGE,
    US_NOT_A_BLOCK,
    US_NO_MEMORY,
    US_BUDGET,
    US_NOT_PERMITTED,
    US_UNSUPPORTED,
    US_DEVICE,
    US_BUSY,
    US_SYSTEM,
    US_PANIC,
];

impl us_error {
    fn words(self) -> &'static CStr {
        match self {
            US_OK => c"success",
            US_INVALID => c"invalid argument",
            US_CLOSED => c"the handle is not open",
            US_RANGE => c"outside the memory",
            US_NOT_A_BLOCK => c"not a block of this heap",
            US_NO_MEMORY => c"no memory",
            US_BUDGET => c"the budget does not allow it",
            US_NOT_PERMITTED => c"userfaultfd is not permitted",
            US_UNSUPPORTED => c"not supported by this kernel",
            US_DEVICE => c"the swap device cannot be used",
            US_BUSY => c"another swapon or swapoff is under way",
            US_SYSTEM => c"the system refuses",
            US_PANIC => c"defect of the library",
        }
    }
}

/// A refusal on its way to the caller.
#[derive(Debug)]
pub struct Failure {
    /// For the caller's program.
    pub code: us_error,
    /// For its user.
    pub line: String,
}

impl Failure {
    /// A refusal with its line.
    pub fn new(code: us_error, line: impl Into<String>) -> Self {
        Self { code, line: line.into() }
    }

    /// An argument that cannot be used.
    pub fn invalid(line: impl Into<String>) -> Self {
        Self::new(US_INVALID, line)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::Setting(_)
            | Error::Tiers(_)
            | Error::NoNode(..)
            | Error::CompressMissing
            | Error::CompressGone => US_INVALID,
            Error::OutOfRange(..) | Error::NotManaged(..) => US_RANGE,
            Error::NotReadable(_) => US_INVALID,
            Error::NotABlock(_) => US_NOT_A_BLOCK,
            Error::Tables(_) | Error::ArenaFull(_) | Error::Protect(_) => US_NO_MEMORY,
            Error::BudgetTooSmall(_)
            | Error::BudgetTooLarge(..)
            | Error::NodeBudgetTooSmall(..)
            | Error::BudgetPinned(..)
            | Error::BudgetStored(..)
            | Error::WatermarksTooHigh(..)
            | Error::PinTooLarge(..) => US_BUDGET,
            Error::Userfaultfd(_) | Error::Key(_) => US_NOT_PERMITTED,
            Error::NoMove | Error::OwnMemory(_) => US_UNSUPPORTED,
            Error::Device(_)
            | Error::Swapon(_)
            | Error::TooManyDevices(_)
            | Error::NoSlotNumbers(_)
            | Error::NoSuchDevice(..)
            | Error::NoRoomToSwapoff(..)
            | Error::NoRoomInRam
            | Error::CompressStuck(_)
            | Error::SwapoffStuck(_)
            | Error::SwapoffCancelled => US_DEVICE,
            Error::DevicesChanging => US_BUSY,
            Error::ForkedWithout => US_CLOSED,
            Error::TooManyEngines(_)
            | Error::ControlDirectory(_)
            | Error::ControlSocket { .. }
            | Error::Thread(_)
            | Error::ForkCopy(_)
            | Error::ForkNumber(_) => US_SYSTEM,
        };
        Self::new(code, error.to_string())
    }
}

thread_local! {
    static LAST: RefCell<(us_error, CString)> = RefCell::new((US_OK, CString::default()));
}

fn note(failure: Failure) -> us_error {
    // A thread that is ending has nobody left to tell.
    let _ =
        LAST.try_with(|last| *last.borrow_mut() = (failure.code, text::c_string(&failure.line)));
    failure.code
}

/// The border: what goes wrong in `act`, a panic too, is noted for the thread.
fn crossing<T>(act: impl FnOnce() -> Result<T, Failure>) -> Result<T, us_error> {
    let outcome = catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<String>().map(String::as_str);
        let words = words.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
        Err(Failure::new(US_PANIC, format!("a defect of the library, please report it: {words}")))
    });
    outcome.map_err(note)
}

/// For functions that return a code.
pub fn code_of(act: impl FnOnce() -> Result<(), Failure>) -> c_int {
    crossing(act).err().unwrap_or(US_OK) as c_int
}

/// For functions that return something else: `refused` where it fails.
pub fn value_of<T>(refused: T, act: impl FnOnce() -> Result<T, Failure>) -> T {
    crossing(act).unwrap_or(refused)
}

/// A code in a few words, which stay valid; never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn us_strerror(code: c_int) -> *const c_char {
    let known = CODES.iter().find(|known| **known as c_int == code);
    known.map_or(c"unknown code", |code| code.words()).as_ptr()
}

/// What went wrong last in this thread: one line that names the value and the remedy, empty if nothing has.
/// Valid until the thread's next call that fails.
#[unsafe(no_mangle)]
pub extern "C" fn us_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().1.as_ptr()).unwrap_or(c"".as_ptr())
}

/// The code of what went wrong last in this thread, for functions that return NULL or 0 then.
#[unsafe(no_mangle)]
pub extern "C" fn us_last_code() -> c_int {
    LAST.try_with(|last| last.borrow().0).unwrap_or(US_OK) as c_int
}

/// The version of the library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn us_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
