//! What the tests of the engine share: engines of every kind, pages with known content, the audit, processes of
//! a test's own, a generator, and how long a test may take.
mod audit;
mod certificates;
mod files;
mod front;
mod internals;
mod loads;
mod pages;
mod past;
mod process;
mod proxy;
mod redis;
#[cfg(feature = "s3")]
mod s3;
#[cfg(feature = "s3")]
mod unready;

pub use audit::audit;
pub use bench::raw::{atomics, touch};
pub use certificates::Certificates;
pub use files::{file_of, read_from};
pub use internals::*;
pub use loads::{check_thirds, churn, write_thirds};
pub use pages::{Pages, is_lost, read_at, word, write_at};
pub use past::*;
pub use process::{
    alone, apart, become_user, end, end_with_parent, ended, fork, fork_away, forked, in_child,
    interrupted_by, is_shared_with, join, kill, limit_files, lock_nothing, rest, send,
    set_variable, shared_words, stay_on, stop,
};
pub use proxy::Proxy;
pub use redis::{
    Redis, STARTS, cluster, cluster_by, cluster_laid_out, cluster_of_masters,
    cluster_with_replicas, with_each_kind,
};
#[cfg(feature = "s3")]
pub use s3::{S3, spec as s3_spec};
#[cfg(feature = "s3")]
pub use unready::Unready;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write;
use std::ops::Mul;
use std::path::Path;
use std::time::{Duration, Instant};
use userswap::internals::{Proceed, Progress, SwapoffMethod};
use userswap::{Builder, Engine, Error, Region};

pub const MIB: usize = 1 << 20;
pub const PAGE: usize = PAGE_BYTES;
pub const WORDS: usize = PAGE / 8;

/// How faults arrive and pages travel.
pub type Way = (FaultMode, Transfer);

/// Every way faults arrive and pages travel.
pub const WAYS: [Way; 4] = [
    (FaultMode::Thread, Transfer::Auto),
    (FaultMode::Signal, Transfer::Auto),
    (FaultMode::Thread, Transfer::Copy),
    (FaultMode::Signal, Transfer::Copy),
];

/// Of them one by message and one by signal, one that moves and one that copies; which ones follows from the test's name. All
/// in the long form.
pub fn ways() -> impl Iterator<Item = Way> {
    let other = turn(2);
    let chosen = [other, 3 - other].map(|index| WAYS[index]);
    WAYS.into_iter().filter(move |way| is_long() || chosen.contains(way))
}

/// One of them, which follows from the test's name; all in the long form. For what lies behind a device, far from the frames
/// that pages reach by them.
pub fn one_way() -> impl Iterator<Item = Way> {
    let chosen = WAYS[turn(4)];
    WAYS.into_iter().filter(move |way| is_long() || *way == chosen)
}

/// A number below this one that follows from the name of the test.
fn turn(below: usize) -> usize {
    let name = process::test_name();
    name.bytes().map(usize::from).sum::<usize>() % below
}

/// The smallest budget and a small arena.
pub fn builder((fault, transfer): Way) -> Builder {
    Builder::new(16 << 20).fault(fault).transfer(transfer).arena_bytes(1 << 30)
}

pub fn engine(way: Way) -> Engine {
    build(builder(way))
}

/// With swap devices as on the command line.
pub fn engine_on(way: Way, swap: &[&str]) -> Engine {
    build(with_swap(builder(way), swap))
}

pub fn with_swap(builder: Builder, swap: &[&str]) -> Builder {
    swap.iter().fold(builder, |builder, spec| builder.swap(spec.parse().unwrap()))
}

/// Builds an engine as soon as the other tests of this process leave a signal handler room for it.
pub fn build(builder: Builder) -> Engine {
    let mut built = None;
    eventually("other tests drop their engines in signal mode", || {
        match builder.clone().build() {
            Err(Error::TooManyEngines(_)) => {}
            outcome => built = Some(outcome),
        }
        built.is_some()
    });
    built.unwrap().expect("root, or a permitted userfaultfd, and room in /var/tmp")
}

/// How often a page is asked to leave that others write.
const TIMES_ASKED: u32 = 1000;

