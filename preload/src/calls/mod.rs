//! Calls that are not about memory itself, served so that the program does not notice the engine: they get
//! buffers that stay in RAM, and do not see the engine's descriptors and signals.

pub mod descriptors;
pub mod kept;
pub mod lending;
pub mod signals;
pub mod streams;
pub mod transfers;
