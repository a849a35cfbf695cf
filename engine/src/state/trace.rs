//! Recording: what happens to pages is noted in a ring, which a thread of its own empties into a file (`process/trace.rs`).
//!
//! Notes are made by threads that own pages, some of them in signal handlers: no lock, no allocation, no wait. All threads
//! note in one ring, because the order of events is what a trace is for; that is one compare-exchange beside a fault. With
//! the ring full an event is lost, and counted. Everything noted is noted inside the gate: at a fork nobody is half-way.
use crate::base::index::{PageIndex, PageRange};
use crate::state::scratch::Unmapped;
use crate::sys::mapping::ZeroedSlice;
use crate::sys::{clock, futex, process};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use userswap_trace::{Event, Kind, RUN_MAX};

/// Events that wait at most, in 2 MiB: what a million a second are while the thread sleeps.
const RING_EVENTS: u64 = 1 << 18;

/// How long the end of a program waits for its trace: many times what a full ring takes.
const PATIENCE_NS: u64 = 2_000_000_000;

/// How much is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Detail {
    /// What happens to pages.
    Trace,
    /// That, and how the engine is doing, several times a second.
    Record,
}

impl Detail {
    /// The option of `run` that asks for it.
    pub fn option(self) -> &'static str {
        match self {
            Self::Trace => "--trace",
            Self::Record => "--record",
        }
    }
}

/// Where a trace goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceFile {
    /// What it has.
    pub detail: Detail,
    /// The file of the process that [`Self::root`] names; those of others have their process's number added.
    pub path: PathBuf,
    /// The process that `run` became.
    pub root: u32,
}

/// Nothing is noted.
const OFF: u32 = 0;
/// Events are noted, and a thread writes them.
const ON: u32 = 1;
/// As before, and the thread is to write what there is and go.
const ENDING: u32 = 2;

/// As before, a thread is about to execute another program, and waits until this is in the file.
const EXECUTING: u32 = 3;
/// It is: nothing is written until that has failed, so that no block is cut by it.
const TOLD: u32 = 4;

/// How long the end waits for the events of faults that are being served.
const EVENTS_NS: u64 = 100_000_000;

/// Bytes of a program's name that are told.
const NAME_BYTES_MAX: usize = 256;

/// How a process came to its engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// It made it itself, also if it was forked before.
    Fresh,
    /// It was forked with it, and with pages that are not in its trace.
    Forked,
}

/// What an engine notes of its pages.
pub struct Trace {
    state: AtomicU32,
    ring: Option<Ring>,
    /// Faults that are counted, and whose events are still to come.
    under_way: AtomicU32,
    /// The process that it is of, 0 before there is one: a child that shares its memory (vfork) becomes another program by
    /// itself.
    process: AtomicU32,
    /// A thread has [`Self::name`].
    is_executing: AtomicBool,
    /// The program that it executes, up to a 0.
    name: [AtomicU8; NAME_BYTES_MAX],
}

/// A fault that is being served.
pub struct Serving<'a>(&'a Trace);

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        // Release pairs with the acquire in `wait_for_events`.
        self.0.under_way.fetch_sub(1, Ordering::Release);
    }
}

/// As long as it lives a program is about to be executed; that it is dropped says that this has failed.
pub struct Executing<'a>(&'a Trace);

impl Drop for Executing<'_> {
    fn drop(&mut self) {
        for state in [EXECUTING, TOLD] {
            // Relaxed: nothing is handed over.
            let (set, failed) = (Ordering::Relaxed, Ordering::Relaxed);
            let _ = self.0.state.compare_exchange(state, ON, set, failed);
        }
        futex::wake_all(&self.0.state);
        // Release pairs with the acquire in `before_exec`.
        self.0.is_executing.store(false, Ordering::Release);
    }
}

impl Trace {
    /// Memory for events, if they are wanted; nothing is noted until [`Self::begin`].
    ///
    /// # Errors
    /// No address space.
    pub fn new(is_wanted: bool) -> io::Result<Self> {
        let ring = is_wanted.then(Ring::new).transpose()?;
        Ok(Self {
            state: AtomicU32::new(OFF),
            ring,
            under_way: AtomicU32::new(0),
            process: AtomicU32::new(0),
            is_executing: AtomicBool::new(false),
            name: [const { AtomicU8::new(0) }; NAME_BYTES_MAX],
        })
    }

