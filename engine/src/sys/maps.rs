//! What the process has mapped where, as /proc/self/maps says it, read again and again without an allocation.
use super::kept_file::KeptFile;
use super::mapping::Mapping;
use super::{pages, process};
use std::ops::Range;

/// Room for the text; a process with more mappings is not read.
const TEXT_BYTES: usize = 16 << 20;

/// The file, and what it said last.
pub struct Maps {
    file: KeptFile,
    text: Mapping,
    bytes: usize,
}

/// A mapping.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mapped<'a> {
    /// From its first byte to its end.
    pub addresses: Range<usize>,
    /// What may be done with it, as `r--p`.
    pub protection: &'a [u8],
    /// The file's device and number.
    pub file: [&'a [u8]; 2],
}

impl Maps {
    /// None where /proc does not tell, or there is no memory for it.
    pub fn open() -> Option<Self> {
        let file = KeptFile::open("/proc/thread-self/maps").ok()?;
        Some(Self { file, text: Mapping::undumped(TEXT_BYTES).ok()?, bytes: 0 })
    }

    /// Reads what is mapped now; None if that fails. Allocates nothing.
    pub fn read(&mut self) -> Option<()> {
        let room = pages::view_mut(self.text.address(), self.text.bytes());
        self.bytes = process::read_all_to(self.file.descriptor().ok()?, room)?;
        Some(())
    }

    /// All mappings, by what was read last.
    pub fn all(&self) -> impl Iterator<Item = Mapped<'_>> {
        let text = pages::view(self.text.address(), self.bytes);
        text.split(|byte| *byte == b'\n').filter_map(Mapped::of)
    }

    /// The mapping at an address, by what was read last.
    pub fn at(&self, address: usize) -> Option<Mapped<'_>> {
        self.all().find(|mapped| mapped.addresses.contains(&address))
    }
}

impl<'a> Mapped<'a> {
    fn of(line: &'a [u8]) -> Option<Self> {
        let mut words = line.split(|byte| *byte == b' ');
        let mut bounds = words
            .next()?
            .split(|byte| *byte == b'-')
            .map(|text| usize::from_str_radix(str::from_utf8(text).ok()?, 16).ok());
        let addresses = bounds.next()??..bounds.next()??;
        let protection = words.next()?;
        Some(Self { addresses, protection, file: [words.nth(1)?, words.next()?] })
    }

    /// Whether it is of a file.
    pub fn has_file(&self) -> bool {
        self.file[1] != b"0"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read() {
        let line = b"7f10-7f20 r--p 00001000 fe:00 131                 /usr/lib/a b.so";
        let mapped = Mapped::of(line).unwrap();
        assert_eq!((mapped.addresses.clone(), mapped.protection), (0x7f10..0x7f20, &b"r--p"[..]));
        assert_eq!(mapped.file, [&b"fe:00"[..], b"131"]);
        assert!(mapped.has_file());
        assert!(!Mapped::of(b"7f10-7f20 rw-p 00000000 00:00 0 ").unwrap().has_file());
    }

    #[test]
    fn what_this_very_test_has_mapped_is_found() {
        let mut maps = Maps::open().unwrap();
        assert_eq!(maps.at(0x1000), None, "nothing was read yet");
        maps.read().unwrap();
        let code = maps.at(Maps::open as *const () as usize).unwrap();
        assert!(code.has_file() && code.protection == b"r-xp", "{code:?}");
        let text = maps.at(maps.text.address()).unwrap();
        assert!(!text.has_file() && text.protection == b"rw-p", "{text:?}");
    }
}
