//! Traces of page accesses: generated from fixed seeds, and recorded from real programs.
use crate::BUDGET;
use std::ops::Range;
use userswap_trace::{Reader, Recording, recorded};

pub struct Trace {
    pub name: String,
    pub pages: Vec<u32>,
    /// Pages of memory.
    pub budget: u32,
    /// Pages of which nearly all accesses should hit.
    pub hot: Option<Range<u32>>,
}

/// xorshift64*: the same numbers on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, bound: u32) -> u32 {
        (((self.next() >> 32) * u64::from(bound)) >> 32) as u32
    }
}

pub fn all() -> Vec<Trace> {
    let mut traces = vec![
        scan_and_hot("a hot set of 20 % of memory, a scan", BUDGET / 5, 0),
        scan_and_hot("the same, after a scan", BUDGET / 5, 2 * BUDGET),
        // Of a set that just fits no page is seen twice within its second chance: better than LRU, no more.
        Trace {
            hot: None,
            ..scan_and_hot("a hot set of 80 % of memory, a scan", BUDGET * 4 / 5, 0)
        },
    ];
    for percent in [105, 125, 150, 400] {
        traces.push(looping(percent, BUDGET));
    }
    // What is remembered of pages that have left has to be enough for larger memory, too.
    let more = looping(125, 8 * BUDGET);
    traces.push(Trace { name: format!("{} for {} pages", more.name, more.budget), ..more });
    traces.push(zipf(99));
    traces.push(zipf(70));
    traces.push(uniform());
    traces.push(phases());
    traces.push(sliding(30));
    traces.push(sliding(80));
    traces.push(filled_once(70));
    traces.push(filled_once(90));
    traces.push(built_beside());
    traces.extend(recorded::ALL.iter().flat_map(real));
    traces
}

fn plain(name: String, pages: Vec<u32>) -> Trace {
    Trace { name, pages, budget: BUDGET, hot: None }
}

/// Accesses to a hot set, in turns with a scan over four times the memory; before it a scan alone.
fn scan_and_hot(name: &str, hot: u32, before: u32) -> Trace {
    let mut random = Random(1);
    let mut pages: Vec<u32> = (0..before).map(|time| hot + time).collect();
    for time in 0..30 * BUDGET {
        pages.push(random.below(hot));
        pages.push(hot + time % (4 * BUDGET));
    }
    Trace { name: name.to_owned(), pages, budget: BUDGET, hot: Some(0..hot) }
}

fn looping(percent: u32, budget: u32) -> Trace {
    let length = budget * percent / 100;
    let pages = (0..20 * length).map(|time| time % length).collect();
    Trace { budget, ..plain(format!("a loop over {percent} % of memory"), pages) }
}

/// Zipf over four times the memory; the ranks are spread over the pages. Fixed point: no library's
/// logarithm decides what is in the table.
fn zipf(percent: u32) -> Trace {
    const ONE: u64 = 1 << 40;
    let data = 4 * BUDGET;
    let mut random = Random(2);
    let weight = |rank: u32| {
        // rank^-s by halving: exact enough for a shape, and the same everywhere.
        let octave = rank.ilog2();
        let within = (u64::from(rank) << 20 >> octave) - (1 << 20);
        let exponent = ((u64::from(octave) << 20) + within) * u64::from(percent) / 100;
        let (whole, part) = (exponent >> 20, exponent & ((1 << 20) - 1));
        (ONE - (ONE >> 21) * part) >> whole
    };
    let sums: Vec<u64> = (1..=data)
        .scan(0, |sum, rank| {
            *sum += weight(rank).max(1);
            Some(*sum)
        })
        .collect();
    let mut page_of_rank: Vec<u32> = (0..data).collect();
    for last in (1..page_of_rank.len()).rev() {
        page_of_rank.swap(last, random.below(last as u32 + 1) as usize);
    }
    let total = u128::from(*sums.last().expect("there is data"));
    let draw = |_| {
        let at = ((u128::from(random.next()) * total) >> 64) as u64;
        page_of_rank[sums.partition_point(|sum| *sum <= at)]
    };
    let pages = (0..40 * BUDGET).map(draw).collect();
    plain(format!("zipf 0.{percent} over four times the memory"), pages)
}

fn uniform() -> Trace {
    let mut random = Random(3);
    let pages = (0..20 * BUDGET).map(|_| random.below(4 * BUDGET)).collect();
    plain("random over four times the memory".to_owned(), pages)
}

/// Four sets of 80 % of memory, one after the other.
fn phases() -> Trace {
    let mut random = Random(4);
    let set = BUDGET * 4 / 5;
    let pages =
        (0..80 * BUDGET).map(|time| time / (20 * BUDGET) * set + random.below(set)).collect();
    plain("four phases, 80 % of memory each".to_owned(), pages)
}

/// A window that slides over fresh memory, after everything else was touched once.
fn sliding(percent: u32) -> Trace {
    let mut random = Random(5);
    let window = BUDGET * percent / 100;
    let moving = (0..60 * BUDGET).map(|time| BUDGET + time / 12 + random.below(window));
    let pages = (0..BUDGET).chain(moving).collect();
    plain(format!("a sliding window of {percent} % of memory"), pages)
}

/// A set that is used all the time, but for the moment in which a program fills half of memory anew and never comes back to that.
fn filled_once(percent: u32) -> Trace {
    let mut random = Random(6);
    let set = BUDGET * percent / 100;
    let mut used = || (0..20 * BUDGET).map(|_| random.below(set)).collect::<Vec<_>>();
    let (before, after) = (used(), used());
    let filled = set..set + BUDGET / 2;
    let pages = before.into_iter().chain(filled).chain(after).collect();
    plain(format!("a set of {percent} % of memory, half of it filled once between"), pages)
}

/// A table of 90 % of memory that is used at random while memory for 40 % is filled once, as by a join, and afterwards.
fn built_beside() -> Trace {
    let mut random = Random(7);
    let budget = 8 * BUDGET;
    let (table, filled) = (budget / 10 * 9, budget / 10 * 4);
    let mut pages = Vec::new();
    for page in table..table + filled {
        pages.push(page);
        pages.extend((0..60).map(|_| random.below(table)));
    }
    pages.extend((0..30 * budget).map(|_| random.below(table)));
    let name = format!("a table of 90 % of memory, 40 % filled once beside it, for {budget} pages");
    Trace { budget, ..plain(name, pages) }
}

/// A real program, with memory for a half and for three quarters of its pages.
fn real((name, file): &(&str, &[u8])) -> [Trace; 2] {
    let reader = Reader::new((*name).to_owned(), *file).expect("a trace of this version");
    let recording = Recording::read(reader).expect("a whole trace");
    let (pages, _) = recording.accesses();
    [("half", 2), ("3/4", 3)].map(|(share, quarters)| {
        let budget = recording.pages * quarters / 4;
        assert!(budget >= 2 * recording.header.budget_pages, "less tells of the recording");
        let name = format!("{name}, {share} of {} pages", recording.pages);
        Trace { name, pages: pages.clone(), budget, hot: None }
    })
}
