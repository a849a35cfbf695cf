//! usemem's command line: what it accepts, and the checked form that the rest works with.

use super::content::Data;
use super::scattered::{SCATTERED_MIN_BYTES, Scattered, ScatteredLoad};
use crate::size;
use clap::{ArgAction, Parser};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use userswap::internals::PAGE_BYTES;

/// The words of memory are 8 bytes wide, as in usemem on a 64-bit machine.
pub(super) const WORD_BYTES: u64 = 8;
/// Random positions are drawn from all words but the last, so there must be two.
const SIZE_MIN: u64 = 2 * WORD_BYTES;
/// More tasks than this are a mistake rather than a load.
const TASKS_MAX: usize = 1 << 16;

/// Where the memory comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    DevZero,
    Anonymous,
    Malloc,
    File { path: PathBuf, offset: u64 },
}

/// What a pass does with each word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Write,
    /// Only reads, of a mapping that allows no writes.
    Read,
    /// Only reads, of a mapping that would allow writes.
    ReadOfWritable,
}

/// In which order a pass visits the words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Sequential,
    Random { seed: Option<u64> },
}

/// Where tasks wait for each other before they touch memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    BeforeAllocation,
    AfterAllocation,
}

/// Whether tasks wait for each other before they free their memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Freeing {
    Apart,
    Together,
}

/// How long random page reads go on, per thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PageReads {
    Count(u64),
    For(Duration),
}

/// A checked command line.
#[derive(Debug, Clone)]
pub(super) struct Options {
    pub(super) bytes: u64,
    pub(super) processes: usize,
    pub(super) threads: usize,
    pub(super) bind_stride: Option<usize>,
    pub(super) source: Source,
    pub(super) populate: bool,
    pub(super) prealloc: bool,
    pub(super) lock: bool,
    pub(super) unit_bytes: u64,
    pub(super) step_words: usize,
    pub(super) repeat: u32,
    pub(super) access: Access,
    pub(super) order: Order,
    pub(super) runtime: Option<Duration>,
    pub(super) dots: bool,
    pub(super) wait_for_signal: bool,
    pub(super) start: Start,
    pub(super) freeing: Freeing,
    pub(super) sleep: Duration,
    pub(super) read_again: bool,
    pub(super) init_time: bool,
    pub(super) page_reads: Option<PageReads>,
    pub(super) load: Option<ScatteredLoad>,
    pub(super) data: Data,
}

/// Why there are no options to run with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    Help(String),
    Usage(String),
}

