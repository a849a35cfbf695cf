//! Counters, named as in /proc/vmstat where one exists, and the latency of faults.
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};

/// Buckets per power of two.
const STEPS: usize = 4;

/// Powers of two that have buckets: up to about 18 minutes in nanoseconds.
const POWERS: usize = 40;

/// The powers of two that others are told of: 1 µs to 17 s. A series in a database has the same for good.
const TOLD_POWERS: std::ops::RangeInclusive<u32> = 10..=34;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// Event counts since the engine started. Each is exact; together they are no snapshot of one instant.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: AtomicU64,)+
            /// How long faults took.
            pub latency: Latency,
        }

        /// A copy of all counters.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Snapshot {
            $($(#[$doc])* pub $name: u64,)+
            /// Percentiles of the time from a fault's arrival at the engine to its resolution.
            pub fault_latency_ns: Percentiles,
        }

        impl Counters {
            /// Copies all counters.
            pub fn snapshot(&self) -> Snapshot {
                Snapshot {
                    $($name: self.$name.load(Ordering::Relaxed),)+
                    fault_latency_ns: self.latency.percentiles(),
                }
            }
        }

        impl Snapshot {
            /// Names and values in the order of declaration.
            pub fn values(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)+]
            }
        }
    };
}

counters! {
    /// Pages read from devices.
    pswpin,
    /// Pages written to devices.
    pswpout,
    /// Of the pages read, those from compressed memory.
    zswpin,
    /// Of the pages written, those to compressed memory.
    zswpout,
    /// Pages written from compressed memory to the devices behind it.
    zswpwb,
    /// Pages that compressed memory had no room for, written to another device (the kernel's zswap has pool_limit_hit and its
    /// reject counters in debugfs).
    zswp_rejected,
    /// Pages in compressed memory that became smaller as they were compressed once more.
    zram_recompressed,
    /// Pages that moved on from a device to one of a higher tier, or from compressed memory to one without tiers.
    swap_demoted,
    /// Clean pages that left for compressed memory in front of the device that they had come from.
    swap_promoted,
    /// Pages that left without a slot because they held only zeros.
    swpout_zero,
    /// Pages that left without a write because their slot still held the same content.
    swpout_clean,
    /// Clean pages dropped: mapped write-protected since they were read, they left in one call with others.
    swpout_dropped,
    /// Scattered pages that left by the block: copied, and dropped by the kernel as nobody else held them.
    swpout_block,
    /// Pages of such blocks that something held: they were brought back.
    swpout_block_kept,
    /// Frames that got new physical pages before they were filled: the kernel may still have read the old ones.
    frames_replaced,
    /// Faults served.
    pgfault,
    /// Faults that had to read from a device.
    pgmajfault,
    /// Faults on pages on their second chance or read ahead.
    pgfault_cached,
    /// Faults of writes to pages that are mapped write-protected.
    pgfault_wp,
    /// Faults served by another server than the first, which did not keep up.
    pgfault_helped,
    /// Pages filled with zeros at first touch.
    pgzero,
    /// Pages looked at by the background reclaimer.
    pgscan_kswapd,
    /// Pages looked at by faulting threads.
    pgscan_direct,
    /// Pages reclaimed by the background reclaimer.
    pgsteal_kswapd,
    /// Pages reclaimed by faulting threads.
    pgsteal_direct,
    /// Times a faulting thread had to reclaim.
    allocstall,
    /// Times a faulting thread waited for the background reclaimer instead of reclaiming.
    pgthrottle,
    /// Times the background reclaimer was woken.
    pageoutrun,
    /// Times the background reclaimer was woken within 100 ms of having reached its high mark.
    kswapd_low_wmark_hit_quickly,
    /// Times a node was found below its high mark 100 ms after having reached it.
    kswapd_high_wmark_hit_quickly,
    /// Background rounds that reclaimed nothing at any priority.
    kswapd_failures,
    /// Pages that reclaim found on another node than when they were mapped, and gave to that node: the kernel had moved
    /// them.
    numa_pages_migrated,
    /// Pages reclaimed because a neighbour of the same age was.
    pgsteal_neighbour,
    /// Pages made active because they were used on their second chance.
    pgactivate,
    /// Active pages made inactive.
    pgdeactivate,
    /// Pages swapped in again after reclaim had evicted them.
    workingset_refault,
    /// Pages made active because they were swapped in again soon.
    workingset_activate,
    /// Pages that were swapped in again soon but found others to be worth as much.
    workingset_regret,
    /// Times a node's turn to contend under `reclaim_contention stall` ended.
    reclaim_turns,
    /// Read requests to devices.
    swap_reads,
    /// Pages read ahead: no thread waited for them.
    swap_ra,
    /// Pages read ahead whose first use was seen: with the kernel's policies each one, with streams one
    /// marker for each window.
    swap_ra_hit,
    /// Pages read ahead for nothing: those that lost their frame with the mark still on, and, for mapped
    /// pages, whose use is not seen, what forgotten streams had read beyond the last sign of use.
    swap_ra_wasted,
    /// Pages that could not leave because a device or system call holds them.
    pgreclaim_pinned,
    /// Pages copied because fork left them shared, because MOVE is not to be had, or because their memory
    /// had to come from the kernel anyway (swapoff).
    pgcopy,
    /// Faults that met a page in transition and waited for its owner.
    fault_busy,
    /// Times the server looked on for work before sleeping.
    poll_attempted,
    /// Times it found some.
    poll_successful,
    /// Nanoseconds that it looked on for until it found some.
    poll_success_ns,
    /// Nanoseconds that it looked on for in vain.
    poll_fail_ns,
    /// Nanoseconds for which idle CPUs were kept from halting.
    idle_awake_ns,
    /// Times the watchdog reported a fault that waited for too long.
    faults_stuck,
    /// Pages granted beyond the budget because no device had room.
    budget_exceeded,
    /// Requests made again because they failed in a way that may pass.
    swap_retries,
    /// Read requests that failed.
    swap_read_errors,
    /// Write requests that failed.
    swap_write_errors,
    /// Slots taken out of service because their device refused or damaged a page.
    swap_bad_slots,
    /// Pages lost to unreadable or damaged slots.
    pages_lost,
    /// Times the process forked with its engine.
    forks,
    /// Slots copied because a fork could not lend them to the child.
    fork_slots_copied,
    /// Pages adopted when the engine engaged.
    pages_adopted,
    /// Pages of relocated data of libraries (RELRO) that were written to a file, and mapped from there: the kernel can drop them.
    relro_to_file,
    /// Objects of the program's caches that their shrinkers were asked to look at.
    slabs_scanned,
    /// Objects of the program's caches that their shrinkers freed.
    slabs_freed,
    /// Pages dropped by the program.
    pgdrop,
    /// Events of the trace that were lost because too many came at once.
    trace_lost,
}

