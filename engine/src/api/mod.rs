//! What a user of the library sees: building an engine, regions, caches that give way, numbers. Thin: the acts are in
//! the rooms below.
pub mod account;
pub mod advice;
pub mod alone;
pub mod builder;
pub mod engine;
pub mod fork;
pub mod heap;
pub mod options;
pub mod prepared;
pub mod protect;
pub mod region;
pub mod running;
pub mod shrinker;
pub mod usage;
pub mod words;
