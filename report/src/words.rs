//! A record in words: what it is, what held the run back, and what would help.
use crate::advice::{self, Doubt, Estimate};
use crate::mappings::Cost;
use crate::record::Record;
use crate::size;

/// From this share of the time on, waiting is worth words.
const STALL_NOTED: f64 = 0.02;
/// From this share of the time on a device is what is waited for.
const DEVICE_BUSY: f64 = 0.5;
/// Pages read ahead in vain, of all that were: then readahead costs more than it gives.
const WASTED: f64 = 0.3;
/// And of all pages that were read: less is not worth giving up what was read ahead to good use.
const WASTED_OF_READ: f64 = 0.1;
/// A budget's share that can be pinned, in quarters.
const PINNED_QUARTERS: u64 = 3;
/// Pages reclaimed by threads that fault, of all.
const DIRECT: f64 = 0.2;
/// A mapping that has more of the faults than this is worth a hint.
const DEAR: f64 = 0.5;

/// What the record is of, and its sums, in a line each.
pub fn facts(record: &Record) -> Vec<(&'static str, String)> {
    let seconds = record.duration_ms() as f64 / 1e3;
    let header = &record.header;
    let faults = record.counter("pgfault");
    let reads = record.counter("pgmajfault");
    let latency = |share| size::time(record.totals.latency_ns(share) as f64);
    let mut facts = vec![
        ("program", format!("{} (process {})", command(record), header.pid)),
        (
            "time",
            format!("{seconds:.2} s since it outgrew its budget, {:.2} s of CPU", cpu_s(record)),
        ),
        ("budget", size::pages(record.budget_pages())),
        ("at most", format!("{} in RAM and on devices", size::pages(record.totals.pages_max))),
        ("faults", format!("{}, {} of them with a read", size::count(faults), size::count(reads))),
        ("latency", format!("half below {}, 99 % below {}", latency(0.5), latency(0.99))),
        ("swapped in", format!("{} in pages", size::pages(record.counter("pswpin")))),
        ("swapped out", format!("{} in pages", size::pages(record.counter("pswpout")))),
        ("stalled", format!("{} of the time", size::share(record.stalled()))),
    ];
    let became =
        |program| format!("{}, by exec: what that did is in a record of its own", plain(program));
    facts.extend(record.became().map(|program| ("became", became(program))));
    let cut = |at| format!("at byte {at}, in the middle of a block: what came after is not in it");
    facts.extend(record.cut_at.map(|at| ("cut", cut(at))));
    facts
}

/// The program as it was called; its name where that is not known.
pub fn command(record: &Record) -> String {
    let header = &record.header;
    let called = header.record.as_ref().map(|record| record.command.as_str());
    let called = called.filter(|called| !called.is_empty()).unwrap_or(&header.program);
    plain(called)
}

/// Without what a terminal would act on.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn cpu_s(record: &Record) -> f64 {
    record.totals.cpu_ms as f64 / 1e3
}

/// What held the run back and what would help, a paragraph each, what matters most first.
pub fn findings(record: &Record) -> Vec<String> {
    let mut found = vec![held_back(record)];
    if record.curve.largest() > 0 {
        found.push(more_ram(record));
        found.extend(device(record));
        found.extend(readahead(record));
        found.extend(direct_reclaim(record));
        found.extend(hint(record));
    }
    found.push(doubts(record));
    found
}

fn held_back(record: &Record) -> String {
    let stalled = record.stalled();
    let seconds = record.duration_ms() as f64 / 1e3;
    match stalled {
        _ if record.curve.largest() == 0 => {
            "Nothing held it back: no page had to come back from a device.".into()
        }
        _ if stalled < STALL_NOTED => format!(
            "Little held it back: a thread waited for a page for {} of {seconds:.2} s.",
            size::share(stalled)
        ),
        _ => format!(
            "For {} of {seconds:.2} s at least one thread waited for a page: without that it would have taken about {:.2} s.",
            size::share(stalled),
            advice::unstalled_s(record),
        ),
    }
}