/// Fixed logarithmic buckets: cheap and safe enough for a signal handler.
#[derive(Debug)]
pub struct Latency {
    buckets: [AtomicU64; STEPS * POWERS],
    max: AtomicU64,
    sum: AtomicU64,
}

impl Default for Latency {
    fn default() -> Self {
        let buckets = [const { AtomicU64::new(0) }; STEPS * POWERS];
        Self { buckets, max: AtomicU64::new(0), sum: AtomicU64::new(0) }
    }
}

/// Upper bounds in nanoseconds below which a share of the faults stayed; zero when there were none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Percentiles {
    /// The median.
    pub p50: u64,
    /// 95 %.
    pub p95: u64,
    /// 99 %.
    pub p99: u64,
    /// The slowest fault.
    pub max: u64,
}

/// How many faults took how long.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    /// Faults by their time, shortest first, each fault in one of them; those above the last bound are in none.
    pub buckets: Vec<Bucket>,
    /// All faults.
    pub count: u64,
    /// Nanoseconds of all of them together.
    pub sum_ns: u64,
}

/// Faults that took less than a time, and no less than the bucket before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// The time, in nanoseconds.
    pub below_ns: u64,
    /// How many.
    pub count: u64,
}

impl Latency {
    /// Records one duration; safe in a signal handler.
    pub fn record(&self, nanoseconds: u64) {
        self.buckets[Self::bucket(nanoseconds)].fetch_add(1, Ordering::Relaxed);
        self.max.fetch_max(nanoseconds, Ordering::Relaxed);
        self.sum.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// The percentiles so far.
    pub fn percentiles(&self) -> Percentiles {
        let counts: Vec<u64> = self.buckets.iter().map(|b| b.load(Ordering::Relaxed)).collect();
        let total: u64 = counts.iter().sum();
        let max = self.max.load(Ordering::Relaxed);
        let bound = |share: u64| {
            let wanted = (total * share).div_ceil(100);
            let mut seen = 0;
            let bucket = counts.iter().position(|count| {
                seen += count;
                seen >= wanted
            });
            bucket.map_or(0, |bucket| Self::upper_bound(bucket).min(max))
        };
        if total == 0 {
            return Percentiles::default();
        }
        Percentiles { p50: bound(50), p95: bound(95), p99: bound(99), max }
    }

    /// Nanoseconds of all faults together.
    pub fn sum_ns(&self) -> u64 {
        self.sum.load(Ordering::Relaxed)
    }

    /// Upper bounds in nanoseconds, and how many faults there were in each so far.
    pub fn buckets(&self) -> Vec<(u64, u64)> {
        let counts = self.buckets.iter().map(|count| count.load(Ordering::Relaxed));
        (0..).map(Self::upper_bound).zip(counts).collect()
    }

    /// All faults so far, by powers of two.
    pub fn histogram(&self) -> Histogram {
        let counts = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed));
        let mut counts = counts.enumerate().peekable();
        let told = TOLD_POWERS.map(|power| {
            let below_ns = 1 << power;
            let within = |(bucket, _): &(usize, u64)| Self::upper_bound(*bucket) <= below_ns;
            let count = std::iter::from_fn(|| counts.next_if(within)).map(|(_, count)| count).sum();
            Bucket { below_ns, count }
        });
        let buckets: Vec<Bucket> = told.collect();
        let beyond: u64 = counts.map(|(_, count)| count).sum();
        let count = buckets.iter().map(|bucket| bucket.count).sum::<u64>() + beyond;
        Histogram { buckets, count, sum_ns: self.sum_ns() }
    }

    fn bucket(nanoseconds: u64) -> usize {
        let value = nanoseconds.max(STEPS as u64);
        let power = value.ilog2() as usize;
        // The two bits below the leading one select the step.
        let step = (value >> (power - 2)) as usize & (STEPS - 1);
        (power * STEPS + step).min(STEPS * POWERS - 1)
    }

    fn upper_bound(bucket: usize) -> u64 {
        let (power, step) = (bucket / STEPS, bucket % STEPS);
        ((STEPS + step + 1) as u64) << power >> 2
    }
}

