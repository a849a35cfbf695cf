//! OUT: pages leave their regions for the devices.
//!
//! | file | responsible for |
//! |---|---|
//! | [`kswapd`], [`direct`] | the two reclaimers: a thread per node, and a fault that found no page |
//! | [`isolate`], [`clean`], [`victims`], [`sort`], [`writeback`] | a batch: chosen, dropped, unmapped, told apart, written |
//! | [`migrated`] | of a batch: pages that the kernel has moved to another node |
//! | [`block`] | instead of a batch: all that is mapped of a block of scattered pages |
//! | [`turn`] | the end of a reclaimer's turn under the kernel's `stall` |
//! | [`slots`], [`repay`], [`shrink`] | what else is given up: slots of mapped pages, memory over the budget, caches |
//!
//! How hard to look and when to give up is `policy::reclaim`; unmapping and mapping are `transfer`'s.
pub mod block;
pub mod clean;
pub mod direct;
pub mod isolate;
pub mod kswapd;
pub mod migrated;
pub mod repay;
pub mod shrink;
pub mod slots;
pub mod sort;
pub mod turn;
pub mod victims;
pub mod writeback;
