//! One node's part of a program's list of reclaimable objects, as the kernel's list_lru (Linux 3.12; groups
//! since 4.0): a list for items of no group, one for each group, and a count of all.
//!
//! Items are added at the newest end; a [`Walk`](super::Walk) goes from the oldest on. An item is on at most
//! one list. It remembers the list it was put on, so that it is deleted without being told; when a group
//! goes, its list becomes the front of its parent's without a look at its items, and its number stands for
//! the parent's until no item remembers it. Counts are signed: an imbalance would show as a negative number.
//!
//! Which node and group an item belongs to, and locks, are left to the caller.
use super::ring::{self, Heads, Rings};
use alloc::boxed::Box;

/// Bits of a position: 67 million items in 4095 lists.
const POSITION_BITS: u32 = 26;

/// One item's neighbours in its list; all-zero bytes are valid and mean that it is on none.
pub type Link = ring::Link<POSITION_BITS>;

pub(super) type Position = ring::Position<POSITION_BITS>;

/// Most items that a node can have.
pub const ITEMS_MAX: u32 = Link::ITEMS_MAX;
/// Most lists that a node can have, the one for items of no group among them.
pub const LISTS_MAX: u32 = CHAINED;
/// What an item in a [`Chain`] has instead of a list's number.
const CHAINED: u32 = Link::LISTS_MAX - 1;

/// One of a node's lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListNumber(u32);

impl ListNumber {
    /// The list of items that belong to no group; always live.
    pub const UNGROUPED: Self = Self(0);

    /// The list of this index among the node's.
    ///
    /// # Panics
    /// There can be no such list.
    pub const fn new(index: u32) -> Self {
        assert!(index < LISTS_MAX, "a node has fewer lists");
        Self(index)
    }

    /// Its index among the node's lists.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A count as a number of items: what is negative for a moment is none.
pub const fn shown(count: i64) -> u64 {
    if count < 0 { 0 } else { count as u64 }
}

/// What a list's number stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Free,
    Live,
    /// The list of the parent: its own has been put in front of that. As long as there are holders: items
    /// that were put on it, and dead lists whose parent it is.
    Dead {
        parent: u32,
        holders: u32,
    },
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Sublist {
    head: Link,
    count: i64,
    state: State,
}

impl Sublist {
    const fn new(list: u32, state: State) -> Self {
        Self { head: Link::empty_head(list), count: 0, state }
    }
}

/// The lists by number; the first, the only one in most programs, lies beside the node's other data.
#[derive(Debug)]
#[repr(C)]
struct Table {
    first: Sublist,
    others: Box<[Sublist]>,
}

impl Table {
    #[inline(always)]
    fn at(&self, list: u32) -> &Sublist {
        match list {
            0 => &self.first,
            _ => self.other(list),
        }
    }

    #[inline(always)]
    fn at_mut(&mut self, list: u32) -> &mut Sublist {
        match list {
            0 => &mut self.first,
            _ => self.other_mut(list),
        }
    }

    #[cold]
    fn other(&self, list: u32) -> &Sublist {
        &self.others[list as usize - 1]
    }

    #[cold]
    fn other_mut(&mut self, list: u32) -> &mut Sublist {
        &mut self.others[list as usize - 1]
    }
}

impl Heads<POSITION_BITS> for Table {
    #[inline(always)]
    fn head(&self, list: u32) -> &Link {
        &self.at(list).head
    }

    #[inline(always)]
    fn head_mut(&mut self, list: u32) -> &mut Link {
        &mut self.at_mut(list).head
    }
}

/// Items that a walk took off their list for its caller, which alone may take them out of here: the last one
/// first. Until then they count as linked, and can be neither added nor deleted.
#[derive(Debug, Default)]
#[must_use = "items of a forgotten chain can never be added again"]
pub struct Chain {
    first: Option<u32>,
    len: u32,
}

impl Chain {
    /// Items that are still to be popped.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Is there no item in it?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// The lists through one node's array of links.
// What changes with every item comes first, on one cache line.
#[derive(Debug)]
#[repr(C)]
pub struct Sublists<S> {
    links: S,
    table: Table,
    /// Items on all lists but the first.
    grouped: i64,
    /// Items that walks have taken off and not yet counted off.
    pending: i64,
}

impl<S: AsRef<[Link]> + AsMut<[Link]>> Sublists<S> {
    /// An empty list for items of no group, and room for `lists` in all, through `links`, which must be all
    /// zero.
    ///
    /// # Panics
    /// When there are more than [`ITEMS_MAX`] links, no list, or more than [`LISTS_MAX`].
    pub fn new(links: S, lists: u32) -> Self {
        assert!(links.as_ref().len() <= ITEMS_MAX as usize, "more than {ITEMS_MAX} links");
        assert!((1..=LISTS_MAX).contains(&lists), "{lists} lists, not 1 to {LISTS_MAX}");
        let others = (1..lists).map(|list| Sublist::new(list, State::Free)).collect();
        let table = Table { first: Sublist::new(0, State::Live), others };
        Self { links, table, grouped: 0, pending: 0 }
    }

