//! The load generator as a program: its lines, its accounting, its exit statuses.

mod common;

use common::{refuses, run, standalone, text};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

/// The lines of a successful run.
fn lines(options: &str) -> Vec<String> {
    let output = run(&format!("usemem {options}"));
    assert!(output.status.success(), "{options}: {output:?}");
    text(&output.stdout).lines().map(str::to_owned).collect()
}

/// Splits `<bytes> bytes / <usecs> usecs = <rate> KB/s`.
fn figures(line: &str) -> (u64, u64, u64) {
    let line = line.trim_start_matches('.');
    let (bytes, line) = line.split_once(" bytes / ").expect(line);
    let (usecs, line) = line.split_once(" usecs = ").expect(line);
    let rate = line.strip_suffix(" KB/s").expect(line);
    (bytes.parse().unwrap(), usecs.parse().unwrap(), rate.parse().unwrap())
}

fn is_free_line(line: &str) -> bool {
    let usecs = line.strip_suffix(" usecs to free memory");
    usecs.is_some_and(|usecs| usecs.parse::<u64>().is_ok())
}

#[test]
fn a_bare_size_counts_its_accesses_and_an_eighth_for_the_allocation() {
    for source in ["", "-O", "-a", "-F", "-O -F"] {
        let lines = lines(&format!("{source} 64m"));
        assert_eq!(lines.len(), 2, "{lines:?}");
        let (bytes, usecs, rate) = figures(&lines[0]);
        assert_eq!(bytes, 75_497_472);
        assert_eq!(rate, bytes * 1_000_000 / 1024 / usecs);
        assert!(is_free_line(&lines[1]), "{lines:?}");
    }
}

#[test]
fn steps_and_repetitions_count_their_accesses() {
    for options in ["-j 4096 -r 3", "-j 4096 -r 3 -q", "-j 4k -r 3 -R", "-j 0x1000 -r3 -o"] {
        let lines = lines(&format!("{options} 64m"));
        assert_eq!(figures(&lines[0]).0, 8_781_824, "{options}");
        let dots = if options.contains('q') { "8" } else { "..8" };
        assert!(lines[0].starts_with(dots), "{options}: {lines:?}");
    }
}

#[test]
fn every_task_prints_its_line_whatever_kind_of_task_it_is() {
    for options in ["-n 6", "-t 6", "-n 2 -t 3", "-n 3 -t 2 -x -y -b 1", "-t 6 -y", "-n 6 -x"] {
        let lines = lines(&format!("{options} 4m"));
        let results = lines.iter().filter(|line| line.ends_with("KB/s"));
        assert_eq!(results.map(|line| figures(line).0).collect::<Vec<_>>(), [4_718_592; 6]);
        assert_eq!(lines.iter().filter(|line| is_free_line(line)).count(), 6, "{lines:?}");
    }
}

#[test]
fn freeing_is_not_timed_for_shared_memory_or_many_mappings() {
    assert_eq!(lines("-u 1m 32m").len(), 2);
    assert_eq!(lines("-u 1m 33m").len(), 1);
    let shared = lines("-P -n 2 4m");
    assert_eq!(shared.len(), 2, "{shared:?}");
    // Nothing was allocated by the tasks, so nothing is added for it.
    assert_eq!(figures(&shared[0]).0, 4 << 20);
}

#[test]
fn a_second_reading_and_the_start_up_have_lines_of_their_own() {
    let lines = lines("-Z --init-time 4m");
    assert!(lines[0].starts_with("the initialization time is 0 secs "), "{lines:?}");
    let again = lines[2].strip_prefix("read again ").expect("the line of -Z");
    assert_eq!(figures(again).0, 4 << 20);
}

#[test]
fn a_runtime_ends_an_endless_load() {
    let lines = lines("-q -T 0 -r 1000000 1m");
    assert_eq!(lines.len(), 2, "{lines:?}");
}

#[test]
fn random_page_reads_are_verified_and_counted_per_thread() {
    let mut lines = lines("-t 3 --page-random-read 1000 4m");
    // There are some where the machine swaps at that moment.
    lines.retain(|line| !line.contains("of 3000 reads were faults: "));
    assert_eq!(lines.len(), 4, "{lines:?}");
    for line in &lines[..3] {
        assert!(line.starts_with("1000 page reads / ") && line.ends_with(" reads/s"), "{line}");
    }
    assert!(is_free_line(&lines[3]), "{lines:?}");
}

