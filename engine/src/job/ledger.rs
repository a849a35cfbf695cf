//! The ledger's file: its head, its rows, and which of them belong to the living.
//!
//! A member holds a record lock on its row. The kernel releases it with the process, so a row that can be locked belongs
//! to nobody: the process that gets the lock may clear the row, or take it. The rows of the dead count until somebody who
//! is short of pages sweeps them. No lock is waited for but that of the name, for a moment: who removes the name of a job
//! that has ended looks at the rows' locks while it has that one, and who takes a row looks at that one afterwards.
use crate::base::log;
use crate::base::status::{JobStatus, MemberStatus};
use crate::job::rows::{self, Row, Word};
use crate::sys::lock::Lock;
use crate::sys::shared_rows::{SharedRows, Table};
use crate::sys::{directory, futex};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::RawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use userswap_policy::job::Standing;
use userswap_policy::token::{SPEED_FULL, Token};

/// Processes of a job at once; one more has a budget of its own.
pub const MEMBERS_MAX: usize = 4095;

/// Rows that are used before anybody sweeps those of the dead for their number.
const CROWD_MIN: u32 = 16;

/// The byte of the file that is locked while its name is removed; the rows' bytes follow.
const NAME: usize = 0;

/// Of a ledger's name in the directory of the control sockets; before it are the process that `run` became, and a number.
const SUFFIX: &str = ".ledger";

/// What is said about the whole job, in the file's first row.
#[derive(Clone, Copy, Debug)]
enum Head {
    /// The budget in pages; 0 until the ledger is made.
    Limit,
    /// The most pages that were held at once.
    Peak,
    /// Pages that members took beyond the budget, each time that they did.
    Exceeded,
    /// Members' rows before this one have been used.
    Used,
    /// Forks under way.
    Forks,
    /// Who takes a new row from this one on sweeps those of the dead before.
    Crowd,
    /// Not 0 once the user has been told that there are too many members.
    Said,
    /// Programs that members have executed unmanaged.
    Unmanaged,
    /// The row that has the swap token, and one; 0 while none has it.
    Token,
    /// What else is known of it, as `policy::token` has it.
    Before,
    Passes,
    Kept,
    Refused,
}

/// A job's ledger, mapped.
#[derive(Debug)]
pub struct Ledger {
    file: SharedRows,
    path: PathBuf,
    /// The budget that the job began with.
    first_limit: u32,
    /// The row of this process, whose lock does not keep itself out; [`NONE`] without one.
    own: AtomicU32,
}

const NONE: u32 = u32::MAX;

/// A member as its row says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its process.
    pub pid: u32,
    /// Whether it has an engine.
    pub is_engaged: bool,
    /// What is decided by.
    pub standing: Standing,
    /// Pages that it uses.
    pub used: u32,
}

impl Entry {
    /// None for a row that is free.
    pub(super) fn of(row: &Row) -> Option<Self> {
        let (pid, used) = (Word::Pid.read(row), Word::Used.read(row));
        let is_engaged = Word::Engaged.read(row) != 0;
        let standing = Standing {
            share: Word::Share.read(row),
            floor: Word::Floor.read(row),
            demand: Word::Demand.read(row),
            rate: is_engaged.then(|| Word::Rate.read(row)),
            speed: Word::Speed.read(row).min(SPEED_FULL),
            place: None,
        };
        (pid != 0).then_some(Self { pid, is_engaged, standing, used })
    }
}

