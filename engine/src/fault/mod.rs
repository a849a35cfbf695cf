//! IN: a page fault is served, by message or by signal, and what is read ahead of one.
pub mod alloc;
pub mod finish;
pub mod handle;
pub mod minor;
pub mod readahead;
pub mod server;
pub mod sigbus;
pub mod swapin;
pub mod wants;
pub mod zero;
