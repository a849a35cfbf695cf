//! What stays in compressed memory is compressed once more, while there is nothing to move on and a CPU that nothing else wants.
use crate::base::counters::count;
use crate::device::record::Device;
use crate::device::zram::recompress::Step;
use crate::state::core::Core;
use crate::sys::kept_file::KeptFile;
use crate::sys::{clock, process};
use std::sync::OnceLock;
use userswap_policy::recompress::{is_idle, rest_ns};

/// What says how many threads of the machine run; of the machine, so that a forked child can go on with it.
static LOAD: OnceLock<KeptFile> = OnceLock::new();

/// How many threads run, or want to: of `0.20 0.18 0.12 1/80 11206` the 1. None where nobody says so.
fn running() -> Option<u32> {
    let open = || KeptFile::open("/proc/loadavg").unwrap_or_else(|_| KeptFile::none());
    let mut text = [0; 128];
    let read = process::read_all_to(LOAD.get_or_init(open).descriptor().ok()?, &mut text)?;
    let field = std::str::from_utf8(&text[..read]).ok()?.split(' ').nth(3)?;
    field.split('/').next()?.parse().ok()
}

impl Core {
    /// One step on each device for which that is asked; how long to rest then, without one for ever.
    pub(super) fn recompress(&self) -> Option<u64> {
        let is_asked = |device: &Device| device.zram().is_some_and(|zram| zram.recompresses());
        // Inside the gate: no fork comes while the file is opened.
        let running = self.inside_gate(|| self.devices.list().any(is_asked).then(running))?;
        // Where nobody says how many run, a CPU counts as idle.
        if running.is_some_and(|running| !is_idle(running, clock::cpus())) {
            return Some(rest_ns(None));
        }
        let begin_ns = clock::now_ns();
        let over_ns = self.inside_gate(|| {
            let zrams = self.devices.list().filter_map(Device::zram);
            let steps = zrams.filter_map(|zram| zram.recompress(begin_ns));
            let over_ns = steps.map(|step| self.counted(step)).min();
            self.settle_stored(self.node_here());
            over_ns
        });
        let worked_ns = clock::now_ns() - begin_ns;
        Some(over_ns.unwrap_or(0).max(rest_ns(Some(worked_ns))))
    }

    /// How long until the next step, after this one.
    fn counted(&self, step: Step) -> u64 {
        match step {
            Step::Over(nanoseconds) => nanoseconds,
            Step::Smaller(smaller) => {
                count(&self.counters.zram_recompressed, smaller.into());
                0
            }
        }
    }
}
