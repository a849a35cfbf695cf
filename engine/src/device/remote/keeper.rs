//! The thread of a remote device: it puts off the expiry of what is held, and deletes what is not wanted.
//!
//! It works outside the gate, on words that change one by one: what it misses it finds the next time. A process that ends
//! in order has its slots kept for some seconds only, again and again until it has ended: destructors may still read them.
use super::keys::Copy;
use super::moves::Moves;
use super::talk::Act;
use super::tls::Tls;
use super::{Copies, DELETING_MAX, ENDING_S, NOBODY, Part, Remote};
use crate::sys::thread::Thread;
use crate::sys::{clock, futex};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use userswap_policy::lent::SlotWord;

/// What the thread is to do: nothing before its time comes.
pub const NOTHING: u32 = 0;
/// Delete slots.
pub const DELETIONS: u32 = 1;
/// Look at its time again.
const CHANGED: u32 = 2;
/// End.
const END: u32 = 4;
/// Ask a server that does not answer.
pub const SILENCE: u32 = 8;
/// Look where hash slots have come to.
pub const MOVES: u32 = 16;

/// A lease is put off so many times before it would end.
const RENEWALS: u64 = 4;

/// A second: the longest time before what failed is tried again, and the shortest between two deletions.
const SECOND_NS: u64 = 1_000_000_000;

/// Deletions are gathered for so long.
const GATHER_NS: u64 = SECOND_NS / 4;

impl Remote {
    /// Starts the thread, unless it runs. A caller has signals blocked, which the thread inherits.
    ///
    /// # Errors
    /// No thread is to be had.
    pub(in crate::device) fn start(self: &Arc<Self>) -> io::Result<()> {
        self.config.tls.as_ref().map_or(Ok(()), Tls::start)?;
        let mut keeper = self.keeper.lock();
        if keeper.is_none() {
            let remote = self.clone();
            *keeper = Some(Thread::spawn("userswap-lease", move || remote.keep())?);
        }
        Ok(())
    }

    /// Gives the thread something to do.
    pub(super) fn want(&self, what: u32) {
        if self.wanted.fetch_or(what, Ordering::Release) & what == 0 {
            futex::wake_all(&self.wanted);
        }
    }

    fn keep(&self) {
        let (begun_ns, mut delete_from, mut moves) = (clock::now_ns(), 0, Moves::default());
        // Whose slots these are may be about to end.
        let mut next_ns = match self.part {
            Part::Owner => begun_ns + self.period_ns(),
            Part::Borrower => begun_ns,
        };
        loop {
            let now = clock::now_ns();
            let wanted = self.wanted.load(Ordering::Acquire);
            if wanted & END != 0 {
                return;
            }
            if wanted & CHANGED != 0 {
                self.wanted.fetch_and(!CHANGED, Ordering::Relaxed);
                next_ns = now;
            }
            if now >= next_ns {
                let is_done = self.keep_all().is_ok();
                next_ns = now + if is_done { self.period_ns() } else { SECOND_NS };
            }
            self.look_after(wanted, &mut moves, now);
            if wanted & DELETIONS != 0 {
                // Those that are wanted meanwhile wake nobody.
                futex::wait_for(&self.wanted, wanted & !CHANGED, GATHER_NS);
                self.wanted.fetch_and(!DELETIONS, Ordering::SeqCst);
                if self.delete_all(&mut delete_from, next_ns).is_err() {
                    self.wanted.fetch_or(DELETIONS, Ordering::SeqCst);
                }
                continue;
            }
            let most_ns = if wanted & (SILENCE | MOVES) != 0 { SECOND_NS } else { u64::MAX };
            let wait_ns = next_ns.saturating_sub(clock::now_ns()).min(most_ns);
            futex::wait_for(&self.wanted, wanted & !CHANGED, wait_ns);
        }
    }

    /// Whether the thread is to end.
    pub(super) fn ends(&self) -> bool {
        self.wanted.load(Ordering::Acquire) & END != 0
    }

    /// Looks after the servers: who does not answer, and who has which slots.
    fn look_after(&self, wanted: u32, moves: &mut Moves, now_ns: u64) {
        if wanted & SILENCE != 0 {
            // First: what falls silent from here on is seen by the next turn.
            self.wanted.fetch_and(!SILENCE, Ordering::SeqCst);
            if !self.ask_silent() {
                self.wanted.fetch_or(SILENCE, Ordering::Relaxed);
            }
        }
        if wanted & MOVES != 0 {
            self.look_at_moves(moves, now_ns);
        }
    }

    /// Asks the servers that do not answer; whether all do now.
    fn ask_silent(&self) -> bool {
        let servers = (0..self.cluster.addresses().count()).map(|index| self.cluster.server(index));
        // All of them, whatever one says.
        let silent = servers.filter(|server| self.ends() || !server.ask(&self.config));
        silent.count() == 0
    }

    fn period_ns(&self) -> u64 {
        u64::from(self.lease_s()) * SECOND_NS / RENEWALS
    }

    /// Puts off the expiry of all groups that hold something.
    fn keep_all(&self) -> io::Result<()> {
        self.for_all(Act::Keep { lease_s: self.lease_s() })
    }

