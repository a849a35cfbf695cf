//! Where each page is: in a segment that is being filled, in one that waits to be written, or in an object.
//!
//! Everything that says where a page is changes in one step. What is in memory is read under the lock; what is in an
//! object without it, because an object never changes: a reader that finds it gone looks again where the page is now.
use super::server::Part;
use crate::sys::lock::Lock;
use crate::sys::mapping::{Mapping, ZeroedSlice};
use crate::sys::{PAGE_BYTES, futex, pages};
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use userswap_policy::segments::{Place, ROWS_KEPT, Segment, Worth, rows};
use userswap_policy::slots::SlotRun;

/// Segments in memory: one that is filled, one that is written, and one so that neither waits for the other.
const BUFFERS: usize = 3;

/// Pages copied in one go while the lock is held: some ten microseconds.
const COPY_PAGES: usize = 64;

/// A row is in no buffer; those have numbers from 1 on.
const NOWHERE: u32 = 0;

/// A segment that is in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Buffer {
    /// None is.
    Free,
    /// It has room after so many pages.
    Filling { segment: Segment, used: u32 },
    /// It is to be written.
    Full { segment: Segment },
}

/// What becomes of a row's segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Row {
    /// There is none.
    Free,
    /// It is in memory, and perhaps an object.
    Buffered { number: u32 },
    /// It is an object.
    Stored { number: u32 },
    /// It is an object that is to be deleted.
    Dying { number: u32 },
}

/// What the lock guards.
struct Table {
    buffers: [Buffer; BUFFERS],
    rows: Vec<Row>,
    free: Vec<u32>,
    /// The number of the next segment.
    next: u32,
}

/// Who appends pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Writer {
    /// A request: the slots are its own.
    Request,
    /// Pages are moved together, if they are still where they were.
    Mover {
        /// From which segment.
        from: Segment,
    },
}

/// Pages that are to be appended.
#[derive(Clone, Copy)]
pub struct Appended<'a> {
    /// Their slots, and for a mover where they were in their segment.
    pub slots: &'a dyn Fn(usize) -> Moved,
    /// Their content.
    pub part: Part<'a>,
    /// Who does it.
    pub writer: Writer,
}

/// A page by its slot, and its index in the segment that it comes from.
#[derive(Clone, Copy, Default)]
pub struct Moved {
    /// The slot.
    pub slot: u32,
    /// Where it was; of no meaning for a request.
    pub index: u32,
}

/// Where a run of pages was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// Nowhere.
    Nothing,
    /// They have been copied from memory.
    Copied,
    /// They are in an object, from that page on.
    Stored(Place),
}

/// The log.
pub struct Log {
    segment_pages: u32,
    /// Where the page of each slot is.
    places: ZeroedSlice<AtomicU64>,
    /// Of each row: the slot that each of its pages was written for.
    slots: ZeroedSlice<AtomicU32>,
    /// Of each row: how many of its pages are where a slot's page is.
    live: ZeroedSlice<AtomicU32>,
    /// Of each row: in which buffer it is.
    buffer_of: ZeroedSlice<AtomicU32>,
    memory: Mapping,
    table: Lock<Table>,
    /// Changes when there is room again.
    room: AtomicU32,
}

impl Log {
    /// For so many slots, in segments of so many pages.
    ///
    /// # Errors
    /// No address space.
    pub fn new(slots: u32, segment_pages: u32) -> io::Result<Self> {
        let rows = rows(slots, segment_pages).ok_or(io::ErrorKind::OutOfMemory)? as usize;
        let memory = Mapping::undumped(BUFFERS * segment_pages as usize * PAGE_BYTES)?;
        // A child has none of it: its pages were copied before.
        memory.advise(0, memory.bytes(), libc::MADV_WIPEONFORK)?;
        let table = Table {
            buffers: [Buffer::Free; BUFFERS],
            rows: vec![Row::Free; rows],
            free: (0..rows as u32).rev().collect(),
            next: 1,
        };
        Ok(Self {
            segment_pages,
            places: ZeroedSlice::new(slots as usize)?,
            slots: ZeroedSlice::new(rows * segment_pages as usize)?,
            live: ZeroedSlice::new(rows)?,
            buffer_of: ZeroedSlice::new(rows)?,
            memory,
            table: Lock::new(table),
            room: AtomicU32::new(0),
        })
    }

    /// Where a slot's page is.
    pub fn place(&self, slot: u32) -> Option<Place> {
        Place::of(self.places[slot as usize].load(Ordering::Acquire))
    }

    fn live(&self, segment: Segment) -> &AtomicU32 {
        &self.live[segment.row as usize]
    }

    fn slot_of(&self, place: Place) -> &AtomicU32 {
        let row = place.segment.row as usize * self.segment_pages as usize;
        &self.slots[row + place.index as usize]
    }

