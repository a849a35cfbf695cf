//! How much memory compressed pages may take, where that follows from what it brings.
//!
//! Memory that compressed pages take is memory that the program has less. How long pages have been away when they come back
//! (`workingset`) tells for every size at once where each of them would have been: in RAM, in compressed memory, or on a
//! device behind. So the cost of each size is reckoned, by what a page costs there and there, with what it costs to
//! compress pages and to move them on, whether they come back or not, and the size goes towards the one that costs least.
//! Pages that RAM has now come back from nowhere: as many are taken to be lost with some memory as would be gained by as much
//! more. What moves on may have to come back page by page, so for less it takes that the decisions so far would have saved as
//! much. Data that do not compress, and programs that gain nothing, are given up on soon, and tried again ever more seldom.
use crate::tiers::Ages;

/// A step is this part of the most that it may be, and no less than what the writes under way are promised.
const STEP_SHARE: u32 = 12;
const STEP_MIN: u32 = 1024;
/// Steps that are gone at a time: what is lost is only seen afterwards.
const STRIDE: u32 = 3;
/// A decision is due after so many pages have come, come back or moved on: this part of the most that it may be.
const DUE_SHARE: u32 = 8;
const DUE_MIN: u32 = 512;
/// Of a page of memory so many sixteenths of pages at least, or it is not worth it.
const RATIO_MIN: u64 = 20;
/// What it is taken for as long as there is next to nothing: fewer pages than this.
const RATIO_UNKNOWN: u64 = 32;
const TELLING: u32 = 256;
/// Fewer pages that came back say nothing.
const REFAULTS_MIN: u32 = 128;
/// A change must save a sixteenth.
const MARGIN: (u64, u64) = (17, 16);
/// What RAM loses is more than what it would gain by as much: pages nearer to it are used more.
const LOST: (u64, u64) = (5, 4);
/// Of the pages that move on for less memory one in so many is taken to be needed soon.
const NEEDED_SHARE: u64 = 8;
/// A decision forgets this part of what a page has cost at most.
const FORGOTTEN_SHARE: u64 = 64;
/// Decisions after which it is tried again, at first and at most: each time that brings nothing twice as many.
const GIVEN_UP: u32 = 16;
const GIVEN_UP_MAX: u32 = 256;

/// What a page costs that comes back, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Prices {
    /// Its part of a fault.
    pub fault_ns: u64,
    /// The device behind.
    pub behind_ns: u64,
}

impl Prices {
    /// With so many faults for so many pages: the others were read ahead.
    pub fn new(behind_ns: u64, faults: u64, pages: u64) -> Self {
        Self { fault_ns: FAULT_NS * faults.min(pages) / pages.max(1), behind_ns }
    }

    /// Beside so much work of so many CPUs in some time: what a device takes counts as far as a CPU is idle meanwhile, as others
    /// go on while one waits. Work of more CPUs than there are said to be was done by as many.
    pub fn beside(self, work_ns: u64, time_ns: u64, cpus: u32) -> Self {
        let cpus = u64::from(cpus).max(work_ns / time_ns.max(1));
        let idle_ns = time_ns.saturating_mul(cpus).saturating_sub(work_ns).min(time_ns);
        let behind_ns =
            (u128::from(self.behind_ns) * u128::from(idle_ns) / u128::from(time_ns.max(1))) as u64;
        Self { behind_ns, ..self }
    }
}

/// What a fault costs beside its device, in nanoseconds: its way into the engine, and a page that leaves for it. 11 µs by
/// signal and 33 by message (docs/tiers.md): something between.
const FAULT_NS: u64 = 20_000;
/// What a page costs beyond that which comes back from compressed memory, in nanoseconds.
const LOADED_NS: u64 = 2_000;
/// What a page costs that goes there, in nanoseconds.
const STORED_NS: u64 = 6_000;
/// What a page costs that goes on from there, in nanoseconds; threads do it that no fault waits for.
const DEMOTED_NS: u64 = 6_000;

/// Where a page came back from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Compressed memory.
    Compressed,
    /// A device behind it.
    Behind,
}

/// Pages that came back, by how long they were away.
#[derive(Clone, Debug, Default)]
pub struct Refaults {
    away: Ages,
    count: u32,
    behind: u32,
}

impl Refaults {
    /// One more, so many pages after it left.
    pub fn add(&mut self, distance: u64, from: Place) {
        self.count = self.count.saturating_add(1);
        self.behind = self.behind.saturating_add(u32::from(from == Place::Behind));
        self.away.add(distance);
    }

    /// How many there were.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Takes those of another node along, which has none then.
    pub fn take(&mut self, other: &mut Self) {
        self.away.take(&mut other.away);
        self.count = self.count.saturating_add(core::mem::take(&mut other.count));
        self.behind = self.behind.saturating_add(core::mem::take(&mut other.behind));
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.away.clear();
        (self.count, self.behind) = (0, 0);
    }
}

