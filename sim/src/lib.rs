//! Machines that swap, simulated in virtual time around the decisions of `policy`.
//!
//! Rooms from top to bottom, each uses only those below it: `scenario` (experiments and their files), `report` (tables and
//! plots), `memory` (pages, devices and the threads that move pages), `machine` (what a file describes), `clock` (tasks,
//! CPUs, locks). No clock but the virtual one, no threads, nothing random but from a seed. docs/sim.md says what it is for.

#![forbid(unsafe_code)]

pub mod clock;
pub mod machine;
pub mod memory;
pub mod report;
pub mod scenario;
