//! The threads of a device: one writes full segments, one says that the engine lives, and one moves what is left of sparse
//! objects, and deletes those that nobody needs.
//!
//! They work outside the gate. A child that is forked meanwhile has none of what they work on: its pages are in a file.
use super::log::{Appended, Moved, Writer};
use super::server::Part;
use super::store::{Name, S3, is_gone};
use crate::device::remote::tls::Tls;
use crate::sys::mapping::Mapping;
use crate::sys::request::Pieces;
use crate::sys::thread::Thread;
use crate::sys::{PAGE_BYTES, clock, futex};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use userswap_policy::segments::{Segment, Worth};

/// Perhaps a segment is full.
const UPLOAD: u32 = 1;
/// Perhaps an object is sparse, or empty.
const TIDY: u32 = 2;
/// The threads shall end.
const END: u32 = 4;
/// The lease is for another time now.
const LEASE: u32 = 8;

/// A lease is put off so many times before it would end.
const RENEWALS: u64 = 4;

const SECOND_NS: u64 = 1_000_000_000;

/// After a request that has failed, the first rest and the longest.
const REST_NS: u64 = SECOND_NS / 20;
const REST_NS_MAX: u64 = 5 * SECOND_NS;

/// Frees are gathered for so long.
const GATHER_NS: u64 = SECOND_NS / 4;

/// Pages moved together.
const MOVED_MAX: usize = 256;

/// How long to wait after failures in a row.
struct Rest(u64);

impl Rest {
    fn none() -> Self {
        Self(0)
    }

    fn after(&mut self, is_done: bool) {
        self.0 = match (is_done, self.0) {
            (true, _) => 0,
            (false, 0) => REST_NS,
            (false, before) => (before * 2).min(REST_NS_MAX),
        };
    }
}

impl S3 {
    pub(super) fn start_threads(self: Arc<Self>) -> io::Result<()> {
        self.config.tls.as_ref().map_or(Ok(()), Tls::start)?;
        let mut threads = self.threads.lock();
        if threads.is_empty() {
            let (writer, keeper, tidier) = (self.clone(), self.clone(), self.clone());
            threads.push(Thread::spawn("userswap-s3", move || writer.keep_writing())?);
            threads.push(Thread::spawn("userswap-lease", move || keeper.keep_leased())?);
            threads.push(Thread::spawn("userswap-s3-tidy", move || tidier.keep_tidy())?);
        }
        Ok(())
    }

    pub(super) fn stop_threads(&self) {
        self.want(END);
    }

    pub(super) fn join_threads(&self) {
        let threads = std::mem::take(&mut *self.threads.lock());
        threads.into_iter().for_each(Thread::join);
    }

    pub(super) fn want_upload(&self) {
        self.want(UPLOAD);
    }

    pub(super) fn want_tidying(&self) {
        self.want(TIDY);
    }

    pub(super) fn want_lease(&self) {
        self.want(LEASE);
    }

