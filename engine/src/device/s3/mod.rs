//! A device whose slots are in objects of a store such as S3, several mebibytes each: what `s3://` names.
//!
//! It is for pages that are hardly ever used: they come by demotion from the tiers in front. What is written is gathered in
//! segments (`log`), in memory until its object is there; a thread writes those that are full, another moves what is left
//! of sparse ones, deletes objects that nobody needs and says from time to time that this engine lives (`keeper`). A page
//! is read by its range of an object, several that follow each other in one request, on the thread that needs them.
pub mod address;
pub mod credentials;
#[cfg(feature = "s3")]
mod keeper;
#[cfg(feature = "s3")]
mod log;
#[cfg(feature = "s3")]
pub mod open;
#[cfg(feature = "s3")]
mod server;
#[cfg(feature = "s3")]
mod sign;
#[cfg(feature = "s3")]
mod store;
#[cfg(feature = "s3")]
mod sweep;

#[cfg(not(feature = "s3"))]
#[path = "absent.rs"]
pub mod open;
