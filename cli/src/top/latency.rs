//! How long faults took, as bars: buckets of a histogram, joined until they fit the rows that there are.

/// Faults that took less than a time, and no less than the bucket before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    pub below_ns: u64,
    pub count: u64,
}

/// A bar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bar {
    pub below_ns: u64,
    /// Of all faults.
    pub share: f64,
}

/// The bars of what `after` has beyond `before`, or of all of it where that is nothing; at most `most`.
///
/// They begin and end with buckets that have faults. None when there were no faults.
pub fn bars(before: &[Bucket], after: &[Bucket], most: usize) -> Vec<Bar> {
    let counts = |before: &[Bucket]| -> Vec<u64> {
        let earlier = before.iter().map(|bucket| bucket.count).chain(std::iter::repeat(0));
        after
            .iter()
            .zip(earlier)
            .map(|(bucket, before)| bucket.count.saturating_sub(before))
            .collect()
    };
    let mut recent = counts(before);
    if recent.iter().all(|count| *count == 0) {
        recent = counts(&[]);
    }
    let Some(first) = recent.iter().position(|count| *count > 0) else { return Vec::new() };
    let last = recent.iter().rposition(|count| *count > 0).unwrap_or(first);
    let total = recent.iter().sum::<u64>() as f64;
    // As many in each bar, so that each is as much longer than the one before.
    let joined = (last - first + 1).div_ceil(most.max(1));
    let buckets: Vec<_> = (first..=last).collect();
    let bar = |buckets: &[usize]| Bar {
        below_ns: after[buckets[buckets.len() - 1]].below_ns,
        share: buckets.iter().map(|bucket| recent[*bucket]).sum::<u64>() as f64 / total,
    };
    buckets.chunks(joined).map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buckets(counts: &[u64]) -> Vec<Bucket> {
        let bucket =
            |(power, count): (usize, &u64)| Bucket { below_ns: 1024 << power, count: *count };
        counts.iter().enumerate().map(bucket).collect()
    }

    #[test]
    fn bars_are_of_what_came_since_and_begin_and_end_with_faults() {
        let bars_since =
            |before: &[u64], after: &[u64], most| bars(&buckets(before), &buckets(after), most);
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
        assert_eq!(bars_since(&[], &[0, 0], 9), []);
    }
}
