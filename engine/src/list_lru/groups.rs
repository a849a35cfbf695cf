//! Groups of a container (the kernel's memory control groups): a list of their own on every node, and what
//! becomes of it when a group ends.
//!
//! A group is created with its parent, so its ancestors always have lists to take its items. When it ends
//! it is marked first, then each node's list is put in front of the parent's under that node's lock: the mark
//! is looked at under the same lock when an item is added, so the item is either moved with the others or goes
//! to the parent. The list's number is used again when no node remembers it.
use super::{ListLru, Part};
use crate::sys::sync::{AtomicBool, Ordering};
use std::sync::Arc;
use userswap_policy::devices::NodeId;
use userswap_policy::lru::sublists::ListNumber;

/// A group of one container; clones are the same group.
#[derive(Clone)]
pub struct Group(Arc<Inner>);

struct Inner {
    container: Arc<()>,
    list: ListNumber,
    parent: Option<Group>,
    /// It has ended. Relaxed accesses: written before the locks of all nodes are taken in turn, and read
    /// under one of them where it matters.
    dead: AtomicBool,
}

impl Group {
    /// The group's list, or that of the nearest ancestor that has not ended.
    pub(super) fn living_list(&self) -> ListNumber {
        let mut group = self;
        while group.is_dead() {
            let Some(parent) = &group.0.parent else { return ListNumber::UNGROUPED };
            group = parent;
        }
        group.0.list
    }

    /// The group's own list; None when it has ended.
    pub(super) fn own_list(&self) -> Option<ListNumber> {
        (!self.is_dead()).then_some(self.0.list)
    }

    /// Whether it has ended.
    pub fn is_dead(&self) -> bool {
        self.0.dead.load(Ordering::Relaxed)
    }
}

/// Which list numbers can be given to a new group.
pub(super) struct Numbers {
    lists: u32,
    /// One after the last that was ever given.
    end: u32,
    /// Of groups that have ended; items may still remember them.
    retired: Vec<ListNumber>,
}

impl Numbers {
    pub(super) fn new(lists: u32) -> Self {
        Self { lists, end: 1, retired: Vec::with_capacity(lists as usize) }
    }

    fn take<'a>(&mut self, parts: impl Iterator<Item = &'a Part> + Clone) -> Option<ListNumber> {
        let is_free =
            |list: &ListNumber| parts.clone().all(|part| part.lists.lock().is_free(*list));
        if let Some(index) = self.retired.iter().position(is_free) {
            return Some(self.retired.swap_remove(index));
        }
        if self.end == self.lists {
            return None;
        }
        self.end += 1;
        Some(ListNumber::new(self.end - 1))
    }
}

impl ListLru {
    /// A new group below `parent`, with an empty list on every node; None when there are as many groups as
    /// the container has room for, or items that still remember ended ones.
    ///
    /// # Panics
    /// The parent is another container's.
    pub fn group(&self, parent: Option<&Group>) -> Option<Group> {
        parent.iter().for_each(|parent| self.assert_own(parent));
        let mut numbers = self.numbers.lock();
        let list = numbers.take(self.parts())?;
        self.lists_end.store(numbers.end, Ordering::Relaxed);
        for part in self.parts() {
            part.lists.lock().open(list);
        }
        Some(Group(Arc::new(Inner {
            container: self.identity.clone(),
            list,
            parent: parent.cloned(),
            dead: AtomicBool::new(false),
        })))
    }

    /// Ends a group: on every node its items become the oldest of its parent's list, in their order. A
    /// group that has ended stays so.
    ///
    /// # Panics
    /// The group is another container's.
    pub fn reparent(&self, group: &Group) {
        self.assert_own(group);
        // Held throughout: the ancestor that takes the items must not end meanwhile.
        let mut numbers = self.numbers.lock();
        if group.0.dead.swap(true, Ordering::Relaxed) {
            return;
        }
        let (child, parent) = (group.0.list, group.living_list());
        for (node, part) in (0..).map(NodeId).zip(self.parts()) {
            let mut lists = part.lists.lock();
            lists.reparent(child, parent);
            self.publish(node, &lists, child);
            self.publish(node, &lists, parent);
        }
        numbers.retired.push(child);
    }

    pub(super) fn assert_own(&self, group: &Group) {
        assert!(Arc::ptr_eq(&self.identity, &group.0.container), "the group is this container's");
    }
}
