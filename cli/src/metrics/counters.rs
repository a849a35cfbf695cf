//! The engine's counters as metrics: each has a name that says its unit, which stays.

use super::family::Unit::{self, Nanoseconds, Number, Pages};

/// A counter of the engine, as others see it.
pub struct Counter {
    /// Its name in the status.
    pub counter: &'static str,
    /// Its name as a metric, without the prefix, unit and `_total`.
    pub name: &'static str,
    pub unit: Unit,
    pub help: &'static str,
}

const fn row(counter: &'static str, name: &'static str, unit: Unit, help: &'static str) -> Counter {
    Counter { counter, name, unit, help }
}

/// All of them, in the engine's order.
pub const COUNTERS: &[Counter] = &[
    row("pswpin", "swap_in", Pages, "Read from devices and wanted"),
    row("pswpout", "swap_out", Pages, "Written to devices"),
    row("zswpin", "compressed_in", Pages, "Of what was read, decompressed"),
    row("zswpout", "compressed_out", Pages, "Of what was written, compressed"),
    row(
        "zswpwb",
        "compressed_written_back",
        Pages,
        "Written from compressed memory to the devices behind it",
    ),
    row(
        "zswp_rejected",
        "compressed_rejected",
        Pages,
        "Written past compressed memory for want of room",
    ),
    row("zram_recompressed", "compressed_again", Pages, "Compressed once more as they stayed"),
    row("swap_demoted", "swap_demoted", Pages, "Moved on to the next tier"),
    row("swap_promoted", "swap_promoted", Pages, "Clean, and put back into compressed memory"),
    row("swpout_zero", "swap_out_zero", Pages, "Left without a slot, being zeros"),
    row("swpout_clean", "swap_out_clean", Pages, "Left without a write, being on their slot still"),
    row(
        "swpout_dropped",
        "swap_out_dropped",
        Pages,
        "Clean memory dropped, write-protected since it was read",
    ),
    row("swpout_block", "swap_out_block", Pages, "Scattered memory that left by the block"),
    row(
        "swpout_block_kept",
        "swap_out_block_kept",
        Pages,
        "Memory of such blocks that something held",
    ),
    row(
        "frames_replaced",
        "frames_replaced",
        Pages,
        "Frames that got new physical memory before they were filled",
    ),
    row("pgfault", "faults", Number, "Faults served"),
    row("pgmajfault", "major_faults", Number, "Faults that had to read from a device"),
    row(
        "pgfault_cached",
        "cached_faults",
        Number,
        "Faults on memory on its second chance or read ahead",
    ),
    row(
        "pgfault_wp",
        "write_protect_faults",
        Number,
        "Faults of writes to memory mapped write-protected",
    ),
    row("pgfault_helped", "helped_faults", Number, "Faults served by a helper of the server"),
    row("pgzero", "zero_filled", Pages, "Filled with zeros at first touch"),
    row("pgscan_kswapd", "background_scanned", Pages, "Looked at by the background reclaimer"),
    row("pgscan_direct", "direct_scanned", Pages, "Looked at by faulting threads"),
    row("pgsteal_kswapd", "background_reclaimed", Pages, "Reclaimed by the background reclaimer"),
    row("pgsteal_direct", "direct_reclaimed", Pages, "Reclaimed by faulting threads"),
    row("allocstall", "direct_reclaims", Number, "Times a faulting thread had to reclaim"),
    row(
        "pgthrottle",
        "reclaim_throttles",
        Number,
        "Times a faulting thread waited for the background reclaimer instead",
    ),
    row("pageoutrun", "background_wakeups", Number, "Times the background reclaimer was woken"),
    row(
        "kswapd_low_wmark_hit_quickly",
        "low_watermark_quick_hits",
        Number,
        "Wake-ups within 100 ms of having reached the high watermark",
    ),
    row(
        "kswapd_high_wmark_hit_quickly",
        "high_watermark_quick_hits",
        Number,
        "Nodes found below their high watermark 100 ms after having reached it",
    ),
    row(
        "kswapd_failures",
        "background_failures",
        Number,
        "Background rounds that reclaimed nothing at any priority",
    ),
    row(
        "numa_pages_migrated",
        "numa_migrated",
        Pages,
        "Found on another node than before, moved there by the kernel",
    ),
    row(
        "pgsteal_neighbour",
        "neighbour_reclaimed",
        Pages,
        "Reclaimed because a neighbour of the same age was",
    ),
    row("pgactivate", "activated", Pages, "Made active because it was used on its second chance"),
    row("pgdeactivate", "deactivated", Pages, "Active memory made inactive"),
    row("workingset_refault", "refaulted", Pages, "Swapped in again after reclaim had evicted it"),
    row(
        "workingset_activate",
        "refault_activated",
        Pages,
        "Made active because it was swapped in again soon",
    ),
    row(
        "workingset_regret",
        "refault_regretted",
        Pages,
        "Swapped in again soon, but others were worth as much",
    ),
    row("reclaim_turns", "reclaim_turns", Number, "Times a node's turn to contend ended"),
    row("swap_reads", "swap_reads", Number, "Read requests of faults and readahead"),
    row("swap_ra", "readahead", Pages, "Read ahead: no thread waited for it"),
    row(
        "swap_ra_hit",
        "readahead_hits",
        Number,
        "Signs that what was read ahead was used: one for each page, or for each window of a stream",
    ),
    row(
        "swap_ra_wasted",
        "readahead_wasted",
        Pages,
        "Read ahead for nothing, as far as that is seen",
    ),
    row(
        "pgreclaim_pinned",
        "reclaim_pinned",
        Pages,
        "Could not leave because a device or system call held it",
    ),
    row("pgcopy", "copied", Pages, "Copied because it could not be moved"),
    row(
        "fault_busy",
        "busy_faults",
        Number,
        "Faults that met memory in transition and waited for its owner",
    ),
    row("poll_attempted", "polls", Number, "Times the server looked on for work before sleeping"),
    row("poll_successful", "polls_successful", Number, "Times it found some"),
    row(
        "poll_success_ns",
        "poll_successful",
        Nanoseconds,
        "Time that it looked on for until it found some",
    ),
    row("poll_fail_ns", "poll_failed", Nanoseconds, "Time that it looked on for in vain"),
    row(
        "idle_awake_ns",
        "idle_awake",
        Nanoseconds,
        "Time for which idle CPUs were kept from halting",
    ),
    row(
        "faults_stuck",
        "faults_stuck",
        Number,
        "Times the watchdog reported a fault that waited for too long",
    ),
    row(
        "budget_exceeded",
        "budget_exceeded",
        Pages,
        "Granted beyond the budget because no device had room",
    ),
    row(
        "swap_retries",
        "swap_retries",
        Number,
        "Requests made again because they failed in a way that may pass",
    ),
    row(
        "swap_read_errors",
        "swap_read_errors",
        Number,
        "Read requests that failed, or brought something wrong",
    ),
    row("swap_write_errors", "swap_write_errors", Number, "Write requests that failed"),
    row(
        "swap_bad_slots",
        "swap_bad_slots",
        Number,
        "Slots taken out of service because their device refused or damaged a page",
    ),
    row("pages_lost", "lost", Pages, "Lost to unreadable or damaged slots"),
    row("forks", "forks", Number, "Times the process forked with its engine"),
    row(
        "fork_slots_copied",
        "fork_slots_copied",
        Number,
        "Slots copied because a fork could not lend them to the child",
    ),
    row("pages_adopted", "adopted", Pages, "Adopted when the engine engaged"),
    row(
        "relro_to_file",
        "library_data_to_file",
        Pages,
        "Relocated data of libraries that is mapped from a file",
    ),
    row(
        "slabs_scanned",
        "cache_objects_scanned",
        Number,
        "Objects of the program's caches that their shrinkers were asked to look at",
    ),
    row(
        "slabs_freed",
        "cache_objects_freed",
        Number,
        "Objects of the program's caches that their shrinkers freed",
    ),
    row("pgdrop", "dropped", Pages, "Dropped by the program"),
    row(
        "trace_lost",
        "trace_events_lost",
        Number,
        "Events of the trace that were lost because too many came at once",
    ),
];
