//! Memory of another process, read or written past it (process_vm_readv(2), process_vm_writev).
//!
//! Such a call goes piece by piece: what it has under way is pinned, and cannot leave. Where the other process's faults come by
//! signal, or without the right to have the kernel's faults served, it ends at the first page that has left. Its engine is asked
//! for the pages then, and the call goes on behind what it has done. The entry points are as safe as the functions that they
//! stand in for.
use super::arguments::{self, Arguments, Memory};
use super::buffers::{List, Parts};
use super::filters;
use super::held::{Held, is_needed};
use super::table::Row;
use crate::abi::raw::{Span, errno, set_errno};
use crate::abi::system_call::{error, make, to_c};
use crate::state::process;
use libc::{c_long, iovec, ssize_t};
use userswap::internals::other::Other;
use userswap::internals::signal::Blocked;

/// What is the caller's own memory: of what is another's the list alone.
const OF_OTHERS: Row = &[(1, Memory::Parts(2)), (3, Memory::Each(4, size_of::<iovec>()))];
/// How often pages are asked for that have left again when the call comes to them.
const TRIES_MAX: u32 = 64;
/// Bytes of a call that goes on at once: both sides can be kept in RAM, and what it pins does not crowd out others.
const PIECE_BYTES: usize = 256 << 10;
/// What the kernel returns at missing memory.
const EFAULT: usize = error(libc::EFAULT);

/// A call, and what it takes.
struct Access {
    number: c_long,
    arguments: Arguments,
    /// The memory on both sides is the caller's.
    is_of_own: bool,
    here: List,
    there: List,
}

impl Access {
    fn new(number: c_long, arguments: Arguments) -> Self {
        let [process, here, here_count, there, there_count, _] = arguments;
        let is_of_own = process as u32 == std::process::id();
        let (here, there) =
            (List(here as *const iovec, here_count), List(there as *const iovec, there_count));
        Self { number, arguments, is_of_own, here, there }
    }

    /// Makes the call; what the kernel returns, or would for all of it.
    fn make(&self) -> usize {
        let on_stack = 0_u8;
        let _stack = is_needed().then(|| Held::new(&[Span::of(&raw const on_stack, 1)]));
        let whole = self.here.bytes().min(self.there.bytes());
        if whole > PIECE_BYTES {
            return self.make_behind(0, whole);
        }
        let held = is_needed().then(|| match self.is_of_own {
            true => arguments::hold(self.number, &self.arguments),
            false => arguments::hold_row(OF_OTHERS, &self.arguments),
        });
        let returned = make(self.number, self.arguments);
        drop(held);
        match returned {
            // Lists that the program could not read count as nothing.
            EFAULT if whole > 0 => self.make_behind(0, whole),
            done if done < whole => self.make_behind(done, whole),
            _ => returned,
        }
    }

    /// The same behind so many bytes, up to the whole.
    fn make_behind(&self, mut done: usize, whole: usize) -> usize {
        let (mut asked, mut tries) = (Asked::default(), 0);
        loop {
            let room = PIECE_BYTES.min(whole - done);
            let (here, there) = (self.here.after(done, room), self.there.after(done, room));
            if here.count == 0 || there.count == 0 {
                return done;
            }
            let held = self.hold(&here, &there);
            let moved = self.make_part(&here, &there);
            if (1..=room).contains(&moved) {
                (done, tries) = (done + moved, 0);
                continue;
            }
            tries += 1;
            // Whichever side was missing, both are tried.
            let mut is_there =
                || asked.bring(self, &there.list[0]) || held.iter().flatten().any(Held::is_short);
            if moved != EFAULT || tries > TRIES_MAX || !is_there() {
                return if done > 0 { done } else { moved };
            }
        }
    }

    /// Keeps a piece's memory in RAM, as far as it is this process's.
    fn hold(&self, here: &Parts, there: &Parts) -> [Option<Held>; 2] {
        let hold = |is_ours: bool, parts: &Parts| (is_ours && is_needed()).then(|| parts.hold());
        [hold(true, here), hold(self.is_of_own, there)]
    }

    fn make_part(&self, here: &Parts, there: &Parts) -> usize {
        let [process, .., flags] = self.arguments;
        let (to, from) = (here.list.as_ptr().addr(), there.list.as_ptr().addr());
        make(self.number, [process, to, here.count, from, there.count, flags])
    }

    /// How the other process is asked for pages, if it can be.
    fn other(&self) -> Option<Other> {
        if self.is_of_own || filters::is_filtered() {
            return None;
        }
        Other::of(self.arguments[0] as u32, process::current()?.options.control.as_deref())
    }
}

/// Who is asked for pages: nobody was looked for before some are missing, and then there may be nobody who answers.
#[derive(Default)]
struct Asked(Option<Option<Other>>);

impl Asked {
    /// Whether pages of the other process are there, or were a moment ago.
    fn bring(&mut self, access: &Access, part: &iovec) -> bool {
        let _blocked = Blocked::new();
        let other = self.0.get_or_insert_with(|| access.other()).as_mut();
        let bytes = other.and_then(|it| it.populate(part.iov_base.addr(), part.iov_len));
        if bytes.is_none() {
            // Whoever has not answered is not waited for again.
            self.0 = Some(None);
        }
        bytes.is_some_and(|bytes| bytes > 0)
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        // What closes and frees is not to be interrupted, nor to be the end of the thread.
        let _blocked = self.0.is_some().then(Blocked::new);
        self.0 = None;
    }
}

fn serve(number: c_long, arguments: Arguments) -> ssize_t {
    let before = errno();
    let returned = match process::current() {
        Some(_) => Access::new(number, arguments).make(),
        None => make(number, arguments),
    };
    set_errno(before);
    to_c(returned) as ssize_t
}

mod exported {
    use super::*;

    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn process_vm_readv(
        process: usize,
        to: usize,
        to_count: usize,
        from: usize,
        from_count: usize,
        flags: usize,
    ) -> ssize_t {
        serve(libc::SYS_process_vm_readv, [process, to, to_count, from, from_count, flags])
    }

    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn process_vm_writev(
        process: usize,
        from: usize,
        from_count: usize,
        to: usize,
        to_count: usize,
        flags: usize,
    ) -> ssize_t {
        serve(libc::SYS_process_vm_writev, [process, from, from_count, to, to_count, flags])
    }
}
