//! Where mappings come from, as a record tells it: by number, each once, calls by file and place.
use crate::state::origins::Origin;
use crate::sys::process;
use std::collections::BTreeMap;
use std::mem::take;
use std::ops::Range;
use std::sync::Arc;
use userswap_trace::{Call, Origin as Told};

/// New ones of a sample: what is left waits for the next look.
const ORIGINS_OF_SAMPLE: usize = 32;
/// New files of a sample.
const OBJECTS_OF_SAMPLE: usize = 16;
/// All of a record: from then on what comes from elsewhere has no origin.
const ORIGINS_MAX: usize = 4096;
/// Bytes of a file's name; code in one with a longer name is left out.
const OBJECT_BYTES_MAX: usize = 250;
/// What malloc shares out from areas of its own.
const HEAP: &str = "malloc, blocks below 32M";

/// What is to be told with the next sample.
#[derive(Default)]
pub(super) struct Unknown {
    pub objects: Vec<String>,
    pub origins: Vec<Told>,
}

/// What has been told, or is about to be.
#[derive(Default)]
pub(super) struct Numbers {
    /// From 1 on.
    origins: BTreeMap<Arc<Origin>, u32>,
    /// From 0 on.
    objects: Vec<String>,
    /// The code that is mapped, as of this look.
    code: Option<Vec<Code>>,
    unknown: Unknown,
}

impl Numbers {
    /// The number of an origin; 0 if it is not told now.
    pub fn number(&mut self, origin: &Arc<Origin>) -> u32 {
        if let Some(number) = self.origins.get(origin) {
            return *number;
        }
        if self.unknown.origins.len() == ORIGINS_OF_SAMPLE || self.origins.len() == ORIGINS_MAX {
            return 0;
        }
        let told = self.tell(origin);
        self.unknown.origins.push(told);
        let number = self.origins.len() as u32 + 1;
        self.origins.insert(origin.clone(), number);
        number
    }

    /// What has become known since the last time; the look is over.
    pub fn take_unknown(&mut self) -> Unknown {
        self.code = None;
        take(&mut self.unknown)
    }

    fn tell(&mut self, origin: &Origin) -> Told {
        match origin {
            Origin::Heap => Told { name: HEAP.to_owned(), ..Told::default() },
            Origin::Named(name) => Told { name: name.clone(), ..Told::default() },
            Origin::Calls(calls) => {
                let calls = calls.iter().filter_map(|address| self.call(*address as u64));
                Told { calls: calls.collect(), ..Told::default() }
            }
        }
    }

    /// None for code of no file: one that was compiled just now, or unloaded since.
    fn call(&mut self, address: u64) -> Option<Call> {
        let code = self.code.get_or_insert_with(|| code_in(&process::mappings()));
        let code = code.iter().find(|code| code.addresses.contains(&address))?;
        let offset = address - code.addresses.start + code.offset;
        let known = self.objects.iter().position(|object| *object == code.object);
        if known.is_none() && self.unknown.objects.len() == OBJECTS_OF_SAMPLE {
            return None;
        }
        let object = known.unwrap_or_else(|| {
            self.unknown.objects.push(code.object.clone());
            self.objects.push(code.object.clone());
            self.objects.len() - 1
        });
        Some(Call { object: object as u32, offset })
    }
}

/// Code of a file that is mapped.
struct Code {
    addresses: Range<u64>,
    /// Where in the file it begins.
    offset: u64,
    object: String,
}

/// The code in a text of the form of /proc/self/maps.
fn code_in(maps: &str) -> Vec<Code> {
    maps.lines().filter_map(code_of).collect()
}

fn code_of(line: &str) -> Option<Code> {
    let mut words = line.splitn(5, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let is_code = words.next()?.contains('x');
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let offset = hex(words.next()?)?;
    // After the device a number and spaces.
    let object = &line[line.find('/')?..];
    (is_code && object.len() <= OBJECT_BYTES_MAX).then_some(())?;
    Some(Code { addresses: hex(start)?..hex(end)?, offset, object: object.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_found_by_file_and_place() {
        let code = code_in(
            "55d0-55e0 r--p 00000000 fe:00 131 /usr/bin/a b\n55e0-55f0 r-xp 00001000 fe:00 131                 /usr/bin/a b\n\
             7f00-7f10 rw-p 00000000 00:00 0\n7f10-7f20 r-xp 00000000 00:00 0      [vdso]\n",
        );
        let [code] = &code[..] else { panic!("{}", code.len()) };
        assert_eq!((code.addresses.clone(), code.offset), (0x55e0..0x55f0, 0x1000));
        assert_eq!(code.object, "/usr/bin/a b");
    }

    #[test]
    fn an_origin_is_told_once_and_no_more_of_them_at_once_than_a_sample_holds() {
        let mut numbers = Numbers::default();
        let named = |number: usize| Arc::new(Origin::Named(number.to_string()));
        let all: Vec<u32> =
            (0..ORIGINS_OF_SAMPLE + 3).map(|number| numbers.number(&named(number))).collect();
        assert_eq!((all[0], all[31], all[32]), (1, 32, 0));
        assert_eq!(numbers.take_unknown().origins.len(), ORIGINS_OF_SAMPLE);
        assert_eq!((numbers.number(&named(5)), numbers.number(&named(33))), (6, 33));
        let unknown = numbers.take_unknown();
        assert_eq!(unknown.origins, [Told { name: "33".into(), calls: vec![] }]);
    }

    #[test]
    fn a_call_of_this_very_test_is_in_its_file() {
        let mut numbers = Numbers::default();
        let here = code_in as *const () as usize;
        numbers.number(&Arc::new(Origin::Calls(vec![here, 8])));
        let Unknown { objects, origins } = numbers.take_unknown();
        let itself = std::env::current_exe().unwrap();
        assert_eq!(objects, [itself.to_str().unwrap()]);
        assert_eq!(origins[0].calls.len(), 1, "nothing is mapped at address 8");
        assert!(origins[0].calls[0].offset < here as u64);
    }
}
