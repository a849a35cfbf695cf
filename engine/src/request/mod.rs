//! What a program asks for: discard, prefetch, page out, pin, mremap, madvise, hibernate, room for its caches, another
//! budget. What other processes ask for: pages that they are about to access.
pub mod budget;
pub mod charge;
pub mod content;
pub mod discard;
pub mod hibernate;
pub mod madvise;
pub mod mremap;
pub mod pageout;
pub mod pin;
pub mod populate;
pub mod prefetch;
mod spans;
