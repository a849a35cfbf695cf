//! Tells callers apart: the C library and the dynamic linker get memory that is never paged.
//!
//! Stream structures and buffers, thread vectors, loader data and lists of fork handlers are used inside
//! fork while the engine stands still, and by system calls inside the C library, which fail on missing
//! pages in signal mode. They are told apart by the address that malloc returns to.
use libc::{c_int, c_void, dl_phdr_info, size_t};
use std::ffi::CStr;
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

/// One object's executable address range.
struct Text {
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
static OURS: Text = Text::new();

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

/// Finds the code of all three; called once, by the constructor.
pub fn find() {
    // SAFETY: the callback matches, and takes no data.
    unsafe { libc::dl_iterate_phdr(Some(visit), std::ptr::null_mut()) };
}

unsafe extern "C" fn visit(info: *mut dl_phdr_info, _: size_t, _: *mut c_void) -> c_int {
    // SAFETY: dl_iterate_phdr passes a valid entry.
    let info = unsafe { &*info };
    let Some(range) = text_of(info) else { return 0 };
    let name = if info.dlpi_name.is_null() {
        c""
    } else {
        // SAFETY: the loader's names are C strings that live as long as the object.
        unsafe { CStr::from_ptr(info.dlpi_name) }
    };
    let path = name.to_bytes();
    let file = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    if file.starts_with(b"libc.so") || file.starts_with(b"libc-2") {
        LIBC.set(range);
    } else if file.starts_with(b"ld-linux")
        || file.starts_with(b"ld-2")
        || file.starts_with(b"ld.so")
    {
        LOADER.set(range);
    } else if range.contains(&(visit as *const () as usize)) {
        OURS.set(range);
    }
    0
}

/// From the first to the last byte of an object's executable segments.
fn text_of(info: &dl_phdr_info) -> Option<Range<usize>> {
    // SAFETY: the entry has that many program headers.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let base = info.dlpi_addr as usize;
    let executable = headers
        .iter()
        .filter(|header| header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_X != 0);
    executable
        .map(|header| {
            let start = base + header.p_vaddr as usize;
            start..start + header.p_memsz as usize
        })
        .reduce(|all, one| all.start.min(one.start)..all.end.max(one.end))
}
