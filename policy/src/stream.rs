//! Streams: recognises faults that follow each other and grows the run of pages served at once.
//!
//! Decides which pages to bring in at a fault and which to read before they are needed; what of it is
//! possible (ends of a region, pages already there, frames at hand) is the caller's to find out and to
//! report. The rules:
//!
//! - A page that no stream expects starts a stream in place of the least recently used one, with a
//!   window of that page alone. A program that jumps about never gets more.
//! - A new stream expects the page behind its window and the page before it. Which of them faults
//!   gives its direction and a window of 4 pages; each further expected fault doubles it, up to
//!   `run_max`. A forward window starts at the faulting page, a backward one ends there.
//! - A forward stream also goes on at a page less than the last window's length behind the expected
//!   one: somebody else may have brought in those between.
//! - A forward stream whose window has reached `run_max` reads *ahead*: the pages right behind the
//!   window, first `run_max` of them, then twice as many each time up to `ahead_max`. The page at the start
//!   of the last quarter is the marker. It stays unmapped, so that the fault on it tells that the program
//!   follows, and starts the next window ahead. As long as that works the stream expects the page behind
//!   everything that is read ahead.
//! - A fault elsewhere inside the window ahead, or the one before it, means that reading is behind: it
//!   keeps the stream alive and serves that page only.
//! - Windows ahead that nobody reaches need no care: their stream is forgotten as the least recently used.

/// How many streams are followed at once: room for many interleaved scans, while the search at each
/// fault reads less than 2 KiB.
pub const STREAMS: usize = 32;

/// Pages of the first window after a stream's direction is known.
const WINDOW_FIRST: u32 = 4;

/// Pages to bring in at a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// The lowest page.
    pub first: u32,
    /// How many pages, the faulting one among them.
    pub count: u32,
    /// Pages to read without waiting for them.
    pub ahead: Option<Ahead>,
}

/// Pages to read before they are needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ahead {
    /// The lowest page.
    pub first: u32,
    /// How many pages.
    pub count: u32,
    /// The page among them whose fault must be told to [`Streams::on_marker`].
    pub marker: u32,
}

impl Ahead {
    /// The window of `count` pages from `first`, if there are any.
    fn new(first: u32, count: u32) -> Option<Self> {
        let count = count.min(u32::MAX - first);
        let marker = first + (count - count.div_ceil(4));
        (count > 0).then_some(Self { first, count, marker })
    }

    fn end(&self) -> u32 {
        self.first.saturating_add(self.count)
    }
}

/// How far windows grow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Most pages of the window at a fault; 0 counts as 1.
    pub run_max: u32,
    /// Most pages of the window ahead; 0 means never to read ahead.
    pub ahead_max: u32,
}

/// Where a stream is and what it expects.
#[derive(Clone, Copy, Debug)]
enum Course {
    Unused,
    /// One window was served: expects `end` or the page before `first`.
    Started {
        first: u32,
        end: u32,
    },
    /// Expects the page behind everything read, `[ahead_first, end)` being read ahead.
    Forward {
        ahead_first: u32,
        end: u32,
        window: u32,
        ahead: Option<Ahead>,
    },
    /// Expects the page before `first`.
    Backward {
        first: u32,
        window: u32,
    },
}

/// How a page lies to a stream's course; the best comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Relation {
    /// In what is being read already.
    Inside,
    /// Right behind.
    Next,
    /// Right before.
    Before,
    /// A little behind what is expected.
    Jump,
}

impl Course {
    fn relation(&self, page: u32) -> Option<Relation> {
        let is_before = |first: u32| page.checked_add(1) == Some(first);
        match *self {
            Course::Unused => None,
            Course::Started { first, end } if (first..end).contains(&page) => {
                Some(Relation::Inside)
            }
            Course::Started { end, .. } if page == end => Some(Relation::Next),
            Course::Started { first, .. } => is_before(first).then_some(Relation::Before),
            Course::Forward { ahead_first, end, window, .. } => match page.checked_sub(end) {
                Some(0) => Some(Relation::Next),
                Some(distance) => (distance < window).then_some(Relation::Jump),
                None => (page >= ahead_first).then_some(Relation::Inside),
            },
            Course::Backward { first, .. } => is_before(first).then_some(Relation::Before),
        }
    }

