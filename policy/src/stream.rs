//! Streams: recognises faults that follow each other and grows the run of pages served at once.
//!
//! Decides which pages to bring in at a fault and which to read before they are needed; what of it is
//! possible (ends of a region, pages already there, frames at hand) is the caller's to find out and to
//! report. The rules:
//!
//! - A page that no stream expects starts a stream in place of the least recently used one, with a
//!   window of that page alone. A program that jumps about never gets more.
//! - A new stream expects the page after its window and the page before it. If another new stream began
//!   not far away, it also expects the page as far away again: three faults at equal distances make a
//!   strided stream, and two interleaved ones do not hide each other. Which of these pages faults gives
//!   the stream its *step* (1, -1, or the stride) and a window of `run_first` pages along it; each further
//!   expected fault doubles it, up to `run_max`. A window starts at the faulting page and goes the stream's way.
//! - Pages need not come in strict order (compilers swap neighbouring loads): a fault up to seven pages
//!   beyond the expected one goes on as well, with a window that starts at the expected one. A stream
//!   that turned out to go one way turns round as long as its window is small.
//! - A stream also goes on at a page less than the last window's length after the expected one, on the
//!   same stride: another stream may have brought in those between. As it may also be chance, the window is
//!   a quarter of the last one then.
//! - A stream whose window has reached `run_max` reads *ahead*: the pages right after the window, first
//!   `run_max` of them, then twice as many each time up to `ahead_max`. The page at the start of the last
//!   quarter is the marker. It stays unmapped, so that the fault on it tells that the program follows, and
//!   starts the next window ahead. As long as that works the stream expects the page after everything
//!   that is read ahead.
//! - A fault elsewhere inside the window ahead, or the one before it, means that reading is late, or
//!   that the page was taken out again before it was used: it keeps the stream alive, is served that page
//!   only, and starts a stream there, in case the program goes on alone.
//! - Windows ahead that the program never reaches need no care: their stream is forgotten as the least recently
//!   used, and their pages are counted as wasted then. A stream that was silent for ten seconds is
//!   forgotten too: a fault there later is one by chance.
use crate::devices::NodeId;
use crate::readahead::{self, Fault, Hint, Limits, Readahead};

/// How many streams are followed at once: room for many interleaved scans, while the search at each
/// fault reads less than 4 KiB.
pub const STREAMS: usize = 32;

/// How far out of order pages may come: within a cache line of 8-byte entries.
const DISORDER: i64 = 8;
/// The largest window of a stream that may still turn round.
const TURN_WINDOW: u32 = 8;
/// The longest stride. Longer ones gain little: each page is a request of its own anyway.
const STRIDE_MAX: i64 = 64;
/// How long a stream is remembered without a fault or a marker.
const SILENCE_NS: u64 = 10_000_000_000;

/// Pages to bring in at a fault, the one that faulted among them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// Where it starts: mostly the page that faulted.
    pub first: u32,
    /// Pages of it, `first` among them.
    pub count: u32,
    /// From one page to the next; never 0.
    pub step: i32,
    /// Pages to read without waiting for them.
    pub ahead: Option<Ahead>,
}

impl Window {
    /// The window of a fault that no stream expects: its page alone.
    pub const fn one(page: u32) -> Self {
        Self { first: page, count: 1, step: 1, ahead: None }
    }

    /// `count` pages that follow each other upwards.
    pub const fn run(first: u32, count: u32) -> Self {
        Self { first, count, step: 1, ahead: None }
    }

    /// The index of a page of the window.
    pub fn index_of(&self, page: u32) -> u32 {
        ((i64::from(page) - i64::from(self.first)) / i64::from(self.step)) as u32
    }
}

/// Pages to read before they are needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ahead {
    /// The page that is needed first.
    pub first: u32,
    /// Pages of it, `first` among them.
    pub count: u32,
    /// From one page to the next; never 0.
    pub step: i32,
    /// The page among them whose use must be told to [`Streams::on_marker`].
    pub marker: u32,
}

impl Ahead {
    /// The window of `count` pages from `first` on, as far as there are page numbers.
    fn new(first: i64, step: i32, count: u32) -> Option<Self> {
        let first = u32::try_from(first).ok().filter(|first| *first != u32::MAX)?;
        let count = count.min(room(first, step));
        let marker = at(first, step, count - count.div_ceil(4)) as u32;
        (count > 0).then_some(Self { first, count, step, marker })
    }

    fn end(&self) -> i64 {
        at(self.first, self.step, self.count)
    }
}

/// The page `count` steps from `first`, or where it would be.
fn at(first: u32, step: i32, count: u32) -> i64 {
    i64::from(first) + i64::from(step) * i64::from(count)
}