#[test]
fn scattered_loads_are_verified_and_counted_per_thread() {
    for load in ["zipf-read", "zipf-write", "hash-join", "pointer-chase"] {
        let lines = lines(&format!("-t 3 --load {load} --operations 1000 4m"));
        assert_eq!(lines.len(), 3, "{load}: {lines:?}");
        for line in &lines {
            assert!(
                line.starts_with("1000 operations / ") && line.ends_with(" operations/s"),
                "{line}"
            );
        }
    }
}

#[test]
fn after_the_signal_only_the_read_is_reported() {
    let mut child = standalone()
        .args(["usemem", "-W", "-t", "2", "4m"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut lines = lines.map(Result::unwrap);
    let waiting = format!("Read Process {} is waiting signal", child.id());
    assert_eq!(lines.next().as_ref(), Some(&waiting));
    assert_eq!(lines.next().as_ref(), Some(&waiting));
    let kill = Command::new("kill").args(["-USR1", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let results: Vec<String> = lines.filter(|line| line.ends_with("KB/s")).collect();
    assert_eq!(results.len(), 2, "{results:?}");
    assert!(child.wait().unwrap().success());
}

/// Where the private anonymous mapping of so many bytes begins; neighbours may have become one with it.
fn mapping_of(pid: u32, bytes: u64) -> u64 {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let range = |line: &str| {
        let (begin, end) = line.split_once(' ')?.0.split_once('-')?;
        Some((u64::from_str_radix(begin, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
    };
    let is_anonymous = |line: &&str| line.contains("rw-p") && line.ends_with(" 00:00 0 ");
    let mut ranges = maps.lines().filter(is_anonymous).filter_map(range);
    let is_large = |(begin, end): &(u64, u64)| end - begin >= bytes;
    ranges.find(is_large).expect("the load has its mapping").0
}

#[test]
fn what_is_read_after_the_signal_is_verified_in_order_and_at_random() {
    const SIZE: u64 = 8 << 20;
    for order in ["", "-R --random-seed 1"] {
        let mut child = standalone()
            .args(["usemem", "-q", "-O", "-W"])
            .args(order.split_whitespace())
            .arg(SIZE.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        lines.read_line(&mut line).unwrap();
        assert!(line.contains("is waiting signal"), "{line}");
        let memory = File::options().write(true).open(format!("/proc/{}/mem", child.id())).unwrap();
        let wrong = vec![0xee; SIZE as usize];
        memory.write_all_at(&wrong, mapping_of(child.id(), SIZE)).unwrap();
        let kill = Command::new("kill").args(["-USR1", &child.id().to_string()]).status().unwrap();
        assert!(kill.success());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{order}: {output:?}");
        assert!(text(&output.stderr).contains("got 0xeeeeeeeeeeeeeeee"), "{order}: {output:?}");
        line.clear();
        assert_eq!(lines.read_line(&mut line).unwrap(), 0, "{order}: {line}");
    }
}

/// `sh -c 'trap "" INT; cargo test'` runs this as a background job would be run.
#[test]
fn a_load_that_waits_is_ended_by_an_interrupt_wherever_it_was_started() {
    let mut child =
        standalone().args(["usemem", "-W", "4m"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut waiting = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut waiting).unwrap();
    assert!(waiting.contains("waiting"), "{waiting}");
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGINT));
}

#[test]
fn wrong_values_are_named_on_one_line_and_end_with_status_2() {
    for (options, value) in
        [("12Q", "\"12Q\""), ("0", "\"0\""), ("-1", "\"-1\""), ("-n 0 1m", "'0'"), ("", "SIZE")]
    {
        refuses(&format!("usemem {options}"), value);
    }
}

#[test]
fn memory_that_cannot_be_had_is_said_on_one_line_with_status_1() {
    for options in ["1024t", "-n 2 1024t", "-t 2 -y 1024t"] {
        let output = run(&format!("usemem {options}"));
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(text(&output.stderr).contains("cannot allocate"), "{output:?}");
    }
}
