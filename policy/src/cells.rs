//! Cells for compressed pages: which cell of which slab holds one.
//!
//! Slabs are of one size, and each is cut into as many equal cells as its class says: classes are by the *number* of
//! cells, so that next to nothing of a slab is left over. A page goes to the fullest slab of its class that has room:
//! the others become empty, and an empty slab can be given back. Where pages have gone here and there, slabs are chosen to
//! *leave*: nothing comes to them, and the caller moves what they hold to others of their class. Nothing is allocated here,
//! and nothing is kept in the cells.
use crate::bits;

/// Bytes of a slab.
pub const SLAB_BYTES: usize = 64 << 10;
/// Pages of a slab.
pub const SLAB_PAGES: u32 = (SLAB_BYTES / PAGE_BYTES) as u32;
/// Bytes of a page, and of the largest cell, which holds a page as it is.
pub const PAGE_BYTES: usize = 4096;
/// What is larger than this, a 21st of a slab, is not worth its compression: it is kept as it is.
pub const COMPRESSED_BYTES_MAX: usize = cell_bytes(21);
/// Bytes of the smallest cell.
const CELL_BYTES_MIN: usize = 64;
/// All cells begin at a multiple of it.
const ALIGNMENT: usize = 16;
/// Cells of a slab at most.
const CELLS_MAX: u32 = (SLAB_BYTES / CELL_BYTES_MIN) as u32;
/// Groups of slabs of a class that have room, by how full they are.
const GROUPS: usize = 8;
/// How many classes there are.
pub const CLASSES: usize = CELLS_OF.len();
/// Slabs that may be taken beyond what the pages to be stored fill: each class has one that it begins.
pub const SLABS_BEGUN_MAX: u32 = CLASSES as u32;

/// The number of cells of a slab, by class, from the largest cells to the smallest.
const CELLS_OF: [u16; count_classes()] = list_classes();

const fn cell_bytes(cells: u32) -> usize {
    SLAB_BYTES / cells as usize / ALIGNMENT * ALIGNMENT
}

/// The class after that of so many cells: the most cells of the next smaller size.
const fn next_class(cells: u32) -> u32 {
    let first =
        if cells == SLAB_PAGES { COMPRESSED_BYTES_MAX + ALIGNMENT } else { cell_bytes(cells) };
    let smaller = (first - 1) / ALIGNMENT * ALIGNMENT;
    // Of numbers that give one size the largest: no room is left over.
    let mut next = (SLAB_BYTES / smaller) as u32;
    while cell_bytes(next) > smaller {
        next += 1;
    }
    (SLAB_BYTES / cell_bytes(next)) as u32
}

const fn count_classes() -> usize {
    let (mut cells, mut count) = (SLAB_PAGES, 1);
    while cells < CELLS_MAX {
        cells = next_class(cells);
        count += 1;
    }
    count
}

const fn list_classes() -> [u16; count_classes()] {
    let mut list = [0; count_classes()];
    let (mut cells, mut class) = (SLAB_PAGES, 0);
    while class < list.len() {
        list[class] = cells as u16;
        cells = next_class(cells);
        class += 1;
    }
    list
}

/// A cell, by the numbers of its slab and of itself there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Cell(u32);

impl Cell {
    /// By its number.
    pub fn from_number(number: u32) -> Self {
        Self(number)
    }

    /// The number that names it.
    pub fn number(self) -> u32 {
        self.0
    }

    fn new(slab: u32, index: u32) -> Self {
        Self(slab * CELLS_MAX + index)
    }

    /// The number of its slab.
    pub fn slab(self) -> u32 {
        self.0 / CELLS_MAX
    }

    fn index(self) -> u32 {
        self.0 % CELLS_MAX
    }
}

/// Slabs that a cell's number has room for.
pub const SLABS_MAX: u32 = u32::MAX / CELLS_MAX;

/// A slab's number plus one; 0 is none, so that a table of slabs begins as zeros.
type Next = u32;

/// What is known of a slab; all zeros is one that was never used.
#[derive(Clone, Copy, Default)]
pub struct Slab {
    used: [u64; (CELLS_MAX / bits::WORD) as usize],
    count: u16,
    class: u8,
    is_leaving: bool,
    next: Next,
    previous: Next,
}

impl Slab {
    fn cells(&self) -> u32 {
        u32::from(CELLS_OF[usize::from(self.class)])
    }

    /// The list it belongs to.
    fn place(&self) -> Place {
        let (count, cells) = (u32::from(self.count), self.cells());
        match count {
            0 => Place::Empty,
            _ if self.is_leaving => Place::Leaving,
            _ if count == cells => Place::Full,
            _ => Place::Room(self.class, (count * GROUPS as u32 / cells) as u8),
        }
    }
}

/// Where a slab is found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Among the empty ones, whose memory is still there.
    Empty,
    /// In a group of its class.
    Room(u8, u8),
    /// Among those whose pages are being moved.
    Leaving,
    /// On no list.
    Full,
}

