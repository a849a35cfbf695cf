//! The piece that all LRU lists are made of: rings through an array of links.
//!
//! An array can be a mapping that is populated as it is touched: all-zero bytes mean "on no list". Each
//! list is a ring through a head that is not in the array. Positions in a ring have `BITS` bits: item `i`
//! is `i + 1`, heads are the highest numbers. The bits that `prev` and `next` have left say which list an
//! item was put on, so that it can be unlinked without being told. How many items and lists there can be
//! is one choice: each bit less for positions is two more for lists.
//!
//! What is called for each item is inlined by force: it is a few reads and writes, and the list they are for
//! is mostly known where it is called from.

/// One item's neighbours in its ring; all-zero bytes are valid and mean that it is in none.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Link<const BITS: u32> {
    /// Position of the next older item, with the low bits of the list's number above it.
    prev: u32,
    /// Position of the next newer item, never zero while linked, with the number's high bits above it.
    next: u32,
}

/// A position in a ring: an item or a list's head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Position<const BITS: u32>(u32);

impl<const BITS: u32> Position<BITS> {
    pub(super) const fn of_item(item: u32) -> Self {
        Self(item + 1)
    }

    pub(super) const fn of_head(list: u32) -> Self {
        Self(Link::<BITS>::MASK - list)
    }

    pub(super) const fn item(self) -> Option<u32> {
        if self.0 > Link::<BITS>::ITEMS_MAX { None } else { Some(self.0 - 1) }
    }
}

impl<const BITS: u32> Link<BITS> {
    const MASK: u32 = (1 << BITS) - 1;
    const LIST_BITS: u32 = u32::BITS - BITS;
    const LIST_MASK: u32 = (1 << Self::LIST_BITS) - 1;
    /// Lists that links of this kind can tell apart.
    pub const LISTS_MAX: u32 = 1 << (2 * Self::LIST_BITS);
    /// Most items that one array of links can have: positions of heads lie above.
    pub const ITEMS_MAX: u32 = Self::MASK - Self::LISTS_MAX;

    /// Is the item in a ring?
    pub const fn is_linked(&self) -> bool {
        self.next != 0
    }

    pub(super) const fn new(list: u32, older: Position<BITS>, newer: Position<BITS>) -> Self {
        Self {
            prev: (list & Self::LIST_MASK) << BITS | older.0,
            next: (list >> Self::LIST_BITS) << BITS | newer.0,
        }
    }

    /// A head whose ring is empty.
    pub(super) const fn empty_head(list: u32) -> Self {
        Self::new(list, Position::of_head(list), Position::of_head(list))
    }

    pub(super) const fn older(&self) -> Position<BITS> {
        Position(self.prev & Self::MASK)
    }

    pub(super) const fn newer(&self) -> Position<BITS> {
        Position(self.next & Self::MASK)
    }

    #[inline(always)]
    const fn set_older(&mut self, older: Position<BITS>) {
        self.prev = self.prev & !Self::MASK | older.0;
    }

    #[inline(always)]
    const fn set_newer(&mut self, newer: Position<BITS>) {
        self.next = self.next & !Self::MASK | newer.0;
    }

    /// The list that the item was put on.
    #[inline(always)]
    pub(super) const fn list(&self) -> Option<u32> {
        if !self.is_linked() {
            return None;
        }
        Some(self.prev >> BITS | (self.next >> BITS) << Self::LIST_BITS)
    }
}

/// Where the heads of rings are.
pub(super) trait Heads<const BITS: u32> {
    fn head(&self, list: u32) -> &Link<BITS>;
    fn head_mut(&mut self, list: u32) -> &mut Link<BITS>;
}

/// The rings through one array of links. A head's newer neighbour is the oldest item, its older neighbour
/// the newest.
pub(super) struct Rings<'a, H, const BITS: u32> {
    pub(super) links: &'a mut [Link<BITS>],
    pub(super) heads: &'a mut H,
}

impl<H: Heads<BITS>, const BITS: u32> Rings<'_, H, BITS> {
    /// Puts an item that is in no ring after the newest of `list`.
    #[inline(always)]
    pub(super) fn append(&mut self, list: u32, item: u32) {
        self.append_as(list, list, item);
    }

    /// Puts an item that is in no ring before the oldest of `list`.
    #[inline(always)]
    pub(super) fn prepend(&mut self, list: u32, item: u32) {
        let position = Position::of_item(item);
        let oldest = self.heads.head(list).newer();
        self.links[item as usize] = Link::new(list, Position::of_head(list), oldest);
        self.link_mut(oldest).set_older(position);
        self.heads.head_mut(list).set_newer(position);
    }

    /// As [`Self::append`], for an item that was put on the list `label`.
    #[inline(always)]
    fn append_as(&mut self, list: u32, label: u32, item: u32) {
        let position = Position::of_item(item);
        let newest = self.heads.head(list).older();
        self.links[item as usize] = Link::new(label, newest, Position::of_head(list));
        self.link_mut(newest).set_newer(position);
        self.heads.head_mut(list).set_older(position);
    }

    /// Takes a linked item out of its ring, whichever that is.
    #[inline(always)]
    pub(super) fn unlink(&mut self, item: u32) {
        let link = self.links[item as usize];
        self.join(link.older(), link.newer());
        self.links[item as usize] = Link::default();
    }

    /// Makes a linked item the newest of `list`; it keeps the number of the list that it was put on.
    pub(super) fn rotate(&mut self, list: u32, item: u32) {
        let label = self.links[item as usize].list().expect("only a linked item is rotated");
        self.unlink(item);
        self.append_as(list, label, item);
    }

    /// Puts all items of `from` before the oldest of `into`, in their order; they keep the number `from`.
    pub(super) fn splice_front(&mut self, from: u32, into: u32) {
        let head = *self.heads.head(from);
        if head.newer() == Position::of_head(from) {
            return;
        }
        let oldest = self.heads.head(into).newer();
        self.join(head.older(), oldest);
        self.join(Position::of_head(into), head.newer());
        *self.heads.head_mut(from) = Link::empty_head(from);
    }

    #[inline(always)]
    fn link_mut(&mut self, position: Position<BITS>) -> &mut Link<BITS> {
        match position.item() {
            Some(item) => &mut self.links[item as usize],
            None => self.heads.head_mut(Link::<BITS>::MASK - position.0),
        }
    }

    #[inline(always)]
    fn join(&mut self, older: Position<BITS>, newer: Position<BITS>) {
        self.link_mut(older).set_newer(newer);
        self.link_mut(newer).set_older(older);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_keeps_the_largest_list_beside_the_largest_positions() {
        fn check<const BITS: u32>() {
            let list = Link::<BITS>::LISTS_MAX - 1;
            let older = Position::of_item(Link::<BITS>::ITEMS_MAX - 1);
            let newer = Position::of_head(list);
            let link = Link::<BITS>::new(list, older, newer);
            assert_eq!((link.list(), link.older(), link.newer()), (Some(list), older, newer));
            assert_eq!(link.older().item(), Some(Link::<BITS>::ITEMS_MAX - 1));
            assert_eq!(link.newer().item(), None);
            assert_eq!(size_of::<Link<BITS>>(), 8);
        }
        check::<30>();
        check::<26>();
    }

    #[test]
    fn zero_bytes_are_in_no_ring() {
        assert!(!Link::<30>::default().is_linked());
        assert_eq!(Link::<26>::default().list(), None);
    }
}
