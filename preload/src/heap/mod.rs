//! malloc, served from the arena.

pub mod huge;
mod malloc;
pub mod mimalloc;
