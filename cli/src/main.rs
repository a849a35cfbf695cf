//! userswap.
fn main() {}
