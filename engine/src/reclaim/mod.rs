//! OUT: pages leave. The background reclaimer, direct reclaim, writeback, and what else gives memory or slots up.
pub mod direct;
pub mod isolate;
pub mod kswapd;
pub mod repay;
pub mod shrink;
pub mod slots;
pub mod sort;
pub mod turn;
pub mod victims;
pub mod writeback;
