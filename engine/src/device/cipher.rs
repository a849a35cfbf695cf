//! Pages that cannot be read on their device: sealed before they are written there, opened after they were read.
//!
//! AES-256-GCM under one random key for an engine and all children forked from it, which never leaves RAM. What must not
//! happen is that two pages are sealed under the same number (the *nonce*): it would give away what they have in common,
//! and how to forge others. So the numbers come from one counter in memory that parent and children share: whoever seals
//! takes the next, and none is ever taken twice, whoever owns the device or a copy of it. A number is 64 bits, so there
//! will always be a next one.
//!
//! Number and tag of what was written to a slot last are kept in RAM, like its checksum: pages stay 4096 bytes, and what
//! comes back is what this process, or the one that it was forked from, wrote there last, or is refused, also when it is
//! what was there before. A child has a copy of all of them, right for every slot that it borrows: those are not given out
//! anew before it has dropped them (`loans`). No other bytes are authenticated: which slot a tag is of is known by where
//! it is kept.
use super::record::Device;
use super::{DEVICE_SLOTS, Devices};
use crate::base::error::Error;
use crate::base::index::Slot;
use crate::base::log;
use crate::sys::PAGE_BYTES;
use crate::sys::mapping::ZeroedSlice;
use crate::sys::secret::{SEED_BYTES, Secret};
use crate::sys::shared::SharedWords;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, Tag, UnboundKey};
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Words that are kept for each slot: the number, and the tag.
const SEAL_WORDS: usize = 3;

/// What is kept in RAM of a sealed page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seal {
    /// Under which number it was sealed.
    number: u64,
    tag: [u64; 2],
}

/// What is kept of the pages on a device.
#[derive(Default)]
pub struct Seals {
    words: OnceLock<ZeroedSlice<AtomicU64>>,
    is_used: AtomicBool,
}

impl Seals {
    /// Of a device that comes, whose pages will be encrypted.
    ///
    /// # Errors
    /// No address space.
    pub(super) fn begin(&self) -> io::Result<()> {
        if self.words.get().is_none() {
            // For the largest device: the record may hold another one later. Only address space.
            let _ = self.words.set(ZeroedSlice::new(DEVICE_SLOTS as usize * SEAL_WORDS)?);
        }
        self.is_used.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Of a device that comes, and keeps pages as they are.
    pub(super) fn end(&self) {
        self.is_used.store(false, Ordering::Relaxed);
    }

    /// Of the slot with this number.
    fn words_of(&self, number: u32) -> &[AtomicU64] {
        let words = self.words.get().expect("an encrypted device keeps seals");
        &words[number as usize * SEAL_WORDS..][..SEAL_WORDS]
    }
}

/// The key, and the next number.
pub struct Cipher {
    key: Secret<LessSafeKey>,
    next: SharedWords,
}

impl Cipher {
    /// With a new key.
    ///
    /// # Errors
    /// No random bytes, no memory, or none that may be locked.
    pub fn new() -> io::Result<Self> {
        Ok(Self { key: Secret::random(key_of)?, next: SharedWords::new(1)? })
    }

    /// Whether one could be made, before a program is started.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn check() -> Result<(), Error> {
        Self::new().map(|_| ()).map_err(Error::Key)
    }

    /// Numbers for so many pages; returns the first.
    pub fn take_numbers(&self, pages: u64) -> u64 {
        // Relaxed: nothing is read on the strength of a number, it only must be taken once.
        self.next.at(0).fetch_add(pages, Ordering::Relaxed)
    }

    /// Makes a page unreadable, under a number of its own.
    pub fn seal(&self, number: u64, page: &mut [u8]) -> Seal {
        assert_eq!(page.len(), PAGE_BYTES, "what is sealed is a page");
        let tag = self.key.seal_in_place_separate_tag(nonce_of(number), Aad::empty(), page);
        let tag = tag.expect("a page is not too long to be sealed");
        let bytes: &[u8; 16] = tag.as_ref().try_into().expect("a tag has sixteen bytes");
        let (low, high) = bytes.split_at(8);
        let word = |half: &[u8]| u64::from_le_bytes(half.try_into().expect("half a tag"));
        Seal { number, tag: [word(low), word(high)] }
    }

    /// Makes a sealed page readable again; false where it is not the one of that seal, and then it holds nothing.
    #[must_use]
    pub fn open(&self, seal: Seal, page: &mut [u8]) -> bool {
        let mut tag = [0; 16];
        tag[..8].copy_from_slice(&seal.tag[0].to_le_bytes());
        tag[8..].copy_from_slice(&seal.tag[1].to_le_bytes());
        let (nonce, tag) = (nonce_of(seal.number), Tag::from(tag));
        self.key.open_in_place_separate_tag(nonce, Aad::empty(), tag, page, 0..).is_ok()
    }
}

fn key_of(seed: &[u8; SEED_BYTES]) -> LessSafeKey {
    let key = UnboundKey::new(&AES_256_GCM, seed);
    LessSafeKey::new(key.expect("a seed is as long as a key"))
}

fn nonce_of(number: u64) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

