//! What must be true after every event: no page lost, none stale, no slot and no frame owned twice, lists and counts exact.

use userswap_policy::devices::{DeviceId, NodeId};
use userswap_policy::lru::ListId;

use super::state::Content;
use super::{Memory, PageId, Slot, Word};

impl Memory {
    /// Looks at everything, unless nothing has changed since the last time.
    ///
    /// # Errors
    /// What is wrong, in one line.
    pub fn check(&self) -> Result<(), String> {
        let revision = self.state.borrow().revision + self.swap.revision.get();
        if self.checked.replace(revision) == revision {
            return Ok(());
        }
        let slots = self.check_pages()?;
        self.check_nodes()?;
        self.check_devices(&slots)
    }

    /// Every page has its content, alone; returns how many pages are on each device.
    fn check_pages(&self) -> Result<Vec<u32>, String> {
        let state = self.state.borrow();
        let stores = &self.swap.stores;
        let mut frames = Owners::new(state.nodes.iter().map(|node| node.contents.len()));
        let mut slots = Owners::new(stores.iter().map(|store| store.pages as usize));
        for (page, of) in state.pages.iter().enumerate() {
            let page = page as PageId;
            let expected = Content { page, version: of.version };
            let (frame, slot) = match of.word {
                Word::Untouched if of.version > 0 => {
                    return Err(format!("page {page} is forgotten"));
                }
                Word::Untouched | Word::Filling | Word::Lost => (None, None),
                Word::Resident(frame) | Word::Leaving(frame) => (Some(frame), None),
                Word::Writing(frame, slot) => (Some(frame), Some(slot)),
                Word::Swapped(slot, _) => (None, Some(slot)),
                // Its slot is given back before its frame is mapped, and may be another page's by then.
                Word::Reading(_) => (None, None),
            };
            if let Some(frame) = frame {
                holds(
                    state.nodes[usize::from(frame.node)].contents[frame.index as usize],
                    expected,
                )?;
                frames.own(frame.node, frame.index, page, "frame")?;
            }
            if let Some(slot) = slot {
                if frame.is_none() && !self.is_dead(slot) {
                    holds(
                        self.swap.store(slot.device).contents.borrow()[slot.index as usize],
                        expected,
                    )?;
                }
                slots.own(slot.device.into(), slot.index, page, "slot")?;
            }
        }
        Ok(slots.counts)
    }

    fn is_dead(&self, slot: Slot) -> bool {
        self.swap.store(slot.device).drive.is_dead(self.sim.now())
    }

    /// What is listed is resident and all that is resident is listed; frames add up.
    fn check_nodes(&self) -> Result<(), String> {
        let state = self.state.borrow();
        let mut resident = vec![0u32; state.nodes.len()];
        for page in &state.pages {
            if let Word::Resident(frame) = page.word {
                resident[usize::from(frame.node)] += 1;
            }
        }
        for (index, node) in state.nodes.iter().enumerate() {
            let listed: u32 = ListId::ALL.iter().map(|list| node.lists.len(*list)).sum();
            if listed != resident[index] {
                return Err(format!(
                    "node {index}: {listed} pages listed, {} resident",
                    resident[index]
                ));
            }
            let full = node.contents.iter().flatten().count() as u32;
            let used = node.pool.positions() - node.pool.free();
            if full > used {
                return Err(format!("node {index}: {full} frames full, {used} in use"));
            }
        }
        Ok(())
    }

    /// Slots in use are those of pages and those that CPUs keep; lists are sorted and have who has room.
    fn check_devices(&self, of_pages: &[u32]) -> Result<(), String> {
        let table = self.swap.table.borrow();
        for (device, store) in self.swap.stores.iter().enumerate() {
            let device = device as u8;
            let used = store.slots.borrow().used();
            let of_pages = of_pages[usize::from(device)];
            // A page is Leaving while its slot is being taken, and has none while it is being given back.
            let held = store.contents.borrow().iter().flatten().count() as u32;
            if held.max(of_pages) > used {
                return Err(format!(
                    "device {device}: {held} full, {of_pages} of pages, {used} in use"
                ));
            }
            if table.device(DeviceId(device)).is_none() && of_pages > 0 {
                return Err(format!("device {device} is gone, and {of_pages} pages are on it"));
            }
        }
        for node in 0..self.kswapd.len() as u16 {
            let keys: Vec<i32> = table.listed(NodeId(node)).map(|(_, key)| key).collect();
            if !keys.is_sorted() {
                return Err(format!("node {node}: the devices are listed by {keys:?}"));
            }
        }
        Ok(())
    }

    /// At the end, when nothing is under way: every slot in use has its page.
    ///
    /// # Errors
    /// As [`Memory::check`].
    pub fn check_end(&self) -> Result<(), String> {
        self.swap.drain();
        let on_devices = self.check_pages()?;
        for (device, store) in self.swap.stores.iter().enumerate() {
            let of_pages = on_devices[device];
            let used = store.slots.borrow().used();
            if used != of_pages {
                return Err(format!("device {device}: {used} slots in use by {of_pages} pages"));
            }
        }
        Ok(())
    }
}

fn holds(found: Option<Content>, expected: Content) -> Result<(), String> {
    match found {
        Some(content) if content == expected => Ok(()),
        found => Err(format!("expected {expected:?}, found {found:?}")),
    }
}

/// Which page has each frame or slot.
struct Owners {
    pages: Vec<Vec<PageId>>,
    counts: Vec<u32>,
}

/// No page.
const NOBODY: PageId = PageId::MAX;

impl Owners {
    fn new(lengths: impl Iterator<Item = usize>) -> Self {
        let pages: Vec<_> = lengths.map(|length| vec![NOBODY; length]).collect();
        Self { counts: vec![0; pages.len()], pages }
    }

    fn own(&mut self, of: u16, index: u32, page: PageId, what: &str) -> Result<(), String> {
        let owner = &mut self.pages[usize::from(of)][index as usize];
        if *owner != NOBODY {
            return Err(format!("pages {owner} and {page} both have {what} {index} of {of}"));
        }
        *owner = page;
        self.counts[usize::from(of)] += 1;
        Ok(())
    }
}
