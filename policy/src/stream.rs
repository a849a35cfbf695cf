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
//! - No window is larger than such windows were worth of late, over all streams (`worth`).
//! - A fault elsewhere inside the window ahead, or the one before it, means that reading is late, or
//!   that the page was taken out again before it was used: it keeps the stream alive, is served that page
//!   only, and starts a stream there, in case the program goes on alone.
//! - Windows ahead that the program never reaches need no care: their stream is forgotten as the least recently
//!   used, and their pages are counted as wasted then. A stream that was silent for ten seconds is
//!   forgotten too: a fault there later is one by chance.
use crate::devices::NodeId;
use crate::readahead::{self, Fault, Hint, Limits, Readahead};
use course::{Course, Relation};
use worth::{Allowed, Worth};

/// How many streams are followed at once: room for many interleaved scans, while the search at each
/// fault reads less than 4 KiB.
pub const STREAMS: usize = 32;

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
    /// Pages of the window that they are of.
    size: u32,
    /// Pages that it has gone by.
    come: u32,
}

/// The streams among the faults of an engine.
#[derive(Clone, Debug)]
pub struct Streams {
    streams: [Stream; STREAMS],
    /// Counts uses, to know the least recent one.
    clock: u64,
    /// Pages of forgotten streams that were read ahead and never reached.
    wasted: u64,
    worth: Worth,
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
            size: 1,
            come: 0,
        };
        Self { streams: [unused; STREAMS], clock: 0, wasted: 0, worth: Worth::new() }
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
        let (from, step) = match relation {
            Relation::Served => return Window::one(fault.page),
            Relation::Inside => return self.start(fault, limits),
            Relation::Next(step) | Relation::Begin(step) | Relation::Jump(step) => {
                (fault.page.into(), step)
            }
            Relation::Near { step, from } | Relation::Turn { step, from } => (from, step),
        };
        match relation {
            Relation::Jump(_) => stream.doubt(limits),
            _ => stream.pass(fault.page, step, &mut self.worth),
        }
        stream.go(from, fault.page, step, Allowed { limits, worth: &self.worth })
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
        (stream.unproven, stream.size) = (read, stream.course.window());
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
        let stream = ahead_where(&mut self.streams, |ahead| ahead.marker == page)?;
        let Course::Running { step, ahead_first, next, ahead, .. } = &mut stream.course else {
            unreachable!("only running streams read ahead")
        };
        let reached = ahead.take()?;
        stream.come = stream.come.saturating_add(reached.count);
        self.worth.on_passed(reached.count);
        let allowed = Allowed { limits, worth: &self.worth };
        let count = allowed.ahead(reached.count.saturating_mul(2), stream.come);
        *ahead = Ahead::new(*next, *step, count);
        // The rest of the window reached may still be on its way: it counts as being read.
        *ahead_first = i64::from(reached.first);
        *next = ahead.map_or(*next, |ahead| ahead.end());
        let started = *ahead;
        (stream.unproven, stream.size) = (reached.count / 4, reached.count);
        stream.used = used;
        stream.seen_ns = now_ns;
        started
    }

    /// Tells that only `count` pages of the window `promised` are really read, and gives it with the
    /// marker that holds now; with 0 it is forgotten and the program's next fault goes on in its place.
    pub fn on_ahead(&mut self, promised: Ahead, count: u32) -> Option<Ahead> {
        let stream = ahead_where(&mut self.streams, |ahead| *ahead == promised)?;
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
        self.worth.on_wasted(stream.size, stream.unproven);
        self.worth.on_wasted(lost, lost);
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
            size: 1,
            // What the program has said counts for more than what others of its streams did.
            come: if fault.hint == Hint::Sequential { u32::MAX } else { 0 },
        };
        match fault.hint {
            Hint::Sequential => {
                stream.go(page.into(), page, 1, Allowed { limits, worth: &self.worth })
            }
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

/// The stream whose window ahead is wanted.
fn ahead_where(streams: &mut [Stream], is_wanted: impl Fn(&Ahead) -> bool) -> Option<&mut Stream> {
    streams.iter_mut().find(|stream| stream.course.ahead().as_ref().is_some_and(&is_wanted))
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

    /// It goes on at a page that it expects: what was read for it has been used.
    fn pass(&mut self, page: u32, step: i32, worth: &mut Worth) {
        let passed = page.abs_diff(self.fault) / step.unsigned_abs();
        self.come = self.come.saturating_add(passed);
        if self.unproven > 0 {
            worth.on_passed(self.size);
        }
        if let Some(ahead) = self.course.ahead() {
            worth.on_passed(ahead.count);
        }
    }

    /// The window with `page` in it that starts at the page `from`, and one ahead of it if it is large enough.
    fn go(&mut self, from: i64, page: u32, step: i32, allowed: Allowed) -> Window {
        let first = u32::try_from(from).expect("a page between two others has a number");
        let needed = Window { first, count: 0, step, ahead: None }.index_of(page) + 1;
        let Allowed { limits, worth } = allowed;
        let window = worth.largest(self.course.grown(limits), self.come).max(needed);
        let count = window.min(room(first, step));
        let after = at(first, step, count);
        let ahead_count = match self.course.ahead() {
            Some(before) => before.count.saturating_mul(2),
            None => window,
        };
        let ahead = if window >= limits.run_max {
            Ahead::new(after, step, allowed.ahead(ahead_count, self.come))
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

mod course;
mod worth;

#[cfg(test)]
mod tests;