/// What is compressed at a moment, what else there is, and what has gone there since the last decision.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// Pages.
    pub pages: u32,
    /// Pages of memory that their cells take.
    pub cells: u32,
    /// Pages of memory that RAM has less because of them: whole slabs.
    pub memory: u32,
    /// Pages of content that are not in RAM, wherever they are.
    pub swapped: u64,
    /// Pages that were compressed since the last decision.
    pub stored: u64,
    /// Pages that have moved on since then.
    pub demoted: u64,
}

impl Held {
    /// Sixteenths of pages in a page of cells.
    fn ratio(self) -> u64 {
        match self.pages >= TELLING {
            true => u64::from(self.pages) * 16 / u64::from(self.cells.max(1)),
            false => RATIO_UNKNOWN,
        }
    }
}

/// How much compressed pages may take.
#[derive(Clone, Debug)]
pub struct Size {
    memory: u32,
    phase: Phase,
    /// What less memory would have saved so far, in nanoseconds, and not lost again.
    regret_ns: u64,
    /// What a page behind has cost at most, in nanoseconds, forgotten slowly: those that are needed alone, as others come in order.
    dearest_ns: u64,
    /// Pages that move on because it has become less: a price that was thought of before that.
    owed: u64,
    /// Decisions until it is tried again once it is given up on.
    patience: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// It follows what it brings.
    Follows,
    /// It brought nothing; so many decisions until it is tried again.
    GivenUp(u32),
}

impl Size {
    /// To begin with: the most that it may be. What less would save is told by pages that come back; what more would, is not
    /// told as well.
    pub fn new(most: u32) -> Self {
        Self {
            memory: most,
            phase: Phase::Follows,
            regret_ns: 0,
            dearest_ns: 0,
            owed: 0,
            patience: GIVEN_UP,
        }
    }

    /// Pages of memory that compressed pages may take.
    pub fn memory(&self) -> u32 {
        self.memory
    }

    /// Whether enough has happened for a decision.
    pub fn is_due(most: u32, events: u64) -> bool {
        events >= u64::from((most / DUE_SHARE).max(DUE_MIN))
    }

    /// Decides by what has come back since the last time, at such prices.
    pub fn decide(&mut self, seen: &Refaults, mut held: Held, most: u32, prices: Prices) {
        let paid = self.owed.min(held.demoted);
        self.owed -= paid;
        held.demoted -= paid;
        self.dearest_ns = prices.behind_ns.max(self.dearest_ns - self.dearest_ns / FORGOTTEN_SHARE);
        if let Phase::GivenUp(left) = self.phase {
            self.phase = match left {
                0 => Phase::Follows,
                left => Phase::GivenUp(left - 1),
            };
            self.memory = if left == 0 { step(most) } else { 0 };
            return;
        }
        self.memory = self.memory.max(step(most)).min(most);
        let ratio = held.ratio();
        if ratio < RATIO_MIN {
            return self.give_up();
        }
        // What is not taken yet costs nothing, and how old pages get before they move on is not seen.
        let is_filling = held.memory < self.memory / 2;
        if seen.count < REFAULTS_MIN || is_filling {
            return;
        }
        let costs = Costs { seen, held, ratio, now: self.memory, prices };
        self.approach(costs.cheapest(most), &costs, most);
    }

    /// Goes towards a size, if that saves enough.
    fn approach(&mut self, best: u32, costs: &Costs<'_>, most: u32) {
        let (step, stride) = (step(most), STRIDE * step(most));
        let now_ns = costs.of(self.memory);
        let saves = costs.of(best) * MARGIN.0 <= now_ns * MARGIN.1;
        if saves && best > self.memory {
            (self.patience, self.regret_ns) = (GIVEN_UP, 0);
            self.memory = best.min(self.memory + stride);
            self.owed = 0;
            return;
        }
        let lowest = self.memory.saturating_sub(stride);
        let aim = if saves { best } else { lowest };
        self.regret_ns = (self.regret_ns + now_ns).saturating_sub(costs.of(aim));
        let less = aim.max(lowest);
        // A mere try is not thought about any longer.
        let is_worth_it =
            self.memory <= step || self.regret_ns >= costs.of_moving(less, self.dearest_ns);
        if !saves || !is_worth_it {
            return;
        }
        if best == 0 && self.memory <= step {
            return self.give_up();
        }
        (self.memory, self.regret_ns) = (less.max(step), 0);
        self.owed = costs.moved(self.memory);
    }

    fn give_up(&mut self) {
        (self.memory, self.phase) = (0, Phase::GivenUp(self.patience));
        self.regret_ns = 0;
        self.patience = (self.patience * 2).min(GIVEN_UP_MAX);
    }
}

