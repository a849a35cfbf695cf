//! Functions found in the symbol tables of the loaded objects themselves.
//!
//! Allocators define `__libc_malloc` and its relatives too, and what comes first in the linker's order wins
//! every lookup by name, ours included; what is the C library's own is found only in its own table. Nothing
//! here allocates: it serves the first malloc of all.
use libc::{c_char, c_int, c_void, dl_phdr_info, size_t};
use std::ffi::CStr;
use std::ops::Range;
use std::sync::atomic::{AtomicPtr, Ordering};
use userswap::internals::PAGE_BYTES;

/// The owner's name in a note of Go's linker (its build's number).
const GO_NOTE: [u8; 4] = *b"Go\0\0";

/// Which definition of a name is meant.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Definition {
    /// The C library's.
    Libc,
    /// The first one after this library in the linker's order.
    AfterOurs,
}

/// One function, looked up at its first use.
pub struct Symbol {
    name: &'static CStr,
    definition: Definition,
    address: AtomicPtr<c_void>,
}

impl Symbol {
    /// A function by name, not yet looked up.
    pub const fn new(name: &'static CStr, definition: Definition) -> Self {
        Self { name, definition, address: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Its address.
    #[inline]
    pub fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if known.is_null() { self.look_up() } else { known }
    }

    #[cold]
    fn look_up(&self) -> *mut c_void {
        let Some(found) = find(self.name, self.definition) else {
            super::raw::stop("the C library lacks a function that userswap needs\n");
        };
        self.address.store(found as *mut c_void, Ordering::Relaxed);
        found as *mut c_void
    }
}

/// Declares callers of functions in one [`Definition`] of their names.
macro_rules! symbol_functions {
    ($definition:ident: $(
        $(#[$doc:meta])*
        fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)? = $symbol:literal;
    )+) => {
        /// Looks all of them up: the loader's lock, which that takes, can be another thread's later on, and
        /// that thread can wait for a page.
        pub fn look_up() {
            $($name::SYMBOL.address();)+
        }
        $(
            mod $name {
                use $crate::abi::symbols::{Definition, Symbol};
                pub static SYMBOL: Symbol = Symbol::new($symbol, Definition::$definition);
            }
            $(#[$doc])*
            #[inline]
            pub unsafe fn $name($($argument: $type),*) $(-> $result)? {
                type Function = unsafe extern "C" fn($($type),*) $(-> $result)?;
                type Address = *mut libc::c_void;
                let address = $name::SYMBOL.address();
                // SAFETY: the function of this name has this type.
                let function = unsafe { std::mem::transmute::<Address, Function>(address) };
                // SAFETY: the caller's promise.
                unsafe { function($($argument),*) }
            }
        )+
    };
}
pub(crate) use symbol_functions;

/// Whether the first definition of a name in the linker's order, ours apart, is the C library's.
pub fn is_libcs(name: &CStr) -> bool {
    let first = each_object(|object| {
        let defines = !object.is_ours() && object.find(name).is_some();
        defines.then(|| object.is_libc())
    });
    first.unwrap_or(true)
}

/// Whether an object after this library in the linker's order defines a name: the C library, most often.
pub fn is_after_ours(name: &CStr) -> bool {
    find(name, Definition::AfterOurs).is_some()
}

/// The address of one definition of a name.
fn find(name: &CStr, definition: Definition) -> Option<usize> {
    let mut is_past_ours = false;
    each_object(|object| {
        let is_meant = match definition {
            Definition::Libc => object.is_libc(),
            Definition::AfterOurs => is_past_ours,
        };
        is_past_ours |= object.is_ours();
        if is_meant { object.find(name) } else { None }
    })
}

/// The first definition of a name in the linker's order, which may be the program's. Without dlsym, whose message for none would
/// be a block of the program's malloc.
pub fn first(name: &CStr) -> Option<usize> {
    each_object(|object| object.find(name))
}

/// Calls `visit` with the loaded objects, in the linker's order, until it returns something.
pub fn each_object<R>(mut visit: impl FnMut(&Object) -> Option<R>) -> Option<R> {
    let mut walk = Walk { visit: &mut visit, result: None };
    let data = (&raw mut walk).cast::<c_void>();
    // SAFETY: the callback is the one for this type, and `data` is what it expects.
    unsafe { libc::dl_iterate_phdr(Some(step::<R>), data) };
    walk.result
}

/// What the linker keeps of a loaded object (link.h); more of its own follows.
#[repr(C)]
struct LinkMap {
    load_address: usize,
    name: *const c_char,
    dynamic: usize,
    next: *const LinkMap,
}

/// What it tells debuggers (link.h).
#[repr(C)]
struct Debug {
    version: c_int,
    first: *const LinkMap,
}

unsafe extern "C" {
    static _r_debug: Debug;
}

/// Where a linker's next object is, from where it keeps what it knows of one.
const NEXT: usize = std::mem::offset_of!(LinkMap, next);
/// More than any program loads: another thread may take one out of the list meanwhile, and what is there then is anything.
const OBJECTS_MAX: usize = 1 << 12;

/// Where the linker keeps what it knows of each object: for those that were loaded later in memory of the program's malloc. `read`
/// reads a word, if there is one. Takes no lock: who has the linker's may wait for the caller's.
pub fn link_maps(mut read: impl FnMut(usize) -> Option<usize>) -> Vec<usize> {
    // SAFETY: of the linker's; the first is there once something is loaded.
    let first = unsafe { _r_debug.first }.addr();
    let next = |map: &usize| read(map + NEXT).filter(|next| *next != 0);
    std::iter::successors(Some(first), next).take(OBJECTS_MAX).collect()
}

struct Walk<'a, R> {
    visit: &'a mut dyn FnMut(&Object) -> Option<R>,
    result: Option<R>,
}

unsafe extern "C" fn step<R>(info: *mut dl_phdr_info, _: size_t, data: *mut c_void) -> c_int {
    // SAFETY: `each_object` passes a walk that only this uses.
    let walk = unsafe { &mut *data.cast::<Walk<'_, R>>() };
    // SAFETY: dl_iterate_phdr passes a valid entry.
    walk.result = (walk.visit)(&Object(unsafe { &*info }));
    walk.result.is_some().into()
}

/// A loaded program or library.
pub struct Object<'a>(&'a dl_phdr_info);

impl Object<'_> {
    fn headers(&self) -> &[libc::Elf64_Phdr] {
        // SAFETY: the entry has that many program headers.
        unsafe { std::slice::from_raw_parts(self.0.dlpi_phdr, self.0.dlpi_phnum.into()) }
    }