/// Allocate memory, access it in a pattern, print the throughput of each task
#[derive(Debug, Parser)]
#[command(name = "usemem", no_binary_name = true, disable_version_flag = true)]
#[command(allow_negative_numbers = true, args_override_self = true)]
struct Line {
    /// Bytes per task, with k, m, g or t (powers of 1024) or in hexadecimal (0x…)
    size: String,
    /// Number of processes
    #[arg(short = 'n', long = "nproc", value_name = "N", default_value = "1")]
    processes: String,
    /// Number of threads in each process
    #[arg(short = 't', long = "thread", value_name = "M", default_value = "1")]
    threads: String,
    /// Bind task i to CPU i times N
    #[arg(short = 'b', long = "bind", value_name = "N")]
    bind: Option<String>,
    /// Take the memory from malloc
    #[arg(short = 'a', long = "malloc")]
    malloc: bool,
    /// Map this file, shared (default: /dev/zero, private)
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    file: Option<PathBuf>,
    /// Start the mapping of FILE at this offset
    #[arg(short = 'B', long = "offset", value_name = "BYTES", default_value = "0")]
    offset: String,
    /// Populate the mapping at once
    #[arg(short = 'F', long = "prefault")]
    populate: bool,
    /// Map anonymous memory
    #[arg(short = 'O', long = "anonymous")]
    anonymous: bool,
    /// Allocate once, before the tasks start; they share it by copy-on-write
    #[arg(short = 'P', long = "prealloc")]
    prealloc: bool,
    /// Work through SIZE in units of this size, each a mapping of its own
    #[arg(short = 'u', long = "unit", value_name = "SIZE")]
    unit: Option<String>,
    /// Step between accesses, a multiple of 8
    #[arg(short = 'j', long = "step", value_name = "SIZE", default_value = "8")]
    step: String,
    /// Repeat the pass N times; the second write pass on verifies what the first wrote
    #[arg(short = 'r', long = "repeat", value_name = "N", default_value = "1")]
    repeat: String,
    /// Only read
    #[arg(short = 'o', long = "readonly")]
    readonly: bool,
    /// Map for writing even when only reading
    #[arg(short = 'w', long = "open-rw")]
    open_rw: bool,
    /// Random positions
    #[arg(short = 'R', long = "random")]
    random: bool,
    /// Make random positions repeatable
    #[arg(long, value_name = "S")]
    random_seed: Option<String>,
    /// Lock the memory after the accesses
    #[arg(short = 'M', long = "mlock")]
    lock: bool,
    /// Sleep before freeing
    #[arg(short = 's', long = "sleep", value_name = "SEC", default_value = "0")]
    sleep: String,
    /// Stop when more than SEC whole seconds have passed
    #[arg(short = 'T', long = "runtime", value_name = "SEC")]
    runtime: Option<String>,
    /// No progress dots
    #[arg(short = 'q', long = "quiet")]
    quiet: bool,
    /// Write, wait for SIGUSR1, then read; only the read is reported
    #[arg(short = 'W', long = "write-signal-read")]
    wait_for_signal: bool,
    /// Have the tasks wait for each other after their allocation instead of before it
    #[arg(short = 'y', long = "sync-rw")]
    sync_rw: bool,
    /// Have the tasks wait for each other before they free
    #[arg(short = 'x', long = "sync-free")]
    sync_free: bool,
    /// Read everything again, reported separately
    #[arg(short = 'Z', long = "read-again", action = ArgAction::SetTrue)]
    read_again: bool,
    /// Report the start-up separately and restart the clock
    #[arg(long)]
    init_time: bool,
    /// Fill one mapping shared by all threads, then have each thread read one word of COUNT random
    /// pages, or for SECONDS ("10s"); prints reads per second
    #[arg(long, value_name = "COUNT|SECONDSs")]
    page_random_read: Option<String>,
    /// Fill one mapping shared by all threads, then have them do this to scattered pages
    #[arg(long, value_name = "LOAD")]
    load: Option<Scattered>,
    /// Operations of --load, for each thread
    #[arg(long, value_name = "COUNT", default_value = "100000")]
    operations: String,
    /// What is written; but for index whole pages at a time, and what is read is verified
    #[arg(long, value_name = "KIND", default_value = "index")]
    data: Data,
}

impl Options {
    /// Reads the arguments that follow the name of the program.
    pub(super) fn parse(args: impl Iterator<Item = OsString>) -> Result<Self, Refusal> {
        let line = Line::try_parse_from(args).map_err(|error| {
            let text = error.render().to_string();
            if error.use_stderr() { Refusal::Usage(one_line(&text)) } else { Refusal::Help(text) }
        })?;
        let options = line.check()?;
        options.check_together()?;
        Ok(options)
    }

    fn check_together(&self) -> Result<(), Refusal> {
        let usage = |text: &str| Err(Refusal::Usage(text.to_owned()));
        if self.start == Start::AfterAllocation && self.unit_bytes != self.bytes {
            return usage("-y needs one mapping per task: leave -u away or make it the size");
        }
        if self.prealloc && self.unit_bytes != self.bytes {
            return usage("-P makes one mapping for all: leave -u away or make it the size");
        }
        if self.wait_for_signal && self.access != Access::Write {
            return usage("-W writes before it reads: leave -o away");
        }
        let is_shared_load = self.page_reads.is_some() || self.load.is_some();
        if is_shared_load && self.access != Access::Write {
            return usage("--page-random-read and --load fill their memory: leave -o away");
        }
        if is_shared_load && self.processes > 1 {
            return usage(
                "--page-random-read and --load share one mapping: use threads (-t), not -n",
            );
        }
        if self.load.is_some() && self.data != Data::Index {
            return usage("--load has data of its own: leave --data away");
        }
        let least = SCATTERED_MIN_BYTES.max(self.threads as u64 * PAGE_BYTES as u64);
        if self.load.is_some() && self.bytes < least {
            return Err(Refusal::Usage(format!(
                "SIZE is below {least}, which --load needs: make it larger"
            )));
        }
        match self.processes.checked_mul(self.threads) {
            Some(tasks) if tasks <= TASKS_MAX => Ok(()),
            _ => usage("-n times -t is more than 65536 tasks: use fewer"),
        }
    }
}