    /// Items on all lists. A walk lowers it only when its callback has returned.
    #[inline(always)]
    pub fn count(&self) -> i64 {
        self.table.first.count + self.count_beside()
    }

    /// Whether no more than `most` items are on all lists: [`Self::count`], asked faster.
    #[inline(always)]
    pub fn has_at_most(&self, most: i64) -> bool {
        // Mostly the first look decides: nothing else is read then.
        self.table.first.count <= most && self.count() <= most
    }

    /// What [`Self::count`] counts beside the items of no group.
    #[inline(always)]
    pub fn count_beside(&self) -> i64 {
        self.grouped + self.pending
    }

    /// Items on one list; 0 for a dead one.
    #[inline(always)]
    pub fn count_of(&self, list: ListNumber) -> i64 {
        self.table.at(list.0).count
    }

    /// Is the item on a list, or in a chain?
    ///
    /// # Panics
    /// When `item` is not below the number of links, as in every function here.
    pub fn is_linked(&self, item: u32) -> bool {
        self.links.as_ref()[item as usize].is_linked()
    }

    /// The items of a list, oldest first.
    pub fn items(&self, list: ListNumber) -> impl Iterator<Item = u32> {
        core::iter::successors(self.oldest(list), |item| self.position_after(*item).item())
    }

    /// Makes an item that is linked nowhere the newest of a list, or of the one that this stands for, and
    /// says which; None when it is linked already.
    ///
    /// # Panics
    /// There is no such list.
    #[inline(always)]
    pub fn add(&mut self, list: ListNumber, item: u32) -> Option<ListNumber> {
        if self.is_linked(item) {
            return None;
        }
        let list = self.living(list.0);
        self.rings().append(list, item);
        self.change_count(list, 1);
        Some(ListNumber(list))
    }

    /// Takes an item off its list, and says which that was; None when it was on none.
    #[inline(always)]
    pub fn del(&mut self, item: u32) -> Option<ListNumber> {
        match self.links.as_ref()[item as usize].list() {
            None | Some(CHAINED) => None,
            Some(_) => Some(self.detach(item)),
        }
    }

    /// Whether a number stands for nothing.
    pub fn is_free(&self, list: ListNumber) -> bool {
        self.table.at(list.0).state == State::Free
    }

    /// Makes a free number stand for a list.
    ///
    /// # Panics
    /// It is not free.
    pub fn open(&mut self, list: ListNumber) {
        assert!(self.is_free(list), "list {list:?} is in use");
        *self.table.at_mut(list.0) = Sublist::new(list.0, State::Live);
    }

    /// A group goes: its items become the oldest of the parent's list, in their order. The number stands
    /// for the parent's list until no item remembers it; then it is free.
    ///
    /// # Panics
    /// The child's list is not live, or is the parent's.
    pub fn reparent(&mut self, child: ListNumber, parent: ListNumber) {
        assert_ne!(child, ListNumber::UNGROUPED, "the list without group has no parent");
        assert!(self.is_live(child), "list {child:?} is not live");
        let (child, parent) = (child.0, self.living(parent.0));
        assert_ne!(child, parent, "no list is its own parent");
        let holders = self.holders(child);
        self.rings().splice_front(child, parent);
        let list = self.table.at_mut(child);
        let count = core::mem::take(&mut list.count);
        list.state = match holders {
            0 => State::Free,
            holders => State::Dead { parent, holders },
        };
        self.grouped -= count;
        self.change_count(parent, count);
    }

    /// Takes an item out of a chain that a walk of these lists filled: the last one that came in.
    ///
    /// # Panics
    /// The chain was filled by a walk of other lists.
    pub fn pop(&mut self, chain: &mut Chain) -> Option<u32> {
        let item = chain.first?;
        let link = self.links.as_ref()[item as usize];
        assert_eq!(link.list(), Some(CHAINED), "item {item} is in a chain of these lists");
        chain.first = link.newer().item();
        chain.len -= 1;
        self.links.as_mut()[item as usize] = Link::default();
        Some(item)
    }

