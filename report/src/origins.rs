//! Where mappings come from, in words: the program's own name, or the calls that asked for them.
use crate::symbols::Symbols;
use std::path::Path;
use userswap_trace::{Call, Origin, Sample};

/// Calls that are said.
const CALLS: usize = 3;

/// Files whose calls only pass on what another wants, or start everything.
const ALLOCATORS: [&str; 6] =
    ["libc.so", "libc-", "libstdc++", "libjemalloc", "libtcmalloc", "libmimalloc"];
/// How functions' names begin that only pass on what another wants.
const ALLOCATING: [&str; 14] = [
    "malloc",
    "calloc",
    "realloc",
    "operator new",
    "__rust_alloc",
    "__rust_realloc",
    "__rdl_",
    "__rustc::",
    "alloc::",
    "core::",
    "<alloc::",
    "_PyMem_",
    "PyMem_",
    "_PyObject_Malloc",
];
/// Where every program starts.
const START: &str = "_start";
/// What is shared by very many has this name, whoever happened to need more of it.
const SHARED: [(&str, &str); 1] = [("_PyObject_ArenaMmap", "Python, objects up to 512 bytes")];

/// All origins of a record, as it tells them.
#[derive(Debug, Default)]
pub(crate) struct Origins {
    objects: Vec<String>,
    all: Vec<Origin>,
}

impl Origins {
    pub fn take(&mut self, sample: &mut Sample) {
        self.objects.append(&mut sample.objects);
        self.all.append(&mut sample.origins);
    }

    /// In words, in the order of their numbers; with places in files instead of functions.
    pub fn words(&self) -> Vec<String> {
        let place = |call: &Call| {
            let object = self.objects.get(call.object as usize).map_or("", String::as_str);
            let name = Path::new(object).file_name().unwrap_or_default().to_string_lossy();
            vec![format!("{name}+{:#x}", call.offset)]
        };
        self.all.iter().map(|origin| self.said(origin, &place)).collect()
    }

    /// The same with the names of functions, as far as the files that the record names have them.
    pub fn words_with_functions(&self) -> Vec<String> {
        let symbols: Vec<_> = self.objects.iter().map(|path| Symbols::of(path)).collect();
        let name = |call: &Call| match symbols.get(call.object as usize) {
            Some(symbols) => symbols.at(call.offset),
            None => vec![format!("+{:#x}", call.offset)],
        };
        self.all.iter().map(|origin| self.said(origin, &name)).collect()
    }

    /// The nearest calls that are not an allocator's.
    fn said(&self, origin: &Origin, names: &dyn Fn(&Call) -> Vec<String>) -> String {
        if !origin.name.is_empty() {
            return origin.name.clone();
        }
        let calls = origin.calls.iter().filter(|call| !self.is_allocator(call));
        let names: Vec<_> = calls.flat_map(names).filter(|name| *name != START).collect();
        let shared = |name: &String| SHARED.iter().find(|(begin, _)| name.starts_with(begin));
        if let Some((_, shared)) = names.iter().find_map(shared) {
            return (*shared).to_owned();
        }
        let passes_on = |name: &&String| ALLOCATING.iter().any(|begin| name.starts_with(begin));
        let skipped = names.iter().take_while(passes_on).count();
        // Nobody else was seen.
        let first = if skipped == names.len() { 0 } else { skipped };
        let said: Vec<&str> = names[first..].iter().take(CALLS).map(String::as_str).collect();
        said.join(" ← ")
    }

    fn is_allocator(&self, call: &Call) -> bool {
        let object = self.objects.get(call.object as usize).map_or("", String::as_str);
        let name = Path::new(object).file_name().unwrap_or_default().to_string_lossy();
        ALLOCATORS.iter().any(|begin| name.starts_with(begin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocators_are_passed_over_and_what_nobody_knows_is_a_place() {
        let call = |object, offset| Call { object, offset };
        let calls = |calls: &[Call]| Origin { calls: calls.to_vec(), ..Origin::default() };
        let mut sample = Sample {
            objects: ["/lib/libstdc++.so.6", "/no/such/job"].map(str::to_owned).to_vec(),
            origins: vec![
                Origin { name: "cache".into(), ..Origin::default() },
                calls(&[call(0, 1), call(1, 16), call(1, 32), call(9, 1), call(1, 64)]),
                calls(&[call(0, 1)]),
                calls(&[]),
            ],
            ..Sample::default()
        };
        let mut origins = Origins::default();
        origins.take(&mut sample);
        let said = origins.words_with_functions();
        assert_eq!(said, ["cache", "job+0x10 ← job+0x20 ← +0x1", "", ""]);
        assert_eq!(origins.words(), said);
    }
}
