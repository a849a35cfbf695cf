//! The lines that the load generator prints, each in one write so that tasks do not mix them.

use std::io::{self, Write};
use std::time::Duration;

/// The unit that ends a throughput line.
pub(crate) const THROUGHPUT_UNIT: &str = " KB/s";
/// The unit that ends a line of random page reads.
pub(crate) const PAGE_READS_UNIT: &str = " reads/s";
/// The unit that ends a line of a load's operations.
pub(crate) const OPERATIONS_UNIT: &str = " operations/s";
/// The unit that ends the line of what faults took.
pub(crate) const LATENCY_UNIT: &str = " usecs 99 %";
/// The words that say a process waits for SIGUSR1.
pub(crate) const WAITING_MARK: &str = " is waiting signal";

/// A throughput line. The rate is rounded down twice, as usemem does.
pub(super) fn throughput(prefix: &str, bytes: u64, taken: Duration) -> String {
    let micros = taken.as_micros().max(1);
    let rate = u128::from(bytes) * 1_000_000 / 1024 / micros;
    format!("{prefix}{bytes} bytes / {micros} usecs = {rate}{THROUGHPUT_UNIT}\n")
}

/// The line of one thread of `--page-random-read`.
pub(super) fn page_reads(reads: u64, taken: Duration) -> String {
    let micros = taken.as_micros().max(1);
    let rate = u128::from(reads) * 1_000_000 / micros;
    format!("{reads} page reads / {micros} usecs = {rate}{PAGE_READS_UNIT}\n")
}

/// What the faults among the reads of all threads took, in nanoseconds: half of them at most, and 99 of a hundred.
pub(super) fn latencies((faults, reads): (u64, u64), half: u64, most: u64) -> String {
    let micros = |nanos: u64| nanos as f64 / 1000.0;
    let (half, most) = (micros(half), micros(most));
    format!(
        "{faults} of {reads} reads were faults: {half:.1} usecs half of them, {most:.1}{LATENCY_UNIT}\n"
    )
}

/// The line of one thread of `--load`.
pub(super) fn operations(done: u64, taken: Duration) -> String {
    let micros = taken.as_micros().max(1);
    let rate = u128::from(done) * 1_000_000 / micros;
    format!("{done} operations / {micros} usecs = {rate}{OPERATIONS_UNIT}\n")
}

pub(super) fn freeing(taken: Duration) -> String {
    format!("{} usecs to free memory\n", taken.as_micros())
}

pub(super) fn initialization(taken: Duration) -> String {
    let (seconds, micros) = (taken.as_secs(), taken.subsec_micros());
    format!("the initialization time is {seconds} secs {micros} usecs\n")
}

pub(super) fn waiting(what: &str) -> String {
    format!("{what} Process {}{WAITING_MARK}\n", std::process::id())
}

/// Writes `text` to standard output at once.
pub(super) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_usemems_words() {
        let taken = Duration::from_micros(2_500_001);
        assert_eq!(
            throughput("", 75_497_472, taken),
            "75497472 bytes / 2500001 usecs = 29491 KB/s\n"
        );
        assert_eq!(
            throughput("read again ", 1024, Duration::from_secs(1)),
            "read again 1024 bytes / 1000000 usecs = 1 KB/s\n"
        );
        assert_eq!(freeing(taken), "2500001 usecs to free memory\n");
        assert_eq!(initialization(taken), "the initialization time is 2 secs 500001 usecs\n");
        assert_eq!(
            page_reads(100, Duration::from_millis(10)),
            "100 page reads / 10000 usecs = 10000 reads/s\n"
        );
        assert_eq!(
            operations(100, Duration::from_millis(10)),
            "100 operations / 10000 usecs = 10000 operations/s\n"
        );
    }

    #[test]
    fn the_rate_is_rounded_down_and_survives_huge_and_immediate_loads() {
        assert_eq!(throughput("", 1, Duration::ZERO), "1 bytes / 1 usecs = 976 KB/s\n");
        let line = throughput("", 1 << 62, Duration::from_secs(1));
        assert_eq!(line, "4611686018427387904 bytes / 1000000 usecs = 4503599627370496 KB/s\n");
    }
}
