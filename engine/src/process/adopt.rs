//! Engaging late: a program that has run without an engine so far gets one, and keeps the pages it has.
use crate::base::counters::count;
use crate::base::index::{NodeId, PageRange};
use crate::base::limits::RUN_MAX;
use crate::state::core::Core;
use crate::state::node::Node;
use crate::state::page::PageState;
use crate::sys::{PAGE_BYTES, numa};
use crate::transfer::lru_add::Origin;

impl Core {
    /// Adopts the pages of all regions that are present already. The gate is closed: no other thread acts.
    ///
    /// # Errors
    /// What reading /proc/self/pagemap says.
    pub(crate) fn adopt_present(&self) -> std::io::Result<()> {
        let whole = PageRange { first: 0, count: self.arena.pages() };
        let regions = self.arena.allocated(whole).into_iter();
        for region in regions.flat_map(|region| self.arena.plain_within(region)) {
            let (start, bytes) =
                (self.page_address(region.first), region.count as usize * PAGE_BYTES);
            self.uffd.pagemap.for_each_present(start, start + bytes, |from, to| {
                let first = self.arena.page_of(from);
                self.adopt(PageRange { first, count: ((to - from) / PAGE_BYTES) as u32 });
            })?;
        }
        Ok(())
    }

    fn adopt(&self, range: PageRange) {
        for page in range.first..range.end() {
            let claimed =
                self.pages.change(page, PageState::Untouched, PageState::Filling { slot: None });
            assert!(claimed, "no thread has claimed page {page} before the engine is open");
        }
        let mut first = range.first;
        while first < range.end() {
            let (node, count) =
                self.node_of_present(PageRange { first, count: range.end() - first });
            self.adopt_on(self.node(node), PageRange { first, count });
            first += count;
        }
        count(&self.counters.pages_adopted, u64::from(range.count));
    }

    /// The node on which the first page of a range lies, and how many pages from it on lie there too.
    fn node_of_present(&self, range: PageRange) -> (NodeId, u32) {
        if self.nodes.len() == 1 {
            return (NodeId(0), range.count);
        }
        let most = range.count.min(RUN_MAX);
        if self.topology.memory_of(NodeId(0)).is_none() {
            let roomiest = self.nodes.iter().max_by_key(|node| node.lock().spare);
            return (roomiest.expect("an engine has a node").id, most);
        }
        let address = |page: usize| self.page_address(range.first + page as u32);
        let found = numa::nodes_of(most as usize, address);
        let here = self.node_here().id;
        let node_of = |index: u32| {
            let memory = found[index as usize];
            memory.and_then(|memory| self.topology.find(memory)).unwrap_or(here)
        };
        let first = node_of(0);
        (first, (0..most).take_while(|index| node_of(*index) == first).count().max(1) as u32)
    }

    fn adopt_on(&self, node: &Node, range: PageRange) {
        let mut state = node.lock();
        let within = range.count.min(state.spare);
        state.spare -= within;
        state.debt += range.count - within;
        state.resident += range.count;
        drop(state);
        self.publish_resident(node, range, Origin::New, |_| None);
    }
}
