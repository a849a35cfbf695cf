//! LRU lists: which items there are, and in what order they were put there.
//!
//! All lists are [`ring`]s through an array of links that the caller supplies, one per item, so that no
//! operation allocates. [`Lists`] are the engine's own, of pages. [`Sublists`] are one node's part of a
//! program's list of reclaimable objects (the kernel's list_lru): one list for items of no group and one
//! for each group, walked by a [`Walk`] that lets the caller drop its lock in between. What an order
//! means, and when to move items, is left to the caller.
mod lists;
pub mod ring;
pub mod sublists;
pub mod walk;

pub use lists::{ITEMS_MAX, Link, ListId, Lists};
pub use sublists::{Chain, ListNumber, Sublists};
pub use walk::{Code, Walk};
