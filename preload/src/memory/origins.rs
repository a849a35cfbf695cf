//! Where mappings come from, for `--record`: the calls that asked for them, until the program names them.
use crate::abi::backtrace;
use crate::abi::raw::{self, Span};
use crate::state::process::{self, Process, Request};
use libc::{c_char, c_int, c_ulong};
use std::ffi::CStr;
use std::sync::Arc;
use userswap::internals::signal::Blocked;
use userswap::internals::{Origin, PageRange};

/// Smaller mappings are not worth a walk through the stack.
const PAGES_MIN: u32 = 256;

/// The calls that led here; None without a record. Signals may not be blocked yet.
pub fn of_calls(process: &Process, count: u32) -> Option<Arc<Origin>> {
    let is_wanted = process.options.record.is_some() && count >= PAGES_MIN;
    is_wanted.then(|| Arc::new(Origin::Calls(backtrace::calls())))
}

/// Notes that a range comes from there; signals must be blocked.
pub fn note(process: &Process, range: PageRange, origin: Option<Arc<Origin>>) {
    if let Some(origin) = origin {
        process.arena.set_origin(range, &origin);
    }
}

/// Notes that malloc shares a range out; signals must be blocked.
pub fn note_heap(process: &Process, range: PageRange) {
    let is_wanted = process.options.record.is_some();
    note(process, range, is_wanted.then(|| Arc::new(Origin::Heap)));
}

/// Where the page at an address comes from; None outside the arena, or if it is not known.
pub fn of_page(address: usize) -> Option<Arc<Origin>> {
    let process = process::current().filter(|process| process.options.record.is_some())?;
    let _blocked = Blocked::new();
    process
        .arena
        .contains(address)
        .then(|| process.arena.origin_of(process.arena.page_of(address)))?
}

/// Notes that bytes were moved or have grown: they come from where they came from.
pub fn moved(to: Span, origin: Option<Arc<Origin>>) {
    if let (Some(origin), Some(request)) = (origin, Request::new(to)) {
        let _blocked = Blocked::new();
        note(request.process, request.pages(), Some(origin));
    }
}

/// Of <linux/prctl.h>.
const PR_SET_VMA: c_int = 0x5356_4d41;
const PR_SET_VMA_ANON_NAME: c_ulong = 0;
/// With the zero byte at its end.
const NAME_BYTES_MAX: usize = 80;

/// Notes the name that a prctl gives to memory; a null pointer takes it away. Not every kernel keeps such names: what it
/// has answered does not matter.
pub fn named(option: c_int, what: c_ulong, span: Span, name: *const c_char) {
    let is_name = option == PR_SET_VMA && what == PR_SET_VMA_ANON_NAME;
    let Some(request) = is_name.then(|| Request::new(span)).flatten() else { return };
    if request.process.options.record.is_none() || !request.is_aligned() {
        return;
    }
    // What malloc shares out is called so, whatever mimalloc calls it.
    if of_page(span.address).as_deref() == Some(&Origin::Heap) {
        return;
    }
    let errno = raw::errno();
    let name = (!name.is_null()).then(|| read(name));
    raw::set_errno(errno);
    let _blocked = Blocked::new();
    match name {
        None => request.process.arena.clear_origin(request.pages()),
        Some(Some(name)) => {
            note(request.process, request.pages(), Some(Arc::new(Origin::Named(name))));
        }
        Some(None) => {}
    }
}

/// The C string there, if it can be read and is a name.
fn read(name: *const c_char) -> Option<String> {
    let mut bytes = [0; NAME_BYTES_MAX];
    // A pointer to nothing costs the name, not the program.
    let read = raw::read_memory(name as usize, &mut bytes);
    let name = CStr::from_bytes_until_nul(&bytes[..read]).ok()?.to_str().ok()?;
    name.chars().all(|c| c == ' ' || c.is_ascii_graphic()).then(|| name.to_owned())
}
