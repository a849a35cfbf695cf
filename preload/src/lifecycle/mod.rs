//! How a process with this library in it begins, forks and ends.

mod constructor;
mod fork;
mod last_thread;
mod rights;
mod stats;