/// Pages from `first` on that have numbers; the largest number is no page's.
fn room(first: u32, step: i32) -> u32 {
    let length = if step > 0 { (u32::MAX - 1).saturating_sub(first) } else { first };
    length / step.unsigned_abs() + 1
}

/// Where a stream is and what it expects.
#[derive(Clone, Copy, Debug)]
enum Course {
    Unused,
    /// One window was served: expects `end`, the page before `first`, or the one `stride` from it.
    Started {
        first: u32,
        end: u32,
        stride: Option<i32>,
    },
    /// Expects `next`, the page after everything read; from `ahead_first` to there is being read ahead.
    Running {
        step: i32,
        ahead_first: i64,
        next: i64,
        /// The page that is expected if the stream turns round.
        turn: Option<i64>,
        window: u32,
        ahead: Option<Ahead>,
    },
}

/// How a page lies to a stream's course.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Relation {
    /// It is expected: the stream goes on by its step.
    Next(i32),
    /// It is expected a little later: the stream goes on from the page that it expects.
    Near { step: i32, from: i64 },
    /// It lies the other way: the stream goes on by this step from the page that it expects there.
    Turn { step: i32, from: i64 },
    /// It would give a new stream this step.
    Begin(i32),
    /// It was served already by a stream that has no step yet.
    Served,
    /// In what is being read already.
    Inside,
    /// A little after what is expected.
    Jump(i32),
}

impl Relation {
    /// Which relation wins if several streams claim a page: the smallest.
    fn rank(self) -> u32 {
        match self {
            Self::Next(_) => 0,
            Self::Begin(1 | -1) => 1,
            Self::Near { .. } => 2,
            Self::Turn { .. } => 3,
            Self::Begin(_) => 4,
            Self::Served => 5,
            Self::Inside => 6,
            Self::Jump(_) => 7,
        }
    }
}

impl Course {
    fn relation(&self, page: u32) -> Option<Relation> {
        match *self {
            Self::Unused => None,
            Self::Started { first, end, .. } if (first..end).contains(&page) => {
                Some(Relation::Served)
            }
            Self::Started { end, .. } if page == end => Some(Relation::Begin(1)),
            Self::Started { first, .. } if page.checked_add(1) == Some(first) => {
                Some(Relation::Begin(-1))
            }
            Self::Started { first, stride, .. } => stride
                .filter(|stride| i64::from(page) == i64::from(first) + i64::from(*stride))
                .map(Relation::Begin),
            Self::Running { step, turn: Some(turn), .. }
                if (0..DISORDER).contains(&((i64::from(page) - turn) * -i64::from(step))) =>
            {
                Some(Relation::Turn { step: -step, from: turn })
            }
            Self::Running { step, ahead_first, next, window, .. } => {
                let steps = |from: i64| (i64::from(page) - from).checked_div(step.into());
                if (i64::from(page) - next) % i64::from(step) != 0 {
                    return None;
                }
                match steps(next)? {
                    0 => Some(Relation::Next(step)),
                    beyond @ 1.. if beyond < DISORDER.min(window.into()) => {
                        Some(Relation::Near { step, from: next })
                    }
                    beyond @ 1.. => (beyond < window.into()).then_some(Relation::Jump(step)),
                    _ => (steps(ahead_first)? >= 0).then_some(Relation::Inside),
                }
            }
        }
    }

    /// Pages of the next window.
    fn grown(&self, limits: &Limits) -> u32 {
        let window = match *self {
            Self::Unused | Self::Started { .. } => limits.run_first,
            // A hit proves the scan goes on; doubling reaches the best request size in few faults.
            Self::Running { window, .. } => window.saturating_mul(2),
        };
        window.min(limits.run_max).max(1)
    }

