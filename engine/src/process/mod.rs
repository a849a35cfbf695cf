//! The process around an engine: pages that were there before it, fork, and what the kernel permits.
pub mod adopt;
pub mod fork;
pub mod probe;
