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
    Err(refusal(address))
}

/// Refuses a bucket.
///
/// # Errors
/// It is one.
pub fn resolved(spec: SwapSpec) -> Result<SwapSpec, OpenError> {
    spec.bucket().map_or(Ok(()), |address| Err(refusal(address))).map(|()| spec)
}

fn refusal(address: &Address) -> OpenError {
    let reason = "this userswap is built without buckets: build it with --features s3";
    OpenError::Remote { path: PathBuf::from(address.to_string()), reason: reason.to_owned() }
}
