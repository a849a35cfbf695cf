//! This process as a member of its job: its row, and the pages that it may use.
//!
//! What is taken is always written down before it is used, and given up before it is given back. A child of a fork
//! begins with its parent's row in its memory, and takes one of its own before anything else runs in it. Children that
//! are made past our fork never write to a row: they look at whose it is.
use crate::base::limits::RAM_MIN_BYTES;
use crate::job::ledger::{self, Entry, Ledger, Swept};
use crate::job::needs::Needs;
use crate::job::rows::{self, Row, Word};
use crate::sys::lock::Lock;
use crate::sys::shared_rows::Table;
use crate::sys::{PAGE_BYTES, clock, futex, process};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use userswap_policy::job::{Move, Standing, decide};
use userswap_policy::token::{self, Token, favoured};

/// Pages up to which a member without an engine is never refused: with one, in use, it would need no less. Those that have
/// more give way.
pub const ALLOWANCE_PAGES: u32 = (RAM_MIN_BYTES / PAGE_BYTES as u64) as u32;

/// A member without an engine takes a quarter more than it uses, between these, so that it rarely asks the ledger: a job
/// can have hundreds of small ones, and what they do not use the large ones lack.
const CHUNK_PAGES_MIN: u32 = 32;
const CHUNK_PAGES_MAX: u32 = 256;

/// How often a child looks whether it has made pages of its parent's its own, and after how many it counts them: a
/// count goes through all pages, the number of faults is at hand.
const WRITTEN_NS: u64 = 4_000_000;
const WRITTEN_PAGES: u64 = 512;

/// A holder of the token that keeps it for so long cannot give it on.
const LOST_MS: u64 = 24_000;

/// Who has had the swap token since when, as a member has seen it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Turn {
    holder: Option<usize>,
    since_ms: u64,
}

/// Why a process is no member of its job.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// It has become another user, or has another root directory.
    #[error("{0}")]
    File(#[from] io::Error),
    /// All rows are taken.
    #[error("the job has {} processes already", ledger::MEMBERS_MAX)]
    Full,
}

/// What a member without an engine takes beyond the pages that it uses.
fn chunk_of(pages: u32) -> u32 {
    (pages / 4).clamp(CHUNK_PAGES_MIN, CHUNK_PAGES_MAX).max(pages / 16)
}

/// A process of a job.
pub struct Member {
    /// The job's ledger.
    pub ledger: Ledger,
    /// This process's row; [`NONE`] in a child that has found none.
    row: AtomicU32,
    /// The process that the row is for.
    owner: AtomicU32,
    /// Pages that a child still shares with its parent, which answers for them.
    inherited: AtomicU32,
    /// Pages of its share that this process has outside its engine.
    outside: AtomicU32,
    /// All that it has outside, by the last look.
    outside_seen: AtomicU32,
    /// What its engine should not have less than.
    pub needs: Needs,
    /// Held while the share changes, and across fork.
    changing: Lock<()>,
}

const NONE: u32 = u32::MAX;

/// How often, and after which pause, a process looks for its job's ledger again while the last member that it had is
/// removing it: that takes three system calls, and whoever is not done after a second has been stopped.
const LOOKS_MAX: u32 = 1000;
const LOOK_NS: u64 = 1_000_000;

impl Member {
    /// Takes a row in a job's ledger.
    ///
    /// # Errors
    /// The ledger cannot be opened, or is full.
    pub fn join(path: &Path, budget_pages: u32) -> Result<Self, JoinError> {
        match Ledger::inherited(path, budget_pages) {
            Some(ledger) => Self::within(ledger),
            None => Self::join_by(|| Ledger::open(path, budget_pages)),
        }
    }

    /// As [`Member::join`], in what `open` opens: the last member may remove the name before this process has its row.
    ///
    /// # Errors
    /// As [`Member::join`].
    pub fn join_by(mut open: impl FnMut() -> io::Result<Ledger>) -> Result<Self, JoinError> {
        for _ in 0..LOOKS_MAX {
            let member = Self::within(open()?)?;
            if member.ledger.is_kept() {
                return Ok(member);
            }
            clock::sleep_until(clock::now_ns() + LOOK_NS);
        }
        Self::within(open()?)
    }

    fn within(ledger: Ledger) -> Result<Self, JoinError> {
        let row = ledger.claim().ok_or(JoinError::Full)? as u32;
        Ok(Self {
            ledger,
            row: AtomicU32::new(row),
            owner: AtomicU32::new(std::process::id()),
            inherited: AtomicU32::new(0),
            outside: AtomicU32::new(0),
            outside_seen: AtomicU32::new(0),
            needs: Needs::default(),
            changing: Lock::new(()),
        })
    }