    /// Whether events are wanted.
    pub fn is_wanted(&self) -> bool {
        self.ring.is_some()
    }

    /// It is this process's from here on, and nothing is noted until [`Self::begin`]; tells how this process came to it.
    pub fn take_over(&self) -> Start {
        self.stop();
        match self.process.swap(std::process::id(), Ordering::Relaxed) {
            0 => Start::Fresh,
            _ => Start::Forked,
        }
    }

    /// From here on events are noted. In a forked child, whose parent's are forgotten, the gate is closed.
    pub fn begin(&self) {
        self.ring.iter().for_each(Ring::clear);
        self.is_executing.store(false, Ordering::Relaxed);
        self.state.store(ON, Ordering::Release);
    }

    /// From here on nothing is noted, and nobody waits for the thread.
    pub fn stop(&self) {
        // Release pairs with the acquire in `end`: the file has what was noted.
        self.state.store(OFF, Ordering::Release);
        futex::wake_all(&self.state);
    }

    #[inline]
    fn is_on(&self) -> bool {
        // Relaxed: an event more or less at the start or the end.
        self.state.load(Ordering::Relaxed) != OFF
    }

    /// A fault is being served as long as this lives: its thread may go on, to the end of its process, before the event is
    /// noted. None if nothing is.
    #[inline]
    pub fn serve(&self) -> Option<Serving<'_>> {
        self.is_on().then(|| {
            // Relaxed: what ends the trace comes after the answer to the fault, which orders it.
            self.under_way.fetch_add(1, Ordering::Relaxed);
            Serving(self)
        })
    }

    /// Waits for the events of faults that are being served; not for ever.
    pub fn wait_for_events(&self) {
        let until_ns = clock::now_ns() + EVENTS_NS;
        // Acquire pairs with the release of whoever served: the ring has its event.
        while self.under_way.load(Ordering::Acquire) > 0 && clock::now_ns() < until_ns {
            process::yield_now();
        }
    }

    /// Notes what `event` says; safe in a signal handler.
    #[inline]
    pub fn note(&self, event: impl FnOnce() -> Event) {
        if self.is_on() {
            self.push(event());
        }
    }

    /// Notes what became of pages, by runs.
    #[inline]
    pub fn note_run(&self, kind: Kind, range: PageRange) {
        if self.is_on() {
            self.push_run(kind, range);
        }
    }

    /// Notes the pages of a range that have left.
    #[inline]
    pub fn note_left(&self, range: PageRange, outcomes: &[Unmapped]) {
        if self.is_on() {
            self.push_left(range.first, outcomes);
        }
    }

    #[cold]
    fn push_left(&self, first: PageIndex, outcomes: &[Unmapped]) {
        let has_left = |outcome: &Unmapped| !matches!(outcome, Unmapped::Stayed);
        let mut from = first;
        for run in outcomes.chunk_by(|one, next| has_left(one) == has_left(next)) {
            let count = run.len() as u32;
            if has_left(&run[0]) {
                self.push_run(Kind::Left, PageRange { first: from, count });
            }
            from += count;
        }
    }

    #[cold]
    fn push_run(&self, kind: Kind, range: PageRange) {
        let mut first = range.first;
        while first < range.end() {
            let count = (range.end() - first).min(RUN_MAX);
            self.push(Event { kind, first, count });
            first += count;
        }
    }

    #[cold]
    fn push(&self, event: Event) {
        if let Some(ring) = &self.ring {
            ring.push(event);
        }
    }

    /// Takes the oldest event; for the thread that writes.
    pub fn take(&self) -> Option<Event> {
        self.ring.as_ref()?.pop()
    }

    /// Whether a thread is about to note an event.
    pub fn is_pending(&self) -> bool {
        self.ring.as_ref().is_some_and(|ring| !ring.is_empty())
    }

    /// Events lost since it was asked last.
    pub fn take_lost(&self) -> u64 {
        self.ring.as_ref().map_or(0, |ring| ring.lost.swap(0, Ordering::Relaxed))
    }

    /// Ends the trace, and waits until the file has it; not for ever.
    pub fn end(&self) {
        let ending = |state| (state != OFF).then_some(ENDING);
        if self.state.fetch_update(Ordering::Relaxed, Ordering::Relaxed, ending).is_err() {
            return;
        }
        futex::wake_all(&self.state);
        self.wait_while(ENDING);
    }

    /// Has the file say that this process is about to become another program, and waits for that; not for ever. None if
    /// nothing is recorded, if this is another process, or if a thread is at it already: the kernel takes one of them.
    pub fn before_exec(&self, program: impl FnOnce() -> Vec<u8>) -> Option<Executing<'_>> {
        if !self.is_on() || self.process.load(Ordering::Relaxed) != std::process::id() {
            return None;
        }
        // Acquire pairs with the release in the drop: the name is this thread's.
        if self.is_executing.swap(true, Ordering::Acquire) {
            return None;
        }
        let executing = Executing(self);
        let program = program();
        let program = program.iter().take(NAME_BYTES_MAX - 1).chain(&[0]);
        self.name.iter().zip(program).for_each(|(to, byte)| to.store(*byte, Ordering::Relaxed));
        // Release pairs with the acquire in `executes`: it has the name.
        self.state.compare_exchange(ON, EXECUTING, Ordering::Release, Ordering::Relaxed).ok()?;
        futex::wake_all(&self.state);
        self.wait_while(EXECUTING);
        Some(executing)
    }

    /// The program that the process is about to become, as long as a thread waits for that to be written.
    pub fn executes(&self) -> Option<String> {
        (self.state.load(Ordering::Acquire) == EXECUTING).then(|| {
            let bytes = self.name.iter().map(|byte| byte.load(Ordering::Relaxed));
            let name: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
            String::from_utf8_lossy(&name).into_owned()
        })
    }

    /// What the thread has was written: it may be executed now. Returns when that has failed.
    pub fn told(&self) {
        // Release pairs with the acquire in `wait_while`: the file has it.
        let _ = self.state.compare_exchange(EXECUTING, TOLD, Ordering::Release, Ordering::Relaxed);
        futex::wake_all(&self.state);
        while self.state.load(Ordering::Relaxed) == TOLD {
            futex::wait(&self.state, TOLD);
        }
    }

    /// Waits for the thread that writes.
    fn wait_while(&self, state: u32) {
        let until = clock::now_ns() + PATIENCE_NS;
        while self.state.load(Ordering::Acquire) == state && clock::now_ns() < until {
            futex::wait_for(&self.state, state, until.saturating_sub(clock::now_ns()));
        }
    }

    /// Whether the thread is to write what there is and go.
    pub fn is_ending(&self) -> bool {
        // Relaxed: what was noted before is in the ring, which orders it.
        self.state.load(Ordering::Relaxed) == ENDING
    }

    /// Sleeps for so long, or until the trace is to end.
    pub fn wait(&self, pause_ns: u64) {
        futex::wait_for(&self.state, ON, pause_ns);
    }
}

