//! What `userswap run` injects into a program: the C library's memory calls, served from managed memory.
//!
//! The library stands between a program and the C library. Mappings and malloc are given out of one arena
//! (`memory`, `heap`); as long as what is accessible there fits the budget nothing else happens, and when it
//! does not the engine takes the arena over (`memory/engagement`). Everything else here keeps the program
//! from noticing: fork (`lifecycle`), system calls on memory that is not there, descriptors, signals (`calls`).
//!
//! Each room uses only those after it: `lifecycle`, `heap`, `memory`, `calls`, `state`, `abi`.
//!
//! It decides nothing: which page goes where is `userswap-policy`'s and the engine's.
// The C ABI is unsafe from end to end, and this crate is its edge.
#![allow(unsafe_code)]

mod abi;
mod calls;
mod heap;
mod lifecycle;
mod memory;
mod state;

/// The engine's own heap, and this library's, stays out of managed memory.
#[global_allocator]
static ALLOCATOR: abi::native::Native = abi::native::Native;