    /// None where this process has no row, or has lost it by closing our descriptor past us, or runs in memory that is
    /// another's (a child by vfork) or a copy of it.
    fn row(&self) -> Option<&Row> {
        let pid = std::process::id();
        let row = self.row.load(Ordering::Relaxed);
        let is_ours = row != NONE && self.owner.load(Ordering::Relaxed) == pid;
        let row = is_ours.then(|| &self.ledger.rows()[row as usize]);
        row.filter(|row| Word::Pid.read(row) == pid)
    }

    fn index(&self) -> usize {
        self.row.load(Ordering::Relaxed) as usize
    }

    /// Pages that this process may use.
    pub fn share(&self) -> u32 {
        self.row().map_or(0, |row| Word::Share.read(row))
    }

    /// Whether its share is that large; what it has inherited is not part of it.
    pub fn holds(&self, pages: u32) -> bool {
        let pages = pages.saturating_sub(self.inherited.load(Ordering::Relaxed));
        // Between what the caller has counted and the share, against `settle`: one of the two sees the other's store.
        fence(Ordering::SeqCst);
        // Relaxed: the row is this process's own, or its number is, and then the share is another's.
        let row = self.row.load(Ordering::Relaxed);
        row != NONE && pages <= Word::Share.read(&self.ledger.rows()[row as usize])
    }

    /// Whether a process without an engine may use so many pages; if it may not it needs one. Signals are blocked.
    pub fn covers(&self, pages: u32) -> bool {
        if self.holds(pages) {
            return true;
        }
        let pages = pages.saturating_sub(self.inherited.load(Ordering::Relaxed));
        let Some(row) = self.row() else {
            let is_borrowed = self.owner.load(Ordering::Relaxed) != std::process::id();
            return is_borrowed || pages <= self.ledger.limit();
        };
        let _changing = self.changing.lock();
        let wanted = pages.saturating_add(chunk_of(pages));
        self.publish_native(row, wanted);
        if self.take(wanted) >= pages {
            return true;
        }
        let is_small = pages <= ALLOWANCE_PAGES;
        if is_small {
            self.ledger.exceed(self.index(), pages);
        }
        self.ledger.ask_all(self.index());
        is_small
    }

    /// A process without an engine uses only as many pages as `count` says: what it holds beyond them is the others'.
    pub fn settle(&self, count: impl Fn() -> u32) {
        let pages = count();
        let kept = pages.saturating_add((2 * chunk_of(pages)).max(CHUNK_PAGES_MAX));
        let Some(row) = self.row().filter(|row| Word::Share.read(row) > kept) else { return };
        let before = {
            let _changing = self.changing.lock();
            let before = Word::Share.read(row);
            // Meanwhile another thread has settled, or started the engine.
            if before <= kept || Word::Engaged.read(row) != 0 {
                return;
            }
            self.publish_native(row, kept);
            rows::shrink(self.ledger.rows(), self.index(), kept);
            before
        };
        // Another thread may have been told meanwhile that the share before covers what it wants.
        fence(Ordering::SeqCst);
        let now = count().saturating_sub(self.inherited()).min(before);
        if now > kept {
            self.restore(row, now);
        }
    }

    fn restore(&self, row: &Row, pages: u32) {
        let _changing = self.changing.lock();
        if Word::Engaged.read(row) == 0 && self.take(pages) < pages {
            self.exceed_changing(pages);
        }
    }

    /// Has so many pages in any case, and the others told that they are to give some up.
    pub fn exceed(&self, pages: u32) {
        if self.row().is_some() {
            let _changing = self.changing.lock();
            self.exceed_changing(pages);
        }
    }

    fn exceed_changing(&self, pages: u32) {
        self.ledger.exceed(self.index(), pages);
        self.ledger.ask_all(self.index());
        self.ledger.say_if_crowded();
    }

    fn publish_native(&self, row: &Row, pages: u32) {
        Word::Floor.write(row, pages.min(ALLOWANCE_PAGES));
        Word::Demand.write(row, pages);
        Word::Used.write(row, pages);
    }

    /// Grows to so many pages as far as there are free ones; the dead's are, and what another has wanted for a moment.
    fn take(&self, pages: u32) -> u32 {
        let share = self.ledger.grow(self.index(), pages);
        if share >= pages {
            return share;
        }
        self.ledger.sweep();
        self.ledger.grow(self.index(), pages)
    }

    /// The share of a process that starts its engine now: all that is free, and `floor` in any case. What it inherited is its
    /// own from here on: its parent is likely to be asked for pages too, and leaves it what both share.
    pub fn engage(&self, floor: u32) -> u32 {
        self.set_inherited(0);
        let limit = self.ledger.limit();
        let Some(row) = self.row() else { return limit.max(floor) };
        let _changing = self.changing.lock();
        Word::Floor.write(row, floor);
        Word::Demand.write(row, limit);
        Word::Engaged.write(row, 1);
        let share = self.take(limit);
        if share < floor {
            self.exceed_changing(floor);
        }
        share.max(floor)
    }

