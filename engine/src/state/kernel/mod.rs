//! The kernel's own forms that are kept for comparison: whose turn it is among reclaimers (`stall`).
pub mod exclusive;
