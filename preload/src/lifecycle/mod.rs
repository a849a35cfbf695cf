//! How a process with this library in it begins, forks and ends.

mod address_limit;
mod alone;
mod confined;
mod constructor;
mod fork;
mod last_thread;
mod rights;
mod stats;
