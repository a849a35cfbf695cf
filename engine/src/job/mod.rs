//! One budget for a job: the ledger in which its processes, the members, write what they hold of it.
//!
//! A file that they all map has a row for each. What is shared out in it, and taken back from the dead, is here; what a
//! member should have is `policy::job`'s, what an engine does about it `process/balance.rs`.
pub mod ledger;
pub mod member;
pub mod needs;
pub mod rows;
