//! The kernel's own way of emptying a device, kept for comparison.
pub mod walk;