fn more_ram(record: &Record) -> String {
    let all = advice::estimate(record, record.curve.largest());
    let near = advice::smallest_near_native(record).unwrap_or(record.budget_pages());
    let half = record.curve.budget_for(record.curve.reads(0) / 2).unwrap_or(near);
    let mut text = format!(
        "More RAM: half as many pages come back with {}, none with {}.",
        size::pages(half),
        size::pages(all.budget)
    );
    if record.stalled() >= STALL_NOTED {
        text +=
            &format!(" {} is the smallest budget within 10 % of native speed.", size::pages(near));
    }
    text
}

fn device(record: &Record) -> Option<String> {
    let busy = record.totals.busy_ns as f64 / (record.duration_ms().max(1) as f64 * 1e6);
    let moved = record.totals.read_bytes.saturating_add(record.totals.written_bytes);
    if record.totals.busy_ns == 0 {
        return None;
    }
    let rate = size::bytes((moved as f64 / (record.totals.busy_ns as f64 / 1e9)) as u64);
    Some(if busy >= DEVICE_BUSY {
        format!(
            "A faster disk: the busiest device was busy for {} of the time, all together at {rate}/s while it was: a faster one would help.",
            size::share(busy)
        )
    } else {
        format!(
            "A faster disk would help little: the busiest device was busy for {} of the time.",
            size::share(busy)
        )
    })
}

fn readahead(record: &Record) -> Option<String> {
    let (ahead, wasted) = (record.counter("swap_ra"), record.counter("swap_ra_wasted"));
    let share = wasted as f64 / ahead.max(1) as f64;
    let of_read = wasted as f64 / record.counter("pswpin").max(1) as f64;
    (ahead >= 1000 && share >= WASTED && of_read >= WASTED_OF_READ).then(|| {
        format!(
            "A hint: of {} pages read ahead {} were read in vain: MADV_RANDOM for what is used in no order, or --swap-ra-policy off.",
            size::count(ahead),
            size::share(share)
        )
    })
}

fn direct_reclaim(record: &Record) -> Option<String> {
    let (direct, background) = (record.counter("pgsteal_direct"), record.counter("pgsteal_kswapd"));
    let share = direct as f64 / direct.saturating_add(background).max(1) as f64;
    (direct >= 1000 && share >= DIRECT).then(|| {
        format!(
            "A setting: {} of the pages that left did so while a thread waited for it: a higher min_free or watermark_scale lets the background reclaimer start sooner.",
            size::share(share)
        )
    })
}

fn hint(record: &Record) -> Option<String> {
    let all = record.counter("pgmajfault").max(1);
    let dearest = record.costs.first()?;
    let share = dearest.faults as f64 / all as f64;
    let can_be_pinned =
        u64::from(dearest.mapping.count) <= record.budget_pages() / 4 * PINNED_QUARTERS;
    let way = match can_be_pinned {
        true => "Pinning it, or using it in larger steps, helps most",
        false => "Using it in order, or in larger steps, helps most",
    };
    (share >= DEAR && record.costs.len() > 1).then(|| {
        format!(
            "A place to look at: {} had {} of the faults that read. {way}.",
            place(record, dearest),
            size::share(share.min(1.0))
        )
    })
}

/// A mapping by what asked for it, its size and where it is.
pub fn place(record: &Record, cost: &Cost) -> String {
    let address = record.header.record.as_ref().map_or(0, |record| record.address);
    let bytes = u64::from(cost.mapping.count) * size::PAGE_BYTES;
    let from = address.wrapping_add(u64::from(cost.mapping.first) * size::PAGE_BYTES);
    let place = match cost.mappings {
        0 | 1 => format!("{} at {from:#x}", size::bytes(bytes)),
        several => format!("{several} mappings, the largest {} at {from:#x}", size::bytes(bytes)),
    };
    let origin = cost.mapping.origin.checked_sub(1);
    match origin.and_then(|origin| record.origins.get(origin as usize)) {
        Some(origin) if !origin.is_empty() => format!("{}: {place}", plain(origin)),
        _ => place,
    }
}

