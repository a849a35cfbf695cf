//! swapon while the program runs: one more device.
use crate::base::error::Error;
use crate::device::open;
use crate::device::spec::SwapSpec;
use crate::state::core::Core;
use crate::sys::PAGE_BYTES;
use std::sync::atomic::Ordering;

impl Core {
    /// Takes one more device into use while the program runs; what its user should be told of it.
    ///
    /// # Errors
    /// The device cannot be used, or the set of devices is being changed; nothing is changed then.
    pub fn swapon(&self, spec: &SwapSpec) -> Result<Option<String>, Error> {
        let spec = &match self.tuning.compress {
            Some(_) => spec.clone().behind_compressed(),
            None => Ok(spec.clone()),
        };
        let spec = spec.as_ref().map_err(|error| Error::Tiers(error.to_string()))?;
        let _changing = self.change_devices()?;
        let budget = u64::from(self.inside_gate(|| self.budget_pages()));
        let bytes = crate::base::limits::default_swap_bytes(budget * PAGE_BYTES as u64);
        // Before a file is made for it.
        self.inside_gate(|| self.devices.check_swapon(spec, &self.topology))?;
        let opened = match self.tuning.encrypt {
            true => open::open(&spec.clone().encrypted(), bytes)?,
            false => open::open(spec, bytes)?,
        };
        let warning = opened.warning.clone();
        self.inside_gate(|| self.devices.swapon(opened, &self.topology))?;
        self.devices.start_keepers().map_err(Error::Thread)?;
        self.start_talkers(self.inside_gate(|| self.rings_for_servers()));
        self.shortage.devices_full.store(false, Ordering::Relaxed);
        self.note_room();
        Ok(warning)
    }

    /// After a device was added, removed or put back into use: reclaimers that had given up look again, and all of
    /// them learn which files are open.
    pub(crate) fn note_room(&self) {
        self.note_progress();
        self.demotion.wish();
        for node in &self.nodes {
            self.wake_reclaim(node);
            node.reclaim_wanted.signal();
        }
    }
}
