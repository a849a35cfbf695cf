//! userswap bench.
