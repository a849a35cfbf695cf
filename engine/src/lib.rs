//! userswap.