/// Adds `events` to a counter, without any order towards other memory.
pub fn count(counter: &AtomicU64, events: u64) {
    counter.fetch_add(events, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_lies_below_its_buckets_bound_and_above_the_one_before() {
        for value in (2..40).flat_map(|power| [(1u64 << power) + 1, 3 << power]) {
            let bucket = Latency::bucket(value);
            if bucket + 1 < STEPS * POWERS {
                assert!(value < Latency::upper_bound(bucket), "{value}");
                assert!(value >= Latency::upper_bound(bucket - 1), "{value}");
            }
        }
    }

    #[test]
    fn percentiles_of_a_known_distribution_are_within_a_quarter() {
        let latency = Latency::default();
        for value in 1..=1000u64 {
            latency.record(value * 1000);
        }
        let percentiles = latency.percentiles();
        assert!((500_000..625_000).contains(&percentiles.p50), "{percentiles:?}");
        assert!((990_000..=1_000_000).contains(&percentiles.p99), "{percentiles:?}");
        assert_eq!(percentiles.max, 1_000_000);
    }

    #[test]
    fn each_duration_is_in_the_one_bucket_of_the_histogram_whose_bounds_are_around_it() {
        for (value, expected) in
            [(0, 0), (1023, 0), (1024, 1), (2047, 1), (5000, 3), ((1 << 34) - 1, 24)]
        {
            let latency = Latency::default();
            latency.record(value);
            let Histogram { buckets, count, sum_ns } = latency.histogram();
            let holds = |bucket: usize| buckets[bucket].count;
            assert_eq!((count, sum_ns, holds(expected)), (1, value, 1), "{value}");
            assert!(value < buckets[expected].below_ns);
            assert_eq!(buckets.iter().map(|bucket| bucket.count).sum::<u64>(), 1);
        }
        let latency = Latency::default();
        [1 << 34, 1 << 50].into_iter().for_each(|value| latency.record(value));
        let told = latency.histogram();
        assert!(told.count == 2 && told.buckets.iter().all(|bucket| bucket.count == 0), "{told:?}");
    }
}