    /// Every count is the length of its list; walks all lists.
    pub fn is_valid(&self) -> bool {
        let mut lists = (0..=self.table.others.len() as u32).map(ListNumber);
        let grouped: i64 = lists.clone().skip(1).map(|list| self.count_of(list)).sum();
        grouped == self.grouped
            && lists.all(|list| self.items(list).count() as i64 == self.count_of(list))
    }

    pub(super) fn is_live(&self, list: ListNumber) -> bool {
        self.table.at(list.0).state == State::Live
    }

    pub(super) fn oldest(&self, list: ListNumber) -> Option<u32> {
        self.table.at(list.0).head.newer().item()
    }

    #[inline(always)]
    pub(super) fn position_after(&self, item: u32) -> Position {
        self.links.as_ref()[item as usize].newer()
    }

    pub(super) fn rotate(&mut self, list: ListNumber, item: u32) {
        self.rings().rotate(list.0, item);
    }

    /// Takes an item off its list, and says which that was.
    #[inline(always)]
    pub(super) fn detach(&mut self, item: u32) -> ListNumber {
        let label = self.links.as_ref()[item as usize].list().expect("the item is on a list");
        self.rings().unlink(item);
        let list = match self.table.at(label).state {
            State::Live => label,
            State::Dead { .. } | State::Free => self.let_go(label),
        };
        self.change_count(list, -1);
        ListNumber(list)
    }

    /// As [`Self::detach`], into a chain.
    pub(super) fn detach_to(&mut self, item: u32, chain: &mut Chain) -> ListNumber {
        let list = self.detach(item);
        let next = chain.first.map_or(Position::of_head(CHAINED), Position::of_item);
        self.links.as_mut()[item as usize] = Link::new(CHAINED, Position::of_head(CHAINED), next);
        chain.first = Some(item);
        chain.len += 1;
        list
    }

    /// A walk took an item off, whose decision is to follow.
    #[inline(always)]
    pub(super) fn begin_removal(&mut self) {
        self.pending += 1;
    }

    /// The decision has followed: the node's count may be lowered.
    #[inline(always)]
    pub(super) fn end_removal(&mut self) {
        self.pending -= 1;
    }

    #[inline(always)]
    fn change_count(&mut self, list: u32, by: i64) {
        self.table.at_mut(list).count += by;
        if list != ListNumber::UNGROUPED.0 {
            self.grouped += by;
        }
    }

    /// The list that a number stands for.
    #[inline(always)]
    fn living(&self, list: u32) -> u32 {
        match self.table.at(list).state {
            State::Live => list,
            State::Dead { .. } | State::Free => self.heir(list),
        }
    }

    #[cold]
    fn heir(&self, mut list: u32) -> u32 {
        loop {
            match self.table.at(list).state {
                State::Live => return list,
                State::Dead { parent, .. } => list = parent,
                State::Free => panic!("there is no list {list}"),
            }
        }
    }

    /// Items that remember a live list, and dead lists whose parent it is. Each item on it remembers it or a
    /// dead list below, each of which is held by its items and by the dead lists below that.
    fn holders(&self, list: u32) -> u32 {
        let mut holders = self.table.at(list).count;
        for (number, other) in (1..).zip(&self.table.others) {
            if let State::Dead { holders: held, .. } = other.state
                && self.living(number) == list
            {
                holders += 1 - i64::from(held);
            }
        }
        u32::try_from(holders).expect("a list has no more holders than items and lists below")
    }

    /// An item forgets the dead list it was put on; returns the list that it is on. A number without
    /// holders is free, and holds its parent no more.
    #[cold]
    fn let_go(&mut self, label: u32) -> u32 {
        let living = self.living(label);
        let mut list = label;
        while let State::Dead { parent, holders } = self.table.at(list).state {
            if holders > 1 {
                self.table.at_mut(list).state = State::Dead { parent, holders: holders - 1 };
                break;
            }
            self.table.at_mut(list).state = State::Free;
            list = parent;
        }
        living
    }

    #[inline(always)]
    fn rings(&mut self) -> Rings<'_, Table, POSITION_BITS> {
        Rings { links: self.links.as_mut(), heads: &mut self.table }
    }
}

#[cfg(test)]
mod tests;
