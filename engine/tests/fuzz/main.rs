//! Whatever is read from outside, fed with what nobody would write: no panic, nothing accepted that cannot be written down
//! and read again, every refusal one line.
//!
//! How inputs are made, and how long it takes: `feed.rs`.
mod feed;
mod mutate;

use feed::{Verdict, fuzz, one_line};
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use userswap::internals::codec::Codecs;
use userswap::internals::compression::{Algorithm, Compression};
use userswap::internals::protocol::Request;
use userswap::internals::{Options, PAGE_BYTES};
use userswap::internals::{open, settings};
use userswap::{Builder, ByteSize, SwapSpec, parse_size};

#[test]
fn sizes() {
    let corpus =
        ["1", "512M", "1.5G", "0.5K", "1T", "16777216", "1e9", "4KiB", "18446744073709551615"];
    fuzz(&corpus, &["K", "M", "G", "T", "iB", ".", "-", "+", "0", "9999999999", "e"], |input| {
        let Ok(text) = std::str::from_utf8(input) else { return Verdict::Refused };
        match parse_size(text) {
            Ok(bytes) => {
                assert_eq!(parse_size(&ByteSize(bytes).to_string()), Ok(bytes));
                assert!(text.starts_with(|c: char| c.is_ascii_digit() || c == '.'), "{text}");
                Verdict::Accepted
            }
            Err(refusal) => {
                one_line(refusal);
                Verdict::Refused
            }
        }
    });
}

/// Devices that are accepted.
const DEVICES: &[&str] = &[
    "/var/tmp:1G,pri=3,node=1",
    "mem:64M,throttle=100:50,latency=20",
    "/var/tmp:1G,pri=3,encrypt",
    "faulty:mem:1G,read=0.001,write=0.01,bad=0.1,torn=1,flip=0.5,short=0.25,seed=7",
    "faulty:/a:b,late=0.5:10,error=ETIMEDOUT,outage=3:4,full=5,gone=6",
    "zram:1G,algo=zstd,level=-1,pri=5",
    "zram:1G,algo=zstd,level=auto",
    "zram:1G,recompress=3:600,tier=0",
    "/dev/disk/by-path/pci-0000:00:1f.2-ata-1",
    "/a,b=c/d",
    "/var/tmp:1536M,pri=7,tier=2,node=1",
    "redis://me@[::1]:7000,b.example:7001/job-1:8G,lease=60,copies=2,tier=1,encrypt",
    "rediss://me@b.example=10.0.0.7:7000,c=[::1]:6379/a,lease=60,cacert=/a b/ca.pem,cert=/b,key=/c",
    "s3://bucket/job:64G,endpoint=https://s3.example:9000,region=eu-1,segment=8M,lease=600,cacert=/ca.pem,tier=2",
];

/// What stands in them.
const DEVICE_WORDS: &[&str] = &[
    "faulty:",
    "mem:",
    "zram:",
    ",algo=lz4",
    ",level=",
    ",recompress=",
    ",pri=",
    ",node=",
    ",read=",
    ",late=",
    ",outage=",
    ",seed=",
    ",tier=",
    ",encrypt",
    "redis://",
    "rediss://",
    "s3://",
    ",endpoint=http://",
    ",segment=",
    ",lease=",
    ",copies=",
    ",cacert=",
    "[::1]",
    "@",
    ",error=EIO",
    ":",
    ",",
    "=",
    "/",
    "1G",
    "0.1",
    "0.000001",
    "\n",
    "é",
    "4294967296",
    "18446744073709551616",
];

#[test]
fn devices() {
    fuzz(DEVICES, DEVICE_WORDS, |input| {
        let Ok(text) = std::str::from_utf8(input) else { return Verdict::Refused };
        match text.parse::<SwapSpec>() {
            Ok(spec) => {
                let written = spec.to_string();
                assert_eq!(written.parse().as_ref(), Ok(&spec), "{written:?}");
                assert!(!written.contains(|c: char| c.is_control()), "{written:?}");
                Verdict::Accepted
            }
            Err(refusal) => {
                one_line(refusal);
                Verdict::Refused
            }
        }
    });
}

#[test]
fn options() {
    let mut all = Options::new(64 << 20);
    all.swaps = vec!["faulty:mem:64M,read=0.1,seed=1".parse().unwrap(), "/a:1G".parse().unwrap()];
    all.ram_by_node = vec![(0, 1 << 30)];
    all.fake_numa = Some(4);
    let all = all.to_text();
    let words = [
        "=",
        "\n",
        "ram=",
        "swap=",
        "fault=signal",
        "ram_of_node=0:1",
        "page_cluster=10",
        "-1",
        "\0",
    ];
    fuzz(&[&all, "ram=16777216\n"], &words, |input| {
        let Ok(text) = std::str::from_utf8(input) else { return Verdict::Refused };
        match Options::from_text(text) {
            Ok(options) => {
                assert_eq!(Options::from_text(&options.to_text()), Ok(options));
                Verdict::Accepted
            }
            Err(refusal) => {
                one_line(refusal);
                Verdict::Refused
            }
        }
    });
}