    /// Pages of the next window.
    fn grown(&self, limits: Limits) -> u32 {
        let window = match *self {
            Course::Unused | Course::Started { .. } => WINDOW_FIRST,
            // A hit proves the scan goes on; doubling reaches the best request size in few faults.
            Course::Forward { window, .. } | Course::Backward { window, .. } => {
                window.saturating_mul(2)
            }
        };
        window.min(limits.run_max).max(1)
    }

    fn ahead(&self) -> Option<Ahead> {
        match self {
            Course::Forward { ahead, .. } => *ahead,
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Stream {
    course: Course,
    /// The fault that moved it last, which `on_served` reports about.
    fault: u32,
    /// When it was used last.
    used: u64,
}

/// The streams among the faults of one region, or of one thread.
#[derive(Clone, Debug)]
pub struct Streams {
    streams: [Stream; STREAMS],
    /// Counts uses, to know the least recent one.
    clock: u64,
}

impl Default for Streams {
    fn default() -> Self {
        Self::new()
    }
}

impl Streams {
    /// No stream is known.
    pub const fn new() -> Self {
        let unused = Stream { course: Course::Unused, fault: 0, used: 0 };
        Self { streams: [unused; STREAMS], clock: 0 }
    }

    /// The window to serve a fault on `page`, which always has that page in it.
    ///
    /// The stream counts on all of it being served; else tell [`Streams::on_served`].
    pub fn on_fault(&mut self, page: u32, limits: Limits) -> Window {
        self.clock += 1;
        let known = self
            .streams
            .iter_mut()
            .filter_map(|stream| Some((stream.course.relation(page)?, stream)))
            .min_by_key(|(relation, stream)| (*relation, u64::MAX - stream.used));
        let Some((relation, stream)) = known else { return self.start(page) };
        stream.used = self.clock;
        match relation {
            Relation::Inside => Window { first: page, count: 1, ahead: None },
            Relation::Next | Relation::Jump => stream.go_forward(page, limits),
            Relation::Before => stream.go_backward(page, limits),
        }
    }

    /// Tells what was really brought in after the fault on `page`: the stream expects the page behind
    /// it (before it, if backward). An `ahead` that was not started is left out of `served`, and one
    /// that was shortened is best made to agree by [`Streams::on_ahead`].
    pub fn on_served(&mut self, page: u32, served: Window) {
        let last = self
            .streams
            .iter_mut()
            .filter(|stream| stream.fault == page)
            .max_by_key(|stream| stream.used);
        let Some(stream) = last else { return };
        let served_end = served.first.saturating_add(served.count);
        match &mut stream.course {
            Course::Unused => {}
            Course::Started { first, end } => (*first, *end) = (served.first, served_end),
            Course::Forward { ahead_first, end, ahead, .. } => {
                // Behind a gap the program would fault before it reaches the window ahead.
                *ahead = served.ahead.filter(|ahead| ahead.first == served_end);
                *ahead_first = served_end;
                *end = ahead.map_or(served_end, |ahead| ahead.end());
            }
            Course::Backward { first, .. } => *first = served.first,
        }
    }

    /// The window ahead to start at a fault on the marker `page`; `None` if no stream waits for it
    /// (it was forgotten, or the marker has been told already).
    pub fn on_marker(&mut self, page: u32, limits: Limits) -> Option<Ahead> {
        self.clock += 1;
        let now = self.clock;
        let stream = self.ahead_where(|ahead| ahead.marker == page)?;
        let Course::Forward { ahead_first, end, ahead, .. } = &mut stream.course else {
            unreachable!("only forward streams read ahead")
        };
        let reached = ahead.take()?;
        *ahead = Ahead::new(*end, reached.count.saturating_mul(2).min(limits.ahead_max));
        // The rest of the window reached may still be on its way: it counts as being read.
        *ahead_first = reached.first;
        *end = ahead.map_or(*end, |ahead| ahead.end());
        let started = *ahead;
        stream.used = now;
        started
    }

    /// Tells that only `count` pages of the window `promised` are really read, and gives it with the
    /// marker that holds now; with 0 it is forgotten and the program's next fault goes on in its place.
    pub fn on_ahead(&mut self, promised: Ahead, count: u32) -> Option<Ahead> {
        let stream = self.ahead_where(|ahead| *ahead == promised)?;
        let Course::Forward { end, ahead, .. } = &mut stream.course else {
            unreachable!("only forward streams read ahead")
        };
        if count < promised.count {
            *ahead = Ahead::new(promised.first, count);
            *end = promised.first + count;
        }
        *ahead
    }

    /// The stream whose window ahead is wanted.
    fn ahead_where(&mut self, is_wanted: impl Fn(&Ahead) -> bool) -> Option<&mut Stream> {
        self.streams
            .iter_mut()
            .find(|stream| stream.course.ahead().as_ref().is_some_and(&is_wanted))
    }

    /// Begins a stream at `page` in place of the least recently used one.
    fn start(&mut self, page: u32) -> Window {
        let stream = self
            .streams
            .iter_mut()
            .min_by_key(|stream| stream.used)
            .expect("there is more than one stream");
        let course = Course::Started { first: page, end: page.saturating_add(1) };
        *stream = Stream { course, fault: page, used: self.clock };
        Window { first: page, count: 1, ahead: None }
    }
}

impl Stream {
    fn go_forward(&mut self, page: u32, limits: Limits) -> Window {
        let window = self.course.grown(limits);
        let count = window.min(u32::MAX - page).max(1);
        let ahead_first = page.saturating_add(count);
        let ahead_count = match self.course.ahead() {
            Some(before) => before.count.saturating_mul(2),
            None => window,
        };
        let ahead = if window >= limits.run_max {
            Ahead::new(ahead_first, ahead_count.min(limits.ahead_max))
        } else {
            None
        };
        let end = ahead.map_or(ahead_first, |ahead| ahead.end());
        self.fault = page;
        self.course = Course::Forward { ahead_first, end, window, ahead };
        Window { first: page, count, ahead }
    }

    fn go_backward(&mut self, page: u32, limits: Limits) -> Window {
        let window = self.course.grown(limits);
        let first = page.saturating_sub(window - 1);
        self.fault = page;
        self.course = Course::Backward { first, window };
        Window { first, count: page - first + 1, ahead: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NO_AHEAD: Limits = Limits { run_max: 64, ahead_max: 0 };
    const AHEAD: Limits = Limits { run_max: 64, ahead_max: 256 };

    fn window(first: u32, count: u32) -> Window {
        Window { first, count, ahead: None }
    }

    /// Faults in order, with the windows they must get.
    fn expect(streams: &mut Streams, limits: Limits, table: &[(u32, Window)]) {
        for (page, expected) in table {
            assert_eq!(streams.on_fault(*page, limits), *expected, "fault on page {page}");
        }
    }

    /// Brings a stream from page 0 to its first window ahead: pages 125 to 188.
    fn reading_ahead() -> (Streams, Ahead) {
        let mut streams = Streams::new();
        for page in [0, 1, 5, 13, 29] {
            assert_eq!(streams.on_fault(page, AHEAD).ahead, None);
        }
        let window = streams.on_fault(61, AHEAD);
        assert_eq!((window.first, window.count), (61, 64));
        (streams, window.ahead.expect("a full window reads ahead"))
    }

    #[test]
    fn a_sequential_scan_doubles_up_to_the_limit() {
        let table = [
            (100, window(100, 1)),
            (101, window(101, 4)),
            (105, window(105, 8)),
            (113, window(113, 16)),
            (129, window(129, 32)),
            (161, window(161, 64)),
            (225, window(225, 64)),
        ];
        expect(&mut Streams::new(), NO_AHEAD, &table);
    }

    #[test]
    fn a_backward_scan_gets_windows_that_end_at_the_fault() {
        let table = [
            (50, window(50, 1)),
            (49, window(46, 4)),
            (45, window(38, 8)),
            (37, window(22, 16)),
            (21, window(0, 22)),
            (0, window(0, 1)),
        ];
        expect(&mut Streams::new(), NO_AHEAD, &table);
    }

    #[test]
    fn interleaved_scans_are_told_apart() {
        let table = [
            (100, window(100, 1)),
            (5000, window(5000, 1)),
            (101, window(101, 4)),
            (4999, window(4996, 4)),
            (105, window(105, 8)),
            (4995, window(4988, 8)),
            (113, window(113, 16)),
            (4987, window(4972, 16)),
        ];
        expect(&mut Streams::new(), AHEAD, &table);
    }

    #[test]
    fn random_faults_get_one_page_each_and_never_read_ahead() {
        let mut streams = Streams::new();
        for step in 0..10_000u32 {
            // A full-period generator over even pages: no two are neighbours.
            let page = step.wrapping_mul(2_654_435_761) >> 4 << 1;
            assert_eq!(streams.on_fault(page, AHEAD), window(page, 1));
        }
    }

    #[test]
    fn a_jump_shorter_than_the_last_window_goes_on() {
        let table = [
            (100, window(100, 1)),
            (101, window(101, 4)),
            (105 + 3, window(108, 8)),
            (116 + 7, window(123, 16)),
            (139 + 16, window(155, 1)),
        ];
        expect(&mut Streams::new(), NO_AHEAD, &table);
    }

    #[test]
    fn a_new_stream_takes_no_jump() {
        expect(&mut Streams::new(), NO_AHEAD, &[(10, window(10, 1)), (12, window(12, 1))]);
    }

    #[test]
    fn the_same_fault_twice_stays_one_stream() {
        let mut streams = Streams::new();
        expect(&mut streams, AHEAD, &[(10, window(10, 1)), (10, window(10, 1))]);
        let started = |stream: &&Stream| !matches!(stream.course, Course::Unused);
        assert_eq!(streams.streams.iter().filter(started).count(), 1);
    }

    #[test]
    fn a_full_window_reads_ahead_and_markers_keep_it_going() {
        let (mut streams, ahead) = reading_ahead();
        assert_eq!(ahead, Ahead { first: 125, count: 64, marker: 173 });
        let second = streams.on_marker(173, AHEAD);
        assert_eq!(second, Some(Ahead { first: 189, count: 128, marker: 285 }));
        assert_eq!(streams.on_marker(173, AHEAD), None, "a marker is told once");
        let third = streams.on_marker(285, AHEAD);
        assert_eq!(third, Some(Ahead { first: 317, count: 256, marker: 509 }));
        let fourth = streams.on_marker(509, AHEAD);
        assert_eq!(fourth, Some(Ahead { first: 573, count: 256, marker: 765 }));
    }

    #[test]
    fn a_fault_inside_the_window_ahead_is_served_alone() {
        let (mut streams, ahead) = reading_ahead();
        expect(&mut streams, AHEAD, &[(125, window(125, 1)), (140, window(140, 1))]);
        assert!(streams.on_marker(ahead.marker, AHEAD).is_some());
        // The rest of the first window may still be on its way when the second one starts.
        expect(&mut streams, AHEAD, &[(180, window(180, 1)), (200, window(200, 1))]);
    }

    #[test]
    fn two_windows_back_is_no_longer_being_read() {
        let (mut streams, ahead) = reading_ahead();
        let second = streams.on_marker(ahead.marker, AHEAD).expect("the first marker holds");
        assert!(streams.on_marker(second.marker, AHEAD).is_some());
        expect(&mut streams, AHEAD, &[(200, window(200, 1)), (201, window(201, 1))]);
        expect(&mut streams, AHEAD, &[(130, window(130, 1)), (131, window(131, 4))]);
    }

    #[test]
    fn a_fault_behind_the_window_ahead_goes_on_with_a_larger_one() {
        let (mut streams, _) = reading_ahead();
        let ahead = Ahead::new(189 + 64, 128);
        assert_eq!(streams.on_fault(189, AHEAD), Window { first: 189, count: 64, ahead });
    }

    #[test]
    fn what_was_really_served_moves_the_expectation() {
        let mut streams = Streams::new();
        expect(&mut streams, AHEAD, &[(100, window(100, 1)), (101, window(101, 4))]);
        streams.on_served(101, window(101, 2));
        expect(&mut streams, AHEAD, &[(103, window(103, 8))]);
        streams.on_served(103, window(103, 0));
        expect(&mut streams, AHEAD, &[(103, window(103, 16))]);
        expect(&mut streams, AHEAD, &[(500, window(500, 1)), (499, window(496, 4))]);
        streams.on_served(499, window(498, 2));
        expect(&mut streams, AHEAD, &[(497, window(490, 8))]);
        streams.on_served(77, window(77, 5));
    }

    #[test]
    fn a_window_ahead_that_was_not_started_is_not_waited_for() {
        let (mut streams, ahead) = reading_ahead();
        streams.on_served(61, window(61, 64));
        assert_eq!(streams.on_marker(ahead.marker, AHEAD), None);
        assert_eq!(streams.on_fault(125, AHEAD).count, 64);
    }

    #[test]
    fn a_shortened_window_ahead_moves_its_marker() {
        let (mut streams, ahead) = reading_ahead();
        let shorter = streams.on_ahead(ahead, 8);
        assert_eq!(shorter, Some(Ahead { first: 125, count: 8, marker: 131 }));
        let next = streams.on_marker(131, AHEAD).expect("the new marker holds");
        assert_eq!((next.first, next.count), (133, 16));
        assert_eq!(streams.on_ahead(next, 0), None);
        assert_eq!(streams.on_fault(133, AHEAD).count, 64);
    }

    #[test]
    fn the_least_recently_used_stream_is_forgotten() {
        let (mut streams, ahead) = reading_ahead();
        for stream in 1..STREAMS as u32 {
            streams.on_fault(10_000 * stream, AHEAD);
        }
        assert!(streams.clone().on_marker(ahead.marker, AHEAD).is_some());
        streams.on_fault(5_000_000, AHEAD);
        assert_eq!(streams.on_marker(ahead.marker, AHEAD), None);
    }

    fn check(window: Window, page: u32, limits: Limits) {
        let end = u64::from(window.first) + u64::from(window.count);
        assert!(window.first <= page && u64::from(page) < end);
        assert!(window.count <= limits.run_max.max(1));
        if let Some(ahead) = window.ahead {
            assert_eq!(u64::from(ahead.first), end);
            check_ahead(ahead, limits);
        }
    }

    fn check_ahead(ahead: Ahead, limits: Limits) {
        let end = ahead.first.checked_add(ahead.count).expect("a window ahead ends within 32 bits");
        assert!((ahead.first..end).contains(&ahead.marker));
        assert!((1..=limits.ahead_max).contains(&ahead.count));
    }

    proptest! {
        #[test]
        fn windows_hold_the_page_and_stay_within_the_limits(
            run_max in prop_oneof![0u32..80, Just(u32::MAX)],
            ahead_max in prop_oneof![0u32..300, Just(u32::MAX)],
            base in prop_oneof![Just(0u32), Just(1 << 20), Just(u32::MAX - 2000)],
            operations in prop::collection::vec((0..6, 0u32..2001), 1..300),
        ) {
            let limits = Limits { run_max, ahead_max };
            let mut streams = Streams::new();
            let mut last = window(base, 1);
            for (operation, number) in operations {
                let behind = last.first.saturating_add(last.count);
                let page = match operation {
                    0 => base + number,
                    1 => last.first.saturating_sub(1),
                    _ => last.ahead.map_or(behind, |ahead| ahead.marker),
                };
                let next = streams.on_marker(page, limits);
                if let Some(ahead) = next {
                    check_ahead(ahead, limits);
                    last.ahead = next;
                    continue;
                }
                last = streams.on_fault(page, limits);
                check(last, page, limits);
                if operation == 5 && last.ahead.is_none() {
                    last.count = last.count.min(number);
                    streams.on_served(page, last);
                }
            }
        }
    }
}
