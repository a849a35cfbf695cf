//! A short list sorted by key: what the device lists are made of, after the kernel's `plist`.
//!
//! Items are small numbers, each at most once in a list. The smallest key comes first; items with equal
//! keys stay in the order in which they were added until one of them is requeued. Nothing allocates, and
//! every operation is a search of at most [`IDS_MAX`] neighbouring entries.

/// How many different items there can be: numbers from 0 to one less.
pub const IDS_MAX: usize = 64;

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Entry {
    key: i32,
    id: u8,
}

/// Items in ascending order of their keys.
#[derive(Clone, Debug)]
pub struct List {
    entries: [Entry; IDS_MAX],
    length: usize,
}

impl List {
    pub fn new() -> Self {
        Self { entries: [Entry::default(); IDS_MAX], length: 0 }
    }

    pub fn contains(&self, id: u8) -> bool {
        self.position(id).is_some()
    }

    /// Puts an item before the first one with a larger key, so after all with the same key.
    ///
    /// # Panics
    /// When the item is in the list already, or not below [`IDS_MAX`].
    pub fn add(&mut self, id: u8, key: i32) {
        assert!(usize::from(id) < IDS_MAX, "item {id} of at most {IDS_MAX}");
        assert!(!self.contains(id), "item {id} is in the list already");
        let at = self.entries().partition_point(|entry| entry.key <= key);
        self.entries.copy_within(at..self.length, at + 1);
        self.entries[at] = Entry { key, id };
        self.length += 1;
    }

    /// Takes an item out; false, and nothing happens, if it is not in the list.
    pub fn remove(&mut self, id: u8) -> bool {
        let Some(at) = self.position(id) else { return false };
        self.entries.copy_within(at + 1..self.length, at);
        self.length -= 1;
        true
    }

    /// Moves an item after the last one with the same key; does nothing if it is not in the list.
    pub fn requeue(&mut self, id: u8) {
        let Some(at) = self.position(id) else { return };
        let key = self.entries[at].key;
        let end = self.entries().partition_point(|entry| entry.key <= key);
        self.entries[at..end].rotate_left(1);
    }

    /// Gives every item a new key, which must leave the order as it is.
    ///
    /// # Panics
    /// When the new keys are not in ascending order.
    pub fn rekey(&mut self, key_of: impl Fn(u8) -> i32) {
        for entry in &mut self.entries[..self.length] {
            entry.key = key_of(entry.id);
        }
        let sorted = self.entries().is_sorted_by_key(|entry| entry.key);
        assert!(sorted, "new keys change the order: {:?}", self.entries());
    }

    /// The item after `id`; `None` after the last one, and for an item that is not in the list.
    pub fn after(&self, id: u8) -> Option<u8> {
        self.from(id).nth(1)
    }

    /// The items and their keys in order.
    pub fn iter(&self) -> impl Iterator<Item = (u8, i32)> + '_ {
        self.entries().iter().map(|entry| (entry.id, entry.key))
    }

    /// The item `id` and those after it; none if it is not in the list.
    pub fn from(&self, id: u8) -> impl Iterator<Item = u8> + '_ {
        let at = self.position(id).unwrap_or(self.length);
        self.entries()[at..].iter().map(|entry| entry.id)
    }

    fn entries(&self) -> &[Entry] {
        &self.entries[..self.length]
    }

    fn position(&self, id: u8) -> Option<usize> {
        self.entries().iter().position(|entry| entry.id == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn list(items: &[(u8, i32)]) -> List {
        let mut list = List::new();
        items.iter().for_each(|(id, key)| list.add(*id, *key));
        list
    }

    fn ids(list: &List) -> Vec<u8> {
        list.iter().map(|(id, _)| id).collect()
    }

    #[test]
    fn an_item_goes_after_all_with_its_key() {
        let list = list(&[(0, 2), (1, -5), (2, 1), (3, 2), (4, 1)]);
        assert_eq!(ids(&list), [1, 2, 4, 0, 3]);
        assert_eq!((list.after(4), list.after(3), list.after(9)), (Some(0), None, None));
    }

    #[test]
    fn removing_what_is_not_there_is_harmless() {
        let mut list = list(&[(0, 1), (1, 1)]);
        assert!(list.remove(0) && !list.remove(0) && !list.remove(63));
        list.requeue(0);
        assert_eq!(ids(&list), [1]);
    }

    #[test]
    fn requeueing_passes_only_items_with_the_same_key() {
        let mut list = list(&[(0, 1), (1, 1), (2, 1), (3, 7)]);
        list.requeue(0);
        assert_eq!(ids(&list), [1, 2, 0, 3]);
        list.requeue(0);
        list.requeue(3);
        assert_eq!(ids(&list), [1, 2, 0, 3]);
    }

    #[test]
    fn a_list_holds_every_item() {
        let mut list = List::new();
        (0..IDS_MAX as u8).for_each(|id| list.add(id, -i32::from(id)));
        assert_eq!(ids(&list), (0..IDS_MAX as u8).rev().collect::<Vec<_>>());
    }

    #[test]
    #[should_panic(expected = "item 3 is in the list already")]
    fn adding_twice_is_refused() {
        list(&[(3, 1), (3, 2)]);
    }

    #[test]
    #[should_panic(expected = "new keys change the order")]
    fn keys_that_change_the_order_are_refused() {
        list(&[(0, 1), (1, 2)]).rekey(|id| -i32::from(id));
    }

    /// The list again, as a vector that is searched from its front.
    fn add(model: &mut Vec<(u8, i32)>, id: u8, key: i32) {
        let at = model.iter().position(|(_, other)| *other > key).unwrap_or(model.len());
        model.insert(at, (id, key));
    }

    fn apply(list: &mut List, model: &mut Vec<(u8, i32)>, operation: u8, id: u8, key: i32) {
        let at = model.iter().position(|(other, _)| *other == id);
        match (operation, at) {
            (0, None) => {
                list.add(id, key);
                add(model, id, key);
            }
            (0 | 1, _) => {
                assert_eq!(list.remove(id), at.is_some());
                model.retain(|(other, _)| *other != id);
            }
            (2, _) => {
                list.requeue(id);
                if let Some(at) = at {
                    let (id, key) = model.remove(at);
                    add(model, id, key);
                }
            }
            _ => {
                // Doubling keeps the order, and equal keys equal.
                let keys: Vec<_> = model.iter().map(|(id, key)| (*id, key % 99 * 2)).collect();
                if keys.is_sorted_by_key(|(_, key)| *key) {
                    list.rekey(|id| keys.iter().find(|(other, _)| *other == id).unwrap().1);
                    *model = keys;
                }
            }
        }
    }

    proptest! {
        #[test]
        fn a_list_equals_a_sorted_vector(
            operations in prop::collection::vec((0u8..4, 0u8..IDS_MAX as u8, -3..4), 1..300),
        ) {
            let (mut list, mut model) = (List::new(), Vec::new());
            for (operation, id, key) in operations {
                apply(&mut list, &mut model, operation, id, key);
                prop_assert_eq!(list.iter().collect::<Vec<_>>(), model.clone());
                let at = model.iter().position(|(other, _)| *other == id);
                let next = at.and_then(|at| model.get(at + 1)).map(|(id, _)| *id);
                prop_assert_eq!((list.contains(id), list.after(id)), (at.is_some(), next));
            }
        }
    }
}
