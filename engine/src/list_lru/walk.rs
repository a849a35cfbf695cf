//! Walks: a callback decides about one item after the other, under the lock of their node.
//!
//! The callback may drop the lock with [`Visit::unlock`], to do what takes long. Then it must answer
//! RemovedRetry, Retry or Stop (the rule of Linux 6.13): nothing that was remembered under the lock is
//! valid any more, and the walk starts again from the oldest item.
use super::{Code, Group, ListLru, Lists, Taken};
use crate::sys::sync::{Guard, Ordering};
use userswap_policy::devices::NodeId;
use userswap_policy::lru::Walk;
use userswap_policy::lru::sublists::ListNumber;

/// What reclaim asks a container, or a [`Shrinker`](crate::state::shrinkers::Shrinker), for.
#[derive(Clone)]
pub struct ShrinkRequest {
    /// The node whose memory is short.
    pub node: NodeId,
    /// The group whose items are meant; None for items of no group.
    pub group: Option<Group>,
    /// Items to look at; a walk lowers it by what it looked at.
    pub nr_to_scan: u64,
}

impl ShrinkRequest {
    /// For items of no group.
    pub fn new(node: NodeId, nr_to_scan: u64) -> Self {
        Self { node, group: None, nr_to_scan }
    }
}

/// An item that a walk has come to, with its node's lock held.
pub struct Visit<'a> {
    lru: &'a ListLru,
    node: NodeId,
    list: ListNumber,
    item: u32,
    walk: Walk,
    lists: Option<Guard<'a, Lists>>,
}

impl<'a> Visit<'a> {
    #[inline]
    fn new(lru: &'a ListLru, node: NodeId, list: ListNumber) -> Self {
        let lists = Some(lru.part(node).lists.lock());
        Self { lru, node, list, item: 0, walk: Walk::new(list), lists }
    }

    /// Its number on its node.
    #[inline]
    pub fn item(&self) -> u32 {
        self.item
    }

    /// The node that the item is on.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Takes the item off its list: it can be added again from now on. To be answered with Removed or
    /// RemovedRetry.
    ///
    /// # Panics
    /// The lock has been dropped, or the item taken off.
    #[inline]
    pub fn isolate(&mut self) {
        let lists = self.lists.as_mut().expect("an item is isolated before the lock is dropped");
        self.walk.isolate(lists);
    }

    /// Takes the item off its list and puts it in front of `taken`.
    ///
    /// # Panics
    /// As [`Visit::isolate`], or `taken` is for another node.
    pub fn isolate_move(&mut self, taken: &mut Taken) {
        assert_eq!(taken.node, self.node, "items are taken to their own node's");
        let lists = self.lists.as_mut().expect("an item is isolated before the lock is dropped");
        self.walk.isolate_move(lists, &mut taken.chain);
    }

    /// Drops the lock. To be answered with RemovedRetry, Retry or Stop.
    pub fn unlock(&mut self) {
        self.publish();
        self.lists = None;
    }

    #[inline]
    fn next(&mut self, budget: &mut u64) -> bool {
        let lists = self.lists.as_ref().expect("between two items the lock is held");
        let item = self.walk.next(lists, budget);
        self.item = item.unwrap_or(self.item);
        item.is_some()
    }

    /// Carries out what the callback answered; true when the lock had been dropped.
    #[inline]
    fn finish(&mut self, code: Code) -> bool {
        let dropped = self.lists.is_none();
        if dropped {
            let fits = matches!(code, Code::RemovedRetry | Code::Retry | Code::Stop);
            assert!(fits, "{code:?} is no answer after the lock was dropped");
        }
        let part = self.lru.part(self.node);
        self.walk.done(self.lists.get_or_insert_with(|| part.lists.lock()), code);
        dropped
    }

    /// Before the lock is dropped.
    #[inline]
    fn publish(&self) {
        if let Some(lists) = &self.lists {
            self.lru.publish(self.node, lists, self.list);
            self.lru.publish_beside(self.node, lists);
            self.lru.note_fewer(self.node, lists);
        }
    }
}

