//! malloc, served from the arena.

pub mod elsewhere;
pub mod fork_gate;
pub mod huge;
mod malloc;
pub mod mimalloc;
