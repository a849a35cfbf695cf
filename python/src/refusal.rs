//! What goes wrong, as Python sees it: `ValueError` for a value that cannot be, `userswap.Error` for what a sound call met.
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyMemoryError, PyValueError};
use pyo3::prelude::*;
use std::fmt::Display;
use userswap::Error as EngineError;

create_exception!(
    userswap,
    Error,
    PyException,
    "What userswap cannot do; the message is one line."
);

/// An engine's error as an exception with the same message.
pub fn raised(error: EngineError) -> PyErr {
    match error {
        EngineError::BudgetTooSmall(_)
        | EngineError::BudgetTooLarge(..)
        | EngineError::Setting(_)
        | EngineError::Tiers(_)
        | EngineError::NoSuchDevice(..) => value(error),
        // Its memory is another engine's: the arena came from an mmap that `userswap run` has replaced.
        EngineError::Userfaultfd(reason) if reason.raw_os_error() == Some(libc::EBUSY) => {
            Error::new_err(
                "this process runs under `userswap run`, which manages its memory already: start it without",
            )
        }
        EngineError::ArenaFull(_) => PyMemoryError::new_err(error.to_string()),
        _ => Error::new_err(error.to_string()),
    }
}

/// For a value that was passed and cannot be used.
pub fn value(message: impl Display) -> PyErr {
    PyValueError::new_err(message.to_string())
}

/// Bytes of a size as people write it, such as "512M".
#[pyfunction]
pub fn parse_size(text: &str) -> PyResult<u64> {
    userswap::parse_size(text).map_err(value)
}
