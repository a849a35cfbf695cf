//! The program's mappings, given out of the arena, and the moment at which the engine takes the arena over.

mod advice;
mod advised_lists;
pub mod commitment;
pub mod engagement;
pub mod entries;
pub mod guard;
pub mod locking;
pub mod mappings;
pub mod origins;
pub mod own_stack;
pub mod program_break;
mod protection;
pub mod ranges;
pub mod relocated;
mod relocated_file;
pub mod remap;
mod replace;
pub mod segments;
pub mod starter;
pub mod unmanaged;