    /// Tells the others how the engine of this process is doing, but for its share.
    pub fn publish(&self, standing: Standing, used: u32) {
        let Some(row) = self.row() else { return };
        Word::Floor.write(row, standing.floor);
        Word::Demand.write(row, standing.demand);
        Word::Rate.write(row, standing.rate.unwrap_or(0));
        Word::Speed.write(row, standing.speed);
        Word::Used.write(row, used);
        Word::Engaged.write(row, 1);
    }

    /// What this process should do about its share, as all have published. The dead have no say in whether it gets more,
    /// or has to give pages up.
    pub fn decide(&self) -> Move {
        let Some(Entry { standing: own, .. }) = self.row().and_then(Entry::of) else {
            self.needs.set_waiting(false);
            return Move::Keep;
        };
        let token = self.ledger.token();
        self.needs.set_waiting(self.waits(token));
        let turn = favoured(self.ledger.standings(), token, self.ledger.limit());
        let place = |row| turn.iter().position(|other| *other == Some(row)).map(|at| at as u8);
        let own = Standing { place: place(self.index()), ..own };
        let members = || {
            let standings = self.ledger.standings();
            standings.map(|(row, standing)| Standing { place: place(row), ..standing })
        };
        let seen = decide(own, members(), self.ledger.limit());
        if seen == Move::Keep && own.demand <= own.share {
            return Move::Keep;
        }
        let _changing = self.changing.lock();
        match self.ledger.sweep() {
            Swept::None => seen,
            Swept::Some => decide(own, members(), self.ledger.limit()),
        }
    }

    /// Takes the swap token, gives it on, or leaves it where it is.
    pub fn turn(&self, seen: &mut Turn, now_ms: u64) {
        let (token, own) = (self.ledger.token(), self.index());
        let Some(Entry { standing, .. }) = self.row().and_then(Entry::of) else { return };
        let waits = token.holder.is_none() && !token::refaults(&standing);
        if waits || token.holder != seen.holder {
            *seen = Turn { holder: token.holder, since_ms: now_ms };
        }
        let for_ms = now_ms.saturating_sub(seen.since_ms);
        // One that has ended, or was stopped, does not give it on.
        let is_there = |holder| {
            let mut members = self.ledger.standings();
            members.any(|(row, member)| row == holder && member.rate.is_some())
        };
        let is_lost = |row| row != own && (for_ms >= LOST_MS || !is_there(row));
        if token.holder.is_some_and(is_lost) {
            return self.end_turn(token);
        }
        let members = self.ledger.standings();
        if let Some(next) = token::next(members, token, (own, for_ms), self.ledger.limit()) {
            self.ledger.pass_token(token, next);
        }
    }

    /// By the floor that it has when it does not wait: with less, nearly every one would be short.
    fn waits(&self, token: Token) -> bool {
        let own = self.index();
        let in_use = |(row, standing): (usize, Standing)| {
            let floor = if row == own { ALLOWANCE_PAGES } else { 0 };
            (row, Standing { floor: standing.floor.max(floor), ..standing })
        };
        token::waits(self.ledger.standings().map(in_use), token, own, self.ledger.limit())
    }

    /// The next one has the token of a member that does not give it on.
    fn end_turn(&self, token: Token) {
        let next = token::after_end(self.ledger.standings(), token, self.ledger.limit());
        self.ledger.pass_token(token, next);
    }

    /// Grows to so many pages as far as there are free ones; those that have too much are asked for the others. Returns
    /// the share.
    pub fn grow(&self, pages: u32) -> u32 {
        if self.row().is_none() {
            return pages;
        }
        let _changing = self.changing.lock();
        let share = self.take(pages);
        if share < pages {
            self.ledger.ask_all(self.index());
        }
        share
    }

    /// Gives pages back that this process does not use any more.
    pub fn shrink(&self, pages: u32) {
        let Some(row) = self.row().filter(|row| Word::Share.read(row) > pages) else { return };
        let _changing = self.changing.lock();
        if Word::Share.read(row) > pages {
            rows::shrink(self.ledger.rows(), self.index(), pages);
        }
    }

    /// What [`Member::rest`] compares with.
    pub fn asked(&self) -> u32 {
        // Acquire pairs with the release of the one that asks.
        self.row().map_or(0, |row| Word::Asked.of(row).load(Ordering::Acquire))
    }