    fn ahead(&self) -> Option<Ahead> {
        match self {
            Self::Running { ahead, .. } => *ahead,
            Self::Unused | Self::Started { .. } => None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Stream {
    course: Course,
    /// The fault that moved it last, which `on_served` reports about.
    fault: u32,
    /// When it was used last, counted in faults.
    used: u64,
    /// When it was used last, on the clock of the faults, and on which node.
    seen_ns: u64,
    node: NodeId,
    /// Pages read beside that fault's own; the next expected fault proves that they were used.
    unproven: u32,
}

/// The streams among the faults of an engine.
#[derive(Clone, Debug)]
pub struct Streams {
    streams: [Stream; STREAMS],
    /// Counts uses, to know the least recent one.
    clock: u64,
    /// Pages of forgotten streams that were read ahead and never reached.
    wasted: u64,
}

impl Default for Streams {
    fn default() -> Self {
        Self::new()
    }
}

impl Streams {
    /// As for a program that has not faulted yet.
    pub const fn new() -> Self {
        let unused = Stream {
            course: Course::Unused,
            fault: 0,
            used: 0,
            seen_ns: 0,
            node: NodeId(0),
            unproven: 0,
        };
        Self { streams: [unused; STREAMS], clock: 0, wasted: 0 }
    }

    /// The window to serve a fault, which always has its page in it.
    ///
    /// The stream counts on all of it being served; else tell [`Streams::on_served`].
    pub fn window(&mut self, fault: &Fault, limits: &Limits) -> Window {
        if fault.hint == Hint::Random {
            return Window::one(fault.page);
        }
        self.clock += 1;
        let known = self
            .streams
            .iter_mut()
            .filter(|stream| fault.now_ns.saturating_sub(stream.seen_ns) < SILENCE_NS)
            .filter_map(|stream| Some((stream.course.relation(fault.page)?, stream)))
            .min_by_key(|(relation, stream)| {
                (relation.rank(), stream.node != fault.node, u64::MAX - stream.used)
            });
        let Some((relation, stream)) = known else { return self.start(fault, limits) };
        stream.used = self.clock;
        stream.seen_ns = fault.now_ns;
        stream.node = fault.node;
        match relation {
            Relation::Next(step) | Relation::Begin(step) => stream.go(fault.page, step, limits),
            Relation::Near { step, from } | Relation::Turn { step, from } => {
                stream.go_from(from, fault.page, step, limits)
            }
            Relation::Jump(step) => {
                stream.doubt(limits);
                stream.go(fault.page, step, limits)
            }
            Relation::Served => Window::one(fault.page),
            Relation::Inside => self.start(fault, limits),
        }
    }

    /// Tells what was really brought in after the fault on `page`: the stream expects the page after it.
    /// `read` of these pages were read for it beside its own. An `ahead` that was not started is left out
    /// of `served`, and one that was shortened is best made to agree by [`Streams::on_ahead`].
    pub fn on_served(&mut self, page: u32, served: Window, read: u32) {
        let last = self
            .streams
            .iter_mut()
            .filter(|stream| stream.fault == page)
            .max_by_key(|stream| stream.used);
        let Some(stream) = last else { return };
        stream.unproven = read;
        match &mut stream.course {
            Course::Unused => {}
            Course::Started { first, end, .. } => {
                (*first, *end) = (served.first, served.first.saturating_add(served.count));
            }
            Course::Running { step, ahead_first, next, ahead, .. } => {
                let after = at(served.first, *step, served.count);
                // After a gap the program would fault before it reaches the window ahead.
                *ahead = served.ahead.filter(|ahead| i64::from(ahead.first) == after);
                *ahead_first = after;
                *next = ahead.map_or(after, |ahead| ahead.end());
            }
        }
    }

    /// The window ahead to start at the use of the marker `page`; `None` if no stream waits for it
    /// (it was forgotten, or the marker has been told already).
    pub fn on_marker(&mut self, page: u32, now_ns: u64, limits: &Limits) -> Option<Ahead> {
        self.clock += 1;
        let used = self.clock;
        let stream = self.ahead_where(|ahead| ahead.marker == page)?;
        let Course::Running { step, ahead_first, next, ahead, .. } = &mut stream.course else {
            unreachable!("only running streams read ahead")
        };
        let reached = ahead.take()?;
        let count = reached.count.saturating_mul(2).min(limits.ahead_max);
        *ahead = Ahead::new(*next, *step, count);
        // The rest of the window reached may still be on its way: it counts as being read.
        *ahead_first = i64::from(reached.first);
        *next = ahead.map_or(*next, |ahead| ahead.end());
        let started = *ahead;
        stream.unproven = reached.count / 4;
        stream.used = used;
        stream.seen_ns = now_ns;
        started
    }

    /// Tells that only `count` pages of the window `promised` are really read, and gives it with the
    /// marker that holds now; with 0 it is forgotten and the program's next fault goes on in its place.
    pub fn on_ahead(&mut self, promised: Ahead, count: u32) -> Option<Ahead> {
        let stream = self.ahead_where(|ahead| *ahead == promised)?;
        let Course::Running { step, next, ahead, .. } = &mut stream.course else {
            unreachable!("only running streams read ahead")
        };
        if count < promised.count {
            *ahead = Ahead::new(i64::from(promised.first), *step, count);
            *next = at(promised.first, *step, count);
        }
        *ahead
    }

    /// Pages read ahead for nothing since the last call, as far as forgotten streams tell: what was read
    /// beyond the last sign that the program followed.
    pub fn take_wasted(&mut self) -> u64 {
        core::mem::take(&mut self.wasted)
    }

    /// The stream whose window ahead is wanted.
    fn ahead_where(&mut self, is_wanted: impl Fn(&Ahead) -> bool) -> Option<&mut Stream> {
        self.streams
            .iter_mut()
            .find(|stream| stream.course.ahead().as_ref().is_some_and(&is_wanted))
    }

    /// Begins a stream in place of the least recently used one.
    fn start(&mut self, fault: &Fault, limits: &Limits) -> Window {
        let page = fault.page;
        let stride = self.stride_to(fault);
        let stream = self
            .streams
            .iter_mut()
            .min_by_key(|stream| stream.used)
            .expect("there is more than one stream");
        let lost = stream.course.ahead().map_or(0, |ahead| ahead.count);
        self.wasted += u64::from(stream.unproven) + u64::from(lost);
        let course = match fault.hint {
            // The program has said so: as if it had come here by windows of the full size.
            Hint::Sequential => Course::Running {
                step: 1,
                ahead_first: page.into(),
                next: page.into(),
                turn: None,
                window: limits.run_max,
                ahead: None,
            },
            Hint::Normal | Hint::Random => {
                Course::Started { first: page, end: page.saturating_add(1), stride }
            }
        };
        *stream = Stream {
            course,
            fault: page,
            used: self.clock,
            seen_ns: fault.now_ns,
            node: fault.node,
            unproven: 0,
        };
        match fault.hint {
            Hint::Sequential => stream.go(page, 1, limits),
            Hint::Normal | Hint::Random => Window::one(page),
        }
    }

    /// How far a page is from the stream that began last and not far away.
    fn stride_to(&self, fault: &Fault) -> Option<i32> {
        let begun = self.streams.iter().filter_map(|stream| match stream.course {
            Course::Started { first, .. } => {
                let distance = i64::from(fault.page) - i64::from(first);
                let recent = fault.now_ns.saturating_sub(stream.seen_ns) < SILENCE_NS;
                let near = (2..=STRIDE_MAX).contains(&distance.abs());
                (recent && near).then_some((stream.used, distance as i32))
            }
            Course::Unused | Course::Running { .. } => None,
        });
        begun.max_by_key(|(used, _)| *used).map(|(_, distance)| distance)
    }
}

impl Readahead for Streams {
    fn on_fault(&mut self, fault: &Fault, limits: &Limits) -> readahead::ReadWindow {
        readahead::ReadWindow::Stream(self.window(fault, limits))
    }

    fn on_hit(&mut self, page: u32, now_ns: u64, limits: &Limits) -> Option<Ahead> {
        self.on_marker(page, now_ns, limits)
    }
}

impl Stream {
    /// A fault a little too far may be one by chance: the next window is a quarter of the last one,
    /// and nothing is read ahead of it.
    fn doubt(&mut self, limits: &Limits) {
        if let Course::Running { window, ahead, .. } = &mut self.course {
            *window = (*window).min(limits.run_max) / 8;
            *ahead = None;
        }
    }

    /// The window from `page` on, and one ahead of it if it is large enough.
    fn go(&mut self, page: u32, step: i32, limits: &Limits) -> Window {
        self.go_from(page.into(), page, step, limits)
    }

    /// The window with `page` in it that starts at the page `from`.
    fn go_from(&mut self, from: i64, page: u32, step: i32, limits: &Limits) -> Window {
        let first = u32::try_from(from).expect("a page between two others has a number");
        let needed = Window { first, count: 0, step, ahead: None }.index_of(page) + 1;
        let window = self.course.grown(limits).max(needed);
        let count = window.min(room(first, step));
        let after = at(first, step, count);
        let ahead_count = match self.course.ahead() {
            Some(before) => before.count.saturating_mul(2),
            None => window,
        };
        let ahead = if window >= limits.run_max {
            Ahead::new(after, step, ahead_count.min(limits.ahead_max))
        } else {
            None
        };
        let turn = match self.course {
            Course::Started { end, .. } if step == -1 => Some(i64::from(end)),
            Course::Started { first, .. } if step == 1 => Some(i64::from(first) - 1),
            Course::Running { turn, step: before, .. } if before == step => turn,
            Course::Running { next, .. } => Some(next),
            Course::Started { .. } | Course::Unused => None,
        };
        let turn = turn.filter(|_| window <= TURN_WINDOW);
        let next = ahead.map_or(after, |ahead| ahead.end());
        self.fault = page;
        self.unproven = 0;
        self.course = Course::Running { step, ahead_first: after, next, turn, window, ahead };
        Window { first, count, step, ahead }
    }
}

#[cfg(test)]
mod tests;