impl Drop for Visit<'_> {
    #[inline]
    fn drop(&mut self) {
        // A callback that panics after isolating must not leave the counts wrong for ever.
        if std::thread::panicking() {
            let part = self.lru.part(self.node);
            self.walk.abandon(self.lists.get_or_insert_with(|| part.lists.lock()));
        }
        self.publish();
    }
}

impl ListLru {
    /// Walks the items of one group, or of none, on a node, oldest first; answers how many were isolated.
    ///
    /// `budget` bounds the calls of the callback, and is lowered by each. A group that has ended has none.
    ///
    /// # Panics
    /// The callback answers what it has not done: see [`Code`].
    pub fn walk_one(
        &self,
        node: NodeId,
        group: Option<&Group>,
        budget: &mut u64,
        callback: impl FnMut(&mut Visit<'_>) -> Code,
    ) -> u64 {
        match group {
            None => self.walk_list(node, ListNumber::UNGROUPED, budget, (|| true, callback)),
            Some(group) => {
                self.assert_own(group);
                let Some(list) = group.own_list() else { return 0 };
                self.walk_list(node, list, budget, (|| !group.is_dead(), callback))
            }
        }
    }

    /// Walks a node: items of no group first, then, as far as there is budget, those of each group.
    ///
    /// # Panics
    /// As [`ListLru::walk_one`].
    pub fn walk_node(
        &self,
        node: NodeId,
        budget: &mut u64,
        mut callback: impl FnMut(&mut Visit<'_>) -> Code,
    ) -> u64 {
        let mut isolated = self.walk_one(node, None, budget, &mut callback);
        for list in (1..self.lists_end.load(Ordering::Relaxed)).map(ListNumber::new) {
            if *budget == 0 {
                break;
            }
            if self.counter(node, list).load(Ordering::Relaxed) > 0 {
                isolated += self.walk_list(node, list, budget, (|| true, &mut callback));
            }
        }
        isolated
    }

    /// Walks all nodes in their order, until the budget is used up.
    ///
    /// # Panics
    /// As [`ListLru::walk_one`].
    pub fn walk(&self, budget: &mut u64, mut callback: impl FnMut(&mut Visit<'_>) -> Code) -> u64 {
        let mut isolated = 0;
        for node in self.active_nodes() {
            if *budget == 0 {
                break;
            }
            isolated += self.walk_node(node, budget, &mut callback);
        }
        isolated
    }

    /// [`ListLru::count_one`] with the node and group of a request.
    pub fn shrink_count(&self, request: &ShrinkRequest) -> u64 {
        self.count_one(request.node, request.group.as_ref())
    }

    /// [`ListLru::walk_one`] with the node, group and budget of a request.
    ///
    /// # Panics
    /// As [`ListLru::walk_one`].
    pub fn shrink_walk(
        &self,
        request: &mut ShrinkRequest,
        callback: impl FnMut(&mut Visit<'_>) -> Code,
    ) -> u64 {
        let ShrinkRequest { node, group, nr_to_scan } = request;
        self.walk_one(*node, group.as_ref(), nr_to_scan, callback)
    }

    /// Walks a list as long as it is the one that was meant: its number can get another meaning whenever
    /// the lock is not held.
    fn walk_list<M: Fn() -> bool, C: FnMut(&mut Visit<'_>) -> Code>(
        &self,
        node: NodeId,
        list: ListNumber,
        budget: &mut u64,
        (is_meant, mut callback): (M, C),
    ) -> u64 {
        if *budget == 0 {
            return 0;
        }
        let mut visit = Visit::new(self, node, list);
        let mut trusted = is_meant();
        while trusted && visit.next(budget) {
            let code = callback(&mut visit);
            let dropped = visit.finish(code);
            trusted = !dropped || is_meant();
        }
        visit.walk.isolated()
    }
}
