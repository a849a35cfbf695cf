//! swapon while the program runs: one more device.
use crate::base::error::Error;
use crate::device::open;
use crate::device::spec::{SwapPath, SwapSpec};
use crate::state::core::Core;
use crate::sys::PAGE_BYTES;
use std::sync::atomic::Ordering;

impl Core {
    /// Takes one more device into use while the program runs; what its user should be told of it.
    ///
    /// # Errors
    /// The device cannot be used, or the set of devices is being changed; nothing is changed then.
    pub fn swapon(&self, spec: &SwapSpec) -> Result<Option<String>, Error> {
        let _changing = self.change_devices_patiently()?;
        let spec = &self.inside_gate(|| self.in_its_tier(spec))?;
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

    /// The device in the tier that it has beside compressed memory in front of all others. Where that was swapped off, other
    /// compressed memory may take its place.
    fn in_its_tier(&self, spec: &SwapSpec) -> Result<SwapSpec, Error> {
        let spec = spec.clone();
        let have_tiers = || self.devices.list().any(|device| device.tier().is_some());
        match self.tuning.compress {
            Some(_) if self.devices.have_compressed_front() => {
                spec.behind_compressed().map_err(|error| Error::Tiers(error.to_string()))
            }
            Some(_) if have_tiers() => {
                let tier = u8::from(!matches!(spec.path, SwapPath::Compressed(_)));
                Ok(SwapSpec { tier: spec.tier.or(Some(tier)), ..spec })
            }
            _ => Ok(spec),
        }
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