/// Events on their way to one thread. An entry of 0 is empty.
struct Ring {
    entries: ZeroedSlice<AtomicU64>,
    /// The next number to be given out.
    end: AtomicU64,
    /// The next number to be taken.
    start: AtomicU64,
    lost: AtomicU64,
}

impl Ring {
    fn new() -> io::Result<Self> {
        let entries = ZeroedSlice::new(RING_EVENTS as usize)?;
        let [end, start, lost] = [const { AtomicU64::new(0) }; 3];
        Ok(Self { entries, end, start, lost })
    }

    fn clear(&self) {
        let waiting = self.start.load(Ordering::Relaxed)..self.end.load(Ordering::Relaxed);
        waiting.for_each(|number| self.entry(number).store(0, Ordering::Relaxed));
        for number in [&self.end, &self.start, &self.lost] {
            number.store(0, Ordering::Relaxed);
        }
    }

    fn push(&self, event: Event) {
        let mut end = self.end.load(Ordering::Relaxed);
        loop {
            // Acquire pairs with the release in `pop`: the entry is empty. An `end` that is old may be behind it.
            if end.saturating_sub(self.start.load(Ordering::Acquire)) >= RING_EVENTS {
                self.lost.fetch_add(1, Ordering::Relaxed);
                return;
            }
            let next = end + 1;
            match self.end.compare_exchange_weak(end, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => end = now,
            }
        }
        // The number is this thread's. Release pairs with the acquire in `pop`.
        self.entry(end).store(event.to_bits(), Ordering::Release);
    }