    fn want(&self, what: u32) {
        if self.wanted.fetch_or(what, Ordering::AcqRel) & what != what {
            futex::wake_all(&self.wanted);
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.wanted.load(Ordering::Acquire) & END != 0
    }

    /// Waits until something is wanted that was not when `seen` was read, or so long.
    fn rest(&self, seen: u32, rest_ns: u64) {
        if seen & END == 0 {
            futex::wait_for(&self.wanted, seen, rest_ns);
        }
    }

    /// Waits for so long, or the end.
    fn sleep(&self, rest_ns: u64) {
        let until = clock::now_ns() + rest_ns;
        loop {
            let (seen, now) = (self.wanted.load(Ordering::Acquire), clock::now_ns());
            if seen & END != 0 || now >= until {
                return;
            }
            self.rest(seen, until - now);
        }
    }

    fn keep_writing(&self) {
        let (mut rest, mut has_lease) = (Rest::none(), false);
        while !self.is_over() {
            let seen = self.wanted.fetch_and(!UPLOAD, Ordering::AcqRel) & !UPLOAD;
            let Some((segment, content)) = self.log.next_full() else {
                self.rest(seen, u64::MAX / 2);
                continue;
            };
            // Before the first object: without one it would seem to be left over from another.
            let written = match has_lease {
                true => Ok(()),
                false => self.keep_lease(),
            };
            has_lease |= written.is_ok();
            let written =
                written.and_then(|()| self.server.write(&self.object_of(segment), content));
            rest.after(written.is_ok());
            match written {
                Ok(()) if self.log.stored(segment) != Worth::Kept => self.want_tidying(),
                Ok(()) => {}
                Err(_) => self.sleep(rest.0),
            }
        }
    }

    /// Says that the engine lives, whatever the others are busy with: what they ask the store for may take an hour.
    fn keep_leased(&self) {
        let mut next_ns = clock::now_ns() + self.period_ns();
        while !self.is_over() {
            let is_changed = self.wanted.fetch_and(!LEASE, Ordering::AcqRel) & LEASE != 0;
            if is_changed || clock::now_ns() >= next_ns {
                // Also while there is no object: one may come, and its lease has to be young then.
                let is_kept = !self.log.has_begun() || self.keep_lease().is_ok();
                next_ns = clock::now_ns() + if is_kept { self.period_ns() } else { SECOND_NS };
            }
            let seen = self.wanted.load(Ordering::Acquire);
            if seen & LEASE == 0 {
                self.rest(seen, next_ns.saturating_sub(clock::now_ns()));
            }
        }
    }

    fn keep_tidy(&self) {
        // What it cannot do now another does.
        let _ = self.sweep();
        let mut rest = Rest::none();
        while !self.is_over() {
            let seen = self.wanted.load(Ordering::Acquire);
            if seen & TIDY == 0 {
                self.rest(seen, u64::MAX / 2);
                continue;
            }
            self.sleep(GATHER_NS);
            self.wanted.fetch_and(!TIDY, Ordering::AcqRel);
            let tidied = self.tidy();
            rest.after(tidied.is_ok());
            if tidied.is_err() {
                self.want_tidying();
                self.sleep(rest.0);
            }
        }
    }

    fn period_ns(&self) -> u64 {
        u64::from(self.lease_s.load(Ordering::Relaxed)) * SECOND_NS / RENEWALS
    }

    /// Says that the engine lives: the object is as old as that was last said, by the store's clock.
    pub(super) fn keep_lease(&self) -> io::Result<()> {
        let seconds = self.lease_s.load(Ordering::Relaxed).to_string();
        self.server.write(&self.config.object(Name::Lease), seconds.as_bytes())
    }

    /// Looks at all objects once.
    fn tidy(&self) -> io::Result<()> {
        let (mut from, mut outcome) = (0, Ok(()));
        while let Some((segment, worth)) = self.log.next_worthless(from) {
            if self.is_over() {
                break;
            }
            from = segment.row + 1;
            match (worth, self.tidy_one(segment, worth)) {
                // Empty now.
                (Worth::Sparse, Ok(())) => self.want_tidying(),
                (_, Ok(())) => {}
                // The store has lost it: its pages are told to be lost when they are asked for, and others go on.
                (_, Err(error)) if is_gone(&error) => outcome = Err(error),
                (_, Err(error)) => return Err(error),
            }
        }
        outcome
    }

    fn tidy_one(&self, segment: Segment, worth: Worth) -> io::Result<()> {
        if worth == Worth::Sparse {
            return self.move_on(segment);
        }
        self.server.delete(&self.object_of(segment))?;
        self.log.deleted(segment);
        Ok(())
    }

    /// Moves the pages that an object still has to the segment that is being filled.
    fn move_on(&self, segment: Segment) -> io::Result<()> {
        let memory = Mapping::undumped(MOVED_MAX * PAGE_BYTES)?;
        for batch in self.log.pages_of(segment).chunks(MOVED_MAX) {
            let pieces = Pieces::one(memory.address(), batch.len() * PAGE_BYTES);
            let mut read = 0;
            for run in batch.chunk_by(|one, next| next.index == one.index + 1) {
                let part = Part { pieces: &pieces, skip: read, count: run.len() };
                self.server.read(&self.object_of(segment), run[0].index, part)?;
                read += run.len();
            }
            self.append_all(segment, batch, &pieces)?;
        }
        Ok(())
    }

    fn append_all(&self, from: Segment, batch: &[Moved], pieces: &Pieces) -> io::Result<()> {
        let mut done = 0;
        while done < batch.len() && !self.is_over() {
            let part = Part { pieces, skip: done, count: batch.len() - done };
            let slots = &|nth: usize| batch[done + nth];
            let writer = Writer::Mover { from };
            done += self.append_patiently(&Appended { slots, part, writer })?;
        }
        Ok(())
    }

    /// Deletes all objects; what cannot be deleted now is, by the next engine that uses the prefix.
    pub(super) fn delete_everything(&self) {
        if !self.log.has_begun() {
            return;
        }
        let segments = self.log.all().into_iter().map(|segment| Name::Segment(segment.number));
        let mut names = segments.chain([Name::Lease]);
        let _ = names.try_for_each(|name| self.server.delete(&self.config.object(name)));
    }
}