    /// Does something with all groups that hold something.
    fn for_all(&self, act: Act) -> io::Result<()> {
        let first = self.for_each(act, Copy::First);
        match self.config.copies {
            Copies::One => first,
            Copies::Two => first.and(self.for_each(act, Copy::Second)),
        }
    }

    /// The same for one copy, by server.
    fn for_each(&self, act: Act, copy: Copy) -> io::Result<()> {
        let groups = |server: usize| {
            let words = self
                .held
                .iter()
                .enumerate()
                .map(|(index, word)| SlotWord { index, mask: word.load(Ordering::Relaxed) });
            words.filter(move |word| word.mask != 0 && self.owner(*word, copy) == server)
        };
        let mut outcome = Ok(());
        for server in 0..self.cluster.addresses().count() {
            let mut words = groups(server).peekable();
            while words.peek().is_some() {
                let mut batch = [SlotWord { index: 0, mask: 0 }; DELETING_MAX];
                let mut filled = 0;
                for (to, word) in batch.iter_mut().zip(words.by_ref()) {
                    *to = word;
                    filled += 1;
                }
                let ended = self.act(act, copy, &batch[..filled]);
                outcome = outcome.and(ended);
                // If it is another's silence, to which this one sends us, the rest of its own is kept all the same.
                if outcome.is_err() && self.cluster.server(server).is_silent() {
                    break;
                }
            }
        }
        outcome
    }

    /// Deletes what is not wanted from a group on, from all servers that answer; where one does not, only until leases are due.
    fn delete_all(&self, from: &mut usize, due_ns: u64) -> io::Result<()> {
        let mut ended = Ok(());
        let is_unwanted = |index: &usize| self.unwanted[*index].load(Ordering::Relaxed) != 0;
        let indexes = (*from..self.unwanted.len()).chain(0..*from);
        let mut indexes = indexes.filter(is_unwanted).peekable();
        while indexes.peek().is_some() && (ended.is_ok() || clock::now_ns() < due_ns) {
            let mut batch = [SlotWord { index: 0, mask: 0 }; DELETING_MAX];
            let mut filled = 0;
            for index in indexes.by_ref().take(DELETING_MAX) {
                let mask = self.begin_deleting(index, filled);
                batch[filled] = SlotWord { index, mask };
                filled += usize::from(mask != 0);
            }
            let outcome = self.act_on_all(Act::Delete { missed: None }, &batch[..filled]);
            for word in &batch[..filled] {
                match outcome.is_ok() {
                    true => self.held[word.index].fetch_and(!word.mask, Ordering::Relaxed),
                    false => self.unwanted[word.index].fetch_or(word.mask, Ordering::SeqCst),
                };
            }
            self.end_deleting();
            ended = ended.and(outcome);
        }
        *from = indexes.peek().copied().unwrap_or(0);
        ended
    }

    /// The slots of a group that are to be deleted now: until [`Self::end_deleting`] nobody writes to the group.
    fn begin_deleting(&self, index: usize, entry: usize) -> u64 {
        // Before the next: who has taken a slot back too late for it finds the group here.
        self.deleting[entry].store(index as u32, Ordering::SeqCst);
        self.unwanted[index].swap(0, Ordering::SeqCst)
    }

    fn end_deleting(&self) {
        self.deleting.iter().for_each(|group| group.store(NOBODY, Ordering::SeqCst));
        self.deletions.fetch_add(1, Ordering::SeqCst);
        futex::wake_all(&self.deletions);
    }

    /// The process has begun to end, or to become another: what it holds is kept for seconds from now on. Not what others
    /// read, who keep it, nor what is another's; and not by a child that has our memory (vfork).
    pub(in crate::device) fn shorten(&self) {
        if self.part == Part::Borrower || self.process != std::process::id() {
            return;
        }
        self.lease_s.store(ENDING_S, Ordering::Relaxed);
        self.want(CHANGED);
        // The process may be gone before the thread comes to it.
        if !self.cluster.server(0).is_silent() {
            let _ = self.keep_all();
        }
    }

    /// The process goes on after all.
    pub(in crate::device) fn lengthen(&self) {
        if self.lease_s() == self.config.lease_s {
            return;
        }
        self.lease_s.store(self.config.lease_s, Ordering::Relaxed);
        self.want(CHANGED);
    }

    /// The device is used no more, at least not by this: the thread will end, which nobody waits for. In a forked child,
    /// which has none, the copies of the parent's connections are closed: they would be open after the parent is gone.
    pub fn leave(&self) {
        self.want(END);
        self.cluster.disconnect();
        self.config.tls.iter().for_each(|tls| tls.leave());
    }

    /// The same, in order: ends the threads and deletes everything, unless others still read it.
    pub fn end(&self, is_shared: bool) {
        self.want(END);
        self.cluster.disconnect();
        if let Some(keeper) = self.keeper.lock().take() {
            keeper.join();
        }
        if self.part == Part::Owner && !is_shared {
            // What cannot be deleted now expires.
            let _ = self.for_all(Act::DeleteGroups);
        }
        self.leave();
        self.config.tls.iter().for_each(|tls| tls.end());
    }
}
