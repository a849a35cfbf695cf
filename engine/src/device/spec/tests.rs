use super::*;

fn spec(text: &str) -> SwapSpec {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refusal(text: &str) -> String {
    text.parse::<SwapSpec>().expect_err(text).to_string()
}

/// Texts with what their refusals name, and the remedy that these say in one line.
fn assert_refused(texts: &[(&str, &str, &str)]) {
    for (text, named, remedy) in texts {
        let refusal = refusal(text);
        assert!(refusal.contains(named) && refusal.contains(remedy), "{refusal}");
        assert_eq!(refusal.lines().count(), 1);
    }
}

#[test]
fn a_path_alone_leaves_everything_else_open() {
    assert_eq!(spec("/var/tmp"), SwapSpec::at("/var/tmp"));
}

#[test]
fn size_priority_and_node_are_read_in_any_order_of_options() {
    let all = SwapSpec {
        path: SwapPath::Path("/var/tmp".into()),
        size: Some(3 << 29),
        priority: Some(7),
        tier: Some(2),
        node: Some(1),
        throttle: None,
        faulty: None,
        encrypt: true,
    };
    assert_eq!(spec("/var/tmp:1.5G,pri=7,encrypt,tier=2,node=1"), all);
    assert_eq!(spec("/var/tmp:1.5G,tier=2,encrypt,node=1,pri=7"), all);
    assert_eq!(spec("mem:64M,pri=0").path, SwapPath::Memory);
    assert_eq!(spec("/a,pri=32767").priority, Some(32767));
}

#[test]
fn a_path_may_contain_colons_and_commas() {
    for path in [
        "/dev/disk/by-path/pci-0000:00:1f.2-ata-1",
        "/a:b",
        "/a,b",
        "/a,encrypt/",
        "/x,y=z/w",
        "./mem",
        "./ftp://a/b",
        "/a://b",
    ] {
        assert_eq!(spec(path), SwapSpec::at(path));
    }
    assert_eq!(spec("/a:b:2G").path, SwapPath::Path("/a:b".into()));
    assert_eq!(spec("/a:1G:2G").size, Some(2 << 30));
}

#[test]
fn printing_gives_the_canonical_text_back() {
    for text in [
        "/var/tmp",
        "/var/tmp:1536M,pri=7,node=1",
        "mem:64M",
        "/a:b,node=3",
        "zram:2G,pri=5,tier=0",
        "/a,tier=15,node=3,encrypt",
        "/a,b:4K",
        "mem:64M,node=1,throttle=1000:400,latency=20",
        "mem:64M,latency=20:60",
        "mem:64M,pri=3,latency=20:60,encrypt",
        "faulty:/a:b:64M,encrypt,flip=0.1,seed=0",
        "zram:2G",
        "zram:2G,algo=zstd,level=-1,pri=5,node=0",
        "zram:2G,recompress=3",
        "zram:2G,algo=zstd,level=1,recompress=-1:600,tier=0",
        "zram:2G,algo=zstd,level=auto,node=0",
        "faulty:zram:64M,algo=zstd,flip=0.5,seed=3",
        "faulty:mem:64M,seed=0",
        "faulty:/a:b:64M,pri=3,read=0.001,write=1,late=0.25:9,error=ENOMEM,outage=4:5,seed=7",
        "faulty:/a,bad=0.000001,torn=0.5,flip=0.1,short=0.2,full=8,gone=9,seed=18446744073709551615",
    ] {
        assert_eq!(spec(text).to_string(), text);
    }
    assert_eq!(spec("/a:1.5G,node=1,pri=2").to_string(), "/a:1536M,pri=2,node=1");
}

#[test]
fn tiers_are_given_to_all_devices_and_without_a_gap_or_to_none() {
    let check = |texts: &[&str]| {
        let specs: Vec<SwapSpec> = texts.iter().map(|text| spec(text)).collect();
        check_tiers(&specs).map_err(|error| error.to_string())
    };
    for fine in [
        &[][..],
        &["/a", "zram:1G,pri=3"],
        &["/a,tier=1", "zram:1G,tier=0", "/b,tier=1", "/c,tier=2"],
    ] {
        assert_eq!(check(fine), Ok(()));
    }
    for (texts, named, remedy) in [
        (&["/a,tier=0", "/b"][..], "\"/b\"", "tier=0 to the first, or none"),
        (&["/a,tier=1"], "\"/a,tier=1\"", "no swap device of tier 0"),
        (
            &["/a,tier=0", "/b,tier=3", "/c,tier=1"],
            "\"/b,tier=3\"",
            "of tier 2: number tiers from 0",
        ),
    ] {
        let refusal = check(texts).unwrap_err();
        assert!(refusal.contains(named) && refusal.contains(remedy), "{refusal}");
        assert_eq!(refusal.lines().count(), 1);
    }
}

#[test]
fn a_misspelt_size_is_not_taken_for_a_file_name() {
    for text in ["/tmp:12Q", "/tmp:0", "/tmp:-1", "/tmp:", "/tmp:5GBs", "mem:x", "zram:x"] {
        let refusal = refusal(text);
        assert!(refusal.starts_with(&format!("\"{text}\": ")), "{refusal}");
        assert!(refusal.contains("512M"), "{refusal}");
    }
}

#[test]
fn every_refusal_names_the_value_and_the_remedy() {
    assert_refused(&[
        ("", "\"\"", "PATH"),
        (":1G", "\":1G\"", "PATH"),
        (",pri=1", "\",pri=1\"", "PATH"),
        ("mem", "\"mem\"", "mem:512M"),
        ("zram", "\"zram\"", "zram:2G"),
        ("zram:1G:2G,algo=zstd", "zram:1G:2G", "zram:2G"),
        ("zram,algo=lz4", "\"zram,algo=lz4\"", "zram:2G"),
        ("mem:1G,algo=lz4", "algo=lz4", "pri=N"),
        ("/a,pri=-1", "pri=-1", "0 to 32767"),
        ("/a,pri=32768", "pri=32768", "0 to 32767"),
        ("/a,pri=", "pri=", "0 to 32767"),
        ("/a,node=1024", "node=1024", "0 to 1023"),
        ("/a,tier=16", "tier=16", "0 to 15"),
        ("/a,tier=-1", "tier=-1", "0 to 15"),
        ("/a,tier=1,tier=1", "tier", "once"),
        ("/a,ter=1", "ter=1", "tier=N"),
        ("mem:1G,throttle=0", "throttle=0", "above 0"),
        ("mem:1G,latency=5:x", "latency=5:x", "NEAR:FAR"),
        ("/a,prio=1", "prio=1", "pri=N"),
        ("/a,read=0.1", "read=0.1", "pri=N"),
        ("faulty:/a,reads=0.1", "reads=0.1", "outage=FIRST:COUNT"),
        ("faulty:/a,read=1.1", "read=1.1", "to 1"),
        ("faulty:/a,write=0", "write=0", "to 1"),
        ("faulty:/a,late=0.1:0", "late=0.1:0", "P:MS"),
        ("faulty:/a,error=EWHY", "error=EWHY", "ETIMEDOUT"),
        ("faulty:/a,gone=-1", "gone=-1", "whole number"),
        ("faulty:", "faulty:", "PATH"),
        ("/a,pri=1,pri=2", "pri", "once"),
        ("/a\nb", "\\n", "without"),
    ]);
}

#[test]
fn an_option_that_is_empty_or_lacks_its_value_is_no_part_of_the_size() {
    let empty = "empty option";
    assert_refused(&[
        ("zram:1G,", "\"zram:1G,\"", empty),
        ("zram:1G,,algo=lz4", "\"zram:1G,,algo=lz4\"", empty),
        ("zram:1G,pri=1,", "\"zram:1G,pri=1,\"", empty),
        ("mem:1G,", "\"mem:1G,\"", empty),
        ("redis://h/p:1G,", "\"redis://h/p:1G,\"", empty),
        ("/a:1G,", "\"/a:1G,\"", empty),
        ("/a:1G,,pri=1", "\"/a:1G,,pri=1\"", empty),
        ("/a,pri=1,", "\"/a,pri=1,\"", empty),
        ("zram:1G,recompress", "\"recompress\" needs a value", "recompress=LEVEL:SECONDS"),
        ("zram:1G,recompress=", "\"recompress=\" needs a value", "recompress=LEVEL:SECONDS"),
        ("zram:1G,algo", "\"algo\" needs a value", "algo=zstd"),
        ("zram:1G,level,algo=zstd", "\"level\" needs a value", "-7"),
        ("mem:1G,pri", "\"pri=\" needs a value", "0 to 32767"),
        ("mem:1G,fast", "unknown option \"fast\"", "pri=N"),
        ("redis://h/p:1G,lease", "\"lease", "lease=SECONDS"),
    ]);
    for path in ["/a,", "/a,b", "/a,pri", "./mem,pri"] {
        assert_eq!(spec(path), SwapSpec::at(path));
    }
}

#[test]
fn how_pages_are_compressed_is_refused_with_what_there_is() {
    assert_refused(&[
        ("zram:1G,algo=lzo", "algo=lzo", "algo=zstd"),
        ("zram:1G,algo=zstd,level=13", "level=13", "-7"),
        ("zram:1G,algo=lz4,algo=zstd", "algo", "once"),
        ("zram:1G,recompress=3,recompress=4", "recompress", "once"),
        ("zram:1G,recompress=zstd", "recompress=zstd", "recompress=LEVEL:SECONDS"),
        ("zram:1G,recompress=13", "recompress=13", "-7"),
        ("zram:1G,recompress=3:0", "recompress=3:0", "at least 1 s"),
        ("zram:1G,recompress=3:+5", "recompress=3:+5", "at least 1 s"),
        ("/a,recompress=3", "recompress=3", "pri=N"),
        ("zram:1G,size=3", "size=3", "level=N"),
    ]);
}

#[test]
fn what_means_nothing_there_is_refused_with_what_is_meant() {
    assert_refused(&[
        ("zram:1G,level=3", "\"level=3\" needs algo=zstd", "leave it out"),
        ("zram:1G,algo=lz4,level=3", "\"level=3\" needs algo=zstd", "leave it out"),
        ("file:///a", "\"file://\"", "./file://"),
    ]);
}

#[test]
fn what_looks_like_encrypt_is_never_a_file_that_is_not() {
    assert_refused(&[
        ("zram:1G,encrypt", "zram:1G,encrypt", "leave"),
        ("/a,encrypted", "encrypted", "node=N, encrypt,"),
        ("/a,Encrypt", "Encrypt", "node=N, encrypt,"),
        ("/a,encrypt=no", "encrypt=no", "node=N, encrypt,"),
        ("/a,encrypt:4G", "encrypt:4G", "after the size"),
        ("/a,encrypt,encrypt", "encrypt", "once"),
    ]);
}

#[test]
fn a_relative_path_is_pinned_to_the_directory_it_was_named_in() {
    let here = Path::new("/home/me");
    assert_eq!(spec("swap:1G").absolute(here).to_string(), "/home/me/swap:1G");
    assert_eq!(spec("/swap").absolute(here), spec("/swap"));
    assert_eq!(spec("mem:1G").absolute(here), spec("mem:1G"));
}
