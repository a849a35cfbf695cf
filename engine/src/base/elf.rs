//! Reads as much of an ELF file as tells whether a library can be injected into it.
//!
//! Only headers, only the fields needed, and nothing trusted: offsets out of the file are an
//! unreadable file, not a panic. Nothing is allocated for a sound file: a child of vfork looks too.

use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes of an ELF64 header and of one program header.
const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;

/// The program header that names the dynamic linker.
const PT_INTERP: u32 = 3;

/// Longer interpreter names and tables are not from any linker.
const INTERPRETER_BYTES_MAX: usize = 256;
const PROGRAM_HEADERS_MAX: u16 = 1024;

/// This machine's number in ELF headers.
#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = 62;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = 183;
#[cfg(target_arch = "riscv64")]
const MACHINE: u16 = 243;

/// What an ELF file is, as far as injecting goes.
#[derive(Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "looked at once, and a box would allocate")]
pub enum Linkage {
    /// Loaded by the named dynamic linker.
    Dynamic(Interpreter),
    /// Loaded by the kernel alone: nothing can be injected.
    Static,
    /// Made for 32-bit processors.
    Narrow,
    /// Made for another kind of processor.
    Foreign {
        /// Its number in the ELF header.
        machine: u16,
    },
}

/// The path of a dynamic linker.
#[derive(Debug, PartialEq, Eq)]
pub struct Interpreter {
    name: [u8; INTERPRETER_BYTES_MAX],
    bytes: usize,
}

impl Interpreter {
    /// Where it is.
    pub fn path(&self) -> &Path {
        Path::new(std::ffi::OsStr::from_bytes(&self.name[..self.bytes]))
    }

    /// Whether it is another C library's than the one that the injected library is made for.
    pub fn is_musl(&self) -> bool {
        self.path().to_string_lossy().contains("ld-musl")
    }
}

/// Whether a file that starts with these bytes is an ELF file.
pub fn is_elf(start: &[u8]) -> bool {
    start.starts_with(b"\x7fELF")
}

/// Reads the headers of an ELF file.
///
/// # Errors
/// Reading fails, or the headers contradict the file.
pub fn linkage(file: &File) -> io::Result<Linkage> {
    // A 32-bit header is shorter; its first 20 bytes have the same meaning.
    let mut header = [0; 20];
    file.read_exact_at(&mut header, 0)?;
    let machine = u16::from_le_bytes([header[18], header[19]]);
    match (header[4], header[5]) {
        (1, _) => return Ok(Linkage::Narrow),
        (2, 1) if machine == MACHINE => {}
        (2, 1) => return Ok(Linkage::Foreign { machine }),
        (2, 2) => return Ok(Linkage::Foreign { machine: machine.swap_bytes() }),
        _ => return Err(broken("unknown class")),
    }
    for header in ProgramHeaders::of(file)?.iter(file) {
        let header = header?;
        if header.kind == PT_INTERP {
            return interpreter(file, &header);
        }
    }
    Ok(Linkage::Static)
}

/// Where a program's headers are.
pub(super) struct ProgramHeaders {
    table: u64,
    entry_bytes: u16,
    entries: u16,
}

/// What of a file goes where in memory.
pub(super) struct ProgramHeader {
    pub kind: u32,
    pub offset: u64,
    pub address: u64,
    /// In the file.
    pub bytes: u64,
}

impl ProgramHeaders {
    /// Of a 64-bit file in this machine's order of bytes.
    pub(super) fn of(file: &File) -> io::Result<Self> {
        let mut header = [0; HEADER_BYTES];
        file.read_exact_at(&mut header, 0)?;
        let table = u64_at(&header, 32);
        let (entry_bytes, entries) = (u16_at(&header, 54), u16_at(&header, 56));
        if usize::from(entry_bytes) < PROGRAM_HEADER_BYTES || entries > PROGRAM_HEADERS_MAX {
            return Err(broken("impossible program headers"));
        }
        Ok(Self { table, entry_bytes, entries })
    }

