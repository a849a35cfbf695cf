//! IN: a page that is touched and not mapped gets its content, and what is read ahead is read.
//!
//! | file | responsible for |
//! |---|---|
//! | [`server`], [`sigbus`] | the two deliveries: by message to a thread, by signal to the thread that faults |
//! | [`helper`], [`messages`] | more servers while one does not keep up; what each knows of those whose messages it reads |
//! | [`here`] | a fault served by the thread that wants the page |
//! | [`handle`] | the dispatch: what the page's word asks for |
//! | [`zero`], [`minor`], [`swapin`] | the three ways to a page: zeros, a frame that has it, its device |
//! | [`retry`], [`finish`], [`lost`] | the end of a read: asked for again, mapped, or lost |
//! | [`waiting`], [`awake`] | how the server waits; idle CPUs that may not halt meanwhile |
//! | [`alloc`] | which node gives the pages for it |
//! | [`readahead`], [`beside`], [`kernel`] | what to read together with a page, by our policy and by the kernel's |
//! | [`watchdog`] | a word about faults that wait for too long |
//! | [`wants`], [`entries`] | reads ahead that no thread waits for, and the swapped pages they are made of |
//!
//! The steps on the way (frames, mapping, lists) are `transfer`'s; making room is `reclaim`'s.
pub mod alloc;
pub mod awake;
pub mod beside;
pub mod entries;
pub mod finish;
pub mod handle;
pub mod helper;
mod here;
pub mod kernel;
mod looking;
pub mod lost;
mod messages;
pub mod minor;
pub mod readahead;
pub mod retry;
pub mod server;
pub mod sigbus;
pub mod swapin;
pub mod waiting;
pub mod wants;
pub mod watchdog;
pub mod zero;
