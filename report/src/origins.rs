//! Where mappings come from, in words: the program's own name, or the calls that asked for them.
use crate::symbols::Symbols;
use std::path::Path;
use userswap_trace::{Call, Origin, Sample};

/// Calls that are said.
const CALLS: usize = 3;

/// Whose calls only pass on what another wants: their files, and how their functions' names begin.
const ALLOCATORS: [&str; 6] =
    ["libc.so", "libc-", "libstdc++", "libjemalloc", "libtcmalloc", "libmimalloc"];
const ALLOCATING: [&str; 12] = [
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
    "_PyMem_",
    "PyMem_",
];

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
        let named = |call| names(call).into_iter().map(|name| (self.is_allocator(call), name));
        let calls: Vec<_> = origin.calls.iter().flat_map(named).collect();
        let passes_on = |(is_allocator, name): &&(bool, String)| {
            *is_allocator || ALLOCATING.iter().any(|begin| name.starts_with(begin))
        };
        let skipped = calls.iter().take_while(passes_on).count();
        // Nobody else was seen.
        let first = if skipped == calls.len() { 0 } else { skipped };
        let said: Vec<_> = calls[first..].iter().take(CALLS).map(|(_, name)| &name[..]).collect();
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
        assert_eq!(said, ["cache", "job+0x10 ← job+0x20 ← +0x1", "libstdc++.so.6+0x1", ""]);
        assert_eq!(origins.words(), said);
    }
}
