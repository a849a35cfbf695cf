//! The steps that both flows share: mapping pages, unmapping them, the frames for it, and the lists they go to.
//!
//! Each is given pages that its caller owns, and decides nothing about which; `fault` and `reclaim` do.
pub mod block;
pub mod cached;
pub mod drop;
pub mod frames;
pub mod lru_add;
pub mod map;
pub mod orphan;
pub mod spare;
pub mod stored;
pub mod unmap;
pub mod verdict;