/// What pages would have cost that came back, by the memory for compressed ones.
struct Costs<'a> {
    seen: &'a Refaults,
    held: Held,
    ratio: u64,
    /// The memory while they came back.
    now: u32,
    prices: Prices,
}

impl Costs<'_> {
    /// The size that costs least, the smallest of equals.
    fn cheapest(&self, most: u32) -> u32 {
        let steps = (0..=STEP_SHARE).map(|steps| (most / STEP_SHARE * steps).min(most));
        let sizes = steps.chain([self.now, most]);
        sizes.min_by_key(|memory| (self.of(*memory), *memory)).unwrap_or(self.now)
    }

    /// In nanoseconds.
    fn of(&self, memory: u32) -> u64 {
        let (away, Prices { fault_ns, behind_ns }) = (&self.seen.away, self.prices);
        let in_ram = away.within(0, self.less(memory));
        let lost = away.within(0, self.more(memory)) * LOST.0 / LOST.1;
        let compressed = self.hits(memory).min(u64::from(self.seen.count) - in_ram);
        let behind = u64::from(self.seen.count) - in_ram - compressed;
        let back_ns =
            (compressed + lost) * (fault_ns + LOADED_NS) + behind * (fault_ns + behind_ns);
        if memory == 0 {
            return back_ns;
        }
        // For what stays in RAM nothing leaves; what is not found there any more has moved on.
        let found = u64::from(self.seen.count - self.seen.behind);
        let stored = (self.held.stored + lost).saturating_sub(in_ram);
        let demoted = (self.held.demoted + found + lost).saturating_sub(compressed + in_ram);
        back_ns + stored * STORED_NS + demoted * DEMOTED_NS
    }

    /// What it costs, with less memory, if of the pages that move on for it some are needed again, each for itself.
    fn of_moving(&self, memory: u32, dearest_ns: u64) -> u64 {
        self.moved(memory) * (dearest_ns.saturating_sub(STORED_NS + LOADED_NS) + DEMOTED_NS)
            / NEEDED_SHARE
    }

    /// Pages that move on for less memory.
    fn moved(&self, memory: u32) -> u64 {
        let taken = u64::from(self.held.memory);
        u64::from(self.held.pages) * taken.saturating_sub(memory.into()) / taken.max(1)
    }

    /// Pages that RAM would have more with such a size: what is not taken yet it has already.
    fn less(&self, memory: u32) -> u64 {
        self.held.memory.min(self.now).saturating_sub(memory).into()
    }

    /// Pages that RAM would lose.
    fn more(&self, memory: u32) -> u64 {
        memory.saturating_sub(self.now).into()
    }

    /// Pages that compressed memory of a size would have had: as many as it did have, with what their ages say of others.
    fn hits(&self, memory: u32) -> u64 {
        let by_age = |memory: u32| {
            let less = self.less(memory);
            self.seen.away.within(less, self.reach(memory).max(less))
        };
        let found = u64::from(self.seen.count - self.seen.behind);
        if memory > self.now {
            return found + by_age(memory).saturating_sub(by_age(self.now));
        }
        // While nothing moves on any part of it has its part of the hits, also of a loop, which in the order of age has none.
        let taken = u64::from(self.held.memory.max(1));
        let part = found * taken.min(memory.into()) / taken;
        by_age(memory).max(part).min(found)
    }

    /// How long a page can be away that is still found in RAM or compressed memory of such a size.
    fn reach(&self, memory: u32) -> u64 {
        let holds = self.holds(memory);
        let swapped = (self.held.swapped + u64::from(memory)).saturating_sub(self.now.into());
        let is_refuted = memory <= self.now && self.seen.behind > self.seen.count / 8;
        if holds >= swapped && memory > 0 && !is_refuted {
            // Nothing is ever so old that it has to go on.
            return u64::MAX;
        }
        // Of pages that leave many have left before: fewer different ones than are counted. Of a loop none have, and none
        // of it is found before all of it is.
        let counted = holds + holds.saturating_mul(holds) / (2 * swapped).max(1);
        let counted = counted.min(swapped - swapped / 8).max(holds);
        (counted + self.less(memory)).saturating_sub(self.more(memory))
    }

    /// Pages for which there is room: as it is now, if that is full; else without an eighth, which is kept ahead, and what slabs
    /// take that have just begun.
    fn holds(&self, memory: u32) -> u64 {
        let (memory, now, pages) = (memory.into(), self.now.into(), u64::from(self.held.pages));
        let begun = u64::from(self.held.memory.saturating_sub(self.held.cells));
        let cautious = |memory: u64| (memory * 7 / 8).saturating_sub(begun) * self.ratio / 16;
        match pages >= cautious(now) {
            true => memory * pages / now.max(1),
            false => cautious(memory),
        }
    }
}

fn step(most: u32) -> u32 {
    (most / STEP_SHARE).max(STEP_MIN).min(most)
}

#[cfg(test)]
mod tests;
