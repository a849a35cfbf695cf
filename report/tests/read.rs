//! Records whose numbers are known: what is read from them, and said.
use userswap_report::{Record, advice, words};
use userswap_trace::{Event, Header, Kind, Pages, Reader, RecordHeader, Sample, Writer};

/// A record with these samples, a second apart, each after a page that left and came back.
fn written(samples: impl IntoIterator<Item = Sample>) -> Vec<u8> {
    let header = Header {
        program: "job".into(),
        page_bytes: 4096,
        budget_pages: 4096,
        pages: 1 << 20,
        record: Some(RecordHeader::default()),
        ..Header::default()
    };
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, &header).unwrap();
    for (second, sample) in (0..).zip(samples) {
        for kind in [Kind::Left, Kind::Read, Kind::Back] {
            assert!(!writer.push(Event { kind, first: 7, count: 1 }));
        }
        writer.sample(sample, second * 1000).unwrap();
    }
    writer.end(9000).unwrap();
    bytes
}

fn read(bytes: &[u8]) -> Record {
    let reader = Reader::new("a.record".into(), bytes).unwrap_or_else(|bad| panic!("{bad}"));
    Record::read(reader).unwrap_or_else(|bad| panic!("{bad}"))
}

fn fact(record: &Record, name: &str) -> Option<String> {
    words::facts(record).into_iter().find(|(what, _)| *what == name).map(|(_, said)| said)
}

fn sample(cpu_ms: u64, user_ms: u64) -> Sample {
    let pages = Pages { budget: 4096, resident: 4000, ..Pages::default() };
    Sample { pages, cpu_ms, user_ms, ..Sample::default() }
}

#[test]
fn cpu_time_from_before_the_record_is_no_part_of_it() {
    let times = [(120_000, 119_000), (121_000, 119_200), (124_000, 120_000)];
    let record = read(&written(times.map(|(cpu, user)| sample(cpu, user))));
    let time = fact(&record, "time").unwrap();
    assert_eq!(time, "2.00 s since it outgrew its budget, 4.00 s of CPU");
    // Of two seconds without waiting a quarter was outside the kernel.
    assert!((advice::native_s(&record) - 0.5).abs() < 1e-9, "{}", advice::native_s(&record));
    let rows = words::compared(&record, &record);
    let row = rows.iter().find(|row| row[0] == "CPU seconds").unwrap();
    assert_eq!(&row[1..], ["4.00", "4.00", "1.00"]);
}

#[test]
fn a_record_that_is_cut_is_read_up_to_there_and_says_so() {
    let bytes = written((0..5).map(|number| sample(number, number)));
    let whole = read(&bytes);
    assert!(whole.has_ended && fact(&whole, "cut").is_none());
    // The end is 36 bytes.
    let cut = read(&bytes[..bytes.len() - 40]);
    assert!(!cut.has_ended && cut.moments.len() == 4, "{}", cut.moments.len());
    let at = cut.cut_at.unwrap();
    assert!(fact(&cut, "cut").unwrap().starts_with(&format!("at byte {at}, ")));
    assert_eq!(advice::Doubt::about(&cut), advice::Doubt::NoEnd);
    // Nor does the end of a block that is whole tell an end.
    let at_block = read(&bytes[..at as usize]);
    assert!(!at_block.has_ended && at_block.cut_at.is_none());
}
