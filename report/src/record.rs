//! A record, read once from its start to its end.
use crate::access::Access;
use crate::curve::{Curve, Ram};
use crate::mappings::{Cost, Costs};
use crate::moments::{Moment, Moments, add};
use crate::origins::Origins;
use std::collections::BTreeMap;
use std::io::BufRead;
use std::path::Path;
use userswap_trace::{BadTrace, Event, Header, Kind, Reader, Sample};

/// Sums over a whole record.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Counters by name.
    pub counters: BTreeMap<String, u64>,
    /// Faults by the bound of their time.
    pub fault_latency: BTreeMap<u64, u64>,
    /// Nanoseconds of all faults together.
    pub fault_ns: u64,
    /// Nanoseconds in which at least one thread waited.
    pub stall_ns: u64,
    /// Bytes read from all devices.
    pub read_bytes: u64,
    /// Bytes written to all devices.
    pub written_bytes: u64,
    /// Nanoseconds in which the busiest device had a request under way.
    pub busy_ns: u64,
    /// The most pages that were in RAM or on devices at one moment.
    pub pages_max: u64,
    /// Milliseconds of CPU time since the first sample.
    pub cpu_ms: u64,
    /// Of it, outside the kernel.
    pub user_ms: u64,
    /// Both as they were at the first sample: what the process had used before.
    before_ms: Option<[u64; 2]>,
}

/// What a record has.
#[derive(Debug)]
pub struct Record {
    /// What was recorded.
    pub header: Header,
    /// Samples, in their order; several are one moment where there are very many.
    pub moments: Vec<Moment>,
    /// Sums over all of them.
    pub totals: Totals,
    /// What larger budgets would have read.
    pub curve: Curve,
    /// Where and when faults were.
    pub access: Access,
    /// What mappings cost, the dearest first.
    pub costs: Vec<Cost>,
    /// What pages cost that were in no mapping that was sampled.
    pub unknown_cost: Cost,
    /// Where mappings come from, in words, by number from 1 on.
    pub origins: Vec<String>,
    /// Events that are missing.
    pub lost: u64,
    /// False if the program was killed or became another, or if the file is not whole.
    pub has_ended: bool,
    /// Where a file ends that has a part of a block at its end.
    pub cut_at: Option<u64>,
}

impl Record {
    /// Reads a file, and looks for names of functions in those of the program.
    ///
    /// # Errors
    /// It cannot be read, or is no record, or damaged: one line.
    pub fn open(path: &Path) -> Result<Self, String> {
        Reader::open(path).map_err(|bad| bad.to_string()).and_then(|reader| {
            let is_record = reader.header().record.is_some();
            let record = is_record.then(|| {
                Self::whole(reader, Origins::words_with_functions).map_err(|bad| bad.to_string())
            });
            record.unwrap_or_else(|| {
                let file = path.display();
                Err(format!("{file}: is a trace without samples: name a file of run --record"))
            })
        })
    }

    /// Reads to the end.
    ///
    /// # Errors
    /// The file is damaged.
    pub fn read<R: BufRead>(reader: Reader<R>) -> Result<Self, BadTrace> {
        Self::whole(reader, Origins::words)
    }

    fn whole<R: BufRead>(
        mut reader: Reader<R>,
        words: fn(&Origins) -> Vec<String>,
    ) -> Result<Self, BadTrace> {
        let header = reader.header().clone();
        let mut looks = Looks::new(header.budget_pages.into());
        while let Some(block) = reader.next_block()? {
            looks.lost += block.lost;
            looks.waiting.extend(block.events);
            looks.at_ms = block.at_ms;
            if let Some(sample) = block.sample {
                looks.take_sample(*sample);
            } else if looks.waiting.len() > WAITING_MAX {
                looks.take_events();
            }
        }
        looks.take_events();
        let Looks { moments, totals, curve, access, costs, origins, lost, .. } = looks;
        let origins = words(&origins);
        Ok(Self {
            header,
            moments: moments.into_vec(),
            totals,
            curve,
            access,
            unknown_cost: costs.unknown,
            costs: costs.ranked(&origins),
            origins,
            lost,
            has_ended: reader.has_ended(),
            cut_at: reader.cut_at(),
        })
    }

    /// Milliseconds that it covers.
    pub fn duration_ms(&self) -> u64 {
        self.moments.last().map_or(0, |moment| moment.at_ms)
    }

    /// A counter's sum.
    pub fn counter(&self, name: &str) -> u64 {
        self.totals.counters.get(name).copied().unwrap_or(0)
    }

