//! Decisions of a swap subsystem, free of I/O, clocks, threads and unsafe code.
#![cfg_attr(not(test), no_std)]
extern crate alloc;
