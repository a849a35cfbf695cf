//! malloc, served from the arena.

pub mod elsewhere;
pub mod huge;
mod malloc;
pub mod mimalloc;