    /// The program that the process became by exec.
    pub fn became(&self) -> Option<&str> {
        // After one that failed the record goes on.
        let last = self.moments.last().filter(|_| !self.has_ended);
        last.map(|moment| moment.sample.exec.as_str()).filter(|program| !program.is_empty())
    }

    /// The budget that it ended with.
    pub fn budget_pages(&self) -> u64 {
        let last = self.moments.last().map(|moment| moment.sample.pages.budget);
        // No engine has more.
        last.unwrap_or(self.header.budget_pages.into()).min(u32::MAX.into())
    }

    /// The share of the time for which at least one thread waited.
    pub fn stalled(&self) -> f64 {
        self.totals.stall_ns as f64 / (self.duration_ms().max(1) as f64 * 1e6)
    }
}

/// Events that wait for the sample after them, which says what was mapped, at most.
const WAITING_MAX: usize = 1 << 20;

/// Pages that leave or come back in one run, at most: many times what the engine does.
const RUN_MAX: u32 = 1 << 20;

/// What grows as a record is read.
#[derive(Default)]
struct Looks {
    moments: Moments,
    /// Of the last block.
    at_ms: u64,
    totals: Totals,
    curve: Curve,
    access: Access,
    costs: Costs,
    origins: Origins,
    lost: u64,
    ram: Ram,
    waiting: Vec<Event>,
}

impl Looks {
    fn new(budget: u64) -> Self {
        Self { ram: Ram { budget, cached: 0 }, ..Self::default() }
    }

    fn take_sample(&mut self, mut sample: Sample) {
        self.origins.take(&mut sample);
        if let Some(mappings) = sample.mappings.take() {
            self.costs.set(mappings);
        }
        self.ram = Ram { budget: sample.pages.budget, cached: sample.pages.cached };
        self.take_events();
        self.totals.add(&sample);
        self.moments.push(Moment { at_ms: self.at_ms, sample });
    }

    fn take_events(&mut self) {
        for event in std::mem::take(&mut self.waiting) {
            self.take_event(event);
        }
    }

    fn take_event(&mut self, event: Event) {
        let pages = event.first..=event.first + (event.count.min(RUN_MAX) - 1);
        match event.kind {
            Kind::Left => pages.for_each(|page| self.curve.left(page)),
            Kind::Fresh | Kind::Dropped => self.curve.dropped(event.first, event.count),
            Kind::Back => pages.for_each(|page| {
                self.curve.back(page, self.ram);
                self.costs.of(page).back += 1;
            }),
            Kind::Read => {
                self.costs.of(event.first).faults += 1;
                self.access.add(self.at_ms, event.first);
            }
            Kind::FirstTouch | Kind::SecondChance => self.access.add(self.at_ms, event.first),
            Kind::Waited | Kind::Present | Kind::Nothing | Kind::Written => {}
        }
    }
}

impl Totals {
    fn add(&mut self, sample: &Sample) {
        for (name, growth) in &sample.counters {
            add(self.counters.entry(name.clone()).or_default(), *growth);
        }
        for bucket in &sample.fault_latency {
            add(self.fault_latency.entry(bucket.below_ns).or_default(), bucket.faults);
        }
        add(&mut self.fault_ns, sample.fault_ns);
        add(&mut self.stall_ns, sample.stall_ns);
        for device in &sample.devices {
            add(&mut self.read_bytes, device.read_bytes);
            add(&mut self.written_bytes, device.written_bytes);
        }
        let busiest = sample.devices.iter().map(|device| device.busy_ns).max();
        add(&mut self.busy_ns, busiest.unwrap_or(0));
        let used = sample.devices.iter().map(|device| device.used_pages);
        self.pages_max = self.pages_max.max(used.fold(sample.pages.resident, u64::saturating_add));
        let [cpu, user] = *self.before_ms.get_or_insert([sample.cpu_ms, sample.user_ms]);
        self.cpu_ms = sample.cpu_ms.saturating_sub(cpu);
        self.user_ms = sample.user_ms.saturating_sub(user);
    }

    /// The time below which a share of the faults stayed, by the bound of its bucket.
    pub fn latency_ns(&self, share: f64) -> u64 {
        let all =
            self.fault_latency.values().fold(0, |sum: u64, faults| sum.saturating_add(*faults));
        let (mut seen, wanted) = (0u64, (all as f64 * share).ceil() as u64);
        let reached = self.fault_latency.iter().find(|(_, faults)| {
            add(&mut seen, **faults);
            seen >= wanted
        });
        reached.map_or(0, |(below, _)| *below)
    }
}
