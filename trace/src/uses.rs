//! What a program did with its pages, as far as a trace tells.
//!
//! A fault is a use of its page; so is each page of a run that came without content, since the stream of faults that made the
//! run was a program that goes through its memory. Pages that were read ahead may never have been used, and count only when
//! a fault says so. Uses of pages while they were mapped are not in a trace.
use crate::{BadTrace, Event, Header, Kind, Reader};
use std::collections::HashMap;
use std::io::BufRead;

/// What a program does with a page; pages are counted in the order of their first use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// Reads or writes it.
    Access(u32),
    /// Gives it up: it reads as zeros from then on.
    Drop(u32),
}

/// A whole trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recording {
    /// What it is of.
    pub header: Header,
    /// What the program did.
    pub uses: Vec<Use>,
    /// Pages that it used.
    pub pages: u32,
    /// Events of each kind, by [`Kind::ALL`].
    pub events: [u64; Kind::ALL.len()],
    /// Events that were lost.
    pub lost: u64,
    /// Milliseconds to the last block.
    pub duration_ms: u64,
    /// False if the program was killed, or the file is not whole.
    pub has_ended: bool,
}

impl Recording {
    /// Reads a trace to its end.
    ///
    /// # Errors
    /// The file is damaged, or cannot be read.
    pub fn read<R: BufRead>(mut reader: Reader<R>) -> Result<Self, BadTrace> {
        let mut uses = Uses::default();
        let mut events = [0; Kind::ALL.len()];
        let (mut lost, mut duration_ms) = (0, 0);
        while let Some(block) = reader.next_block()? {
            for event in &block.events {
                events[event.kind as usize - 1] += 1;
                uses.add(*event);
            }
            lost += block.lost;
            duration_ms = block.at_ms;
        }
        let (header, has_ended) = (reader.header().clone(), reader.has_ended());
        let (uses, pages) = (uses.all, uses.numbers.len() as u32);
        Ok(Self { header, uses, pages, events, lost, duration_ms, has_ended })
    }

    /// The accesses alone, a page that was dropped being another page from then on; and how many pages there are.
    pub fn accesses(&self) -> (Vec<u32>, u32) {
        let mut number_of: Vec<u32> = (0..self.pages).collect();
        let mut pages = self.pages;
        let mut accesses = Vec::new();
        for used in &self.uses {
            match *used {
                Use::Access(page) => accesses.push(number_of[page as usize]),
                Use::Drop(page) => {
                    number_of[page as usize] = pages;
                    pages += 1;
                }
            }
        }
        (accesses, pages)
    }
}

#[derive(Default)]
struct Uses {
    all: Vec<Use>,
    numbers: HashMap<u32, u32>,
}

impl Uses {
    fn add(&mut self, event: Event) {
        let pages = event.first..=event.first + (event.count - 1);
        match event.kind {
            // Of a first touch the run has come just before.
            Kind::FirstTouch | Kind::Nothing | Kind::Back | Kind::Left => {}
            Kind::SecondChance
            | Kind::Read
            | Kind::Waited
            | Kind::Present
            | Kind::Written
            | Kind::Fresh => {
                for page in pages {
                    let next = self.numbers.len() as u32;
                    let number = *self.numbers.entry(page).or_insert(next);
                    if self.all.last() != Some(&Use::Access(number)) {
                        self.all.push(Use::Access(number));
                    }
                }
            }
            Kind::Dropped => {
                // What was never used has nothing to give up.
                let known = pages.filter_map(|page| self.numbers.get(&page).copied());
                self.all.extend(known.map(Use::Drop));
            }
        }
    }
}