fn doubts(record: &Record) -> String {
    format!(
        "How sure that is: {}. The curve looks at more RAM as room for the pages that left last; what a program does with pages \
         while they are in RAM is not recorded, and of smaller budgets a record tells nothing.",
        Doubt::about(record).words()
    )
}

/// A row for each budget: its size, pages that come back, their share of the recorded ones, and seconds of waiting.
pub fn curve_row(estimate: &Estimate) -> [String; 4] {
    [
        size::pages(estimate.budget),
        estimate.reads.to_string(),
        size::share(estimate.share),
        format!("{:.2} s", estimate.stalled_s),
    ]
}

/// Titles of [`curve_row`].
pub const CURVE_TITLES: [&str; 4] = ["RAM", "PAGES BACK", "OF RECORDED", "STALLED"];

/// A row for each of the dearest mappings, and one for what was in none: where it is, faults that read, pages that came back.
pub fn cost_rows(record: &Record, most: usize) -> Vec<[String; 3]> {
    let row = |place: String, cost: &Cost| [place, cost.faults.to_string(), cost.back.to_string()];
    let mut rows: Vec<_> =
        record.costs.iter().take(most).map(|cost| row(place(record, cost), cost)).collect();
    if record.unknown_cost.back > 0 {
        rows.push(row("not known: mapped and gone between two looks".into(), &record.unknown_cost));
    }
    rows
}

/// Titles of [`cost_rows`].
pub const COST_TITLES: [&str; 3] = ["MAPPING", "FAULTS WITH A READ", "PAGES BACK"];

/// Two records beside each other: what, the first, the second, and the second by the first.
pub fn compared(a: &Record, b: &Record) -> Vec<[String; 4]> {
    let ratio = |a: f64, b: f64| if a > 0.0 { format!("{:.2}", b / a) } else { "–".into() };
    let row = |what: &str, of: &dyn Fn(&Record) -> f64, show: &dyn Fn(f64) -> String| {
        [what.to_owned(), show(of(a)), show(of(b)), ratio(of(a), of(b))]
    };
    let count = |number: f64| format!("{number:.0}");
    let bytes = |pages: f64| size::pages(pages as u64);
    let latency = |share| move |record: &Record| record.totals.latency_ns(share) as f64;
    let counter = |name: &'static str| move |record: &Record| record.counter(name) as f64;
    vec![
        row("seconds", &|record| record.duration_ms() as f64 / 1e3, &|s| format!("{s:.2}")),
        row("CPU seconds", &cpu_s, &|s| format!("{s:.2}")),
        row("budget", &|record| record.budget_pages() as f64, &bytes),
        row("stalled, of the time", &Record::stalled, &size::share),
        row("faults", &counter("pgfault"), &count),
        row("faults that read", &counter("pgmajfault"), &count),
        row("swapped in", &counter("pswpin"), &bytes),
        row("swapped out", &counter("pswpout"), &bytes),
        row("latency, median", &latency(0.5), &size::time),
        row("latency, 99 %", &latency(0.99), &size::time),
        row("threads had to reclaim", &counter("allocstall"), &count),
        row("read ahead in vain", &counter("swap_ra_wasted"), &count),
    ]
}

/// What differs most between two records, in a sentence.
pub fn verdict(a: &Record, b: &Record) -> String {
    let seconds = |record: &Record| record.duration_ms() as f64 / 1e3;
    let (of_a, of_b) = (seconds(a), seconds(b));
    let reads = |record: &Record| record.counter("pswpin");
    let time = match of_b / of_a.max(1e-3) {
        ratio if ratio < 0.95 => format!("The second took {} less time", size::share(1.0 - ratio)),
        ratio if ratio > 1.05 => format!("The second took {ratio:.2} times as long"),
        _ => "Both took the same time within 5 %".into(),
    };
    format!(
        "{time}: {} and {} of the time stalled, {} and {} swapped in.",
        size::share(a.stalled()),
        size::share(b.stalled()),
        size::pages(reads(a)),
        size::pages(reads(b))
    )
}