/// All slabs, in a table that the caller supplies.
pub struct Cells<T> {
    slabs: T,
    /// Slabs with room, by class and group.
    room: [[Next; GROUPS]; CLASSES],
    empty: Next,
    /// Given back: without memory.
    gone: Next,
    leaving: Next,
    /// By class, cells not in use of slabs that have some in use and do not leave.
    free: [u32; CLASSES],
    /// Slabs that were ever used: the first ones of the table.
    ever: u32,
    counts: Counts,
}

/// Slabs and bytes, as they are at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Slabs with a cell in use.
    pub busy: u32,
    /// Slabs without one whose memory is still there.
    pub empty: u32,
    /// Bytes of the cells in use.
    pub cell_bytes: u64,
}

impl<T: AsRef<[Slab]> + AsMut<[Slab]>> Cells<T> {
    /// None of the slabs in the table, which is all zeros, has memory.
    ///
    /// # Panics
    /// There are more slabs than numbers.
    pub fn new(slabs: T) -> Self {
        assert!(
            slabs.as_ref().len() <= SLABS_MAX as usize,
            "a cell's number has room for its slab"
        );
        let room = [[0; GROUPS]; CLASSES];
        Self {
            slabs,
            room,
            empty: 0,
            gone: 0,
            leaving: 0,
            free: [0; CLASSES],
            ever: 0,
            counts: Counts::default(),
        }
    }

    /// Slabs and bytes in use.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Takes a cell for so many bytes of one page; None when all slabs are in use.
    ///
    /// # Panics
    /// That is more than a page.
    pub fn take(&mut self, bytes: usize) -> Option<Cell> {
        let class = class_of(bytes);
        let fullest = self.room[class].iter().rev().find(|head| **head != 0);
        let number = match fullest {
            Some(head) => head - 1,
            None => self.begin(class)?,
        };
        let slab = &self.slabs.as_ref()[number as usize];
        let before = slab.place();
        let word = |index: usize| !slab.used[index];
        let index = bits::first_one(word, 0..slab.cells()).expect("a slab with room has a cell");
        let slab = &mut self.slabs.as_mut()[number as usize];
        slab.used[(index / bits::WORD) as usize] |= 1 << (index % bits::WORD);
        slab.count += 1;
        self.free[class] -= 1;
        self.counts.cell_bytes += cell_bytes(u32::from(CELLS_OF[class])) as u64;
        self.relist(number, before);
        Some(Cell::new(number, index))
    }

    /// Takes a cell back.
    ///
    /// # Panics
    /// It is not in use.
    pub fn put(&mut self, cell: Cell) {
        let number = cell.slab();
        let slab = &mut self.slabs.as_mut()[number as usize];
        let before = slab.place();
        let (word, mask) = ((cell.index() / bits::WORD) as usize, 1 << (cell.index() % bits::WORD));
        assert!(slab.used[word] & mask != 0, "a cell is given back once");
        slab.used[word] &= !mask;
        slab.count -= 1;
        let (cells, class, is_empty) = (slab.cells(), usize::from(slab.class), slab.count == 0);
        let was_leaving = slab.is_leaving;
        slab.is_leaving &= !is_empty;
        self.counts.cell_bytes -= cell_bytes(cells) as u64;
        if !was_leaving {
            self.free[class] += 1;
            self.free[class] -= if is_empty { cells } else { 0 };
        }
        self.relist(number, before);
    }

    /// Where a cell is: its first byte, counted from that of the first slab, and its length.
    ///
    /// # Panics
    /// It is not in use.
    pub fn span(&self, cell: Cell) -> Span {
        let slab = &self.slabs.as_ref()[cell.slab() as usize];
        let (word, bit) = ((cell.index() / bits::WORD) as usize, cell.index() % bits::WORD);
        assert!(slab.used[word] >> bit & 1 == 1, "only cells in use are looked at");
        let bytes = cell_bytes(slab.cells());
        Span { start: cell.slab() as usize * SLAB_BYTES + cell.index() as usize * bytes, bytes }
    }

    /// An empty slab, whose memory the caller gives back and then says so; it is not used meanwhile.
    pub fn take_empty(&mut self) -> Option<u32> {
        let number = self.empty.checked_sub(1)?;
        self.unlink(number, Place::Empty);
        self.counts.empty -= 1;
        Some(number)
    }

    /// The memory of a slab has been given back.
    pub fn on_gone(&mut self, number: u32) {
        self.slabs.as_mut()[number as usize].next = self.gone;
        self.gone = number + 1;
    }

    /// Slabs that would be empty if those of each class were filled up.
    pub fn scattered(&self) -> u32 {
        self.free.iter().zip(CELLS_OF).map(|(free, cells)| free / u32::from(cells)).sum()
    }

