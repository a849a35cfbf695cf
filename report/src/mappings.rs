//! What each mapping of the program cost: those that come from the same place are one.
use std::collections::{HashMap, HashSet};
use userswap_trace::Mapping;

/// What a mapping cost, as long as it was known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Where it was: of several the largest.
    pub mapping: Mapping,
    /// Mappings that come from the same place.
    pub mappings: usize,
    /// Pages of it that came back with their content.
    pub back: u64,
    /// Faults on pages of it that had to read.
    pub faults: u64,
}

/// Mappings that are one in a report.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Place {
    /// By first page: a mapping that grows is the same.
    At(u32),
    /// By the number of its origin.
    From(u32),
}

#[derive(Debug, Default)]
struct Known {
    cost: Cost,
    firsts: HashSet<u32>,
}

/// Costs by mapping, and those of pages that were in none which the record has.
#[derive(Debug, Default)]
pub(crate) struct Costs {
    /// Those that are there, by address.
    now: Vec<Mapping>,
    all: HashMap<Place, Known>,
    pub unknown: Cost,
}

impl Costs {
    pub fn set(&mut self, mut mappings: Vec<Mapping>) {
        mappings.sort_unstable_by_key(|mapping| mapping.first);
        // What has grown is one, and neighbours of one origin are, as for the kernel.
        mappings.dedup_by(|next, before| {
            let is_one = next.origin == before.origin && next.origin != 0;
            let grows = is_one && before.first.checked_add(before.count) == Some(next.first);
            if grows {
                before.count = before.count.saturating_add(next.count);
            }
            grows
        });
        self.now = mappings;
    }

    /// The costs of the mapping around a page.
    pub fn of(&mut self, page: u32) -> &mut Cost {
        let after = self.now.partition_point(|mapping| mapping.first <= page);
        let around = after.checked_sub(1).map(|index| self.now[index]);
        let Some(mapping) = around.filter(|mapping| page - mapping.first < mapping.count) else {
            return &mut self.unknown;
        };
        let place = match mapping.origin {
            0 => Place::At(mapping.first),
            origin => Place::From(origin),
        };
        let Known { cost, firsts } = self.all.entry(place).or_default();
        if mapping.count > cost.mapping.count {
            cost.mapping = mapping;
        }
        firsts.insert(mapping.first);
        cost
    }

    /// The dearest first; those whose origins, by number from 1 on, are called the same are one.
    pub fn ranked(&self, origins: &[String]) -> Vec<Cost> {
        let mut named: HashMap<&str, Cost> = HashMap::new();
        let mut all = Vec::new();
        for Known { cost, firsts } in self.all.values().filter(|known| known.cost.back > 0) {
            let cost = Cost { mappings: firsts.len(), ..*cost };
            let origin = cost.mapping.origin.checked_sub(1);
            match origin.and_then(|origin| origins.get(origin as usize)) {
                Some(name) if !name.is_empty() => {
                    let sum = named.entry(name).or_default();
                    *sum = sum.with(&cost);
                }
                _ => all.push(cost),
            }
        }
        all.extend(named.into_values());
        all.sort_unstable_by_key(|cost| {
            let Cost { faults, back, mapping, .. } = cost;
            (u64::MAX - faults, u64::MAX - back, mapping.first)
        });
        all
    }
}

impl Cost {
    /// Both together.
    fn with(&self, other: &Self) -> Self {
        // The same one whatever the order is.
        let size = |cost: &Self| (cost.mapping.count, cost.mapping.first);
        let largest = if size(other) > size(self) { other } else { self };
        Self {
            mapping: largest.mapping,
            mappings: self.mappings + other.mappings,
            back: self.back + other.back,
            faults: self.faults + other.faults,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_charged_to_the_mapping_that_was_there() {
        let mapping = |first, count| Mapping { first, count, origin: 0 };
        let mut costs = Costs::default();
        costs.of(10).back += 1;
        costs.set(vec![mapping(100, 10), mapping(10, 5)]);
        [10, 14, 15, 109, 110, 5].iter().for_each(|page| costs.of(*page).back += 1);
        costs.set(vec![mapping(10, 500)]);
        [10, 105].iter().for_each(|page| costs.of(*page).back += 1);
        let ranked = costs.ranked(&[]);
        let ranked: Vec<(u64, u32)> =
            ranked.iter().map(|cost| (cost.back, cost.mapping.count)).collect();
        assert_eq!((ranked, costs.unknown.back), (vec![(4, 500), (1, 10)], 4));
    }

    #[test]
    fn mappings_of_one_origin_are_one_however_many() {
        let mapping = |first, count, origin| Mapping { first, count, origin };
        let mut costs = Costs::default();
        costs.set(vec![
            mapping(0, 10, 1),
            mapping(11, 12, 1),
            mapping(23, 8, 1),
            mapping(31, 10, 2),
        ]);
        [0, 11, 30, 31].iter().for_each(|page| costs.of(*page).back += 1);
        let ranked = |origins: &[&str]| {
            let origins: Vec<_> = origins.iter().map(|name| (*name).to_owned()).collect();
            let ranked = costs.ranked(&origins).into_iter();
            ranked.map(|cost| (cost.back, cost.mappings, cost.mapping.count)).collect::<Vec<_>>()
        };
        assert_eq!(ranked(&["a", "b"]), [(3, 2, 20), (1, 1, 10)]);
        // Two numbers, but one name: the calls differed where it is not said.
        assert_eq!(ranked(&["a", "a"]), [(4, 3, 20)]);
        assert_eq!(ranked(&["", ""]), [(3, 2, 20), (1, 1, 10)]);
    }
}