impl Ledger {
    /// Makes the ledger of a job that begins with a process; returns its path.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn create(directory: &Path, root_pid: u32, budget_pages: u32) -> io::Result<PathBuf> {
        // Processes of other namespaces have the same numbers.
        // As it will be found among open files.
        let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
        for number in 1.. {
            let path = directory.join(format!("{root_pid}-{number}{SUFFIX}"));
            let is_free = match open(&path) {
                None => true,
                Some(ledger) => ledger.remove_if_unused(),
            };
            if is_free {
                let made = Self::open(&path, budget_pages).map(|_| path.clone());
                // Half of one is of no use, and takes room that there may be too little of.
                return made.inspect_err(|_| drop(std::fs::remove_file(&path)));
            }
        }
        unreachable!("one of all numbers is free")
    }

    /// Opens a job's ledger; the first to do so makes it, with this budget.
    ///
    /// # Errors
    /// The file cannot be opened or mapped.
    pub fn open(path: &Path, budget_pages: u32) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600);
        Self::of(file.open(path)?, path, budget_pages)
    }

    /// The ledger that the program before has left open, as this one may not open it by its name; None if it did not.
    pub(super) fn inherited(path: &Path, budget_pages: u32) -> Option<Self> {
        Self::of(SharedRows::inherited(path)?, path, budget_pages).ok()
    }

    fn of(file: File, path: &Path, budget_pages: u32) -> io::Result<Self> {
        let file = SharedRows::new(file, MEMBERS_MAX + 1)?;
        // Who only looks has no use for a full file system's refusal.
        if budget_pages > 0 {
            file.allocate()?;
        }
        let own = AtomicU32::new(NONE);
        let ledger = Self { file, path: path.to_owned(), first_limit: budget_pages, own };
        // Relaxed: a number. Whoever comes second keeps the first one's.
        let limit = ledger.head(Head::Limit);
        let _ = limit.compare_exchange(0, budget_pages, Ordering::Relaxed, Ordering::Relaxed);
        Ok(ledger)
    }

    fn head(&self, word: Head) -> &AtomicU32 {
        &self.file[0][word as usize]
    }

    fn all_rows(&self) -> &[Row] {
        &self.file[1..]
    }

    /// The rows that were ever used.
    pub(super) fn rows(&self) -> &[Row] {
        let used = self.head(Head::Used).load(Ordering::Acquire) as usize;
        &self.all_rows()[..used.min(MEMBERS_MAX)]
    }

    /// Its file's name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its file's descriptor.
    pub fn descriptor(&self) -> RawFd {
        self.file.descriptor()
    }

    /// The job's budget in pages.
    pub fn limit(&self) -> u32 {
        self.head(Head::Limit).load(Ordering::Relaxed)
    }

    /// Changes the budget; members look at it within a moment.
    pub fn set_limit(&self, pages: u32) {
        self.head(Head::Limit).store(pages, Ordering::Relaxed);
        self.rows().iter().for_each(ask);
    }

    /// Pages that all members hold.
    pub fn held(&self) -> u64 {
        rows::held(self.rows())
    }

    /// The most pages that were held at once.
    pub fn peak(&self) -> u32 {
        self.head(Head::Peak).load(Ordering::Relaxed)
    }

    /// Pages that members took beyond the budget, each time that they did.
    pub fn exceeded(&self) -> u32 {
        self.head(Head::Exceeded).load(Ordering::Relaxed)
    }

    /// As others are told.
    pub fn status(&self) -> JobStatus {
        let holder = self.token().holder;
        let member = |(row, entry): (usize, Entry)| MemberStatus {
            pid: entry.pid,
            engaged: entry.is_engaged,
            share_pages: entry.standing.share.into(),
            used_pages: entry.used.into(),
            demand_pages: entry.standing.demand.into(),
            refaults_per_second: entry.standing.rate.unwrap_or(0).into(),
            speed: entry.standing.speed,
            has_turn: holder == Some(row),
        };
        let living = || self.living();
        JobStatus {
            root_pid: self.path.file_name().and_then(root_of).unwrap_or(0),
            budget_pages: self.limit().into(),
            held_pages: living().map(|(_, entry)| u64::from(entry.standing.share)).sum(),
            held_pages_max: self.peak().into(),
            exceeded_pages: self.exceeded().into(),
            unmanaged_children: self.unmanaged().into(),
            members: living().map(member).collect(),
        }
    }

    /// The members, those included that have died and were not swept yet.
    pub fn entries(&self) -> impl Iterator<Item = Entry> + Clone {
        self.numbered().map(|(_, entry)| entry)
    }

    fn numbered(&self) -> impl Iterator<Item = (usize, Entry)> + Clone {
        let rows = self.rows().iter().map(Entry::of).enumerate();
        rows.filter_map(|(row, entry)| Some((row, entry?)))
    }

    /// What the members' rows say, with their numbers.
    pub(super) fn standings(&self) -> impl Iterator<Item = (usize, Standing)> + Clone {
        self.numbered().map(|(row, entry)| (row, entry.standing))
    }

    /// Who has the swap token.
    pub(super) fn token(&self) -> Token {
        let read = |word| self.head(word).load(Ordering::Relaxed);
        let holder = (read(Head::Token) as usize).checked_sub(1);
        let [before, passes, kept, refused] =
            [Head::Before, Head::Passes, Head::Kept, Head::Refused].map(read);
        Token { holder, before, passes, kept, refused }.clamped()
    }

    /// Gives the token on, unless another has: what is known beside it is a hint, and is read anew.
    pub(super) fn pass_token(&self, from: Token, to: Token) {
        let number = |token: Token| token.holder.map_or(0, |row| row as u32 + 1);
        let (old, new) = (number(from), number(to));
        let holder = self.head(Head::Token);
        if holder.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            let write = |word, value| self.head(word).store(value, Ordering::Relaxed);
            write(Head::Before, to.before);
            write(Head::Passes, to.passes);
            write(Head::Kept, to.kept);
            write(Head::Refused, to.refused);
        }
    }

    /// The members that have not died.
    fn living(&self) -> impl Iterator<Item = (usize, Entry)> {
        let is_alive = |row: usize| self.is_own(row) || self.file.has_lock(row + 1..row + 2);
        self.numbered().filter(move |(row, _)| is_alive(*row))
    }

    fn is_own(&self, row: usize) -> bool {
        self.own.load(Ordering::Relaxed) as usize == row
    }

    /// Lets a row grow to `to` pages as far as there are free ones; returns what it holds then.
    pub(super) fn grow(&self, row: usize, to: u32) -> u32 {
        let share = rows::grow(|| self.rows(), row, to, self.limit());
        self.note_peak();
        share
    }

    /// Lets a row grow to `to` pages whatever the others hold.
    pub(super) fn exceed(&self, row: usize, to: u32) {
        let before = self.grow(row, to);
        if let Some(more) = to.checked_sub(before).filter(|more| *more > 0) {
            Word::Share.write(&self.rows()[row], to);
            self.head(Head::Exceeded).fetch_add(more, Ordering::Relaxed);
            self.note_peak();
        }
    }

    fn note_peak(&self) {
        // Rows of members that grow at this moment say more than those keep.
        let most = self.limit().saturating_add(self.exceeded());
        let held = || self.held().min(most.into()) as u32;
        // What the dead had is nobody's.
        if held() > self.peak() {
            self.sweep();
            self.head(Head::Peak).fetch_max(held(), Ordering::Relaxed);
        }
    }

    /// Tells the user, once for the job, when there are more members than the budget has floors for.
    pub(super) fn say_if_crowded(&self) {
        let floors: u64 = self.entries().map(|entry| u64::from(entry.standing.floor)).sum();
        if floors > self.limit().into() && self.head(Head::Said).swap(1, Ordering::Relaxed) == 0 {
            log::crowded_job(self.entries().count() as u64);
        }
    }

    /// Takes a free row for this process; None when there is none.
    pub(super) fn claim(&self) -> Option<usize> {
        self.own.store(NONE, Ordering::Relaxed);
        // First those that look free, then those of the dead that nobody has swept.
        let free = |row: &usize| Word::Pid.read(&self.all_rows()[*row]) == 0;
        let rows = 0..MEMBERS_MAX;
        let index =
            rows.clone().filter(free).chain(rows).find(|row| self.file.try_lock(row + 1))?;
        self.own.store(index as u32, Ordering::Relaxed);
        let row = &self.all_rows()[index];
        clear(row);
        Word::Pid.write(row, std::process::id());
        // Release pairs with the acquire in `rows`.
        let before = self.head(Head::Used).fetch_max(index as u32 + 1, Ordering::AcqRel);
        if index as u32 >= before.max(self.head(Head::Crowd).load(Ordering::Relaxed)) {
            self.sweep();
            let crowd = 2 * self.entries().count() as u32;
            self.head(Head::Crowd).store(crowd.max(CROWD_MIN), Ordering::Relaxed);
        }
        Some(index)
    }

    /// Clears the rows of processes that have ended; called by a member.
    pub(super) fn sweep(&self) -> Swept {
        let mut swept = Swept::None;
        for (index, row) in self.rows().iter().enumerate() {
            let is_used = Word::Pid.read(row) != 0;
            if is_used && !self.is_own(index) && self.file.try_lock(index + 1) {
                clear(row);
                self.file.unlock(index + 1);
                swept = Swept::Some;
            }
        }
        swept
    }

    /// Asks the members that hold more than they should to look at it again.
    pub(super) fn ask_all(&self, own: usize) {
        let others = self.rows().iter().enumerate().filter(|(index, _)| *index != own);
        others.for_each(|(_, row)| ask(row));
    }

    /// Whether a process other than this one is a member.
    fn has_members(&self) -> bool {
        self.file.has_lock(NAME + 1..MEMBERS_MAX + 1)
    }

    /// Whether others find a member here that has just taken a row: the file has not lost its name, and is not about to.
    pub(super) fn is_kept(&self) -> bool {
        !self.file.has_lock(NAME..NAME + 1) && self.file.is_at(&self.path)
    }

    /// Has programs that this process executes inherit it, where they could not open it; safe in a child by vfork.
    pub(super) fn hand_on(&self, table: Table) {
        // Without it they are told that they have a budget of their own.
        let _ = self.file.hand_on(&self.path, table);
    }

    /// A member is about to become a program, or to have a child, that userswap cannot be in.
    pub(super) fn count_unmanaged(&self) {
        self.head(Head::Unmanaged).fetch_add(1, Ordering::Relaxed);
    }

    fn unmanaged(&self) -> u32 {
        self.head(Head::Unmanaged).load(Ordering::Relaxed)
    }

    /// The child of a fork is about to take a row, or to end without one.
    pub(super) fn note_fork(&self) {
        self.head(Head::Forks).fetch_add(1, Ordering::AcqRel);
    }

    /// The child has its row, or there is none.
    pub(super) fn note_forked(&self) {
        self.head(Head::Forks).fetch_sub(1, Ordering::AcqRel);
    }

    /// The last member removes the name; a process that comes after that makes a new ledger. One with a budget that was
    /// changed stays: what a member has started may be about to come, and whoever looks at jobs removes it in the end.
    pub(super) fn remove_if_last(&self) {
        // Acquire pairs with the release in `note_forked`: then the child's lock is seen.
        let forks = self.head(Head::Forks).load(Ordering::Acquire);
        if forks == 0 && self.limit() == self.first_limit {
            self.remove_if_unused();
        }
    }

    /// Removes the name unless another process is a member; whether it did.
    fn remove_if_unused(&self) -> bool {
        if self.has_members() || !self.file.try_lock(NAME) {
            return false;
        }
        // Again: a process that takes a row looks at this lock then, so that one of the two sees the other.
        let is_unused = !self.has_members() && self.file.is_at(&self.path);
        let is_removed = is_unused && std::fs::remove_file(&self.path).is_ok();
        self.file.unlock(NAME);
        is_removed
    }
}

