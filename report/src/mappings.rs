//! What each mapping of the program cost.
use std::collections::HashMap;
use userswap_trace::Mapping;

/// What a mapping cost, as long as it was known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Where it was.
    pub mapping: Mapping,
    /// Pages of it that came back with their content.
    pub back: u64,
    /// Faults on pages of it that had to read.
    pub faults: u64,
}

/// Costs by mapping, and those of pages that were in none which the record has.
#[derive(Debug, Default)]
pub(crate) struct Costs {
    /// Those that are there, by address.
    now: Vec<Mapping>,
    /// By first page: a mapping that grows is the same.
    all: HashMap<u32, Cost>,
    pub unknown: Cost,
}

impl Costs {
    pub fn set(&mut self, mut mappings: Vec<Mapping>) {
        mappings.sort_unstable_by_key(|mapping| mapping.first);
        self.now = mappings;
    }

    /// The costs of the mapping around a page.
    pub fn of(&mut self, page: u32) -> &mut Cost {
        let after = self.now.partition_point(|mapping| mapping.first <= page);
        let around = after.checked_sub(1).map(|index| &self.now[index]);
        match around.filter(|mapping| page - mapping.first < mapping.count) {
            None => &mut self.unknown,
            Some(mapping) => {
                let cost = self.all.entry(mapping.first).or_default();
                cost.mapping.first = mapping.first;
                cost.mapping.count = cost.mapping.count.max(mapping.count);
                cost
            }
        }
    }

    /// The dearest first.
    pub fn ranked(&self) -> Vec<Cost> {
        let mut all: Vec<Cost> = self.all.values().copied().filter(|cost| cost.back > 0).collect();
        all.sort_unstable_by_key(|cost| {
            let Cost { faults, back, mapping } = cost;
            (u64::MAX - faults, u64::MAX - back, mapping.first)
        });
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_charged_to_the_mapping_that_was_there() {
        let mapping = |first, count| Mapping { first, count };
        let mut costs = Costs::default();
        costs.of(10).back += 1;
        costs.set(vec![mapping(100, 10), mapping(10, 5)]);
        [10, 14, 15, 109, 110, 5].iter().for_each(|page| costs.of(*page).back += 1);
        costs.set(vec![mapping(10, 500)]);
        [10, 105].iter().for_each(|page| costs.of(*page).back += 1);
        let ranked = costs.ranked();
        let ranked: Vec<(u64, u32)> =
            ranked.iter().map(|cost| (cost.back, cost.mapping.count)).collect();
        assert_eq!((ranked, costs.unknown.back), (vec![(4, 500), (1, 10)], 4));
    }
}