impl Line {
    fn check(self) -> Result<Options, Refusal> {
        let bytes = size("SIZE", &self.size, SIZE_MIN)?;
        let unit_bytes = match &self.unit {
            Some(unit) => size("-u", unit, SIZE_MIN)?.min(bytes),
            None => bytes,
        };
        let step = size("-j", &self.step, WORD_BYTES)? / WORD_BYTES;
        let runtime = self.runtime.as_deref().map(|text| seconds("-T", text)).transpose()?;
        Ok(Options {
            bytes,
            processes: count("-n", &self.processes)?,
            threads: count("-t", &self.threads)?,
            bind_stride: self.bind.as_deref().map(|text| count("-b", text)).transpose()?,
            source: self.source()?,
            populate: self.populate,
            prealloc: self.prealloc,
            lock: self.lock,
            unit_bytes,
            step_words: usize::try_from(step).expect("a 64-bit machine"),
            repeat: count("-r", &self.repeat)?,
            access: match (self.readonly, self.open_rw) {
                (false, _) => Access::Write,
                (true, false) => Access::Read,
                (true, true) => Access::ReadOfWritable,
            },
            order: self.order()?,
            runtime,
            dots: !self.quiet,
            wait_for_signal: self.wait_for_signal,
            start: if self.sync_rw { Start::AfterAllocation } else { Start::BeforeAllocation },
            freeing: if self.sync_free { Freeing::Together } else { Freeing::Apart },
            sleep: sleep(&self.sleep)?,
            read_again: self.read_again,
            init_time: self.init_time,
            page_reads: self.page_random_read.as_deref().map(page_reads).transpose()?,
            load: self.load()?,
            data: self.data,
        })
    }

    fn load(&self) -> Result<Option<ScatteredLoad>, Refusal> {
        let operations = count("--operations", &self.operations)?;
        Ok(self.load.map(|kind| ScatteredLoad { kind, operations }))
    }

    fn source(&self) -> Result<Source, Refusal> {
        match (&self.file, self.anonymous, self.malloc) {
            (None, false, false) => Ok(Source::DevZero),
            (None, true, false) => Ok(Source::Anonymous),
            (None, false, true) => Ok(Source::Malloc),
            (Some(path), false, false) => {
                let offset = size("-B", &self.offset, 0)?;
                Ok(Source::File { path: path.clone(), offset })
            }
            _ => Err(Refusal::Usage("-f, -O and -a exclude each other: give one".to_owned())),
        }
    }

    fn order(&self) -> Result<Order, Refusal> {
        let seed = match &self.random_seed {
            Some(text) => Some(text.parse().map_err(|_| not_a_number("--random-seed", text))?),
            None => None,
        };
        Ok(if self.random { Order::Random { seed } } else { Order::Sequential })
    }
}

fn size(option: &str, text: &str, least: u64) -> Result<u64, Refusal> {
    size::parse(text, least).map_err(|error| Refusal::Usage(format!("{option}: {error}")))
}

fn count<N: std::str::FromStr + PartialOrd + Default>(
    option: &str,
    text: &str,
) -> Result<N, Refusal> {
    let number = text.parse().map_err(|_| not_a_number(option, text))?;
    if number > N::default() { Ok(number) } else { Err(not_a_number(option, text)) }
}

fn seconds(option: &str, text: &str) -> Result<Duration, Refusal> {
    text.parse().map(Duration::from_secs).map_err(|_| not_a_number(option, text))
}

fn sleep(text: &str) -> Result<Duration, Refusal> {
    // usemem: negative means practically for ever.
    if text.parse::<i64>().is_ok_and(|seconds| seconds < 0) {
        return Ok(Duration::from_secs(u64::from(u32::MAX)));
    }
    seconds("-s", text)
}

fn page_reads(text: &str) -> Result<PageReads, Refusal> {
    const OPTION: &str = "--page-random-read";
    match text.strip_suffix('s') {
        Some(number) => {
            let seconds: u64 = count(OPTION, number)?;
            Ok(PageReads::For(Duration::from_secs(seconds)))
        }
        None => Ok(PageReads::Count(count(OPTION, text)?)),
    }
}

