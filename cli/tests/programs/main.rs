//! Programs under `userswap run`: that they do what they do natively, whatever they call, allocate, fork or are allowed to do.

#[allow(dead_code, reason = "some are for the tests of the engine")]
#[path = "../../../engine/tests/engine/support/certificates.rs"]
mod certificates;
#[path = "../preload_support/mod.rs"]
mod preload_support;
#[allow(dead_code, reason = "some are for the tests of the engine")]
#[path = "../../../engine/tests/engine/support/redis.rs"]
mod redis;
#[cfg(feature = "s3")]
#[allow(dead_code, reason = "some are for the tests of the engine")]
#[path = "../../../engine/tests/engine/support/s3.rs"]
mod server;

mod allocators;
mod job;
mod preload_calls;
mod preload_locks;
mod preload_memory;
mod preload_programs;
mod raw_calls;
mod real_programs;
mod remote;
mod rights;
mod run;
mod s3;
mod stress;
mod unmanaged;
mod unserved;

// Where the servers of the engine's tests look for them.
#[cfg(feature = "s3")]
use certificates::Certificates;
use preload_support::served::eventually;
