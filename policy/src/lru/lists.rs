//! The engine's lists of a node: which pages are mapped or cached, in what order they were put there.
//!
//! One more list is one more row of [`ListId`]. Which list a page belongs on is left to the caller.
use super::ring::{self, Heads, Rings};
use crate::workingset::Activity;

/// Most items that one array of links may have: the pages of 4 TiB but for 2 GiB.
pub const ITEMS_MAX: u32 = (1 << 30) - (1 << 19);

/// Bits of a position: enough for [`ITEMS_MAX`] and the heads above.
const POSITION_BITS: u32 = 30;
const LISTS: usize = ListId::ALL.len();
const _: () = assert!(ITEMS_MAX <= Link::ITEMS_MAX && LISTS <= Link::LISTS_MAX as usize);

/// One page's neighbours in its list; all-zero bytes are valid and mean that it is on none.
pub type Link = ring::Link<POSITION_BITS>;

/// The lists that items of one array can be on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListId {
    /// Items that are mapped, first to go.
    Inactive,
    /// Items whose content is in a frame but not mapped.
    Cached,
    /// Items that are mapped and have proved that they are used again.
    Active,
    /// Items that are mapped and were found unable to leave: tried again now and then, in no one's way meanwhile.
    Unevictable,
}

impl ListId {
    /// All of them, in the order of their numbers.
    pub const ALL: [ListId; 4] =
        [ListId::Inactive, ListId::Cached, ListId::Active, ListId::Unevictable];

    /// The list of mapped items that are taken for this.
    pub fn of(activity: Activity) -> Self {
        match activity {
            Activity::Inactive => ListId::Inactive,
            Activity::Active => ListId::Active,
        }
    }

    const fn number(self) -> u32 {
        self as u32
    }

    fn numbered(number: u32) -> Self {
        let list = Self::ALL.get(number as usize).copied();
        list.unwrap_or_else(|| panic!("a link names list {number}, which does not exist"))
    }
}

impl<const N: usize> Heads<POSITION_BITS> for [Link; N] {
    #[inline(always)]
    fn head(&self, list: u32) -> &Link {
        &self[list as usize]
    }

    #[inline(always)]
    fn head_mut(&mut self, list: u32) -> &mut Link {
        &mut self[list as usize]
    }
}

/// The lists through one array of links.
#[derive(Debug)]
pub struct Lists<S> {
    links: S,
    heads: [Link; LISTS],
    lengths: [u32; LISTS],
}

impl<S: AsRef<[Link]> + AsMut<[Link]>> Lists<S> {
    /// Empty lists through `links`, which must be all zero (too large to be checked here).
    ///
    /// # Panics
    /// When there are more than [`ITEMS_MAX`] links.
    pub fn new(links: S) -> Self {
        assert!(links.as_ref().len() <= ITEMS_MAX as usize, "more than {ITEMS_MAX} links");
        let heads = ListId::ALL.map(|list| Link::empty_head(list.number()));
        Self { links, heads, lengths: [0; LISTS] }
    }

    /// Number of items on `list`.
    pub fn len(&self, list: ListId) -> u32 {
        self.lengths[list as usize]
    }

    /// The list that `item` is on.
    ///
    /// # Panics
    /// When `item` is not below the number of links, as in every function here.
    pub fn list_of(&self, item: u32) -> Option<ListId> {
        self.links.as_ref()[item as usize].list().map(ListId::numbered)
    }

    /// Makes `item` the newest of `list`, unlinking it from wherever it is first.
    pub fn push_newest(&mut self, list: ListId, item: u32) {
        self.remove(item);
        self.rings().append(list.number(), item);
        self.lengths[list as usize] += 1;
    }

    /// Makes `item` the oldest of `list`, the next to be popped, unlinking it first.
    pub fn push_oldest(&mut self, list: ListId, item: u32) {
        self.remove(item);
        self.rings().prepend(list.number(), item);
        self.lengths[list as usize] += 1;
    }

    /// Takes `item` off its list; false if it was on none.
    pub fn remove(&mut self, item: u32) -> bool {
        let Some(list) = self.list_of(item) else { return false };
        let length = &mut self.lengths[list as usize];
        *length = length.checked_sub(1).expect("a list with a linked item is not empty");
        self.rings().unlink(item);
        true
    }

    /// Takes the oldest item off `list`.
    pub fn pop_oldest(&mut self, list: ListId) -> Option<u32> {
        let item = self.oldest(list)?;
        let removed = self.remove(item);
        assert!(removed, "the oldest item is on its list");
        Some(item)
    }

    /// The oldest item of `list`.
    pub fn oldest(&self, list: ListId) -> Option<u32> {
        self.heads[list as usize].newer().item()
    }

    /// The next newer item on the list of `item`; `None` for the newest, and for an item on no list.
    pub fn after(&self, item: u32) -> Option<u32> {
        let link = self.links.as_ref()[item as usize];
        if link.is_linked() { link.newer().item() } else { None }
    }

