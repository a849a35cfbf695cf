//! A thread that reads for itself looks for the end of the read for a while before it sleeps: a CPU that halts takes as long to
//! be woken, where there is a hypervisor, as a third of the read.
use crate::base::counters::count;
use crate::device::request::{Backing, Request};
use crate::state::core::Core;
use crate::sys::aio::Seen;
use crate::sys::clock;
use crate::sys::request::Pieces;
use std::io;

impl Core {
    /// Reads on the calling thread.
    // Its own frame on the stack, as in `swapin.rs`.
    #[inline(never)]
    pub(super) fn look_for(&self, request: &Request, pieces: &Pieces) -> io::Result<()> {
        let since = clock::now_ns();
        let is_file = matches!(request.backing, Backing::File);
        let look = || self.readers.look(self.polling.setting(), self.reads.held(), since);
        let Some(look) = is_file.then(look).flatten() else {
            return request.transfer(pieces);
        };
        let (seen, outcome) = request.look_for(pieces, look.reader(), since + look.look_ns());
        let now = clock::now_ns();
        count(&self.counters.poll_attempted, 1);
        match seen {
            Seen::Looking => {
                count(&self.counters.poll_successful, 1);
                count(&self.counters.poll_success_ns, now - since);
            }
            Seen::Sleeping => count(&self.counters.poll_fail_ns, look.look_ns()),
        }
        look.ended(seen, now);
        outcome
    }
}