impl Devices {
    /// Gets the engine its key, if it has none yet: a device is encrypted that is taken into use.
    pub(super) fn begin_encryption(&self) -> Result<(), Error> {
        if self.cipher.get().is_some() {
            return Ok(());
        }
        let cipher = Cipher::new().map_err(Error::Key)?;
        // Of two the first stays, which may have sealed pages already.
        let _ = self.cipher.set(cipher);
        Ok(())
    }

    /// Keeps the key in RAM: of a child, or where the program has undone all locks of its memory.
    pub fn lock_key(&self) {
        if let Some(Err(error)) = self.cipher.get().map(|cipher| cipher.key.lock()) {
            log::key_not_locked(error.raw_os_error().unwrap_or(0));
        }
    }

    /// Whether pages of some device may have to be sealed.
    pub fn encrypts(&self) -> bool {
        self.cipher.get().is_some()
    }

    /// Whether what is written to the device of a slot has to be sealed.
    pub fn is_encrypted(&self, slot: Slot) -> bool {
        self.device_of(slot).is_encrypted()
    }

    /// Seals copies of pages for consecutive slots, of which the caller holds the first; what `page` copies and returns is
    /// what is sealed.
    pub fn seal<'a>(&self, first: Slot, count: usize, mut page: impl FnMut(usize) -> &'a mut [u8]) {
        let (device, cipher) = (self.device_of(first), self.cipher());
        let number = cipher.take_numbers(count as u64);
        for index in 0..count {
            let seal = cipher.seal(number + index as u64, page(index));
            device.set_seal(device.number_of(first) + index as u32, seal);
        }
    }

    /// Opens the page that was read from a slot; false where it is not what was written there last.
    #[must_use]
    pub fn open(&self, slot: Slot, page: &mut [u8]) -> bool {
        let device = self.device_of(slot);
        device.open_page(self.cipher(), device.number_of(slot), page)
    }

    fn cipher(&self) -> &Cipher {
        self.cipher.get().expect("an encrypted device came with a key")
    }
}

impl Device {
    /// Whether pages on it are encrypted.
    pub fn is_encrypted(&self) -> bool {
        // Relaxed: it is stored before any slot of the device is given out.
        self.seals.is_used.load(Ordering::Relaxed)
    }

    /// Opens the page that was read from a slot; false where it is not what was written there last.
    pub(super) fn open_page(&self, cipher: &Cipher, number: u32, page: &mut [u8]) -> bool {
        cipher.open(self.seal(number), page)
    }

    /// What was kept of the page on a slot.
    fn seal(&self, number: u32) -> Seal {
        // Relaxed: the word of the page that was written was published, as Cached, after the seal was stored.
        let word = |index: usize| self.seals.words_of(number)[index].load(Ordering::Relaxed);
        Seal { number: word(0), tag: [word(1), word(2)] }
    }

    /// Keeps what there is of a page that is about to be written to a slot.
    fn set_seal(&self, number: u32, seal: Seal) {
        let words = self.seals.words_of(number);
        let kept = [seal.number, seal.tag[0], seal.tag[1]];
        words.iter().zip(kept).for_each(|(word, kept)| word.store(kept, Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(byte: u8) -> Vec<u8> {
        (0..PAGE_BYTES).map(|at| byte ^ (at / 7) as u8).collect()
    }

    #[test]
    fn a_page_opens_under_its_own_seal_only() {
        let cipher = Cipher::new().unwrap();
        let mut sealed = page(1);
        let seal = cipher.seal(cipher.take_numbers(1), &mut sealed);
        assert_ne!(sealed, page(1));
        let mut opened = sealed.clone();
        assert!(cipher.open(seal, &mut opened));
        assert_eq!(opened, page(1));
        let mut others = vec![Seal { number: seal.number + 1, ..seal }];
        for bit in 0..128 {
            let mut tag = seal.tag;
            tag[bit / 64] ^= 1 << (bit % 64);
            others.push(Seal { tag, ..seal });
        }
        assert!(others.into_iter().all(|other| !cipher.open(other, &mut sealed.clone())));
        assert!(!Cipher::new().unwrap().open(seal, &mut sealed.clone()), "the key is another");
        for at in (0..PAGE_BYTES * 8).step_by(37) {
            let mut changed = sealed.clone();
            changed[at / 8] ^= 1 << (at % 8);
            assert!(!cipher.open(seal, &mut changed), "bit {at}");
        }
    }

    #[test]
    fn the_same_page_looks_different_each_time() {
        let cipher = Cipher::new().unwrap();
        let first = cipher.take_numbers(2);
        let (mut one, mut two) = (page(3), page(3));
        let seals = [cipher.seal(first, &mut one), cipher.seal(first + 1, &mut two)];
        assert!(one != two && seals[0].tag != seals[1].tag);
        assert!(
            !cipher.open(seals[0], &mut two),
            "what was sealed later is not what was sealed first"
        );
    }

    #[test]
    fn no_number_is_taken_twice_however_many_take() {
        let cipher = Cipher::new().unwrap();
        let take = || (0..1000).map(|_| cipher.take_numbers(3)).collect::<Vec<_>>();
        let mut firsts = std::thread::scope(|scope| {
            let takers: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
            takers.into_iter().flat_map(|taker| taker.join().unwrap()).collect::<Vec<_>>()
        });
        firsts.sort_unstable();
        let expected: Vec<u64> = (0..4000).map(|index| index * 3).collect();
        assert_eq!(firsts, expected);
    }
}
