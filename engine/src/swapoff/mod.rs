//! swapoff while the program runs: a device is emptied and released.
//!
//! The device is taken off the lists first, so that it gets no new pages. Then passes over all pages follow until it
//! holds nothing. A pass over the page words (`sweep`) finds the page on each slot, and at once deals with what needs
//! no read; then a few threads (`readers`) take spans of slots one after the other in the device's own order, read
//! each into frames (`read`), check it, and place its pages (`place`): mapped in runs while RAM has room, otherwise
//! written to another device from the same frames. Each span passes the gate by itself, so neither a fork nor a fault
//! waits for longer than a few requests. Prefetching everything fills RAM the same way. The kernel's own walk is there
//! for comparison (`kernel`); which one is used is a swapoff's `method`.
//!
//! A device that cannot be emptied is put back into use by the code that adds a new one (as in the kernel, an automatic
//! priority is then the lowest). A swapoff is also the first to give way: when a fault finds no room anywhere, the
//! device is put back into use before the budget is exceeded.
pub mod kernel;
pub mod method;
pub mod place;
pub mod read;
pub mod readers;
pub mod room;
pub mod swapon;
pub mod sweep;
pub mod task;

use crate::base::error::Error;
use crate::device::record::Device;
use crate::state::core::Core;
use crate::swapoff::method::SwapoffMethod;
use crate::swapoff::task::{Goal, PATIENCE_NS, Task, WAIT_NS};
use crate::sys::signal::Blocked;
use crate::sys::{clock, futex};
use std::path::Path;
use std::sync::atomic::Ordering;

/// How far a swapoff has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Slots still in use on the device.
    pub pages_left: u64,
    /// Slots that were in use at the start.
    pub pages_total: u64,
}

/// What a watcher of a swapoff wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Proceed {
    /// On with it.
    GoOn,
    /// The device stays in use.
    Cancel,
}

/// A device whose swapoff has begun: dropped, it puts the device back into use, also when a watcher panics.
struct Going<'a> {
    core: &'a Core,
    device: &'a Device,
}

impl Drop for Going<'_> {
    fn drop(&mut self) {
        self.core.inside_gate(|| self.core.devices.swapoff_failed(self.device));
        self.core.note_room();
    }
}

impl Core {
    /// Empties a device, into RAM and onto other devices, and releases it. `watch` is told about progress between
    /// batches and may cancel.
    ///
    /// # Errors
    /// No such device, no room for its pages, cancelled: the device stays in use and nothing is lost.
    pub fn swapoff(
        &self,
        path: &Path,
        watch: &mut dyn FnMut(Progress) -> Proceed,
    ) -> Result<(), Error> {
        self.swapoff_by(path, SwapoffMethod::default(), watch)
    }

    /// As [`Self::swapoff`], by a method other than the default.
    ///
    /// # Errors
    /// As for [`Self::swapoff`].
    pub fn swapoff_by(
        &self,
        path: &Path,
        method: SwapoffMethod,
        watch: &mut dyn FnMut(Progress) -> Proceed,
    ) -> Result<(), Error> {
        let _changing = self.change_devices_patiently()?;
        let device = self.find_device(path)?;
        self.check_room_without(device)?;
        self.inside_gate(|| self.devices.swapoff_begin(device))?;
        let going = Going { core: self, device };
        self.empty_device(device, method, watch)?;
        self.release_device(device)?;
        std::mem::forget(going);
        Ok(())
    }

    fn find_device(&self, path: &Path) -> Result<&Device, Error> {
        // As devices are named, without a `/` at its end.
        let mut wanted = path.display().to_string();
        if wanted.len() > 1 && wanted.ends_with('/') {
            wanted.pop();
        }
        let real = path.canonicalize().ok().map(|path| path.display().to_string());
        let names = |device: &Device| device.label().map(|label| label.name.clone());
        self.inside_gate(|| {
            let found = self.devices.list().find(|device| {
                names(device).is_some_and(|name| name == wanted || Some(&name) == real.as_ref())
            });
            found.ok_or_else(|| {
                let names: Vec<String> = self.devices.list().filter_map(names).collect();
                Error::NoSuchDevice(wanted, names.join(", "))
            })
        })
    }

    /// A device, and before it those that are packed on it.
    fn with_packs<'a>(&'a self, device: &'a Device) -> Vec<&'a Device> {
        let packs = || self.devices.packs_on(device).collect::<Vec<_>>();
        self.inside_gate(packs).into_iter().chain([device]).collect()
    }

    /// Makes passes until the device holds nothing.
    fn empty_device(
        &self,
        device: &Device,
        mut method: SwapoffMethod,
        watch: &mut dyn FnMut(Progress) -> Proceed,
    ) -> Result<(), Error> {
        let used = || self.inside_gate(|| self.devices.pages_with(device));
        let pages_total = u64::from(used());
        let mut progress_ns = clock::now_ns();
        loop {
            let before = used();
            let mut tell = || {
                let pages_left = u64::from(used());
                match watch(Progress { pages_left, pages_total }) {
                    // Cancelling comes too late when everything is done.
                    Proceed::Cancel if pages_left > 0 => Proceed::Cancel,
                    Proceed::Cancel | Proceed::GoOn => Proceed::GoOn,
                }
            };
            for device in self.with_packs(device) {
                self.pass(Task { device, goal: Goal::Empty }, method, &mut tell)?;
            }
            // What little the kernel's walk leaves, the default finds.
            method = SwapoffMethod::default();
            // Slots whose pages have gone may wait in a buffer of some CPU.
            self.inside_gate(|| self.devices.drain());
            let cancelled = tell() == Proceed::Cancel;
            match used() {
                _ if self.devices.must_yield() => return Err(Error::NoRoomInRam),
                0 => return Ok(()),
                _ if cancelled => return Err(Error::SwapoffCancelled),
                // A page in transition, an unfinished write: its owner is quick.
                left if left >= before => {
                    if clock::now_ns() - progress_ns > PATIENCE_NS {
                        return Err(Error::SwapoffStuck(u64::from(left)));
                    }
                    futex::wait_for(
                        &self.shortage.freed,
                        self.shortage.freed.load(Ordering::Acquire),
                        WAIT_NS,
                    );
                }
                _ => progress_ns = clock::now_ns(),
            }
        }
    }

    /// Releases a device that is empty: while the gate is closed no thread can be looking at it.
    ///
    /// # Errors
    /// A thread inside the gate waits for room, which only this device has.
    fn release_device(&self, device: &Device) -> Result<(), Error> {
        let _blocked = Blocked::new();
        let closed =
            self.gate.close_while(|| !self.devices.must_yield()).ok_or(Error::NoRoomInRam)?;
        let is_shared = self.devices.is_shared(device);
        let remote = device.remote();
        let file = self.devices.swapoff_done(device);
        drop(closed);
        if let Some(remote) = remote {
            remote.end(is_shared);
        }
        self.inside_gate(|| self.settle_stored(self.node_here()));
        self.note_room();
        // Closing would unlock it too, but a queue may keep the file open a moment longer. While others read it, it is
        // not to be had.
        if let Some(file) = file.as_ref().filter(|_| !is_shared) {
            let _ = rustix::fs::flock(&**file, rustix::fs::FlockOperation::Unlock);
        }
        drop(file);
        Ok(())
    }
}
