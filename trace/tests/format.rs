//! The format there and back, and every way to break a file.
use proptest::prelude::*;
use std::io::{self, Write};
use userswap_trace::{
    BadTrace, Bucket, DeviceSample, Event, Header, Kind, Mapping, RUN_MAX, Reader, RecordHeader,
    Recording, Sample, Use, Writer,
};

fn header() -> Header {
    Header {
        program: "a \"program\"\nof two lines".into(),
        pid: 4711,
        page_bytes: 4096,
        budget_pages: 4096,
        pages: u32::MAX,
        fault: "thread".into(),
        transfer: "move".into(),
        readahead: "off".into(),
        forked: true,
        record: None,
    }
}

/// Writes blocks, with what was lost before each.
fn written(blocks: &[(u64, Vec<Event>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, &header()).unwrap();
    for (at_ms, (lost, events)) in (0..).zip(blocks) {
        writer.note_lost(*lost);
        for event in events {
            if writer.push(*event) {
                writer.flush(at_ms).unwrap();
            }
        }
        writer.flush(at_ms).unwrap();
    }
    writer.end(blocks.len() as u64).unwrap();
    bytes
}

struct Read {
    header: Header,
    events: Vec<Event>,
    lost: u64,
    has_ended: bool,
    cut_at: Option<u64>,
}

fn read(bytes: &[u8]) -> Result<Read, BadTrace> {
    let mut reader = Reader::new("a.trace".into(), bytes)?;
    let (mut events, mut lost) = (Vec::new(), 0);
    while let Some(block) = reader.next_block()? {
        events.extend(block.events);
        lost += block.lost;
    }
    let (has_ended, cut_at) = (reader.has_ended(), reader.cut_at());
    Ok(Read { header: reader.header().clone(), events, lost, has_ended, cut_at })
}

fn any_event() -> impl Strategy<Value = Event> {
    let first = prop_oneof![0..200u32, any::<u32>().prop_map(|page| page.min(u32::MAX - 1))];
    let count = prop_oneof![1..300u32, 1..=RUN_MAX];
    (0..Kind::ALL.len(), first, count).prop_map(|(kind, first, count)| {
        let kind = Kind::ALL[kind];
        let count = if kind.is_fault() { 1 } else { count.min(u32::MAX - first) };
        Event { kind, first, count }
    })
}

proptest! {
    #[test]
    fn every_trace_reads_back_as_it_was_written(
        blocks in prop::collection::vec((0..3u64, prop::collection::vec(any_event(), 0..60)), 0..6)
    ) {
        let all: Vec<Event> = blocks.iter().flat_map(|block| block.1.clone()).collect();
        let read = read(&written(&blocks)).unwrap();
        prop_assert_eq!((read.header, read.has_ended), (header(), true));
        prop_assert_eq!(read.lost, blocks.iter().map(|block| block.0).sum::<u64>());
        prop_assert_eq!(read.events, all);
    }

    #[test]
    fn every_event_is_a_number_and_back(event in any_event()) {
        prop_assert_ne!(event.to_bits(), 0);
        prop_assert_eq!(Event::from_bits(event.to_bits()), Some(event));
    }

    #[test]
    fn what_is_no_trace_gets_one_line(bytes in prop::collection::vec(any::<u8>(), 0..200), has_header: bool) {
        let mut file = if has_header { written(&[])[..written(&[]).len() - 36].to_vec() } else { Vec::new() };
        file.extend(bytes);
        match read(&file) {
            Err(bad) => prop_assert!(!bad.to_string().contains('\n'), "{}", bad),
            Ok(read) => {
                let at_end = written(&[]).len() - 36;
                let cut_at = (file.len() > at_end).then_some(at_end as u64);
                prop_assert!(has_header && read.events.is_empty() && !read.has_ended);
                prop_assert_eq!(read.cut_at, cut_at);
            }
        }
    }
}

/// A sequence of faults that one page in eight breaks off, and reclaim: what a program makes.
fn usual() -> Vec<(u64, Vec<Event>)> {
    let blocks = (0..3u32).map(|block| {
        let events = (0..400u32).flat_map(move |index| {
            let page = block * 1000 + index * 7 % 400;
            let left = Event { kind: Kind::Left, first: page + 5000, count: 1 + index % 9 };
            [Event::fault(Kind::Read, page), left]
        });
        (u64::from(block), events.collect())
    });
    blocks.collect()
}

#[test]
fn a_file_that_is_cut_anywhere_is_read_up_to_its_last_whole_block() {
    let bytes = written(&usual());
    let whole = read(&bytes).unwrap().events;
    let header = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    for length in 0..header {
        let line = read(&bytes[..length]).err().unwrap().to_string();
        assert!(line.starts_with("a.trace: is no trace") && !line.contains('\n'), "{line}");
    }
    let (mut at_a_block, mut last) = (Vec::new(), 0);
    for length in header..bytes.len() {
        let read = read(&bytes[..length]).unwrap();
        assert!(!read.has_ended && whole.starts_with(&read.events), "{length}");
        match read.cut_at {
            Some(at) => assert_eq!((at, read.events.len()), (*at_a_block.last().unwrap(), last)),
            None => {
                at_a_block.push(length as u64);
                last = read.events.len();
            }
        }
    }
    assert_eq!(at_a_block.len(), 4, "after the header, and after each block");
    assert_eq!(last, whole.len());
}

/// A disk with so much room.
struct Disk {
    bytes: Vec<u8>,
    room: usize,
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match bytes.len().min(self.room - self.bytes.len()) {
            0 => Err(io::ErrorKind::StorageFull.into()),
            fitting => self.bytes.write(&bytes[..fitting]),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn who_writes_on_a_full_disk_knows_where_the_last_whole_block_ends() {
    let blocks = usual();
    let all = written(&blocks).len();
    for room in [all - 1, all - 36, all - 37, all - 100] {
        let disk = Disk { bytes: Vec::new(), room };
        let mut writer = Writer::new(disk, &header()).unwrap();
        let mut write = || {
            for (at_ms, events) in &blocks {
                assert!(!events.iter().any(|event| writer.push(*event)));
                writer.flush(*at_ms)?;
            }
            writer.end(0)
        };
        assert_eq!(write().unwrap_err().kind(), io::ErrorKind::StorageFull);
        let whole = &writer.target().bytes[..writer.whole_bytes() as usize];
        let read = read(whole).unwrap();
        assert!(!read.has_ended && read.cut_at.is_none() && !read.events.is_empty(), "{room}");
    }
}

#[test]
fn whether_a_file_is_a_trace_is_told_by_how_it_begins() {
    let directory = std::env::temp_dir().join(format!("userswap-trace-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let file = directory.join("a trace");
    let is_one = |bytes: &[u8]| {
        std::fs::write(&file, bytes).unwrap();
        userswap_trace::is_trace(&file)
    };
    let trace = written(&[]);
    assert!(is_one(&trace) && is_one(&of_version(9, &trace)) && is_one(&trace[..40]));
    assert!(!is_one(b"") && !is_one(b"userswap-tracing\n") && !is_one(b"{}"));
    assert!(!userswap_trace::is_trace(&directory));
    std::fs::remove_dir_all(&directory).unwrap();
    assert!(!userswap_trace::is_trace(&file));
}

#[test]
fn a_byte_that_is_damaged_anywhere_is_found() {
    let bytes = written(&usual());
    let whole = read(&bytes).unwrap();
    for at in 0..bytes.len() {
        for flip in [1, 0x80] {
            let mut damaged = bytes.clone();
            damaged[at] ^= flip;
            match read(&damaged) {
                // The text of the header's fields is believed.
                Ok(read) => {
                    assert!(read.header != whole.header || read.cut_at.is_some(), "byte {at}")
                }
                Err(bad) => assert_eq!(bad.to_string().lines().count(), 1, "byte {at}"),
            }
        }
    }
}

#[test]
fn another_version_and_what_follows_the_end_are_named() {
    let bytes = written(&usual());
    let refusal = read(&of_version(5, &bytes)).err().unwrap().to_string();
    assert!(refusal.contains("version \"5\"") && refusal.contains("reads 1 to 4"), "{refusal}");
    let refusal = read(&of_version(2, &bytes)).err().unwrap().to_string();
    assert!(refusal.contains("its header is damaged"), "{refusal}");
    let refusal = read(&[&bytes[..], b"x"].concat()).err().unwrap().to_string();
    assert!(refusal.contains("goes on after its end"), "{refusal}");
}

fn sample(number: u64) -> Sample {
    Sample {
        counters: [("pgfault".to_owned(), number)].into(),
        fault_latency: vec![Bucket { below_ns: 1000, faults: number }],
        devices: vec![DeviceSample { used_pages: number, ..DeviceSample::default() }],
        mappings: (number == 1).then(|| vec![Mapping { first: 7, count: 5, origin: 2 }]),
        ..Sample::default()
    }
}

fn record(samples: impl Iterator<Item = Sample>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let header = Header { record: Some(RecordHeader::default()), ..header() };
    let mut writer = Writer::new(&mut bytes, &header).unwrap();
    for (at_ms, sample) in (0..).zip(samples) {
        for page in 0..100 {
            assert!(!writer.push(Event::fault(Kind::Read, page)));
        }
        writer.sample(sample, at_ms).unwrap();
    }
    writer.end(9).unwrap();
    bytes
}

#[test]
fn a_record_has_its_samples_after_the_events_before_them() {
    let bytes = record((0..3).map(sample));
    let mut reader = Reader::new("a.record".into(), &bytes[..]).unwrap();
    for number in 0..3 {
        let events = reader.next_block().unwrap().unwrap();
        assert_eq!((events.events.len(), events.at_ms, events.sample), (100, number, None));
        let block = reader.next_block().unwrap().unwrap();
        assert_eq!((block.sample.as_deref(), block.at_ms), (Some(&sample(number)), number));
        assert!(block.events.is_empty());
    }
    assert_eq!(reader.next_block().unwrap(), None);
    assert!(reader.has_ended());
    // What reads traces reads records.
    let recording = Recording::read(Reader::new("a.record".into(), &bytes[..]).unwrap()).unwrap();
    assert_eq!((recording.pages, recording.events[Kind::Read as usize - 1]), (100, 300));
}

#[test]
fn a_sample_whose_names_do_not_fit_keeps_its_numbers() {
    let mut big = sample(5);
    big.devices[0].name = "a".repeat(200_000);
    let bytes = record([big].into_iter());
    let mut reader = Reader::new("a.record".into(), &bytes[..]).unwrap();
    reader.next_block().unwrap();
    assert_eq!(reader.next_block().unwrap().unwrap().sample.as_deref(), Some(&sample(5)));
}

#[test]
fn a_byte_of_a_record_that_is_damaged_is_found() {
    let bytes = record((0..3).map(sample));
    let header = bytes.iter().position(|byte| *byte == b'\n').unwrap();
    for at in header..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        match read(&damaged) {
            // A length beyond the end of the file.
            Ok(read) => assert!(read.cut_at.is_some() && !read.has_ended, "byte {at}"),
            Err(bad) => assert_eq!(bad.to_string().lines().count(), 1, "{bad}"),
        }
    }
}

#[test]
fn an_event_takes_few_bytes() {
    let events: usize = usual().iter().map(|block| block.1.len()).sum();
    let bytes = written(&usual()).len();
    assert!(bytes < 3 * events, "{bytes} bytes for {events} events");
}

#[test]
fn uses_are_faults_and_runs_that_came_new() {
    let run = |kind, first, count| Event { kind, first, count };
    let events = vec![
        run(Kind::Fresh, 70, 3),
        Event::fault(Kind::FirstTouch, 70),
        run(Kind::Left, 70, 3),
        Event::fault(Kind::Read, 72),
        run(Kind::Back, 70, 3),
        run(Kind::Dropped, 69, 3),
        run(Kind::Fresh, 70, 1),
        Event::fault(Kind::FirstTouch, 70),
        Event::fault(Kind::SecondChance, 72),
        Event::fault(Kind::Nothing, 5),
        Event::fault(Kind::Written, 70),
    ];
    let bytes = written(&[(0, events), (7, Vec::new())]);
    let recording = Recording::read(Reader::new("a.trace".into(), &bytes[..]).unwrap()).unwrap();
    let (access, drop) = (Use::Access, Use::Drop);
    let uses = [access(0), access(1), access(2), drop(0), drop(1), access(0), access(2), access(0)];
    assert_eq!((&recording.uses[..], recording.pages, recording.lost), (&uses[..], 3, 7));
    assert_eq!(recording.accesses(), (vec![0, 1, 2, 3, 2, 3], 5));
    assert_eq!(recording.events, [2, 1, 1, 0, 0, 1, 2, 1, 1, 1, 1]);
}

/// A file with another number for its version.
fn of_version(version: u32, bytes: &[u8]) -> Vec<u8> {
    let fields = bytes.iter().position(|byte| *byte == b'{').unwrap();
    [format!("userswap-trace {version} ").as_bytes(), &bytes[fields..]].concat()
}

#[test]
fn files_from_before_first_writes_were_told_are_read_and_other_versions_are_refused() {
    let (trace, record) = (written(&usual()), record((0..3).map(sample)));
    for (bytes, numbers) in [(&trace, [1, 3]), (&record, [2, 4])] {
        let newest = read(bytes).unwrap();
        for version in 0..7 {
            let found = read(&of_version(version, bytes));
            assert_eq!(found.is_ok(), numbers.contains(&version), "version {version}");
            found.iter().for_each(|found| assert_eq!(found.events, newest.events));
        }
    }
    assert!(userswap_trace::recorded::NUMPY_SORT.starts_with(b"userswap-trace 1 "));
}
