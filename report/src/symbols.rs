//! Functions by their place in a file with code: names from its symbols and, with a line, from its debugging information.
//!
//! The files are looked at as they are now. One that is not there, or is another by now, costs the name, not the report.
use addr2line::{Loader, demangle_auto};
use object::read::ReadCache;
use object::{Object, ObjectSegment, ObjectSymbol};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

/// A file with code.
pub(crate) struct Symbols {
    /// Its name without directories.
    name: String,
    /// Where parts of the file are in memory: places in the file, and the address of the first.
    segments: Vec<(std::ops::Range<u64>, u64)>,
    /// Functions by address: their length and their name.
    functions: BTreeMap<u64, (u64, String)>,
    lines: Option<Loader>,
}

impl Symbols {
    /// Of a file; with nothing but its name if it cannot be read.
    pub fn of(path: &str) -> Self {
        let name =
            Path::new(path).file_name().map_or_else(|| path.into(), |it| it.to_string_lossy());
        let mut symbols = Self {
            name: name.into_owned(),
            segments: Vec::new(),
            functions: BTreeMap::new(),
            lines: None,
        };
        // A record can name anything: what is no plain file may never end, or wait.
        let is_file = std::fs::metadata(path).is_ok_and(|it| it.is_file());
        if let Some(file) = is_file.then(|| File::open(path).ok()).flatten() {
            symbols.read(file);
            symbols.lines = Loader::new(path).ok();
        }
        symbols
    }

    fn read(&mut self, file: File) {
        let cache = ReadCache::new(file);
        let Ok(object) = object::File::parse(&cache) else { return };
        let segments = object.segments().map(|segment| {
            let (start, bytes) = segment.file_range();
            (start..start.saturating_add(bytes), segment.address())
        });
        self.segments = segments.collect();
        let symbols = object.dynamic_symbols().chain(object.symbols());
        let functions = symbols.filter(|symbol| symbol.is_definition() && symbol.size() > 0);
        let functions = functions.filter_map(|symbol| {
            Some((symbol.address(), (symbol.size(), symbol.name().ok()?.to_owned())))
        });
        self.functions = functions.collect();
    }

    /// What is at a place in the file: `function (file.c:12)`, or `function`, with those that it is inlined in after it;
    /// else the place itself.
    pub fn at(&self, offset: u64) -> Vec<String> {
        let address = self.address(offset);
        let lines = address.map(|address| self.with_lines(address)).unwrap_or_default();
        if !lines.is_empty() {
            return lines;
        }
        let function = address.and_then(|address| self.function(address));
        vec![function.unwrap_or_else(|| format!("{}+{offset:#x}", self.name))]
    }

    fn address(&self, offset: u64) -> Option<u64> {
        let (places, address) =
            self.segments.iter().find(|(places, _)| places.contains(&offset))?;
        address.checked_add(offset - places.start)
    }

    /// Exported functions alone have a name in a stripped file: another one is none of them.
    fn function(&self, address: u64) -> Option<String> {
        let (start, (bytes, name)) = self.functions.range(..=address).next_back()?;
        (address - start < *bytes).then(|| short(demangle_auto(Cow::from(name), None).into_owned()))
    }

    fn with_lines(&self, address: u64) -> Vec<String> {
        let Some(Ok(mut frames)) = self.lines.as_ref().map(|lines| lines.find_frames(address))
        else {
            return Vec::new();
        };
        let mut found = Vec::new();
        while let Ok(Some(frame)) = frames.next() {
            let Some(function) = frame.function else { continue };
            let Ok(name) = function.demangle() else { continue };
            let place = frame.location.and_then(|it| Some((it.file?, it.line?)));
            let place = place.map(|(file, line)| {
                let file = Path::new(file).file_name().unwrap_or_default().to_string_lossy();
                format!(" ({file}:{line})")
            });
            found.push(short(name.into_owned()) + &place.unwrap_or_default());
        }
        found
    }
}

/// Characters of a function's name: templates have names of thousands.
const NAME_MAX: usize = 60;

/// Without arguments, and not for ever.
fn short(name: String) -> String {
    // What begins with a bracket is a name all the same: `(anonymous namespace)::f(int)`.
    let end = name.char_indices().skip(1).find(|(_, c)| *c == '(').map_or(name.len(), |(at, _)| at);
    let plain = if name.starts_with('(') { &name[..] } else { &name[..end] };
    match plain.char_indices().nth(NAME_MAX) {
        Some((at, _)) => format!("{}…", &plain[..at]),
        None => plain.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek, SeekFrom};

    #[test]
    fn a_function_of_this_very_test_is_named_with_its_line() {
        let itself = std::env::current_exe().unwrap();
        let symbols = Symbols::of(itself.to_str().unwrap());
        let (address, (bytes, _)) = symbols
            .functions
            .iter()
            .find(|(_, (_, name))| name.contains("a_function_of_this_very_test"))
            .expect("a test is not stripped");
        let (places, first) = symbols
            .segments
            .iter()
            .find(|(places, first)| (*first..first + (places.end - places.start)).contains(address))
            .unwrap();
        let offset = places.start + (address - first) + bytes / 2;
        let said = symbols.at(offset).pop().unwrap();
        assert!(said.contains("a_function_of_this_very_test"), "{said}");
        assert!(said.contains("(symbols.rs:"), "{said}");
        // Between two functions there is none.
        assert_eq!(symbols.at(1 << 40), [format!("{}+0x10000000000", symbols.name)]);
    }

    #[test]
    fn what_is_no_file_with_code_is_named_by_its_place() {
        for path in ["/no/such/lib.so", "/dev/zero", "/etc/passwd", "/proc/self/mem"] {
            let name = path.rsplit('/').next().unwrap();
            assert_eq!(Symbols::of(path).at(0x1234), [format!("{name}+0x1234")]);
        }
        // Half of one.
        let mut itself = File::open(std::env::current_exe().unwrap()).unwrap();
        let mut head = vec![0; 70_000];
        itself.seek(SeekFrom::Start(0)).unwrap();
        itself.read_exact(&mut head).unwrap();
        let half = std::env::temp_dir().join(format!("userswap-half-{}", std::process::id()));
        std::fs::write(&half, head).unwrap();
        assert!(Symbols::of(half.to_str().unwrap()).at(7)[0].contains("userswap-half-"));
        std::fs::remove_file(half).unwrap();
    }

    #[test]
    fn long_names_are_cut() {
        assert_eq!(short("core::f(int, (anonymous namespace)::T)".into()), "core::f");
        assert_eq!(short("(anonymous namespace)::f(int)".into()), "(anonymous namespace)::f(int)");
        assert_eq!(short("ü".repeat(99)).chars().count(), NAME_MAX + 1);
    }
}