    fn address(&self, buffer: usize, index: u32) -> usize {
        let page = buffer * self.segment_pages as usize + index as usize;
        self.memory.address() + page * PAGE_BYTES
    }

    /// Where the page of a slot and of those after it are, up to as many as follow each other there; how many that are.
    /// What is in memory is copied.
    pub fn find(&self, first: u32, part: Part) -> (Found, usize) {
        let Some(place) = self.place(first) else {
            let missing = (1..part.count).find(|next| self.place(first + *next as u32).is_some());
            return (Found::Nothing, missing.unwrap_or(part.count));
        };
        let follows = |next: &usize| {
            let expected = (place.index + *next as u32) < self.segment_pages;
            expected && self.place(first + *next as u32) == Some(place.after(*next as u32))
        };
        let count = (1..part.count).find(|next| !follows(next)).unwrap_or(part.count);
        if self.buffer_of[place.segment.row as usize].load(Ordering::Acquire) == NOWHERE {
            return (Found::Stored(place), count);
        }
        let table = self.table.lock();
        let held = table.buffers.iter().position(|buffer| buffer.segment() == Some(place.segment));
        let Some(buffer) = held else { return (Found::Stored(place), count) };
        let count = count.min(COPY_PAGES);
        let part = Part { count, ..part };
        for (page, index) in part.pages().zip(place.index..) {
            pages::copy(page, self.address(buffer, index), 1);
        }
        drop(table);
        (Found::Copied, count)
    }

    /// Appends pages, as many as there is room for at once; how many.
    pub fn append(&self, appended: &Appended) -> io::Result<usize> {
        let mut table = self.table.lock();
        let Some(buffer) = table.filling(appended.writer)? else { return Ok(0) };
        let Buffer::Filling { segment, used } = table.buffers[buffer] else {
            unreachable!("that is what was asked for")
        };
        // Release pairs with the acquire in `find`: before any page says that it is there.
        self.buffer_of[segment.row as usize].store(buffer as u32 + 1, Ordering::Release);
        let room = (self.segment_pages - used) as usize;
        let count = appended.part.count.min(room).min(COPY_PAGES);
        let part = Part { count, ..appended.part };
        for ((page, index), nth) in part.pages().zip(used..).zip(0..) {
            pages::copy(self.address(buffer, index), page, 1);
            self.put(Place { segment, index }, (appended.slots)(nth), appended.writer);
        }
        let used = used + count as u32;
        table.buffers[buffer] = match used < self.segment_pages {
            true => Buffer::Filling { segment, used },
            false => Buffer::Full { segment },
        };
        Ok(count)
    }

    /// The page of a slot is here from now on. The lock is held.
    fn put(&self, place: Place, moved: Moved, writer: Writer) {
        self.slot_of(place).store(moved.slot, Ordering::Relaxed);
        let word = &self.places[moved.slot as usize];
        // Before it can be taken away again.
        self.live(place.segment).fetch_add(1, Ordering::Relaxed);
        match writer {
            Writer::Request => {
                let before = word.swap(place.word(), Ordering::AcqRel);
                Place::of(before).into_iter().for_each(|before| _ = self.take_away(before));
            }
            Writer::Mover { from } => {
                let before = Place { segment: from, index: moved.index };
                let order = Ordering::AcqRel;
                let is_moved = word
                    .compare_exchange(before.word(), place.word(), order, Ordering::Relaxed)
                    .is_ok();
                // Whichever of the two places is not its own.
                self.take_away(if is_moved { before } else { place });
            }
        }
    }

