//! Everything that needs `unsafe`: mappings, userfaultfd, futexes, signals, device requests.
//!
//! One operation per block, its reason above it. What is exported here is safe to call from the rest of
//! the engine as long as the ownership rules of `page` and `policy::frames` are kept: a frame's bytes are
//! touched only by its holder, a page in Filling or Leaving only by the thread that set that state.
#![allow(unsafe_code)]

pub mod aio;
pub mod alias;
pub mod bench;
pub mod clock;
pub mod cpu_latency;
pub mod device_pins;
pub mod directory;
pub mod fd;
pub mod file_limit;
pub mod filters;
pub mod futex;
pub mod kept_file;
pub mod lock;
pub mod lz4;
pub mod mapping;
pub mod maps;
pub mod merging;
pub mod numa;
pub mod own_fd;
mod own_locks;
pub mod own_memory;
pub mod own_process;
pub mod own_stack;
pub mod own_table;
pub mod pagemap;
pub mod pages;
pub mod peer;
pub mod present;
pub mod process;
pub mod registry;
pub mod request;
pub mod rings;
pub mod scattered;
pub mod secret;
pub mod shared;
pub mod shared_rows;
pub mod signal;
pub mod socket;
pub mod sync;
pub mod thread;
pub mod thread_status;
pub mod told;
pub mod uffd;
mod untraced;
pub mod uring;
pub mod zstd;

/// Bytes of one page; the engine supports no other size.
pub const PAGE_BYTES: usize = 4096;
