//! Where buckets are left out of the build: says how to have them.
use super::address::Address;
use crate::base::open_error::OpenError;
use crate::device::far::Far;
use crate::device::spec::SwapSpec;
use std::path::PathBuf;

/// Refuses.
///
/// # Errors
/// Always.
pub fn open(_: &SwapSpec, address: &Address, _: u64) -> Result<Box<dyn Far>, OpenError> {
    let reason = "this userswap is built without s3://: build it with --features s3";
    Err(OpenError::Remote { path: PathBuf::from(address.to_string()), reason: reason.to_owned() })
}

/// The same; nothing is looked up.
///
/// # Errors
/// Never.
pub fn resolved(spec: SwapSpec) -> Result<SwapSpec, OpenError> {
    Ok(spec)
}
