//! zstd's contexts in one mapping of ours, together with what they pack into.
//!
//! What they keep of a page, its literals above all, can be read there until the next one comes: so it is in no core dump.
//! Contexts in memory that they are given allocate nothing, whatever they are asked for.
use super::PAGE_BYTES;
use super::mapping::Mapping;
use super::own_stack::OwnStack;
use std::ffi::c_void;
use std::io;
use zstd_sys::{ZSTD_CCtx, ZSTD_DCtx, ZSTD_cParameter};

/// Contexts to pack pages, and to unpack them.
pub struct Zstd {
    compress: *mut ZSTD_CCtx,
    decompress: *mut ZSTD_DCtx,
    _memory: [Mapping; 2],
    stack: OwnStack,
}

// SAFETY: no context belongs to a thread; whoever has the value is alone with them.
unsafe impl Send for Zstd {}

impl Zstd {
    /// For pages, at a level of zstd's.
    ///
    /// # Errors
    /// No memory.
    pub fn new(level: i32) -> io::Result<Self> {
        // SAFETY: it reads its arguments only.
        let parameters = unsafe { zstd_sys::ZSTD_getCParams(level, PAGE_BYTES as u64, 0) };
        // SAFETY: as above.
        let packing = unsafe { zstd_sys::ZSTD_estimateCCtxSize_usingCParams(parameters) };
        // SAFETY: it has no arguments.
        let unpacking = unsafe { zstd_sys::ZSTD_estimateDCtxSize() };
        let memory = [place(packing)?, place(unpacking)?];
        let [compress, decompress] = [&memory[0], &memory[1]].map(Mapping::address);
        // SAFETY: the mapping is ours alone, aligned, and stays for as long as the context is used.
        let compress =
            unsafe { zstd_sys::ZSTD_initStaticCCtx(compress as *mut c_void, memory[0].bytes()) };
        // SAFETY: as above.
        let decompress =
            unsafe { zstd_sys::ZSTD_initStaticDCtx(decompress as *mut c_void, memory[1].bytes()) };
        if compress.is_null() || decompress.is_null() {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let mut zstd = Self { compress, decompress, _memory: memory, stack: OwnStack::new()? };
        zstd.set(ZSTD_cParameter::ZSTD_c_compressionLevel, level)?;
        // What says how long the page is and where it ends is known.
        zstd.set(ZSTD_cParameter::ZSTD_c_contentSizeFlag, 0)?;
        Ok(zstd)
    }

    fn set(&mut self, parameter: ZSTD_cParameter, value: i32) -> io::Result<()> {
        // SAFETY: the context is valid, and nobody else has it.
        let code = unsafe { zstd_sys::ZSTD_CCtx_setParameter(self.compress, parameter, value) };
        done(code).map(drop).ok_or(io::ErrorKind::InvalidInput.into())
    }

    /// Packs a page, and returns how long it has become; None where there is no room for that.
    pub fn pack(&mut self, page: &[u8], packed: &mut [u8]) -> Option<usize> {
        let (from, to) = (page.as_ptr().cast(), packed.as_mut_ptr().cast());
        let (context, room) = (self.compress, packed.len());
        // SAFETY: the context is valid and nobody else has it; both lengths are those of the slices.
        let pack = || unsafe { zstd_sys::ZSTD_compress2(context, to, room, from, page.len()) };
        done(self.stack.call(pack))
    }

    /// Unpacks one, and returns how much it has filled; None where these bytes make no page.
    pub fn unpack(&mut self, packed: &[u8], page: &mut [u8]) -> Option<usize> {
        let (from, to) = (packed.as_ptr().cast(), page.as_mut_ptr().cast());
        let (context, room) = (self.decompress, page.len());
        // SAFETY: as for packing; whatever the bytes say, nothing beyond the slices is read or written.
        let unpack =
            || unsafe { zstd_sys::ZSTD_decompressDCtx(context, to, room, from, packed.len()) };
        done(self.stack.call(unpack))
    }
}

fn place(bytes: usize) -> io::Result<Mapping> {
    Mapping::undumped(bytes.next_multiple_of(PAGE_BYTES))
}

/// What a call has returned, unless that is an error.
fn done(code: usize) -> Option<usize> {
    // SAFETY: it reads its argument only.
    let is_error = unsafe { zstd_sys::ZSTD_isError(code) };
    (is_error == 0).then_some(code)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Noise up to a byte, and then a pattern.
    pub fn page(noise: usize, seed: u64) -> Vec<u8> {
        let mut state = seed | 1;
        let mut bytes: Vec<u8> = (0..PAGE_BYTES).map(|at| (at / 9 * 31) as u8).collect();
        for byte in &mut bytes[..noise] {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = (state >> 56) as u8;
        }
        bytes
    }

    #[test]
    fn the_memory_that_contexts_are_given_is_enough_at_every_level_for_every_page() {
        for level in -7..=12 {
            let mut zstd = Zstd::new(level).unwrap();
            for (seed, noise) in (0..64).map(|step| (step as u64, step * 65)) {
                let (from, mut packed) = (page(noise, seed), [0; 2 * PAGE_BYTES]);
                let bytes = zstd.pack(&from, &mut packed).unwrap();
                let mut to = vec![0; PAGE_BYTES];
                assert_eq!(zstd.unpack(&packed[..bytes], &mut to), Some(PAGE_BYTES));
                assert!(from == to, "level {level}, {noise} bytes of noise");
                let _ = zstd.unpack(&packed[..bytes / 2], &mut to);
                assert_eq!(zstd.pack(&from, &mut packed[..16]), None, "there is no room");
            }
        }
    }
}
