//! The watchdog: a thread that says when a fault has waited for too long, and for what.
//!
//! It sleeps nearly all the time and looks at what others have left in `state/waits.rs`, so that faults pay nothing for
//! it. It mends nothing: the line names the page, its state, its device and slot, and the thread, for whoever looks
//! into a program that stands still.
use crate::base::counters::count;
use crate::base::error::Error;
use crate::base::index::{PageIndex, Slot};
use crate::fault::awake::Awake;
use crate::state::core::Core;
use crate::state::page::PageState;
use crate::state::reads::ReadJob;
use crate::state::waits::{Wait, Waited, Waiting, Waits};
use crate::sys::thread::Thread;
use crate::sys::{clock, futex, process};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Looks within the time that a wait may take: a report is late by a part of it at most.
const LOOKS: u64 = 4;

/// Where nothing is to be reported, the watchdog looks as seldom whether that has changed as this.
const IDLE_NS: u64 = 3_600_000_000_000;

impl Core {
    /// A thread sleeps until another has done with a page.
    pub(crate) fn wait_owned_watched(&self, page: PageIndex) {
        let wait = Waits::of_this_thread(Waited::Page(page));
        let _waiting = self.waits.begin(wait, |page| self.is_wait_over(page));
        self.pages.wait_owned(page);
    }

    /// This thread waits for a page of RAM.
    pub(crate) fn wait_for_frame(&self) -> Waiting<'_> {
        self.waits.begin(Waits::of_this_thread(Waited::Frame), |_| false)
    }

    /// A thread waits in the kernel until another has done with a page.
    pub(crate) fn note_fault_waits(&self, wait: Wait) {
        self.waits.begin(wait, |page| self.is_wait_over(page)).leave();
    }

    fn is_wait_over(&self, page: PageIndex) -> bool {
        !self.pages.load(page).is_owned()
    }

    /// A thread waits for a read, which brings its page; whether it is the first.
    pub(crate) fn note_read_waits(&self, job: &ReadJob, wait: Wait) -> bool {
        let is_first = self.reads.note_wait(job, wait);
        if is_first {
            self.waits.stalled.begin();
        }
        is_first
    }

    /// Reports the longest of the waits that are over the limit; returns whether there was one.
    fn report_stuck(&self, limit_ns: u64) -> bool {
        let now = clock::now_ns();
        let is_stuck = |wait: &Wait| {
            let goes_on = match wait.waited {
                Waited::Page(page) => !self.is_wait_over(page),
                Waited::Frame => true,
            };
            goes_on && now.saturating_sub(wait.since_ns) >= limit_ns
        };
        let waits = || self.waits.list().chain(self.reads.waits()).filter(is_stuck);
        let Some(longest) = waits().min_by_key(|wait| wait.since_ns) else { return false };
        count(&self.counters.faults_stuck, 1);
        let seconds = (now - longest.since_ns) as f64 / 1e9;
        let what = self.describe_wait(longest.waited);
        // It may have ended meanwhile.
        let others = match waits().count().saturating_sub(1) {
            0 => String::new(),
            others => format!("; {others} more wait as long as that is allowed"),
        };
        let thread = longest.thread;
        process::say(&[&format!(
            "userswap: thread {thread} has waited for {seconds:.1} s for {what}{others}\n"
        )]);
        true
    }

    fn describe_wait(&self, waited: Waited) -> String {
        let page = match waited {
            Waited::Page(page) => page,
            Waited::Frame => return "a free page of RAM".to_owned(),
        };
        let address = self.page_address(page);
        let (state, slot) = match self.pages.state(page) {
            PageState::Filling { slot: Some(slot) } => ("Filling: it is read", Some(slot)),
            PageState::Filling { slot: None } => ("Filling: another thread fills it", None),
            PageState::Leaving { slot } => ("Leaving: another thread takes it out", slot),
            PageState::Untouched
            | PageState::Resident { .. }
            | PageState::Clean { .. }
            | PageState::Cached { .. }
            | PageState::Writing { .. }
            | PageState::Swapped { .. }
            | PageState::Lost => ("done with by now", None),
        };
        let place = slot.map_or(String::new(), |slot| self.describe_slot(slot));
        format!("page {page} at {address:#x}, which is {state}{place}")
    }

    /// The device's name can only be asked inside the gate, which a fork may have closed.
    fn describe_slot(&self, slot: Slot) -> String {
        let device = self.devices.device_of(slot);
        let number = device.number_of(slot);
        let label = self.gate.try_enter().and_then(|_inside| device.label());
        match label {
            Some(label) => format!(", slot {number} of {}", label.name),
            None => format!(", slot {number} of device {}", device.id().0),
        }
    }

    fn watch(&self) {
        let (mut quiet_until_ns, mut awake) = (0, Awake::default());
        while !self.is_stopping() {
            let seen = self.waits.changes.load(Ordering::Acquire);
            let limit_ns = self.waits.limit_ns.load(Ordering::Relaxed);
            let pause_ns = if limit_ns == 0 { IDLE_NS } else { (limit_ns / LOOKS).max(1_000_000) };
            let awake_ns = self.keep_awake(&mut awake);
            // `stop` changes the word after it has told: what it told is seen above, or ends this sleep.
            if !self.is_stopping() {
                futex::wait_for(&self.waits.changes, seen, pause_ns.min(awake_ns));
            }
            self.waits.sweep(|page| self.is_wait_over(page));
            let now = clock::now_ns();
            if limit_ns > 0 && now >= quiet_until_ns && self.report_stuck(limit_ns) {
                quiet_until_ns = now + limit_ns;
            }
        }
        self.keep_awake(&mut awake);
    }
}

/// Starts the watchdog of an engine; it ends when the engine stops.
///
/// # Errors
/// No thread to be had.
pub fn start(core: Arc<Core>) -> Result<Thread, Error> {
    Thread::spawn("userswap-watch", move || core.watch()).map_err(Error::Thread)
}