    /// One page less; what its segment is worth then.
    fn take_away(&self, place: Place) -> Worth {
        let before = self.live(place.segment).fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "a segment has no fewer pages than none");
        Worth::of(before - 1, self.segment_pages)
    }

    /// Slots hold nothing any more; whether there is something to be tidied up.
    pub fn forget(&self, run: SlotRun) -> bool {
        let mut is_less = false;
        for slot in run.first..run.first + run.count {
            let word = &self.places[slot as usize];
            // Most often by far nothing has changed since: no line is written to that need not be.
            let before =
                if word.load(Ordering::Relaxed) == 0 { 0 } else { word.swap(0, Ordering::AcqRel) };
            if let Some(place) = Place::of(before) {
                is_less |= self.take_away(place) != Worth::Kept;
            }
        }
        is_less
    }

    /// Waits until there may be room, or so long; `seen` is what [`Self::room`] was before it was looked for.
    pub fn wait_for_room(&self, seen: u32, timeout_ns: u64) {
        futex::wait_for(&self.room, seen, timeout_ns);
    }

    /// Changes when there is more room.
    pub fn room(&self) -> u32 {
        self.room.load(Ordering::Acquire)
    }

    fn note_room(&self) {
        self.room.fetch_add(1, Ordering::Release);
        futex::wake_all(&self.room);
    }

    /// The segment that is to be written next, and where its content is, which does not change until it was written.
    pub fn next_full(&self) -> Option<(Segment, &[u8])> {
        let table = self.table.lock();
        let full = table.buffers.iter().enumerate().filter_map(|(index, buffer)| match buffer {
            Buffer::Full { segment } => Some((*segment, index)),
            Buffer::Free | Buffer::Filling { .. } => None,
        });
        let (segment, buffer) = full.min_by_key(|(segment, _)| segment.number)?;
        let bytes = self.segment_pages as usize * PAGE_BYTES;
        Some((segment, pages::view(self.address(buffer, 0), bytes)))
    }

    /// A segment is an object from now on; what that is worth.
    pub fn stored(&self, segment: Segment) -> Worth {
        let mut table = self.table.lock();
        table.rows[segment.row as usize] = Row::Stored { number: segment.number };
        table.release(segment);
        // A reader that sees this asks the store.
        self.buffer_of[segment.row as usize].store(NOWHERE, Ordering::Release);
        drop(table);
        self.note_room();
        self.worth(segment)
    }

    fn worth(&self, segment: Segment) -> Worth {
        Worth::of(self.live(segment).load(Ordering::Acquire), self.segment_pages)
    }

    /// An object from a row on, and what it is worth, if that is not to be kept; one that nobody needs is not used again.
    pub fn next_worthless(&self, from: u32) -> Option<(Segment, Worth)> {
        let mut table = self.table.lock();
        let rows = table.rows.iter().zip(0..).skip(from as usize);
        let (segment, worth) = rows
            .filter_map(|(state, row)| match *state {
                Row::Stored { number } | Row::Dying { number } => Some(Segment { row, number }),
                Row::Free | Row::Buffered { .. } => None,
            })
            .map(|segment| (segment, self.worth(segment)))
            .find(|(_, worth)| *worth != Worth::Kept)?;
        if worth == Worth::Empty {
            table.rows[segment.row as usize] = Row::Dying { number: segment.number };
        }
        Some((segment, worth))
    }

    /// The pages that an object still has, in order.
    pub fn pages_of(&self, segment: Segment) -> Vec<Moved> {
        let pages = (0..self.segment_pages).map(|index| {
            let place = Place { segment, index };
            (place, Moved { slot: self.slot_of(place).load(Ordering::Relaxed), index })
        });
        pages
            .filter(|(place, moved)| self.place(moved.slot) == Some(*place))
            .map(|(_, moved)| moved)
            .collect()
    }

    /// An object is gone.
    pub fn deleted(&self, segment: Segment) {
        let mut table = self.table.lock();
        table.rows[segment.row as usize] = Row::Free;
        table.free.push(segment.row);
        drop(table);
        self.note_room();
    }

    /// Whether there was ever a segment.
    pub fn has_begun(&self) -> bool {
        self.table.lock().next > 1
    }

    /// All segments of which there may be objects.
    pub fn all(&self) -> Vec<Segment> {
        let table = self.table.lock();
        let numbers = table.rows.iter().zip(0..).filter_map(|(state, row)| match *state {
            Row::Free => None,
            Row::Buffered { number } | Row::Stored { number } | Row::Dying { number } => {
                Some(Segment { row, number })
            }
        });
        numbers.collect()
    }
}

impl Buffer {
    fn segment(self) -> Option<Segment> {
        match self {
            Self::Free => None,
            Self::Filling { segment, .. } | Self::Full { segment } => Some(segment),
        }
    }
}

impl Table {
    /// The buffer that is filled; None where there is no room for now.
    fn filling(&mut self, writer: Writer) -> io::Result<Option<usize>> {
        let is_filling = |buffer: &Buffer| matches!(buffer, Buffer::Filling { .. });
        if let Some(buffer) = self.buffers.iter().position(is_filling) {
            return Ok(Some(buffer));
        }
        let kept = if writer == Writer::Request { ROWS_KEPT } else { 0 };
        let free = self.buffers.iter().position(|buffer| *buffer == Buffer::Free);
        let Some(buffer) = free.filter(|_| self.free.len() > kept) else { return Ok(None) };
        let number = self.next;
        // Never once more from the beginning: a number is what an object is known by.
        self.next =
            number.checked_add(1).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOSPC))?;
        let row = self.free.pop().expect("there are more than that");
        self.rows[row as usize] = Row::Buffered { number };
        self.buffers[buffer] = Buffer::Filling { segment: Segment { row, number }, used: 0 };
        Ok(Some(buffer))
    }

    fn release(&mut self, segment: Segment) {
        let held = self.buffers.iter_mut().find(|buffer| buffer.segment() == Some(segment));
        *held.expect("what was written was in a buffer") = Buffer::Free;
    }
}
