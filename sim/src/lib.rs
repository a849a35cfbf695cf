//! Machines that swap, simulated in virtual time around the decisions of `policy`.
pub mod clock;
