//! userswap preload.
