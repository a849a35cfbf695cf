//! The library for C: each function checks what it is given, calls the one of `userswap` that does it, and makes a code and a
//! line of text of what went wrong. Nothing is decided here.
//!
//! No panic crosses the border (`failure`), and no handle is a pointer that would have to be trusted (`handle`): one that is
//! closed, or was never open, is an error. `include/userswap.h` is made from these files by `cargo run --example header`.
#![allow(unsafe_code)]
#![allow(non_camel_case_types, reason = "the names are C's")]

mod handle;
mod text;

// In the order of the header.
pub mod failure;

pub mod options;

pub mod engine;

pub mod region;

pub mod advice;

pub mod heap;

pub mod counters;

pub mod cache;

pub mod fork;
