//! `status`, `list`, `set`, `swapon`, `swapoff`: what is asked of programs that run under userswap.
//!
//! Each finds the engine's socket by the process (`target`), asks one thing (`client`) and shows the
//! answer. Whatever is refused is one line and status 1, and nothing is changed.

mod client;
mod gather;
mod list;
mod set;
mod status;
mod swapoff;
mod swapon;
mod table;
pub mod target;

pub use client::Client;
pub use gather::{Engine, PATIENCE, engines};
pub use list::{list, note};
pub use set::{SetArgs, set};
pub use status::{StatusArgs, status};
pub use swapoff::{SwapoffArgs, swapoff};
pub use swapon::{SwaponArgs, swapon};
pub use table::{Lean, plain, table};
