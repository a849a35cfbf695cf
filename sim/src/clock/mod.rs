//! Virtual time: tasks, CPUs, locks and sleeping. Knows nothing of memory.

mod cpus;
mod distances;
mod executor;
mod lock;
mod random;
mod thread;
mod wait;

pub use cpus::{CpuId, Cpus};
pub use distances::{DISTANCE_OWN, Distances, Reach};
pub use executor::{Sim, Stop, TaskId};
pub use lock::{Lock, LockCounts, Waiting};
pub use random::Random;
pub use thread::{Class, Thread, Times};
pub use wait::{Waiters, Woken};

/// Virtual nanoseconds: a moment since the start, or a duration.
pub type Ns = u64;
