//! The command itself: what it prints, shows, measures and refuses, and what it changes of programs that are served.

#[path = "../preload_support/mod.rs"]
mod preload_support;
#[path = "../terminal_support/mod.rs"]
mod terminal_support;

mod advise;
mod bad_input;
mod bench_inside;
mod bench_jobs;
mod bench_swapoff;
mod control;
mod defaults;
mod demo;
mod doctor;
mod manual;
mod metrics;
mod package;
mod record;
mod sim;
mod swaps;
mod top;
mod trace;
