//! What this library knows about its process. Changes nothing outside itself.

pub mod areas;
pub mod insistence;
pub mod notices;
pub mod own_threads;
pub mod owner;
pub mod process;
