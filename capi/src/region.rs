//! Regions: memory of an engine by the page.
use crate::advice::advice_of;
use crate::engine::us_engine;
use crate::failure::{Failure, code_of, us_error, value_of};
use crate::handle;
use crate::handle::{Handle, Part, find};
use std::ffi::{c_int, c_void};
use std::ops::Range;
use userswap::{Protection, Region};

/// Memory of an engine, all zero at first.
pub struct us_region {
    _opaque: [u8; 0],
}

handle!(us_region, Part<Region>);

/// Maps a region of so many bytes, which may be more than the budget; NULL on failure.
#[unsafe(no_mangle)]
pub extern "C" fn us_map(engine: *mut us_engine, bytes: usize) -> *mut us_region {
    value_of(std::ptr::null_mut(), || {
        if bytes == 0 {
            return Err(Failure::invalid("a region of 0 bytes: map 1 byte at least"));
        }
        let engine = find(engine)?;
        let region = Part::of(&engine, |engine| Ok(engine.map(bytes)?))?;
        Ok(us_region::open().insert(region))
    })
}

/// Forgets a region and what is in it; its addresses must not be used any more.
#[unsafe(no_mangle)]
pub extern "C" fn us_unmap(region: *mut us_region) -> c_int {
    code_of(|| us_region::open().remove(region).map(drop))
}

/// Where the region begins, at a multiple of 4096; NULL on failure.
#[unsafe(no_mangle)]
pub extern "C" fn us_region_address(region: *const us_region) -> *mut c_void {
    value_of(std::ptr::null_mut(), || Ok(find(region)?.as_ptr().cast()))
}

/// Its length in bytes; 0 on failure.
#[unsafe(no_mangle)]
pub extern "C" fn us_region_bytes(region: *const us_region) -> usize {
    value_of(0, || Ok(find(region)?.len()))
}

/// Gives a us_advice for the pages that `bytes` bytes from `first` on touch.
#[unsafe(no_mangle)]
pub extern "C" fn us_region_advise(
    region: *mut us_region,
    first: usize,
    bytes: usize,
    advice: c_int,
) -> c_int {
    code_of(|| {
        let region = find(region)?;
        let range = range(first, bytes)?;
        Ok(region.advise(range, advice_of(advice)?)?)
    })
}

/// Forgets the pages that lie within these bytes as a whole: they are zero afterwards, and nothing is written.
#[unsafe(no_mangle)]
pub extern "C" fn us_region_discard(region: *mut us_region, first: usize, bytes: usize) -> c_int {
    code_of(|| Ok(find(region)?.forget(range(first, bytes)?)?))
}

/// What an access to memory may do. Any other raises SIGSEGV, and system calls get EFAULT.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum us_protection {
    /// Nothing. Such pages cannot be pinned.
    US_NO_ACCESS = 0,
    /// Read.
    US_READ = 1,
    /// Read and write, as a region begins.
    US_READ_WRITE = 2,
}
use us_protection::*;

/// Gives a us_protection to the pages that `bytes` bytes from `first` on touch: as mprotect, which is not to be called for
/// them. Their content stays.
#[unsafe(no_mangle)]
pub extern "C" fn us_region_protect(
    region: *mut us_region,
    first: usize,
    bytes: usize,
    protection: c_int,
) -> c_int {
    code_of(|| {
        let region = find(region)?;
        let range = range(first, bytes)?;
        Ok(region.set_protection(range, protection_of(protection)?)?)
    })
}

fn protection_of(number: c_int) -> Result<Protection, Failure> {
    const ALL: [(us_protection, Protection); 3] = [
        (US_NO_ACCESS, Protection::None),
        (US_READ, Protection::Read),
        (US_READ_WRITE, Protection::ReadWrite),
    ];
    let known = ALL.iter().find(|(code, _)| *code as c_int == number);
    known.map(|(_, protection)| *protection).ok_or_else(|| {
        let line = format!(
            "{number} is no us_protection: use US_NO_ACCESS (0), US_READ (1) or US_READ_WRITE (2)"
        );
        Failure::invalid(line)
    })
}

/// `bytes` bytes from `first` on.
pub fn range(first: usize, bytes: usize) -> Result<Range<usize>, Failure> {
    let end = first.checked_add(bytes).ok_or_else(|| {
        let line = format!("{bytes} bytes from {first} on end beyond all addresses: pass a length");
        Failure::new(us_error::US_RANGE, line)
    })?;
    Ok(first..end)
}