    pub(super) fn iter(&self, file: &File) -> impl Iterator<Item = io::Result<ProgramHeader>> {
        (0..self.entries).map(move |entry| {
            let mut bytes = [0; PROGRAM_HEADER_BYTES];
            let at = self.table.checked_add(u64::from(entry) * u64::from(self.entry_bytes));
            let at = at.ok_or_else(|| broken("impossible program headers"))?;
            file.read_exact_at(&mut bytes, at)?;
            Ok(ProgramHeader {
                kind: u32_at(&bytes, 0),
                offset: u64_at(&bytes, 8),
                address: u64_at(&bytes, 16),
                bytes: u64_at(&bytes, 32),
            })
        })
    }
}

fn interpreter(file: &File, header: &ProgramHeader) -> io::Result<Linkage> {
    let (offset, bytes) = (header.offset, header.bytes as usize);
    if bytes > INTERPRETER_BYTES_MAX {
        return Err(broken("impossible interpreter"));
    }
    let mut name = [0; INTERPRETER_BYTES_MAX];
    file.read_exact_at(&mut name[..bytes], offset)?;
    let bytes = name[..bytes].iter().position(|byte| *byte == 0).unwrap_or(bytes);
    Ok(Linkage::Dynamic(Interpreter { name, bytes }))
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Write;

    use super::*;

    fn linkage_of(bytes: &[u8]) -> io::Result<Linkage> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        linkage(&file)
    }

    /// A header that so many program headers follow.
    pub(in crate::base) fn header(program_headers: u8) -> Vec<u8> {
        let mut image = vec![0; HEADER_BYTES];
        image[..6].copy_from_slice(b"\x7fELF\x02\x01");
        image[18..20].copy_from_slice(&MACHINE.to_le_bytes());
        image[32] = HEADER_BYTES as u8;
        image[54] = PROGRAM_HEADER_BYTES as u8;
        image[56] = program_headers;
        image
    }

    /// A header with one program header of the given type that holds `content`.
    fn image(kind: u32, content: &[u8]) -> Vec<u8> {
        let mut image = header(1);
        image.resize(HEADER_BYTES + PROGRAM_HEADER_BYTES, 0);
        image[HEADER_BYTES..HEADER_BYTES + 4].copy_from_slice(&kind.to_le_bytes());
        image[HEADER_BYTES + 8] = (HEADER_BYTES + PROGRAM_HEADER_BYTES) as u8;
        image[HEADER_BYTES + 32] = content.len() as u8;
        image.extend_from_slice(content);
        image
    }

    #[test]
    fn the_dynamic_linker_is_named() {
        let path = |image: &[u8]| match linkage_of(image) {
            Ok(Linkage::Dynamic(interpreter)) => interpreter.path().to_owned(),
            other => panic!("{other:?}"),
        };
        assert_eq!(path(&image(PT_INTERP, b"/lib/ld.so\0")), Path::new("/lib/ld.so"));
    }

    #[test]
    fn without_a_dynamic_linker_a_program_is_static() {
        assert_eq!(linkage_of(&image(1, b"")).unwrap(), Linkage::Static);
    }

    #[test]
    fn other_processors_are_recognised() {
        let mut foreign = image(1, b"");
        foreign[18..20].copy_from_slice(&22u16.to_le_bytes());
        assert_eq!(linkage_of(&foreign).unwrap(), Linkage::Foreign { machine: 22 });
        foreign[5] = 2;
        foreign[18..20].copy_from_slice(&22u16.to_be_bytes());
        assert_eq!(linkage_of(&foreign).unwrap(), Linkage::Foreign { machine: 22 });
        foreign[4] = 1;
        assert_eq!(linkage_of(&foreign[..52]).unwrap(), Linkage::Narrow);
    }

    #[test]
    fn a_damaged_file_is_an_error_at_every_length_and_with_every_byte_changed() {
        let whole = image(PT_INTERP, b"/lib/ld.so\0");
        for length in 0..whole.len() {
            assert!(linkage_of(&whole[..length]).is_err(), "cut to {length}");
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] = 0xff;
            let _ = linkage_of(&damaged); // Must return, whatever it says.
        }
    }

    #[test]
    fn this_test_is_a_dynamic_program() {
        let file = File::open(std::env::current_exe().unwrap()).unwrap();
        assert!(matches!(linkage(&file), Ok(Linkage::Dynamic(_))));
    }
}