    /// One thread calls this.
    fn pop(&self) -> Option<Event> {
        let start = self.start.load(Ordering::Relaxed);
        let event = Event::from_bits(self.entry(start).load(Ordering::Acquire))?;
        self.entry(start).store(0, Ordering::Relaxed);
        self.start.store(start + 1, Ordering::Release);
        Some(event)
    }

    fn is_empty(&self) -> bool {
        self.start.load(Ordering::Relaxed) == self.end.load(Ordering::Relaxed)
    }

    fn entry(&self, number: u64) -> &AtomicU64 {
        &self.entries[(number % RING_EVENTS) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(page: u32) -> Event {
        Event::fault(Kind::Read, page)
    }

    #[test]
    fn a_full_ring_keeps_the_oldest_events_and_counts_the_others() {
        let trace = Trace::new(true).unwrap();
        trace.note(|| event(1));
        assert!(!trace.is_pending(), "it has not begun");
        trace.begin();
        for round in 0..3 {
            let most = RING_EVENTS as u32;
            (0..most + 5).for_each(|page| trace.note(|| event(page)));
            assert_eq!((trace.take_lost(), trace.take_lost()), (5, 0), "round {round}");
            (0..most).for_each(|page| assert_eq!(trace.take(), Some(event(page))));
            assert_eq!((trace.take(), trace.is_pending()), (None, false));
        }
    }

    #[test]
    fn of_many_threads_each_event_comes_once_and_in_its_threads_order() {
        const EACH: u32 = 100_000;
        const THREADS: u32 = 4;
        let trace = Trace::new(true).unwrap();
        trace.begin();
        let mut next = [0; THREADS as usize];
        std::thread::scope(|scope| {
            let trace = &trace;
            let work = |thread| {
                scope.spawn(move || {
                    for number in 0..EACH {
                        // As long as there is room: none may be lost here.
                        let ring = trace.ring.as_ref().unwrap();
                        let used = || {
                            let start = ring.start.load(Ordering::Acquire);
                            ring.end.load(Ordering::Relaxed).saturating_sub(start)
                        };
                        while used() > RING_EVENTS - u64::from(2 * THREADS) {
                            std::thread::yield_now();
                        }
                        trace.note(|| event(thread << 24 | number));
                    }
                })
            };
            let threads: Vec<_> = (0..THREADS).map(work).collect();
            loop {
                let is_over = threads.iter().all(|thread| thread.is_finished());
                let event = match trace.take() {
                    Some(event) => event,
                    None if is_over => break,
                    None => continue,
                };
                let (thread, number) = (event.first >> 24, event.first & 0xff_ffff);
                assert_eq!(next[thread as usize], number);
                next[thread as usize] += 1;
            }
        });
        assert_eq!((next, trace.take_lost()), ([EACH; THREADS as usize], 0));
    }

    #[test]
    fn one_thread_has_the_program_told_that_it_executes_and_writing_goes_on_when_that_fails() {
        let trace = Trace::new(true).unwrap();
        let before_exec = || trace.before_exec(|| b"/bin/true".to_vec());
        assert!(before_exec().is_none(), "it has not begun");
        assert_eq!(trace.take_over(), Start::Fresh);
        trace.begin();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let writer = scope.spawn(|| {
                    let told = loop {
                        if let Some(program) = trace.executes() {
                            break program;
                        }
                        trace.wait(1_000_000);
                    };
                    trace.told();
                    (told, trace.executes())
                });
                let executing = before_exec();
                assert!(executing.is_some() && before_exec().is_none(), "one at a time");
                assert!(!writer.is_finished(), "it waits for the outcome");
                drop(executing);
                assert_eq!(writer.join().unwrap(), ("/bin/true".to_owned(), None));
            }
        });
        trace.process.store(1, Ordering::Relaxed);
        assert!(before_exec().is_none(), "another process that shares the memory");
        assert_eq!(trace.take_over(), Start::Forked);
    }

    #[test]
    fn what_has_left_is_noted_in_runs() {
        let trace = Trace::new(true).unwrap();
        trace.begin();
        use Unmapped::{Frame, Gone, Stayed};
        let outcomes = [Stayed, Frame(9), Frame(5), Gone, Stayed, Frame(1)];
        trace.note_left(PageRange { first: 10, count: 6 }, &outcomes);
        let run = |first, count| Some(Event { kind: Kind::Left, first, count });
        assert_eq!([trace.take(), trace.take(), trace.take()], [run(11, 3), run(15, 1), None]);
    }
}
