//! Tells programs that are built with a sanitizer which has the address space to itself: address, thread, memory and leak.
//!
//! The runtime of gcc's is a library, which wants to come before all others; that of clang's is in the program, and exports
//! how it starts. Both are names in the program's table of strings. (gcc's `-static-lib…san` exports nothing that tells it.)
//!
//! As in [`super::elf`] nothing is trusted, and nothing allocated: a child of vfork looks too.
use super::elf::{ProgramHeaders, u64_at};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const DT_STRTAB: u64 = 5;
const DT_STRSZ: u64 = 10;

/// A tag and a value, and how many of them are looked at.
const ENTRY_BYTES: usize = 16;
const ENTRIES_MAX: u64 = 512;
/// What of the strings is looked at, and how much at a time. The names of libraries are not always the first.
const STRINGS_BYTES_MAX: u64 = 1 << 20;
const PIECE_BYTES: usize = 1024;

/// How the names of the runtimes' libraries begin (gcc's, clang's), and what clang's export.
const LIBRARIES: [&[u8]; 3] = [b"libasan.so", b"libtsan.so", b"liblsan.so"];
const CLANGS: &[u8] = b"libclang_rt.";
const STARTS: [&[u8]; 3] = [b"__tsan_init", b"__msan_init", b"__lsan_init"];

/// Whether an ELF program of this machine's is built with one of them; false where its tables do not tell.
#[inline(never)] // Its room on the stack is not its caller's, who may call itself.
pub fn has_sanitizer(file: &File) -> bool {
    let mut found = false;
    let looked = each_string(file, |name| found |= is_of_sanitizer(name));
    looked.is_ok() && found
}

fn is_of_sanitizer(name: &[u8]) -> bool {
    let is_clangs = || name.starts_with(CLANGS) && name.windows(3).any(|part| part == b"san");
    LIBRARIES.iter().any(|library| name.starts_with(library))
        || STARTS.contains(&name)
        || (is_clangs() && !name.windows(5).any(|part| part == b"ubsan"))
}

/// Calls with the strings of the dynamic linker's table, the long ones apart, which are cut.
fn each_string(file: &File, mut visit: impl FnMut(&[u8])) -> io::Result<()> {
    let Some((mut at, end)) = strings_of(file)? else { return Ok(()) };
    let mut piece = [0; PIECE_BYTES];
    while at < end {
        let bytes = PIECE_BYTES.min((end - at) as usize);
        file.read_exact_at(&mut piece[..bytes], at)?;
        // A string that is longer than a piece begins in the middle for the next: it is none of ours.
        let whole =
            piece[..bytes].iter().rposition(|byte| *byte == 0).map_or(bytes, |last| last + 1);
        piece[..whole].split(|byte| *byte == 0).for_each(&mut visit);
        at += whole as u64;
    }
    Ok(())
}

/// Where in the file the strings are, from and to; None in a file without.
fn strings_of(file: &File) -> io::Result<Option<(u64, u64)>> {
    let headers = ProgramHeaders::of(file)?;
    let mut table = None;
    for header in headers.iter(file) {
        let header = header?;
        if header.kind == PT_DYNAMIC {
            table = Some(header);
        }
    }
    let Some(table) = table else { return Ok(None) };
    let (mut address, mut bytes) = (0, 0);
    for index in 0..(table.bytes / ENTRY_BYTES as u64).min(ENTRIES_MAX) {
        let mut entry = [0; ENTRY_BYTES];
        let at = table.offset.checked_add(index * ENTRY_BYTES as u64);
        file.read_exact_at(&mut entry, at.unwrap_or(u64::MAX))?;
        match u64_at(&entry, 0) {
            DT_STRTAB => address = u64_at(&entry, 8),
            DT_STRSZ => bytes = u64_at(&entry, 8),
            _ => {}
        }
    }
    for header in headers.iter(file) {
        let header = header?;
        let inside = address.wrapping_sub(header.address);
        if header.kind == PT_LOAD && inside < header.bytes {
            let start = header.offset.saturating_add(inside);
            let bytes = bytes.min(header.bytes - inside).min(STRINGS_BYTES_MAX);
            return Ok(Some((start, start.saturating_add(bytes))));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// A program with these strings, which follow the headers and the dynamic linker's table.
    fn program(strings: &[u8]) -> File {
        let mut image = crate::base::elf::tests::header(2);
        let (table, text) = (64 + 2 * 56, 64 + 2 * 56 + 3 * 16);
        let mut add =
            |words: &[u64]| words.iter().for_each(|word| image.extend(word.to_le_bytes()));
        let all = (text + strings.len()) as u64;
        add(&[u64::from(PT_LOAD), 0, 0x1000, 0, all, all, 0]);
        add(&[u64::from(PT_DYNAMIC), table as u64, 0x1000, 0, 48, 48, 0]);
        add(&[DT_STRTAB, 0x1000 + text as u64, DT_STRSZ, strings.len() as u64, 0, 0]);
        image.extend_from_slice(strings);
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&image).unwrap();
        file
    }

    #[test]
    fn runtimes_are_known_by_their_names_wherever_they_stand() {
        for name in ["libtsan.so.2", "libasan.so.8", "__tsan_init", "libclang_rt.asan-x86_64.so"] {
            for before in [0, 1, PIECE_BYTES - 4, PIECE_BYTES, 3 * PIECE_BYTES] {
                let strings = [
                    b"\0".as_slice(),
                    &b"abcd\0efg".repeat(before / 8),
                    b"\0",
                    name.as_bytes(),
                    b"\0puts\0",
                ];
                assert!(has_sanitizer(&program(&strings.concat())), "{name} after {before}");
            }
        }
    }

    #[test]
    fn others_are_not_taken_for_one() {
        for name in [
            "libc.so.6",
            "libubsan.so.1",
            "libclang_rt.ubsan_standalone-x86_64.so",
            "x__tsan_init",
            "__asan_init",
            "__lsan_ignore_object",
        ] {
            assert!(!has_sanitizer(&program(&[b"\0", name.as_bytes(), b"\0"].concat())), "{name}");
        }
        assert!(!has_sanitizer(&File::open(std::env::current_exe().unwrap()).unwrap()));
        // A string that never ends, and tables that lead nowhere.
        assert!(!has_sanitizer(&program(&vec![b'x'; 3 * PIECE_BYTES])));
        assert!(!has_sanitizer(&tempfile::tempfile().unwrap()));
    }
}