    /// Where its file was found; empty for the program itself.
    pub fn path(&self) -> &[u8] {
        if self.0.dlpi_name.is_null() {
            return b"";
        }
        // SAFETY: the loader's names are C strings that live as long as the object.
        unsafe { CStr::from_ptr(self.0.dlpi_name) }.to_bytes()
    }

    /// The same without its directory.
    fn file(&self) -> &[u8] {
        let path = self.path();
        path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
    }

    pub fn is_libc(&self) -> bool {
        self.file().starts_with(b"libc.so") || self.file().starts_with(b"libc-2")
    }

    /// Whether this is the dynamic linker.
    pub fn is_loader(&self) -> bool {
        let file = self.file();
        file.starts_with(b"ld-linux") || file.starts_with(b"ld-2") || file.starts_with(b"ld.so")
    }

    /// Whether this is the library that you are reading.
    pub fn is_ours(&self) -> bool {
        self.text().is_some_and(|text| text.contains(&(is_libcs as *const () as usize)))
    }

    /// How many objects have been loaded so far, those that are no longer there as well.
    pub fn loads(&self) -> u64 {
        self.0.dlpi_adds
    }

    /// Where this thread's copy of the thread-locals is.
    pub fn thread_locals(&self) -> usize {
        self.0.dlpi_tls_data as usize
    }

    /// From the first to the last byte of the executable segments.
    pub fn text(&self) -> Option<Range<usize>> {
        self.executable().reduce(|all, one| all.start.min(one.start)..all.end.max(one.end))
    }

    /// From the first to the last byte of the segments for variables.
    pub fn variables(&self) -> Option<Range<usize>> {
        let all = self.segments(libc::PT_LOAD, libc::PF_R | libc::PF_W);
        all.reduce(|all, one| all.start.min(one.start)..all.end.max(one.end))
    }

    /// What the linker protects against writing once it has relocated it, in whole pages: where the object says of itself what
    /// it needs, which debuggers look for in core dumps, it is left out.
    pub fn relocated(&self) -> impl Iterator<Item = Range<usize>> {
        let all = self.segments(libc::PT_GNU_RELRO, 0).next().unwrap_or(0..0);
        let dynamic = self.segments(libc::PT_DYNAMIC, 0).next().unwrap_or(all.end..all.end);
        [all.start..dynamic.start.min(all.end), dynamic.end.max(all.start)..all.end]
            .map(inner_pages)
            .into_iter()
    }

    fn executable(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        self.segments(libc::PT_LOAD, libc::PF_R | libc::PF_X)
    }

