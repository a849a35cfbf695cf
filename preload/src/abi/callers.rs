//! Tells callers apart: the C library and the dynamic linker get memory that is never paged.
//!
//! Stream structures and buffers, thread vectors, loader data and lists of fork handlers are used inside
//! fork while the engine stands still, and by system calls inside the C library, which fail on missing
//! pages in signal mode. They are told apart by the address that malloc returns to.
use super::symbols::each_object;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// An entry point that passes its caller's address on after its own arguments, in the register that the
/// next argument has on x86-64 and on ARM.
macro_rules! entry {
    ($(#[$doc:meta])* $name:ident($($argument:ty),*) -> $result:ty, $x86:literal, $arm:literal, $serve:path) => {
        $(#[$doc])*
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name($(_: $argument),*) -> $result {
            #[cfg(target_arch = "x86_64")]
            std::arch::naked_asm!(
                concat!("mov ", $x86, ", [rsp]"),
                "jmp {serve}",
                serve = sym $serve
            );
            #[cfg(target_arch = "aarch64")]
            std::arch::naked_asm!(
                concat!("mov ", $arm, ", x30"),
                "b {serve}",
                serve = sym $serve
            );
        }
    };
}
pub(crate) use entry;

/// One object's range of addresses, of its code unless it says otherwise; entry points in assembly read it.
#[repr(C)]
pub struct Text {
    start: AtomicUsize,
    bytes: AtomicUsize,
}

impl Text {
    const fn new() -> Self {
        Self { start: AtomicUsize::new(0), bytes: AtomicUsize::new(0) }
    }

    fn set(&self, range: Range<usize>) {
        // Relaxed: written by the constructor, before there is a second thread.
        self.start.store(range.start, Ordering::Relaxed);
        self.bytes.store(range.len(), Ordering::Relaxed);
    }

    fn contains(&self, address: usize) -> bool {
        let start = self.start.load(Ordering::Relaxed);
        address.wrapping_sub(start) < self.bytes.load(Ordering::Relaxed)
    }
}

static LIBC: Text = Text::new();
static LOADER: Text = Text::new();
/// Their variables.
static VARIABLES: [Text; 2] = [Text::new(), Text::new()];
/// Of this library.
pub static OURS: Text = Text::new();

/// Whether the code at `address` belongs to the C library or the dynamic linker.
#[inline]
pub fn is_system(address: usize) -> bool {
    LIBC.contains(address) || LOADER.contains(address)
}

/// Whether the code at `address` is this library's.
#[inline]
pub fn is_ours(address: usize) -> bool {
    OURS.contains(address)
}

/// The C library's code, from its first to its last byte.
pub fn system_text() -> Range<usize> {
    let start = LIBC.start.load(Ordering::Relaxed);
    start..start + LIBC.bytes.load(Ordering::Relaxed)
}

/// The variables of the C library and of the dynamic linker, all of which can be read.
pub fn system_variables() -> impl Iterator<Item = Range<usize>> {
    VARIABLES.iter().map(|range| {
        let start = range.start.load(Ordering::Relaxed);
        start..start + range.bytes.load(Ordering::Relaxed)
    })
}

/// Finds the code of all three; called once, by the constructor.
pub fn find() {
    each_object(|object| {
        let text = object.text()?;
        if object.is_libc() {
            LIBC.set(text);
            VARIABLES[0].set(object.variables()?);
        } else if object.is_loader() {
            LOADER.set(text);
            VARIABLES[1].set(object.variables()?);
        } else if object.is_ours() {
            OURS.set(text);
        }
        None::<()>
    });
}