    /// Sleeps until this process is asked for pages, or for so long.
    fn wait(&self, asked: u32, timeout_ns: u64) {
        match self.row() {
            Some(row) => futex::wait_shared(Word::Asked.of(row), asked, timeout_ns),
            None => futex::wait_for(&AtomicU32::new(0), 0, timeout_ns),
        }
    }

    /// Sleeps until this process is asked for pages, for so long, or until it may have made pages of its parent's its
    /// own: the kernel does not tell, but counts the faults by which it does.
    pub fn rest(&self, asked: u32, timeout_ns: u64) {
        let (until, faults) = (clock::now_ns() + timeout_ns, process::minor_faults());
        loop {
            let left = until.saturating_sub(clock::now_ns());
            let step = if self.inherited() > 0 { WRITTEN_NS } else { u64::MAX };
            self.wait(asked, left.min(step));
            let is_over = left <= step || self.asked() != asked;
            if is_over || process::minor_faults() - faults >= WRITTEN_PAGES {
                return;
            }
        }
    }

    /// Ends a [`Member::rest`] of this process.
    pub fn wake(&self) {
        self.row().into_iter().for_each(ledger::ask);
    }

    /// The engine is short of pages: as an idle process it may have next to none, and is not to wait for its next look.
    pub fn wake_if_idle(&self) {
        if self.needs.end_sleep() {
            self.wake();
        }
    }

    /// Keeps the share as it is across a fork.
    pub fn hold(&self) {
        self.changing.hold();
        self.ledger.note_fork();
    }

    /// After a fork, in the parent.
    pub fn release(&self) {
        self.changing.release();
    }

    /// This process, or a child of it, is about to become another program, maybe as a user who may not open the ledger.
    pub fn hand_on(&self, table: Table) {
        self.ledger.hand_on(table);
    }

    /// The process is about to become a program, or to have a child, that userswap cannot be in.
    pub fn count_unmanaged(&self) {
        self.ledger.count_unmanaged();
    }

    /// The process ends in order.
    pub fn leave(&self) {
        if self.row().is_some() {
            let token = self.ledger.token();
            if token.holder == Some(self.index()) {
                self.end_turn(token);
            }
            self.ledger.remove_if_last();
        }
    }

    /// In the child of a fork, before anything else: a row of its own. It may use `pages`, of which its parent answers
    /// for what it cannot get as long as both share them.
    pub fn renew(&self, pages: u32, floor: u32) -> u32 {
        self.changing.release();
        self.needs.reset();
        let row = self.ledger.claim().map_or(NONE, |row| row as u32);
        self.ledger.note_forked();
        self.owner.store(std::process::id(), Ordering::Relaxed);
        self.row.store(row, Ordering::Relaxed);
        let share = self.row().map_or(pages, |row| {
            Word::Floor.write(row, floor);
            Word::Demand.write(row, pages);
            Word::Used.write(row, pages);
            self.take(pages)
        });
        self.set_inherited(pages - share.min(pages));
        share
    }

    /// Pages that a child still shares with its parent, which answers for them.
    pub fn inherited(&self) -> u32 {
        self.inherited.load(Ordering::Relaxed)
    }

    /// Pages of its share that this process has outside its engine.
    pub fn outside(&self) -> u32 {
        self.outside.load(Ordering::Relaxed)
    }

    /// All pages that this process has outside its engine, whether they are charged or not.
    pub fn outside_seen(&self) -> u32 {
        self.outside_seen.load(Ordering::Relaxed)
    }

    /// Changes [`Member::outside_seen`].
    pub fn set_outside_seen(&self, pages: u32) {
        self.outside_seen.store(pages, Ordering::Relaxed);
    }

    /// Changes [`Member::outside`].
    pub fn set_outside(&self, pages: u32) {
        self.outside.store(pages, Ordering::Relaxed);
    }

    /// Whether a process without an engine should have fewer pages than it has, so that it needs one: others are short,
    /// or what it inherited has become its own (it has `own` pages now) and there are none for it.
    pub fn must_give_way(&self, pages: u32, own: u32) -> bool {
        let inherited = self.inherited();
        if inherited > 0 {
            self.set_inherited(pages.saturating_sub(own).min(inherited));
        }
        !self.covers(pages) || matches!(self.decide(), Move::Shrink(_))
    }

    /// Whether this process has more than it would do well with if it had an engine.
    pub fn is_large(&self) -> bool {
        self.share().saturating_add(self.inherited()) > ALLOWANCE_PAGES
    }

    /// Whether no other process is in the job.
    pub fn is_alone(&self) -> bool {
        self.ledger.entries().nth(1).is_none()
    }

    /// Changes [`Member::inherited`].
    pub fn set_inherited(&self, pages: u32) {
        self.inherited.store(pages, Ordering::Relaxed);
    }
}
