//! How long faults took, as bars: buckets of a histogram, joined until they fit the rows that there are.

use userswap::internals::status::Status;

/// A bar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bar {
    pub below_ns: u64,
    /// Of all faults.
    pub share: f64,
}

/// Whether an engine tells its histogram: those of older builds have no buckets.
pub fn is_told(status: &Status) -> bool {
    !status.fault_latency.buckets.is_empty()
}

/// The bars of what `after` has beyond `before`, or of all of it where that is nothing; at most `most`.
///
/// They begin and end with buckets that have faults. None when there were no faults.
pub fn bars(before: Option<&Status>, after: &Status, most: usize) -> Vec<Bar> {
    let since = before.map(|before| counts_beyond(Some(before), after));
    let has_faults = |counts: &Vec<u64>| counts.iter().any(|count| *count > 0);
    let counts = since.filter(has_faults).unwrap_or_else(|| counts_beyond(None, after));
    let Some(first) = counts.iter().position(|count| *count > 0) else { return Vec::new() };
    let last = counts.iter().rposition(|count| *count > 0).unwrap_or(first);
    let total = counts.iter().sum::<u64>() as f64;
    // As many in each bar, so that each is as much longer than the one before.
    let joined = (last - first + 1).div_ceil(most.max(1));
    let buckets: Vec<_> = (first..=last).collect();
    let bar = |buckets: &[usize]| Bar {
        below_ns: after.fault_latency.buckets[buckets[buckets.len() - 1]].below_ns,
        share: buckets.iter().map(|bucket| counts[*bucket]).sum::<u64>() as f64 / total,
    };
    buckets.chunks(joined).map(bar).collect()
}

fn counts_beyond(before: Option<&Status>, after: &Status) -> Vec<u64> {
    let before = before.map(|before| &before.fault_latency.buckets[..]).unwrap_or_default();
    let earlier = before.iter().map(|bucket| bucket.count).chain(std::iter::repeat(0));
    let buckets = after.fault_latency.buckets.iter().zip(earlier);
    buckets.map(|(bucket, before)| bucket.count.saturating_sub(before)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::examples::{status, with_latency};
    use super::*;

    #[test]
    fn bars_are_of_what_came_since_and_begin_and_end_with_faults() {
        let bars_since = |before: &[u64], after: &[u64], most| {
            bars(Some(&with_latency(before)), &with_latency(after), most)
        };
        let bar = |below_ns, share| Bar { below_ns, share };
        let after = [0, 5, 3, 0, 2, 0];
        assert_eq!(
            bars_since(&[0, 4, 0, 0, 2, 0], &after, 9),
            [bar(2048, 0.25), bar(4096, 0.75)],
            "what was before does not count"
        );
        assert_eq!(
            bars_since(&[], &after, 2),
            [bar(4096, 0.8), bar(16384, 0.2)],
            "four buckets in two bars"
        );
        assert_eq!(bars_since(&after, &after, 9).len(), 4, "none since: all there were");
        assert_eq!(bars(None, &with_latency(&after), 9).len(), 4);
        assert_eq!(bars_since(&[], &[0, 0], 9), []);
        assert!(is_told(&with_latency(&after)) && !is_told(&status()));
    }
}
