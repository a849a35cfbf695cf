//! malloc, served from the arena.

pub mod elsewhere;
pub mod exact;
pub mod fork_gate;
pub mod huge;
mod malloc;
pub mod mimalloc;
mod owned;
