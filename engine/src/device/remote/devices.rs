//! Remote devices among the others.
use crate::device::Devices;
use crate::device::far::Far;
use crate::device::record::{Device, Store};
use crate::sys::own_stack;
use crate::sys::signal::Blocked;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use userswap_policy::slots::SlotRun;

impl Devices {
    /// Starts the threads of the remote devices that have none.
    ///
    /// # Errors
    /// No thread is to be had.
    pub(crate) fn start_keepers(&self) -> io::Result<()> {
        let _blocked = Blocked::new();
        self.list().filter_map(Device::remote).try_for_each(|remote| remote.start())
    }

    /// The process has begun to end, or to become another: nobody keeps its slots for long any more.
    pub(crate) fn shorten_leases(&self) {
        for device in self.list() {
            if let Some(remote) = device.remote().filter(|_| !self.is_shared(device)) {
                remote.shorten();
            }
        }
    }

    /// The process goes on after all.
    pub(crate) fn lengthen_leases(&self) {
        self.list().filter_map(Device::remote).for_each(|remote| remote.lengthen());
    }

    /// Nobody uses the devices any more: what they hold on servers is deleted, unless other processes read it.
    pub(crate) fn end_remote(&self) {
        for device in self.list() {
            if let Some(remote) = device.remote() {
                remote.end(self.is_shared(device));
            }
        }
    }
}

impl Device {
    /// Which servers have its pages from now on; no slot of it is in use that others have.
    pub(in crate::device) fn set_remote(&self, remote: Option<Arc<dyn Far>>) {
        // Release pairs with the acquire in `is_remote`.
        self.is_remote.store(remote.is_some(), Ordering::Release);
        if remote.is_some() {
            own_stack::provide();
        }
        self.store().lock().remote = remote.clone();
        *self.remote.lock() = remote;
    }

    /// Whether its pages are on servers.
    pub fn is_remote(&self) -> bool {
        self.is_remote.load(Ordering::Acquire)
    }

    /// The servers, if it is a remote one.
    pub fn remote(&self) -> Option<Arc<dyn Far>> {
        if !self.is_remote() {
            return None;
        }
        self.remote.lock().clone()
    }
}

impl Store {
    /// A run of them is free: what they hold is of no worth to anyone.
    pub(in crate::device) fn free(&mut self, run: SlotRun) {
        self.slots.free(run);
        if let Some(remote) = &self.remote {
            remote.forget(run);
        }
    }
}
