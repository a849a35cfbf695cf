//! The engine as a program uses it. Tests share this process; one that forks, or that changes what belongs to
//! the whole process (handlers, limits, credentials), runs again in a process of its own: `support::alone`.
#![allow(clippy::needless_range_loop)]

mod api;
mod beside;
mod beyond;
mod block_waits;
mod blocks;
mod blocks_copied;
mod clean;
mod compress;
mod control;
mod debt;
mod demotion;
mod discard;
mod edges;
mod encrypt;
mod failing;
mod faulty;
mod foreign;
mod fork;
mod heap;
mod hibernate;
mod job;
mod lending;
mod list_lru;
mod measured;
mod no_copies;
mod nodes;
mod numbers;
mod packs;
mod polling;
mod populate;
mod protect;
mod races;
mod readahead;
mod reclaim;
mod recompress;
mod refusals;
mod remote;
mod remote_copies;
mod remote_tls;
#[cfg(feature = "s3")]
mod s3;
#[cfg(feature = "s3")]
mod s3_tls;
mod servers;
mod shrinkers;
mod silent;
mod spare;
mod support;
mod swapoff;
mod system_calls;
mod trace;
mod turns;
mod unevictable;
mod verify;
mod wiring;
mod zram;
