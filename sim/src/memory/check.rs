//! What must be true after every event: no page lost, none stale, no slot and no frame owned twice, lists and counts exact.

use std::collections::BTreeMap;

use userswap_policy::devices::{DeviceId, NodeId};
use userswap_policy::lru::ListId;

use super::state::Content;
use super::{Frame, Memory, PageId, Slot, Word};

impl Memory {
    /// Looks at everything.
    ///
    /// # Errors
    /// What is wrong, in one line.
    pub fn check(&self) -> Result<(), String> {
        let slots = self.check_pages()?;
        self.check_nodes()?;
        self.check_devices(&slots)
    }

    /// Every page has its content; returns the page on each slot.
    fn check_pages(&self) -> Result<BTreeMap<Slot, PageId>, String> {
        let state = self.state.borrow();
        let (mut slots, mut frames) = (BTreeMap::new(), BTreeMap::new());
        for (page, of) in state.pages.iter().enumerate() {
            let page = page as PageId;
            let expected = Content { page, version: of.version };
            let (frame, slot) = match of.word {
                Word::Untouched if of.version > 0 => return Err(format!("page {page} is forgotten")),
                Word::Untouched | Word::Filling | Word::Lost => (None, None),
                Word::Resident(frame) | Word::Leaving(frame) => (Some(frame), None),
                Word::Writing(frame, slot) => (Some(frame), Some(slot)),
                Word::Swapped(slot, _) | Word::Reading(slot) => (None, Some(slot)),
            };
            if let Some(frame) = frame {
                let at = |frame: Frame| (frame.node, frame.index);
                self.holds(state.nodes[usize::from(frame.node)].contents[frame.index as usize], expected)?;
                if let Some(other) = frames.insert(at(frame), page) {
                    return Err(format!("pages {other} and {page} are both in {frame:?}"));
                }
            }
            if let Some(slot) = slot {
                if frame.is_none() && !self.is_dead(slot) {
                    let content = self.swap.store(slot.device).contents.borrow()[slot.index as usize];
                    // Between the read and the end of a swap-in the slot is given back already.
                    if !matches!(of.word, Word::Reading(_)) || content.is_some() {
                        self.holds(content, expected)?;
                    }
                }
                if let Some(other) = slots.insert(slot, page) {
                    let is_reading = |page| matches!(state.word(page), Word::Reading(_));
                    if !is_reading(other) && !is_reading(page) {
                        return Err(format!("pages {other} and {page} are both on {slot:?}"));
                    }
                }
            }
        }
        Ok(slots)
    }

    fn holds(&self, found: Option<Content>, expected: Content) -> Result<(), String> {
        match found {
            Some(content) if content == expected => Ok(()),
            found => Err(format!("expected {expected:?}, found {found:?}")),
        }
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
                return Err(format!("node {index}: {listed} pages listed, {} resident", resident[index]));
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
    fn check_devices(&self, slots: &BTreeMap<Slot, PageId>) -> Result<(), String> {
        let table = self.swap.table.borrow();
        for (device, store) in self.swap.stores.iter().enumerate() {
            let device = device as u8;
            let used = store.slots.borrow().used();
            let of_pages = slots.keys().filter(|slot| slot.device == device).count() as u32;
            // A page is Leaving while its slot is being taken, and has none while it is being given back.
            let held = store.contents.borrow().iter().flatten().count() as u32;
            if held > used {
                return Err(format!("device {device}: {held} slots with content, {used} in use"));
            }
            if table.device(DeviceId(device)).is_none() && of_pages > 0 {
                return Err(format!("device {device} is gone, and {of_pages} pages are on it"));
            }
        }
        for node in 0..self.kswapd.len().min(255) as u8 {
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
        let slots = self.check_pages()?;
        for (device, store) in self.swap.stores.iter().enumerate() {
            let of_pages = slots.keys().filter(|slot| usize::from(slot.device) == device).count();
            let used = store.slots.borrow().used() as usize;
            if used != of_pages {
                return Err(format!("device {device}: {used} slots in use by {of_pages} pages"));
            }
        }
        Ok(())
    }
}
