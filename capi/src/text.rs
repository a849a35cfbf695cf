//! Texts across the border.
use crate::failure::Failure;
use std::ffi::{CStr, CString, c_char};

/// A C string of the caller, named `what` in the message.
///
/// # Safety
/// NULL, or a C string that stays as it is for `'a`.
pub unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Result<&'a str, Failure> {
    if pointer.is_null() {
        return Err(Failure::invalid(format!("the {what} is NULL: pass a text")));
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| {
        Failure::invalid(format!("the {what} \"{}\" is not UTF-8", text.to_string_lossy()))
    })
}

/// Without what C cannot hold.
pub fn c_string(text: &str) -> CString {
    let bytes = text.bytes().filter(|byte| *byte != 0).collect::<Vec<_>>();
    CString::new(bytes).expect("no zero byte is left")
}

/// The place for a result, named `what` in the message.
///
/// # Safety
/// NULL, or valid for writes of a `T`.
pub unsafe fn store<T>(place: *mut T, value: T, what: &str) -> Result<(), Failure> {
    if place.is_null() {
        return Err(Failure::invalid(format!(
            "the place for the {what} is NULL: pass its address"
        )));
    }
    // SAFETY: the caller's promise.
    unsafe { place.write(value) };
    Ok(())
}
