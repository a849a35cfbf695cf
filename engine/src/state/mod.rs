//! What an engine is made of: the types that hold its state, and the protocols of each (a page word's transitions,
//! the gate, a queue of wants). They know no act: those are methods of [`core::Core`] in the rooms above.
pub mod address_space;
pub mod arena;
pub mod batch;
pub mod core;
pub mod frame_flag;
pub mod frame_set;
pub mod gate;
pub mod hints;
pub mod kernel;
pub mod memory;
pub mod node;
pub mod page;
pub mod range_set;
pub mod readahead;
pub mod reads;
pub mod scratch;
pub mod shares;
pub mod shrinkers;
pub mod threads;
pub mod touched;
pub mod trace;
pub mod unmap_lock;
pub mod waits;
pub mod wake;
pub mod wants;
pub mod watermarks;
