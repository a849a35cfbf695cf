//! Records that nobody would write: every block whole, every number possible. Nothing panics, and what is drawn stays markup.
//!
//! As engine's tests/fuzz: seconds by default, USERSWAP_FUZZ_SECONDS=600 goes on for as long as that, USERSWAP_SEED repeats a run.
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, Instant};
use userswap_report::{Record, advice, draw, perfetto, words};
use userswap_trace::{
    Bucket, Call, DeviceSample, Event, Header, Kind, Mapping, Origin, Pages, Reader, RecordHeader,
    Sample, Writer,
};

/// Records where no time is given.
const RECORDS: u64 = 300;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 11) % bound
    }

    /// Small, large, or at an edge.
    fn number(&mut self) -> u64 {
        match self.below(4) {
            0 => self.below(1000),
            1 => self.next(),
            2 => [0, 1, u64::MAX, u64::MAX - 1, 1 << 63, 1 << 32][self.below(6) as usize],
            _ => self.below(1 << 30),
        }
    }

    fn name(&mut self) -> String {
        let names = ["", "mem", "</svg><script>x()</script>", "\"&\u{1b}[2J\n", "日本", "a b=c"];
        names[self.below(6) as usize].to_owned()
    }

    fn some<T>(&mut self, most: u64, mut one: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.below(most + 1)).map(|_| one(self)).collect()
    }

    fn event(&mut self) -> Event {
        let kind = Kind::ALL[self.below(10) as usize];
        let count = if kind.is_fault() { 1 } else { 1 + self.below(300) as u32 };
        let near = self.below(3000) as u32;
        let first = if self.below(20) == 0 { u32::MAX - 400 - near } else { near };
        Event { kind, first, count }
    }

    fn device(&mut self) -> DeviceSample {
        DeviceSample {
            name: self.name(),
            used_pages: self.number(),
            read_bytes: self.number(),
            written_bytes: self.number(),
            busy_ns: self.number(),
            ..DeviceSample::default()
        }
    }

    fn mapping(&mut self) -> Mapping {
        let (first, count) = (self.next() as u32, self.next() as u32);
        Mapping { first, count, origin: self.below(4) as u32 }
    }

    fn call(&mut self) -> Call {
        Call { object: self.below(4) as u32, offset: self.number() }
    }

    fn origin(&mut self) -> Origin {
        let name = if self.below(2) == 0 { self.name() } else { String::new() };
        Origin { name, calls: self.some(3, Self::call) }
    }

    fn sample(&mut self) -> Sample {
        Sample {
            pages: Pages {
                budget: self.number(),
                resident: self.number(),
                cached: self.number(),
                ..Pages::default()
            },
            counters: self
                .some(4, |random| {
                    let names = [
                        "pgfault",
                        "pswpin",
                        "swap_ra",
                        "swap_ra_wasted",
                        "pgsteal_direct",
                        "forks",
                    ];
                    (names[random.below(6) as usize].to_owned(), random.number())
                })
                .into_iter()
                .collect(),
            fault_latency: self
                .some(4, |random| Bucket { below_ns: random.number(), faults: random.number() }),
            fault_ns: self.number(),
            stall_ns: self.number(),
            devices: self.some(3, Self::device),
            settings: [(self.name(), self.name())].into(),
            mappings: (self.below(2) == 0).then(|| self.some(5, Self::mapping)),
            objects: self.some(2, Self::name),
            origins: self.some(3, Self::origin),
            cpu_ms: self.number(),
            user_ms: self.number(),
            exec: self.name(),
        }
    }

    fn record(&mut self) -> Vec<u8> {
        let said = RecordHeader { command: self.name(), address: self.number(), cpus: 4 };
        let header = Header {
            program: self.name(),
            page_bytes: 4096,
            budget_pages: self.number() as u32,
            pages: u32::MAX,
            record: Some(said),
            ..Header::default()
        };
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, &header).unwrap();
        for _ in 0..self.below(8) {
            for event in self.some(200, Self::event) {
                assert!(!writer.push(event));
            }
            let (sample, at_ms) = (self.sample(), self.number());
            writer.sample(sample, at_ms).unwrap();
        }
        if self.below(4) > 0 {
            writer.end(9).unwrap();
        }
        bytes
    }
}

fn look_at(bytes: &[u8]) {
    let reader = Reader::new("a.record".into(), bytes).unwrap_or_else(|bad| panic!("{bad}"));
    let record = Record::read(reader).unwrap_or_else(|bad| panic!("{bad}"));
    for text in [draw::html(&record), draw::svg(&record), draw::html_compared(&record, &record)] {
        assert!(!text.contains("<script") && !text.contains('\u{1b}') && !text.contains("NaN"));
        assert_eq!(text.matches("<svg").count(), text.matches("</svg>").count());
    }
    for line in words::findings(&record).into_iter().chain([words::verdict(&record, &record)]) {
        assert_eq!(line.lines().count(), 1, "{line:?}");
    }
    for pair in advice::table(&record).windows(2) {
        assert!(pair[0].budget < pair[1].budget && pair[0].reads >= pair[1].reads, "{pair:?}");
    }
    let mut events = Vec::new();
    perfetto::write(&record, &mut events).unwrap();
    serde_json::from_slice::<serde_json::Value>(&events).unwrap();
}

#[test]
fn whatever_a_record_says_is_read_drawn_and_told() {
    let given = std::env::var("USERSWAP_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| RandomState::new().build_hasher().finish());
    println!("USERSWAP_SEED={seed}");
    let seconds = std::env::var("USERSWAP_FUZZ_SECONDS").ok();
    let seconds: Option<u64> = seconds.map(|text| text.parse().expect("a number of seconds"));
    let end = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let (mut random, mut records) = (Random(seed | 1), 0);
    while end.map_or(records < RECORDS, |end| Instant::now() < end) {
        look_at(&random.record());
        records += 1;
    }
}