fn not_a_number(option: &str, text: &str) -> Refusal {
    Refusal::Usage(format!("{option}: '{text}' is not usable: give a whole number, such as 2"))
}

/// The first paragraph of one of clap's messages, on one line and without its prefix.
fn one_line(text: &str) -> String {
    let paragraph = text.split("\n\n").next().unwrap_or_default();
    let words: Vec<&str> = paragraph.split_whitespace().collect();
    let line = words.join(" ");
    let line = line.strip_prefix("error: ").unwrap_or(&line);
    format!("{line} (--help lists what is allowed)")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, Refusal> {
        Options::parse(line.split_whitespace().map(OsString::from))
    }

    fn usage(line: &str) -> String {
        match parse(line) {
            Err(Refusal::Usage(text)) => text,
            other => panic!("'{line}' gave {other:?}"),
        }
    }

    #[test]
    fn a_bare_size_is_one_task_that_writes_every_word_once() {
        let options = parse("64m").unwrap();
        assert_eq!(options.bytes, 64 << 20);
        assert_eq!((options.processes, options.threads, options.repeat), (1, 1, 1));
        assert_eq!(options.unit_bytes, options.bytes);
        assert_eq!(options.step_words, 1);
        assert_eq!(options.source, Source::DevZero);
        assert_eq!(options.access, Access::Write);
        assert_eq!(options.order, Order::Sequential);
    }

    #[test]
    fn options_may_stand_in_front_attached_and_together() {
        let options = parse("-n2 -t 3 -Oqx -j 4096 -r 3 -R --random-seed 7 -T 5 1g").unwrap();
        assert_eq!((options.processes, options.threads), (2, 3));
        assert_eq!(options.source, Source::Anonymous);
        assert!(!options.dots);
        assert_eq!(options.freeing, Freeing::Together);
        assert_eq!(options.step_words, 512);
        assert_eq!(options.order, Order::Random { seed: Some(7) });
        assert_eq!(options.runtime, Some(Duration::from_secs(5)));
    }

    #[test]
    fn page_reads_are_counted_or_timed() {
        let reads = |line| parse(line).unwrap().page_reads;
        assert_eq!(reads("--page-random-read 1000 1m"), Some(PageReads::Count(1000)));
        let ten_seconds = Some(PageReads::For(Duration::from_secs(10)));
        assert_eq!(reads("--page-random-read 10s 1m"), ten_seconds);
    }

    #[test]
    fn a_load_has_its_operations() {
        let load = parse("-t 4 --load pointer-chase --operations 7 1m").unwrap().load;
        assert_eq!(load, Some(ScatteredLoad { kind: Scattered::PointerChase, operations: 7 }));
    }

    #[test]
    fn a_wrong_value_is_named_on_one_line_with_a_remedy() {
        for (line, value) in [
            ("12Q", "\"12Q\""),
            ("0", "\"0\""),
            ("-1", "\"-1\""),
            ("-j 4 1m", "\"4\""),
            ("-n 0 1m", "'0'"),
            ("-n -1 1m", "'-1'"),
            ("-t x 1m", "'x'"),
            ("-u 0 1m", "\"0\""),
            ("--page-random-read 0 1m", "'0'"),
            ("--load nonsense 1m", "'nonsense'"),
            ("--load zipf-read --operations 0 1m", "'0'"),
            ("--load zipf-read 32k", "65536"),
            ("--nonsense 1m", "'--nonsense'"),
        ] {
            let text = usage(line);
            assert!(text.contains(value), "'{line}' gave: {text}");
            assert!(!text.contains('\n'), "'{line}' gave: {text}");
        }
        assert!(usage("").contains("SIZE"));
    }

    #[test]
    fn options_that_contradict_each_other_are_refused() {
        for line in ["-y -u 1m 2m", "-P -u 1m 2m", "-W -o 1m", "-O -a 1m", "-n 70000 1m"] {
            usage(line);
        }
        usage("-n 2 --page-random-read 5 1m");
        usage("-n 2 --load hash-join 1m");
        usage("-o --page-random-read 5 1m");
        usage("-o --load zipf-read --operations 10 1m");
        usage("--load hash-join --data heap 1m");
    }
}