    /// The segments of one kind that give these rights.
    fn segments(&self, kind: u32, rights: u32) -> impl Iterator<Item = Range<usize>> + '_ {
        let base = self.0.dlpi_addr as usize;
        let headers = self.headers().iter();
        let is_meant = move |header: &&libc::Elf64_Phdr| {
            header.p_type == kind && header.p_flags & rights == rights
        };
        headers.filter(is_meant).map(move |header| {
            let start = base + header.p_vaddr as usize;
            start..start + header.p_memsz as usize
        })
    }

    /// Whether this is the code that the kernel itself maps.
    pub fn is_kernels(&self) -> bool {
        self.file().starts_with(b"linux-vdso")
    }

    /// Whether Go's linker has left its note in it.
    pub fn is_go(&self) -> bool {
        self.segments(libc::PT_NOTE, libc::PF_R).any(|note| {
            let bytes = self.bytes(note);
            bytes.windows(GO_NOTE.len()).any(|name| name == GO_NOTE)
        })
    }

    /// The bytes of the executable segments.
    pub fn code(&self) -> impl Iterator<Item = &[u8]> + '_ {
        self.executable().map(|range| self.bytes(range))
    }

    /// The bytes of one of its segments that can be read.
    fn bytes(&self, range: Range<usize>) -> &[u8] {
        // SAFETY: the loader has mapped it, and it stays while the list of objects is walked.
        unsafe { std::slice::from_raw_parts(range.start as *const u8, range.len()) }
    }

    /// The address of a function that this object defines for others.
    fn find(&self, name: &CStr) -> Option<usize> {
        Symbols::of(self)?.find(name)
    }
}

/// The pages that lie whole in a range.
fn inner_pages(range: Range<usize>) -> Range<usize> {
    let start = range.start.next_multiple_of(PAGE_BYTES);
    start..(range.end / PAGE_BYTES * PAGE_BYTES).max(start)
}

/// An object's table of dynamic symbols, and the hash table over it.
struct Symbols {
    base: usize,
    symbols: usize,
    names: usize,
    hashes: usize,
}

/// One entry of PT_DYNAMIC.
#[repr(C)]
#[derive(Clone, Copy)]
struct Dynamic {
    tag: usize,
    value: usize,
}

mod tag {
    pub const NULL: usize = 0;
    pub const STRTAB: usize = 5;
    pub const SYMTAB: usize = 6;
    pub const GNU_HASH: usize = 0x6fff_fef5;
}

impl Symbols {
    /// None for an object without such a table.
    fn of(object: &Object) -> Option<Self> {
        let base = object.0.dlpi_addr as usize;
        let dynamic = object.headers().iter().find(|header| header.p_type == libc::PT_DYNAMIC)?;
        let mut entry = base + dynamic.p_vaddr as usize;
        let mut found = Self { base, symbols: 0, names: 0, hashes: 0 };
        loop {
            let Dynamic { tag, value } = read(entry);
            // Most loaders have made the offsets addresses.
            let address = if value < base { base + value } else { value };
            match tag {
                tag::NULL => break,
                tag::STRTAB => found.names = address,
                tag::SYMTAB => found.symbols = address,
                tag::GNU_HASH => found.hashes = address,
                _ => {}
            }
            entry += size_of::<Dynamic>();
        }
        (found.symbols != 0 && found.names != 0 && found.hashes != 0).then_some(found)
    }

    /// The address of a defined symbol.
    fn find(&self, name: &CStr) -> Option<usize> {
        let wanted = name
            .to_bytes()
            .iter()
            .fold(5381u32, |hash, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte)));
        let [buckets, first, filter_words, _] = read::<[u32; 4]>(self.hashes).map(|n| n as usize);
        let buckets_at = self.hashes + 16 + filter_words * size_of::<usize>();
        let chains_at = buckets_at + buckets * 4;
        let mut index = read::<u32>(buckets_at + wanted as usize % buckets * 4) as usize;
        if index < first {
            return None;
        }
        loop {
            let hash = read::<u32>(chains_at + (index - first) * 4);
            let symbol: libc::Elf64_Sym = read(self.symbols + index * size_of::<libc::Elf64_Sym>());
            if hash | 1 == wanted | 1 && symbol.st_shndx != 0 && self.name_of(&symbol) == name {
                return Some(self.base + symbol.st_value as usize);
            }
            // The last of its bucket.
            if hash & 1 != 0 {
                return None;
            }
            index += 1;
        }
    }

    fn name_of(&self, symbol: &libc::Elf64_Sym) -> &CStr {
        let name = (self.names + symbol.st_name as usize) as *const libc::c_char;
        // SAFETY: the names are C strings in the object, which is never unloaded.
        unsafe { CStr::from_ptr(name) }
    }
}

/// A value of the loaded object's tables.
fn read<T: Copy>(address: usize) -> T {
    // SAFETY: the loader follows the same tables; all of them are mapped readable.
    unsafe { (address as *const T).read_unaligned() }
}