/// Called with the row's lock: what its last member left is nobody's.
fn clear(row: &Row) {
    row.iter().for_each(|word| word.store(0, Ordering::Release));
}

/// Wakes a member to look again at what it should have.
pub(super) fn ask(row: &Row) {
    let asked = Word::Asked.of(row);
    // Release pairs with the acquire of the member that looks.
    asked.fetch_add(1, Ordering::Release);
    futex::wake_shared(asked);
}

/// Whether rows of the dead were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swept {
    /// Their pages are free now.
    Some,
    /// There were none.
    None,
}

/// The ledgers in `directory` of jobs that have members, or have executed what userswap could not be in.
pub fn jobs(directory: &Path) -> Vec<Arc<Ledger>> {
    let opened = ledgers(directory).into_iter().filter_map(|(_, path)| open(&path));
    opened.filter(|ledger| ledger.has_members() || ledger.unmanaged() > 0).collect()
}

/// Removes from `directory` the ledgers of jobs that have ended.
pub fn sweep(directory: &Path, is_running: impl Fn(u32) -> bool) {
    for (root, path) in ledgers(directory) {
        if !is_running(root)
            && let Some(ledger) = open(&path)
        {
            ledger.remove_if_unused();
        }
    }
}

/// The ledgers that this process has looked at. They stay open as long as they have their names: this process may be a
/// member itself, and would lose its lock with the descriptor.
static OPENED: Lock<BTreeMap<PathBuf, Arc<Ledger>>> = Lock::new(BTreeMap::new());

fn open(path: &Path) -> Option<Arc<Ledger>> {
    let mut opened = OPENED.lock();
    opened.retain(|path, ledger| ledger.file.is_at(path));
    if !opened.contains_key(path) && path.exists() {
        opened.insert(path.to_owned(), Arc::new(Ledger::open(path, 0).ok()?));
    }
    opened.get(path).cloned()
}

fn ledgers(directory: &Path) -> Vec<(u32, PathBuf)> {
    let names = directory::names(directory, usize::MAX).unwrap_or_default();
    names.iter().filter_map(|name| Some((root_of(name)?, directory.join(name)))).collect()
}

fn root_of(name: &OsStr) -> Option<u32> {
    name.to_str()?.strip_suffix(SUFFIX)?.split_once('-')?.0.parse().ok()
}

#[cfg(test)]
mod tests;
