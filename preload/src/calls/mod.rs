//! Calls that are not about memory itself, served so that the program does not notice the engine: they get
//! buffers that stay in RAM, and do not see the engine's descriptors and signals.

pub mod aio;
mod aio_events;
pub mod arguments;
mod attributes;
pub mod brackets;
pub mod buffers;
pub mod by_number;
pub mod children;
mod clones;
mod contexts;
pub mod descriptors;
pub mod detached;
mod exec;
pub mod filters;
pub mod forks;
pub mod given_stacks;
pub mod held;
pub mod in_flight;
mod kept;
pub mod kept_stacks;
pub mod lending;
pub mod libc_memory;
mod libraries;
mod locks;
mod masked;
mod nested;
mod of_others;
mod old_signals;
mod own_aio;
mod raw_signals;
pub mod reading;
pub mod robust;
mod scattered;
mod shells;
pub mod signal_stacks;
pub mod signals;
pub mod stdio_buffers;
mod streams;
mod table;
mod thread_links;
pub mod timers;
mod transfers;
pub mod trap;
mod working_directory;

/// Looks the real functions up.
pub fn look_up() {
    aio::look_up();
    attributes::look_up();
    contexts::look_up();
    detached::look_up();
    exec::look_up();
    forks::look_up();
    given_stacks::look_up();
    kept::look_up();
    lending::look_up();
    libraries::look_up();
    locks::look_up();
    masked::look_up();
    libc_memory::look_up();
    scattered::look_up();
    shells::look_up();
    signals::look_up();
    signal_stacks::look_up();
    stdio_buffers::look_up();
    streams::look_up();
    thread_links::look_up();
    timers::look_up();
    transfers::look_up();
}