    #[inline(always)]
    fn rings(&mut self) -> Rings<'_, [Link; LISTS], POSITION_BITS> {
        Rings { links: self.links.as_mut(), heads: &mut self.heads }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    const ALL: [ListId; LISTS] = ListId::ALL;

    fn lists(items: usize) -> Lists<Vec<Link>> {
        Lists::new(vec![Link::default(); items])
    }

    fn oldest_to_newest(lists: &Lists<Vec<Link>>, list: ListId) -> Vec<u32> {
        core::iter::successors(lists.oldest(list), |item| lists.after(*item)).collect()
    }

    fn newest_to_oldest(lists: &Lists<Vec<Link>>, list: ListId) -> Vec<u32> {
        let newest = lists.heads[list as usize].older().item();
        core::iter::successors(newest, |item| lists.links[*item as usize].older().item()).collect()
    }

    #[test]
    fn every_list_is_found_by_its_number() {
        for (number, list) in (0..).zip(ALL) {
            assert_eq!((list.number(), ListId::numbered(number)), (number, list));
        }
    }

    #[test]
    fn zero_bytes_mean_on_no_list() {
        let mut lists = lists(3);
        assert!(!Link::default().is_linked());
        assert_eq!(lists.list_of(0), None);
        assert_eq!(lists.after(0), None);
        assert!(!lists.remove(0));
        assert_eq!(ALL.map(|list| lists.len(list)), [0; LISTS]);
        assert_eq!(lists.pop_oldest(ListId::Cached), None);
    }

    #[test]
    fn an_item_pushed_again_outlives_an_item_pushed_once() {
        let mut lists = lists(3);
        lists.push_newest(ListId::Inactive, 0);
        lists.push_newest(ListId::Inactive, 1);
        lists.push_newest(ListId::Inactive, 0);
        assert_eq!(lists.pop_oldest(ListId::Inactive), Some(1));
        assert_eq!(lists.pop_oldest(ListId::Inactive), Some(0));
        assert_eq!(lists.pop_oldest(ListId::Inactive), None);
    }

    #[test]
    fn an_item_moves_between_lists() {
        let mut lists = lists(2);
        lists.push_newest(ListId::Inactive, 1);
        lists.push_oldest(ListId::Cached, 1);
        assert_eq!(lists.list_of(1), Some(ListId::Cached));
        assert_eq!((lists.len(ListId::Inactive), lists.len(ListId::Cached)), (0, 1));
    }

    #[derive(Clone, Debug)]
    enum Operation {
        Newest(ListId, u32),
        Oldest(ListId, u32),
        Remove(u32),
        Pop(ListId),
    }

    const ITEMS: u32 = 24;

    fn operation() -> impl Strategy<Value = Operation> {
        let list = prop_oneof![Just(ListId::Inactive), Just(ListId::Cached), Just(ListId::Active)];
        prop_oneof![
            (list.clone(), 0..ITEMS).prop_map(|(list, item)| Operation::Newest(list, item)),
            (list.clone(), 0..ITEMS).prop_map(|(list, item)| Operation::Oldest(list, item)),
            (0..ITEMS).prop_map(Operation::Remove),
            list.prop_map(Operation::Pop),
        ]
    }

    fn forget(model: &mut [VecDeque<u32>; LISTS], item: u32) -> bool {
        let items = |model: &[VecDeque<u32>; LISTS]| model.iter().map(VecDeque::len).sum::<usize>();
        let before = items(model);
        model.iter_mut().for_each(|list| list.retain(|other| *other != item));
        before != items(model)
    }

    fn apply(
        operation: Operation,
        lists: &mut Lists<Vec<Link>>,
        model: &mut [VecDeque<u32>; LISTS],
    ) {
        match operation {
            Operation::Newest(list, item) => {
                lists.push_newest(list, item);
                forget(model, item);
                model[list as usize].push_back(item);
            }
            Operation::Oldest(list, item) => {
                lists.push_oldest(list, item);
                forget(model, item);
                model[list as usize].push_front(item);
            }
            Operation::Remove(item) => assert_eq!(lists.remove(item), forget(model, item)),
            Operation::Pop(list) => {
                assert_eq!(lists.pop_oldest(list), model[list as usize].pop_front());
            }
        }
    }

    proptest! {
        #[test]
        fn lists_equal_two_queues(operations in prop::collection::vec(operation(), 1..200)) {
            let mut lists = lists(ITEMS as usize);
            let mut model: [VecDeque<u32>; LISTS] = Default::default();
            for operation in operations {
                apply(operation, &mut lists, &mut model);
                for list in ALL {
                    let mut order = Vec::from(model[list as usize].clone());
                    prop_assert_eq!(oldest_to_newest(&lists, list), order.clone());
                    prop_assert_eq!(lists.len(list) as usize, order.len());
                    order.reverse();
                    prop_assert_eq!(newest_to_oldest(&lists, list), order);
                }
                for item in 0..ITEMS {
                    let list = ALL.into_iter().find(|list| model[*list as usize].contains(&item));
                    prop_assert_eq!(lists.list_of(item), list);
                }
            }
        }
    }
}