/// A region of filled pages that are all on the devices, and nowhere else.
pub fn paged_out(engine: &Engine, pages: usize, stamp: u64) -> (Region, Pages) {
    let region = engine.map(pages * PAGE).unwrap();
    let pages = Pages::of(&region);
    pages.fill_all(stamp);
    // What the reclaimer is writing at the moment stays for now: it is asked for again.
    for _ in 0..TIMES_ASKED {
        region.page_out(0..region.len()).unwrap();
        if !is_any_in_ram(engine, pages) {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    (region, pages)
}

fn is_any_in_ram(engine: &Engine, pages: Pages) -> bool {
    let core = engine.core();
    let first = core.arena.page_of(pages.address);
    let state = |page: usize| core.pages.state(first + page as u32);
    (0..pages.count)
        .any(|page| matches!(state(page), PageState::Writing { .. } | PageState::Cached { .. }))
}

pub fn go_on(_: Progress) -> Proceed {
    Proceed::GoOn
}

pub fn swapoff(engine: &Engine, name: impl AsRef<Path>) -> Result<(), Error> {
    swapoff_with(engine, name, &mut go_on)
}

pub fn swapoff_with(
    engine: &Engine,
    name: impl AsRef<Path>,
    watch: &mut dyn FnMut(Progress) -> Proceed,
) -> Result<(), Error> {
    engine.core().swapoff(name.as_ref(), watch)
}

pub fn swapoff_by(
    engine: &Engine,
    name: impl AsRef<Path>,
    method: SwapoffMethod,
    watch: &mut dyn FnMut(Progress) -> Proceed,
) -> Result<(), Error> {
    engine.core().swapoff_by(name.as_ref(), method, watch)
}

pub fn swapon(engine: &Engine, spec: &str) -> Result<(), Error> {
    engine.swapon(&spec.parse().unwrap())
}

/// Has a device refuse whatever is written to it: its descriptor is another file's now.
pub fn refuse_writes(engine: &Engine, device: usize) {
    let null = std::fs::File::open("/dev/null").unwrap();
    let device = engine.core().devices.list().nth(device).unwrap().descriptor();
    fd::replace(device, std::os::fd::AsRawFd::as_raw_fd(&null)).unwrap();
}

/// Slots of the engine's first device that are in use.
pub fn used(engine: &Engine) -> u64 {
    engine.core().devices.set_mode(engine.core().devices.mode());
    engine.core().devices.list().next().unwrap().used().into()
}

/// Waits for what other threads will bring about.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    /// Nothing takes this long, even on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(240);
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < PATIENCE, "after four minutes still not: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// How many times longer the long form of a test is.
const LONG_TIMES: u8 = 8;

/// Whether the long forms are wanted.
pub fn is_long() -> bool {
    std::env::var("USERSWAP_TEST_LONG").is_ok_and(|value| value == "1")
}

/// The rounds of a test: as many as are given, and more in the long form, which says so.
pub fn rounds<N: Mul<Output = N> + From<u8>>(short: N) -> N {
    if !is_long() {
        return short;
    }
    progress(&format!("{LONG_TIMES} times the rounds"));
    short * N::from(LONG_TIMES)
}

/// Says on the terminal what a test that takes its time is about to do; the test runner captures no such line.
pub fn progress(what: &str) {
    if let Some(test) = std::thread::current().name() {
        // A terminal that is gone needs no word.
        let _ = std::io::stderr().write_all(format!("{test}: {what}\n").as_bytes());
    }
}

/// A hanging test ends its process: SIGALRM kills. The tests of a process share the timer.
pub fn limit(seconds: u32) {
    // A busy machine is no hang.
    let patience = if is_long() { 4 * u32::from(LONG_TIMES) } else { 4 };
    let generous = seconds * patience;
    let left = bench::process::alarm(generous);
    if left > generous {
        // Another test may need longer.
        bench::process::alarm(left);
    }
}

/// A small generator; a test that uses it with a new seed prints that.
#[derive(Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % bound
    }
}

/// A new seed, or the one from USERSWAP_SEED; printed, so that a failure can be repeated.
pub fn seed() -> u64 {
    let given = std::env::var("USERSWAP_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| RandomState::new().build_hasher().finish());
    println!("USERSWAP_SEED={seed}");
    seed
}

/// What an engine on a device is refused with, in one line.
pub fn refusal(spec: &str) -> String {
    let built = with_swap(builder(WAYS[0]), &[spec]).build();
    let refusal = built.err().unwrap_or_else(|| panic!("{spec} is refused")).to_string();
    assert_eq!(refusal.lines().count(), 1);
    refusal
}
