//! lz4 with a state in a mapping of ours: it allocates nothing, whatever it is asked for.
//!
//! The state is a table of positions, which says nothing of a page.
use super::PAGE_BYTES;
use super::mapping::{Access, Mapping};
use std::ffi::{c_char, c_int, c_void};
use std::io;

// In the library, but not in the bindings.
unsafe extern "C" {
    fn LZ4_sizeofState() -> c_int;
    fn LZ4_initStream(state: *mut c_void, bytes: usize) -> *mut c_void;
    fn LZ4_compress_fast_extState_fastReset(
        state: *mut c_void,
        from: *const c_char,
        to: *mut c_char,
        bytes: c_int,
        room: c_int,
        acceleration: c_int,
    ) -> c_int;
}

/// The densest that the fast compressor has.
const ACCELERATION: c_int = 1;

/// Packs pages.
pub struct Lz4 {
    state: Mapping,
}

impl Lz4 {
    /// With its table.
    ///
    /// # Errors
    /// No memory.
    pub fn new() -> io::Result<Self> {
        // SAFETY: it has no arguments.
        let bytes = unsafe { LZ4_sizeofState() } as usize;
        let state = Mapping::new(bytes.next_multiple_of(PAGE_BYTES), Access::ReadWrite)?;
        // SAFETY: the mapping is ours alone, aligned, and stays for as long as the state is used.
        let begun = unsafe { LZ4_initStream(state.address() as *mut c_void, state.bytes()) };
        match begun.is_null() {
            true => Err(io::ErrorKind::OutOfMemory.into()),
            false => Ok(Self { state }),
        }
    }

    /// Packs a page, and returns how long it has become; None where there is no room for that.
    pub fn pack(&mut self, page: &[u8], packed: &mut [u8]) -> Option<usize> {
        let (from, to) = (page.as_ptr().cast(), packed.as_mut_ptr().cast());
        let (bytes, room) = (length(page.len())?, length(packed.len())?);
        let state = self.state.address() as *mut c_void;
        // SAFETY: the state is valid and nobody else has it; both lengths are those of the slices. Only states that were
        // begun, or used in this way, are handed over, as the quicker reset asks for.
        let packed = unsafe {
            LZ4_compress_fast_extState_fastReset(state, from, to, bytes, room, ACCELERATION)
        };
        (packed > 0).then_some(packed as usize)
    }
}

/// Unpacks a page, and returns how much it has filled; None where these bytes make no page.
pub fn unpack(packed: &[u8], page: &mut [u8]) -> Option<usize> {
    let (from, to) = (packed.as_ptr().cast(), page.as_mut_ptr().cast());
    let (bytes, room) = (length(packed.len())?, length(page.len())?);
    // SAFETY: both lengths are those of the slices; whatever the bytes say, nothing beyond them is read or written.
    let filled = unsafe { lz4_sys::LZ4_decompress_safe(from, to, bytes, room) };
    usize::try_from(filled).ok()
}

fn length(bytes: usize) -> Option<c_int> {
    c_int::try_from(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::super::zstd::tests::page;
    use super::*;

    #[test]
    fn pages_of_any_content_come_back_and_none_is_packed_beyond_its_room() {
        let mut lz4 = Lz4::new().unwrap();
        for step in 0..2000 {
            let noise = step * 37 % (PAGE_BYTES + 1);
            let page = page(noise, step as u64);
            let (mut packed, mut back) = ([0; 2 * PAGE_BYTES], [0; PAGE_BYTES]);
            let bytes = lz4.pack(&page, &mut packed).unwrap();
            assert_eq!(unpack(&packed[..bytes], &mut back), Some(PAGE_BYTES));
            assert!(back[..] == page[..], "{noise} bytes of noise");
            let mut small = [0x5a; 64];
            assert_eq!(lz4.pack(&page, &mut small[..24]), None, "there is no room");
            assert!(small[24..].iter().all(|byte| *byte == 0x5a));
        }
    }
}