#[test]
fn requests() {
    let corpus = [
        r#"{"request":"status"}"#,
        r#"{"request":"set","key":"ram","value":"1G"}"#,
        r#"{"request":"swapon","spec":"/a:1G,pri=3"}"#,
        r#"{"request":"swapoff","path":"/a","readahead":"fixed"}"#,
    ];
    let words =
        ["{", "}", "[", "\"", ":", ",", "null", "\\u0000", "\\ud800", "1e999", "\u{ff}", "\n"];
    fuzz(&corpus, &words, |input| match Request::from_line(input) {
        Ok(request) => {
            assert_eq!(Request::from_line(&request.to_line()), Ok(request));
            Verdict::Accepted
        }
        Err(refusal) => {
            one_line(refusal);
            Verdict::Refused
        }
    });
}

/// What is set says how it is, and can be set so again; a refusal changes nothing.
#[test]
fn settings() {
    let engine = Builder::new(16 << 20).arena_bytes(64 << 20).swap("mem:32M".parse().unwrap());
    let engine = engine.build().expect("root, or a permitted userfaultfd");
    let core = engine.core();
    let shown = || settings::all(core).into_iter().map(|row| (row.key, row.value));
    let corpus: Vec<String> = shown().map(|(key, value)| format!("{key} {value}")).collect();
    let corpus: Vec<&str> = corpus.iter().map(String::as_str).collect();
    let words = [
        "0",
        "1",
        "16M",
        "auto",
        "-1",
        "1e3",
        "86400.0001",
        "stall",
        "\n",
        "\0",
        "4294967296",
        " ",
    ];
    fuzz(&corpus, &words, |input| {
        let Ok(text) = std::str::from_utf8(input) else { return Verdict::Refused };
        let (key, value) = text.split_once(' ').unwrap_or((text, ""));
        let before: Vec<_> = shown().collect();
        match settings::set(core, key, value) {
            Ok(is) if key == "hibernate" => {
                assert!(is.starts_with(value.trim()), "{value:?}: {is:?}");
                Verdict::Accepted
            }
            Ok(is) => {
                assert_eq!(settings::set(core, key, &is).as_ref(), Ok(&is), "{value:?}");
                Verdict::Accepted
            }
            Err(refusal) => {
                one_line(refusal);
                assert_eq!(shown().collect::<Vec<_>>(), before);
                Verdict::Refused
            }
        }
    });
}

/// The first page of a file: nothing but a whole mark in its place is ours to write over, and looking changes nothing.
#[test]
fn headers() {
    const PAGES: usize = 16;
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = directory.path().join("device");
    let file = fs::File::create_new(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let spec = SwapSpec::at(&path);
    // What is mutated is the end of the page, where the mark is.
    let corpus = ["SWAPSPACE2", "USERSWAP01", "SWAP-SPACE", "\0\0\0\0\0\0\0\0\0\0", "S1SUSPEND\0"];
    fuzz(&corpus, &["SWAP", "USER", "SPACE", "01", "2", "\0"], |input| {
        let mut page = vec![0xEE; PAGE_BYTES];
        let tail = &input[..input.len().min(64)];
        page[PAGE_BYTES - tail.len()..].copy_from_slice(tail);
        file.set_len((PAGES * PAGE_BYTES) as u64).unwrap();
        file.write_all_at(&page, 0).unwrap();
        let is_marked = page.ends_with(b"SWAPSPACE2") || page.ends_with(b"USERSWAP01");
        let outcome = open::check(&spec, 1 << 30);
        assert_eq!(outcome.is_ok(), is_marked, "{outcome:?}");
        let after = fs::read(&path).unwrap();
        assert!(after.len() == PAGES * PAGE_BYTES && after[..PAGE_BYTES] == page);
        outcome.map_or_else(
            |refusal| {
                one_line(refusal);
                Verdict::Refused
            },
            |_| Verdict::Accepted,
        )
    });
}

/// A page as lz4 would write it that takes only short steps: runs of one letter, copied from the letter before, and
/// letters at the end, where it wants five at least.
fn packed_page() -> String {
    "\x1ea\x01\x00".repeat(214) + "\x0f\x01\x00\x04" + "\x70abcdefg"
}

#[test]
fn compressed_pages() {
    const AROUND: usize = 64;
    let compressed = [Algorithm::Lz4, Algorithm::Zstd].map(|algorithm| {
        Codecs::new(Compression { algorithm, level: None, again: "3".parse().ok() }).unwrap()
    });
    let mut memory = vec![0x5a; AROUND + PAGE_BYTES + AROUND];
    // As it is, and as words whose bytes lie apart; by lz4, and by it where others are by zstd.
    let forms = ["\0", "\x01", "\x04", "\x05"].map(|form| form.to_owned() + &packed_page());
    fuzz(
        &forms.each_ref().map(String::as_str),
        &["\x1ea", "\x01\x00", "\x02", "\x03", "\x0f"],
        |input| {
            let fills = compressed.each_ref().map(|codecs| {
                let page = &mut memory[AROUND..AROUND + PAGE_BYTES];
                let fills = codecs.unpack(input, page);
                let (before, after) = (&memory[..AROUND], &memory[AROUND + PAGE_BYTES..]);
                assert!(
                    before.iter().chain(after).all(|byte| *byte == 0x5a),
                    "nothing else is touched"
                );
                fills
            });
            if fills.contains(&true) { Verdict::Accepted } else { Verdict::Refused }
        },
    );
}
