//! The program's mappings, given out of the arena, and the moment at which the engine takes the arena over.

pub mod advice;
pub mod engagement;
mod entries;
pub mod locking;
pub mod mappings;
mod protection;
pub mod remap;