    /// Chooses slabs, the emptiest first, for whose pages others of their class have the room, and names them.
    pub fn start_leaving(&mut self, most: u32, mut name: impl FnMut(u32)) {
        let (mut left, mut needed) = (most, self.cells_leaving());
        for (class, cells) in CELLS_OF.iter().enumerate() {
            // What a slab has free is lost, and what it holds needs as much as the rest of its cells.
            while left > 0 && self.free[class] >= needed[class] + u32::from(*cells) {
                let emptiest = self.room[class].iter().find(|head| **head != 0);
                let number = emptiest.expect("free cells are in slabs with room") - 1;
                let slab = &mut self.slabs.as_mut()[number as usize];
                let before = slab.place();
                slab.is_leaving = true;
                self.free[class] -= slab.cells() - u32::from(slab.count);
                needed[class] += u32::from(slab.count);
                self.relist(number, before);
                name(number);
                left -= 1;
            }
        }
    }

    /// By class, the cells in use of slabs that leave.
    fn cells_leaving(&self) -> [u32; CLASSES] {
        let (mut cells, mut next) = ([0; CLASSES], self.leaving);
        while let Some(number) = next.checked_sub(1) {
            let slab = &self.slabs.as_ref()[number as usize];
            cells[usize::from(slab.class)] += u32::from(slab.count);
            next = slab.next;
        }
        cells
    }

    /// What slabs that leave still hold stays there.
    pub fn end_leaving(&mut self) {
        while let Some(number) = self.leaving.checked_sub(1) {
            let slab = &mut self.slabs.as_mut()[number as usize];
            slab.is_leaving = false;
            self.free[usize::from(slab.class)] += slab.cells() - u32::from(slab.count);
            self.relist(number, Place::Leaving);
        }
    }

    /// A slab without a cell in use becomes one of a class, with room: still on the list of the empty ones if it was.
    fn begin(&mut self, class: usize) -> Option<u32> {
        let number = if let Some(number) = self.empty.checked_sub(1) {
            number
        } else {
            let number = match self.gone.checked_sub(1) {
                Some(number) => {
                    self.gone = self.slabs.as_ref()[number as usize].next;
                    number
                }
                None => {
                    let number = self.ever;
                    self.slabs.as_ref().get(number as usize)?;
                    self.ever += 1;
                    number
                }
            };
            self.link(number, Place::Empty);
            self.counts.empty += 1;
            number
        };
        self.slabs.as_mut()[number as usize].class = class as u8;
        self.free[class] += u32::from(CELLS_OF[class]);
        Some(number)
    }

    /// Puts a slab where it belongs after its count has changed.
    fn relist(&mut self, number: u32, before: Place) {
        let after = self.slabs.as_ref()[number as usize].place();
        if before == after {
            return;
        }
        self.unlink(number, before);
        self.link(number, after);
        match (before, after) {
            (Place::Empty, _) => {
                (self.counts.empty, self.counts.busy) =
                    (self.counts.empty - 1, self.counts.busy + 1)
            }
            (_, Place::Empty) => {
                (self.counts.empty, self.counts.busy) =
                    (self.counts.empty + 1, self.counts.busy - 1)
            }
            _ => {}
        }
    }

    fn head(&mut self, place: Place) -> Option<&mut Next> {
        match place {
            Place::Empty => Some(&mut self.empty),
            Place::Room(class, group) => {
                Some(&mut self.room[usize::from(class)][usize::from(group)])
            }
            Place::Leaving => Some(&mut self.leaving),
            Place::Full => None,
        }
    }

    fn link(&mut self, number: u32, place: Place) {
        let Some(head) = self.head(place) else { return };
        let next = core::mem::replace(head, number + 1);
        let slabs = self.slabs.as_mut();
        (slabs[number as usize].next, slabs[number as usize].previous) = (next, 0);
        if let Some(next) = next.checked_sub(1) {
            slabs[next as usize].previous = number + 1;
        }
    }

    fn unlink(&mut self, number: u32, place: Place) {
        let Slab { next, previous, .. } = self.slabs.as_ref()[number as usize];
        let Some(head) = self.head(place) else { return };
        if previous == 0 {
            *head = next;
        }
        let slabs = self.slabs.as_mut();
        if let Some(previous) = previous.checked_sub(1) {
            slabs[previous as usize].next = next;
        }
        if let Some(next) = next.checked_sub(1) {
            slabs[next as usize].previous = previous;
        }
    }
}

/// Where a cell is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Its first byte, counted from that of the first slab.
    pub start: usize,
    /// Its length.
    pub bytes: usize,
}

/// The class with the smallest cells that hold so many bytes.
fn class_of(bytes: usize) -> usize {
    assert!(bytes <= PAGE_BYTES, "a cell holds a page at most");
    CELLS_OF.partition_point(|cells| cell_bytes(u32::from(*cells)) >= bytes) - 1
}

#[cfg(test)]
mod tests;
