//! What happens before the program's own code: read the options, reserve the arena, open the heap.
//!
//! It comes before the constructors of all other libraries (build.rs), the C library's included, so that our
//! fork handlers are the first. Whatever ran before (the loader) has blocks of glibc's, and keeps them. Without
//! options the library stays inert. Options that cannot be read end the program: it must not run
//! unmanaged on a machine that counts on its budget.
use super::{address_limit, confined, fork, last_thread, rights, stats};
use crate::abi::{allocator, callers, native, next, raw, symbols, thread_end, thread_locals};
use crate::calls::{
    self, children, held, libc_memory, robust, signal_stacks, signals, stdio_buffers, trap,
};
use crate::heap::{elsewhere, exact, fork_gate, mimalloc};
use crate::memory::{commitment, entries, starter};
use crate::state::notices;
use crate::state::process::Process;
use libc::{c_char, c_int};
use std::ffi::CStr;
use std::sync::Arc;
use userswap::internals::Member;
use userswap::internals::PAGE_BYTES;
use userswap::internals::file_limit;
use userswap::internals::mapping::Access;
use userswap::internals::memory_limit;
use userswap::internals::{ARENA_PAGES_MAX, Arena};
use userswap::internals::{OPTIONS_VARIABLE, Options};

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn(c_int, Texts, Texts) = construct;

#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = destruct;

/// A list of C strings that ends with a null pointer.
type Texts = *const *const c_char;

extern "C" fn construct(_: c_int, _: Texts, environment: Texts) {
    // What is said may go to a file.
    file_limit::note();
    // First: what reads its own there may take it away (heaptrack does).
    let options = value_in(environment, OPTIONS_VARIABLE).filter(|text| !text.is_empty());
    let preloaded = value_in(environment, "LD_PRELOAD");
    pass_on(environment);
    callers::find();
    look_up();
    thread_end::start();
    // Also in a program that is left alone: some of what stands in front of its calls takes memory there, too.
    if allocator::is_foreign() {
        native::widen_elsewhere();
    }
    let Some(text) = options else { return };
    if preloaded.is_some_and(is_under_valgrind) {
        return;
    }
    if !allocator::is_foreign() {
        native::widen();
    }
    if preloaded.is_some() {
        children::start(text);
    }
    if let Err(reason) = start(&text.to_string_lossy()) {
        raw::say(&format!("{OPTIONS_VARIABLE}: {reason}"));
        raw::exit_now(1);
    }
}

/// Whether valgrind runs the program's instructions itself, in its own process, which is statically linked and known to be
/// unmanaged. It has no address space for an arena, and knows nothing of faults that are served. Its manual has programs ask so.
fn is_under_valgrind(preloaded: &CStr) -> bool {
    preloaded.to_bytes().windows(VALGRINDS.len()).any(|name| name == VALGRINDS)
}

/// How the names of its libraries begin.
const VALGRINDS: &[u8] = b"/vgpreload_";

unsafe extern "C" {
    /// glibc's name for environ(7).
    static mut __environ: Texts;
}

/// Gives the C library its environment, as its own constructor will: an allocator that the program brings starts with the
/// first block that is asked of it, which is here, and looks for what it is told there (heaptrack, jemalloc).
fn pass_on(environment: Texts) {
    let known = &raw mut __environ;
    // SAFETY: there is one thread, and nobody has the variable borrowed.
    if unsafe { known.read() }.is_null() {
        // SAFETY: as above.
        unsafe { known.write(environment) };
    }
}

/// The value of a variable.
fn value_in(environment: Texts, name: &str) -> Option<&'static CStr> {
    let mut entry = environment;
    // SAFETY: the list ends with a null pointer, which has not been met yet.
    while let Some(text) = unsafe { entry.as_ref() }.filter(|text| !text.is_null()) {
        // SAFETY: an entry is a C string; those that a program starts with stay.
        let text = unsafe { CStr::from_ptr(*text) };
        let value = text.to_bytes().strip_prefix(name.as_bytes());
        if value.is_some_and(|value| value.starts_with(b"=")) {
            return text
                .to_bytes_with_nul()
                .get(name.len() + 1..)
                .and_then(|value| CStr::from_bytes_with_nul(value).ok());
        }
        // SAFETY: this was not the last entry.
        entry = unsafe { entry.add(1) };
    }
    None
}

/// All at once, so that none has to be looked up in a signal handler or after fork.
fn look_up() {
    thread_locals::find();
    native::look_up();
    elsewhere::look_up();
    fork_gate::look_up();
    next::look_up();
    calls::look_up();
    last_thread::look_up();
    address_limit::look_up();
    rights::look_up();
}

fn start(text: &str) -> Result<(), String> {
    let options = Options::from_text(text).map_err(|error| error.to_string())?;
    let arena = reserve_arena().map_err(|error| {
        let remedy = memory_limit::remedy(&error).map(|remedy| format!("; {remedy}"));
        format!("no address space for managed memory: {error}{}", remedy.unwrap_or_default())
    })?;
    // A limit on address space leaves a small arena; one below the budget would be no use.
    let bytes = u64::from(arena.pages()) * PAGE_BYTES as u64;
    if bytes < options.ram_bytes {
        return Err(format!("only {bytes} bytes of address space: raise the limit (ulimit -v)"));
    }
    notices::start(&options);
    signals::start(&options);
    held::start(&options);
    stdio_buffers::start();
    entries::start();
    trap::start(&options)?;
    signal_stacks::start();
    robust::start();
    libc_memory::start();
    rights::start();
    last_thread::start();
    confined::start();
    arena
        .advise(libc::MADV_DONTDUMP)
        .map_err(|error| format!("no core dump would end: {error}"))?;
    let member = join(&options);
    mimalloc::prepare();
    let process = Process::new(options, arena, member).publish();
    commitment::prepare(process)
        .and_then(|()| exact::prepare(process))
        .map_err(|error| format!("no memory for the heap's tables: {error}"))?;
    stats::renew();
    fork::install();
    elsewhere::open_heap(process);
    starter::leave_stacks();
    starter::start();
    Ok(())
}

/// Tells this matter from others in what the job has told.
const MATTER: u64 = 3;

/// Takes part in the job's budget. A process that cannot has the whole budget for itself.
fn join(options: &Options) -> Option<Arc<Member>> {
    let ledger = options.ledger.as_ref()?;
    let pages = u32::try_from(options.ram_bytes / PAGE_BYTES as u64).unwrap_or(u32::MAX);
    match Member::join(ledger, pages) {
        Ok(member) => Some(Arc::new(member)),
        Err(error) => {
            let name = ledger.display();
            let line = format_args!("{name}: {error}: this process has a budget of its own");
            notices::tell_once(MATTER, ledger.as_os_str().as_encoded_bytes(), line);
            None
        }
    }
}

/// At low addresses, but for programs with a sanitizer, which are known by an mmap of their own: it wants those
/// addresses for its tables, and comes after us.
fn reserve_arena() -> std::io::Result<Arena> {
    match symbols::is_libcs(c"mmap") {
        true => Arena::reserve_low(),
        false => Arena::reserve(ARENA_PAGES_MAX, Access::Reserved),
    }
}

extern "C" fn destruct() {
    // To the end: what this thread still has other processes may wait for.
    std::mem::forget(robust::keep());
    stats::end();
}
