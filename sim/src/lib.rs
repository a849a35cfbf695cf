//! Machines that swap, simulated in virtual time around the decisions of `policy`.
pub mod clock;
pub mod machine;
pub mod memory;
pub mod report;
pub mod scenario;
