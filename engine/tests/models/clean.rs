//! A clean page that is written to, dropped, and told to give its slot up, all at once: `state/word.rs`, and the acts
//! that go with its states in `fault/handle.rs`, `reclaim/clean.rs` and `state/page.rs`.
use crate::base::index::{NodeId, Slot};
use crate::word::{Mapped, PageState, Word};
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;
use std::num::NonZeroU32;

/// What the page held when it was read, what the program writes to it, and what a slot holds that was given up.
const OLD: u32 = 1;
const NEW: u32 = 2;
const OTHERS: u32 = 3;

const NODE: NodeId = NodeId(0);

/// What the kernel has mapped, if anything.
#[derive(Clone, Copy)]
struct Entry {
    content: u32,
    is_protected: bool,
}

struct Model {
    word: AtomicU64,
    entry: Mutex<Option<Entry>>,
    /// What slots 1 and 2 hold.
    slots: Mutex<[u32; 2]>,
    /// What the only frame holds.
    frame: Mutex<u32>,
}

fn slot(number: u32) -> Slot {
    Slot(NonZeroU32::new(number).unwrap())
}

impl Model {
    fn load(&self) -> Word {
        Word(self.word.load(Ordering::Acquire))
    }

    fn claim(&self, seen: Word, next: PageState) -> bool {
        let (seen, next) = (seen.0, Word::new(next).0);
        self.word.compare_exchange(seen, next, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn publish(&self, next: PageState) {
        let before = Word(self.word.swap(Word::new(next).0, Ordering::AcqRel));
        assert!(before.is_owned(), "only owners publish");
    }

    fn held_by(&self, slot: Slot) -> u32 {
        self.slots.lock().unwrap()[slot.0.get() as usize - 1]
    }

    /// The program writes, and faults until it can.
    fn write(&self) {
        loop {
            let seen = {
                let mut entry = self.entry.lock().unwrap();
                if let Some(entry) = entry.as_mut().filter(|entry| !entry.is_protected) {
                    entry.content = NEW;
                    return;
                }
                *entry
            };
            self.fault(seen.is_some());
            thread::yield_now();
        }
    }

    fn fault(&self, is_protected: bool) {
        let seen = self.load();
        match seen.state() {
            PageState::Clean { .. } | PageState::Resident { .. } => {
                let Mapped { slot, pins, node } = seen.state().mapped().unwrap();
                if !self.claim(seen, PageState::Leaving { slot }) {
                    return;
                }
                if is_protected && let Some(entry) = self.entry.lock().unwrap().as_mut() {
                    entry.is_protected = false;
                }
                self.publish(match seen.state() {
                    clean @ PageState::Clean { .. } if !is_protected => clean,
                    _ => PageState::Resident { slot, pins, node },
                });
            }
            PageState::Swapped { slot }
                if self.claim(seen, PageState::Filling { slot: Some(slot) }) =>
            {
                let content = self.held_by(slot);
                *self.entry.lock().unwrap() = Some(Entry { content, is_protected: false });
                self.publish(PageState::Resident { slot: Some(slot), pins: 0, node: NODE });
            }
            PageState::Cached { slot, .. } if self.claim(seen, PageState::Filling { slot }) => {
                let content = *self.frame.lock().unwrap();
                *self.entry.lock().unwrap() = Some(Entry { content, is_protected: false });
                self.publish(PageState::Resident { slot, pins: 0, node: NODE });
            }
            _ => {}
        }
    }

    /// Reclaim takes the page if it can.
    fn reclaim(&self) {
        let seen = self.load();
        let Some(Mapped { slot: held, .. }) = seen.state().mapped() else { return };
        if !self.claim(seen, PageState::Leaving { slot: held }) {
            return;
        }
        if let PageState::Clean { slot, .. } = seen.state() {
            let mapped = || self.entry.lock().unwrap().expect("a mapped page has an entry");
            *self.frame.lock().unwrap() = mapped().content;
            assert!(mapped().is_protected, "nobody lifts a protection but an owner");
            *self.entry.lock().unwrap() = None;
            return self.publish(PageState::Cached { frame: 0, slot: Some(slot), marker: false });
        }
        let taken = self.entry.lock().unwrap().take();
        let content = taken.expect("a mapped page has an entry").content;
        match held.filter(|slot| self.held_by(*slot) == content) {
            Some(slot) => self.publish(PageState::Swapped { slot }),
            None => {
                self.slots.lock().unwrap()[1] = content;
                self.publish(PageState::Swapped { slot: slot(2) });
            }
        }
    }

    /// A mapped page gives its slot up, which holds another's content then.
    fn give_up_slot(&self) {
        let seen = self.load();
        let Some(Mapped { slot: Some(held), pins, node }) = seen.state().mapped() else { return };
        if self.claim(seen, PageState::Resident { slot: None, pins, node }) {
            self.slots.lock().unwrap()[held.0.get() as usize - 1] = OTHERS;
        }
    }

    fn content(&self) -> u32 {
        match self.load().state() {
            PageState::Swapped { slot } => self.held_by(slot),
            PageState::Cached { .. } => *self.frame.lock().unwrap(),
            _ => self.entry.lock().unwrap().expect("a page that is not swapped is mapped").content,
        }
    }
}

fn in_every_order(others: [fn(&Model); 2], writes: bool) {
    let mut checker = loom::model::Builder::new();
    checker.preemption_bound = Some(3);
    checker.check(move || {
        let clean = PageState::Clean { slot: slot(1), node: NODE };
        let model = Arc::new(Model {
            word: AtomicU64::new(Word::new(clean).0),
            entry: Mutex::new(Some(Entry { content: OLD, is_protected: true })),
            slots: Mutex::new([OLD, OTHERS]),
            frame: Mutex::new(OTHERS),
        });
        let others = others.map(|act| {
            let model = model.clone();
            thread::spawn(move || act(&model))
        });
        if writes {
            model.write();
        }
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(model.content(), if writes { NEW } else { OLD });
    });
}

#[test]
fn a_write_to_a_clean_page_stays_whatever_reclaim_does_meanwhile() {
    in_every_order([Model::reclaim, Model::reclaim], true);
}

#[test]
fn a_clean_page_may_lose_its_slot_while_it_is_written_to_or_dropped() {
    in_every_order([Model::reclaim, Model::give_up_slot], true);
    in_every_order([Model::reclaim, Model::give_up_slot], false);
}
