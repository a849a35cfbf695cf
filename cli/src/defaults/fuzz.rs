//! Files of defaults that nobody would write: no panic, nothing accepted that cannot be written down and read again, every
//! refusal one line that says where it is about. As engine's tests/fuzz, and with the same seconds and seed.
#[allow(clippy::print_stdout, reason = "a test's reader")]
#[path = "../../../engine/tests/fuzz/feed.rs"]
mod feed;
#[path = "../../../engine/tests/fuzz/mutate.rs"]
mod mutate;

use super::file::{Entry, entries};
use super::{RunArgs, check};
use clap::{Args, Command};
use feed::{Verdict, fuzz, one_line};
use std::collections::BTreeMap;
use std::path::Path;

const FILES: &[&str] = &[
    "# mine\nram = \"512M\"\npage-cluster = 4\n\nquiet = true\nswap = [\"/a\", \"/b:1G\"]\n",
    "\"fault\" = 'signal'\ntransfer='copy'\n",
    "swap = [\"redis://host/a:1G,tier=1\", \"zram:1G,tier=0\"]\nencrypt = false\n",
    "stats = \"\"\"\n/tmp/stats-%p.json\"\"\"\nmin-region = \"64K\"\n",
];

const WORDS: &[&str] = &[
    "=",
    "\n",
    "\r\n",
    "\"",
    "'",
    "\"\"\"",
    "[",
    "]",
    ",",
    "[run]",
    "#",
    "\\",
    "\\u00e9",
    "{}",
    ".",
    "1.5",
    "-1",
    "true",
    "1979-05-27",
    "0x10",
    "9223372036854775808",
    "ram = ",
    "swap = ",
    "quiet = ",
    "trace = \"t\"",
    "\0",
    "é",
];

/// Options look at their values in one of so many files: it takes longer than reading them.
const LOOKED_AT: u64 = 10;

fn key_of(entry: &Entry) -> (String, Vec<String>) {
    (entry.key.clone(), entry.values.clone())
}

#[test]
fn files_of_defaults() {
    let (path, command) = (Path::new("/f"), RunArgs::augment_args(Command::new("run")));
    let mut read = 0;
    fuzz(FILES, WORDS, |input| {
        let Ok(text) = std::str::from_utf8(input) else { return Verdict::Refused };
        let lines = text.matches('\n').count() + 1;
        let refuse = |message: &str| {
            one_line(message);
            let line = message.strip_prefix("/f:").and_then(|rest| rest.split(':').next());
            let line = line.and_then(|line| line.parse().ok());
            assert!(line.is_some_and(|line| (1..=lines).contains(&line)), "{message:?}");
        };
        let found = match entries(path, text) {
            Ok(found) => found,
            Err(refusal) => {
                refuse(&refusal.message);
                return Verdict::Refused;
            }
        };
        let found: BTreeMap<_, _> = found.iter().map(|entry| (&entry.key, entry)).collect();
        let written: BTreeMap<_, _> = found.values().map(|entry| key_of(entry)).collect();
        let again = entries(path, &toml::to_string(&written).unwrap()).unwrap();
        assert_eq!(again.iter().map(key_of).collect::<BTreeMap<_, _>>(), written);
        read += 1;
        if read % LOOKED_AT == 0 {
            let refusals = found.values().filter_map(|entry| check(&command, entry).err());
            refusals.for_each(|refusal| refuse(&refusal.message));
        }
        Verdict::Accepted
    });
}
