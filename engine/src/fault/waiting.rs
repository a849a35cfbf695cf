//! How the server waits when it finds nothing to do: it looks on for as long as the policy says, then it sleeps.
use crate::base::counters::count;
use crate::state::core::Core;
use crate::sys::{clock, process};
use userswap_policy::polling::{Ended, Polling, WaitFor};

/// The server's wait, and what it has learned from those before.
#[derive(Default)]
pub(super) struct Waiting {
    polling: Polling,
    look: Option<Look>,
}

/// A wait under way that began with looking.
struct Look {
    wait: WaitFor,
    since_ns: u64,
    until_ns: u64,
}

impl Waiting {
    /// Whether the server looks on instead of sleeping.
    pub(super) fn is_looking(&self) -> bool {
        self.look.is_some()
    }

    /// There was something to do.
    pub(super) fn found(&mut self, core: &Core) {
        let Some(look) = self.look.take() else { return };
        let now = clock::now_ns();
        count(&core.counters.poll_successful, 1);
        count(&core.counters.poll_success_ns, now - look.since_ns);
        self.polling.on_wait(look.wait, Ended::Answered);
    }

    /// There was nothing, with `reads` under way; whether to look again, or to sleep now.
    pub(super) fn looks_on(&mut self, core: &Core, reads: u32) -> bool {
        let now = clock::now_ns();
        let Some(look) = &self.look else { return self.begins(core, reads, now) };
        if now < look.until_ns {
            std::hint::spin_loop();
            return true;
        }
        count(&core.counters.poll_fail_ns, now - look.since_ns);
        self.polling.on_wait(look.wait, Ended::InVain);
        self.look = None;
        false
    }

    fn begins(&mut self, core: &Core, reads: u32, now: u64) -> bool {
        let wait = if reads > 0 { WaitFor::Read } else { WaitFor::Fault };
        let poll = core.polling.setting();
        let mut look_ns = self.polling.look_ns(poll, wait, now);
        // Only before a look: it takes a system call.
        if look_ns > 0 {
            self.polling.on_preemptions(process::preemptions(), now);
            look_ns = self.polling.look_ns(poll, wait, now);
        }
        if look_ns == 0 {
            self.polling.on_wait(wait, Ended::Slept);
            return false;
        }
        count(&core.counters.poll_attempted, 1);
        self.look = Some(Look { wait, since_ns: now, until_ns: now + look_ns });
        true
    }
}
