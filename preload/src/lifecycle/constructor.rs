//! What happens before the program's own code: read the options, reserve the arena, open the heap.
//!
//! Whatever ran before (the loader, other libraries) has blocks of glibc's, and keeps them. Without
//! options the library stays inert. Options that cannot be read end the program: it must not run
//! unmanaged on a machine that counts on its budget.
use super::{fork, stats};
use crate::abi::{callers, next, raw};
use crate::calls::{self, signal_stacks, signals};
use crate::heap::mimalloc;
use crate::memory::commitment;
use crate::state::process::{self, Process};
use userswap::internals::PAGE_BYTES;
use userswap::internals::mapping::Access;
use userswap::internals::{ARENA_PAGES_MAX, Arena};
use userswap::internals::{OPTIONS_VARIABLE, Options};

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = construct;

#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = destruct;

extern "C" fn construct() {
    callers::find();
    look_up();
    let Some(text) = std::env::var_os(OPTIONS_VARIABLE) else { return };
    if let Err(reason) = start(&text.to_string_lossy()) {
        raw::say(&format!("{OPTIONS_VARIABLE}: {reason}"));
        raw::exit_now(1);
    }
}

/// All at once, so that none has to be looked up in a signal handler or after fork.
fn look_up() {
    next::look_up();
    calls::look_up();
}

fn start(text: &str) -> Result<(), String> {
    let options = Options::from_text(text).map_err(|error| error.to_string())?;
    let arena = Arena::reserve(ARENA_PAGES_MAX, Access::Reserved)
        .map_err(|error| format!("no address space for managed memory: {error}"))?;
    // A limit on address space leaves a small arena; one below the budget would be no use.
    let bytes = u64::from(arena.pages()) * PAGE_BYTES as u64;
    if bytes < options.ram_bytes {
        return Err(format!("only {bytes} bytes of address space: raise the limit (ulimit -v)"));
    }
    signals::start(&options);
    signal_stacks::start();
    let process = Process::new(options, arena).publish();
    commitment::prepare(process)
        .map_err(|error| format!("no memory for the heap's tables: {error}"))?;
    mimalloc::prepare();
    stats::renew();
    fork::install();
    process::open_heap();
    Ok(())
}

extern "C" fn destruct() {
    stats::end();
}
