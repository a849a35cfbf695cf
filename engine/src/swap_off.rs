//! swapon and swapoff while the program runs.
//!
//! Swapping off takes the device off the lists first, so that it gets no new pages. Then `bring_back` sweeps
//! over all pages until the device holds nothing: what RAM has room for stays there, the rest goes to other
//! devices without a detour through the program. If the device cannot be emptied it comes back through the
//! same code as a new one (and, as in the kernel, an automatic priority is then the lowest). A swapoff is
//! also the first to give way: when a fault finds no room anywhere, the device is put back into use before
//! the budget is exceeded.
use crate::bring_back::{PATIENCE_NS, Purpose, SwapoffMethod, Task, WAIT_NS};
use crate::core::Core;
use crate::device::open;
use crate::device::record::{Device, DeviceState};
use crate::device::spec::SwapSpec;
use crate::error::Error;
use crate::sys::signal::Blocked;
use crate::sys::{PAGE_BYTES, clock, futex};
use std::path::Path;
use std::sync::atomic::Ordering;
use userswap_policy::devices::DeviceId;

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

/// Nobody else changes the set of devices as long as this exists.
pub(crate) struct Changing<'a>(&'a Core);

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.0.changing_devices.store(false, Ordering::Release);
    }
}

/// A device whose swapoff has begun: it comes back unless it was let go of, also when a watcher panics.
struct Going<'a> {
    core: &'a Core,
    device: &'a Device,
}

impl Drop for Going<'_> {
    fn drop(&mut self) {
        self.core.inside_gate(|| self.core.devices.swap_off_failed(self.device));
        self.core.note_room();
    }
}

impl Core {
    /// Takes one more device into use while the program runs.
    ///
    /// # Errors
    /// The device cannot be used, or the set of devices is being changed; nothing is changed then.
    pub fn swap_on(&self, spec: &SwapSpec) -> Result<(), Error> {
        let _changing = self.change_devices()?;
        let budget = u64::from(self.inside_gate(|| self.budget_pages()));
        let bytes = crate::engine::default_swap_bytes(budget * PAGE_BYTES as u64);
        // Before a file is made for it.
        self.inside_gate(|| self.devices.check_place(spec, &self.topology))?;
        let opened = open::open(spec, bytes)?;
        self.inside_gate(|| self.devices.swap_on(opened, &self.topology))?;
        self.devices_full.store(false, Ordering::Relaxed);
        self.note_room();
        Ok(())
    }

    /// Brings everything on a device back or elsewhere and lets go of it. `watch` is told about progress
    /// between batches and may cancel.
    ///
    /// # Errors
    /// No such device, no room for its pages, cancelled: the device stays in use and nothing is lost.
    pub fn swap_off(
        &self,
        path: &Path,
        watch: &mut dyn FnMut(Progress) -> Proceed,
    ) -> Result<(), Error> {
        self.swap_off_by(path, SwapoffMethod::default(), watch)
    }

    /// As [`Self::swap_off`], by a method of choice.
    ///
    /// # Errors
    /// As for [`Self::swap_off`].
    pub fn swap_off_by(
        &self,
        path: &Path,
        method: SwapoffMethod,
        watch: &mut dyn FnMut(Progress) -> Proceed,
    ) -> Result<(), Error> {
        let _changing = self.change_devices()?;
        let device = self.find_device(path)?;
        self.check_room_without(device)?;
        self.inside_gate(|| self.devices.swap_off_begin(device))?;
        let going = Going { core: self, device };
        self.bring_back(device, method, watch)?;
        self.let_go(device)?;
        std::mem::forget(going);
        Ok(())
    }

    pub(crate) fn change_devices(&self) -> Result<Changing<'_>, Error> {
        match self.changing_devices.swap(true, Ordering::Acquire) {
            false => Ok(Changing(self)),
            true => Err(Error::DevicesChanging),
        }
    }

    /// A device has come or gone, or come back: reclaimers that had given up look again, and all of them
    /// learn which files are open.
    fn note_room(&self) {
        self.note_progress();
        for node in &self.nodes {
            self.wake_reclaim(node);
            node.reclaim_wanted.signal();
        }
    }

    /// For who is not inside, and takes locks: a fork meanwhile would copy locks that nobody in the child gives
    /// back.
    pub(crate) fn inside_gate<R>(&self, act: impl FnOnce() -> R) -> R {
        let _blocked = Blocked::new();
        self.gate.enter();
        let result = act();
        self.gate.leave();
        result
    }

    fn find_device(&self, path: &Path) -> Result<&Device, Error> {
        let wanted = path.display().to_string();
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

    /// Sweeps over all pages until the device holds nothing any more.
    fn bring_back(
        &self,
        device: &Device,
        mut method: SwapoffMethod,
        watch: &mut dyn FnMut(Progress) -> Proceed,
    ) -> Result<(), Error> {
        let used = || self.inside_gate(|| device.used());
        let pages_total = u64::from(used());
        let mut progress_ns = clock::now_ns();
        loop {
            let before = used();
            let mut tell = || {
                let pages_left = u64::from(used());
                match watch(Progress { pages_left, pages_total }) {
                    // Who cancels when everything is done comes too late.
                    Proceed::Cancel if pages_left > 0 => Proceed::Cancel,
                    Proceed::Cancel | Proceed::GoOn => Proceed::GoOn,
                }
            };
            self.pass(Task { device, purpose: Purpose::Empty }, method, &mut tell)?;
            // What a walk has left is a rest.
            method = SwapoffMethod::default();
            // Slots whose pages have gone may wait in a buffer of some CPU.
            self.inside_gate(|| self.devices.drain());
            let cancelled = tell() == Proceed::Cancel;
            match used() {
                _ if self.devices.must_yield() => return Err(Error::NoRoomInRam),
                0 => return Ok(()),
                _ if cancelled => return Err(Error::SwapOffCancelled),
                // A page in transition, an unfinished write: its owner is quick.
                left if left >= before => {
                    if clock::now_ns() - progress_ns > PATIENCE_NS {
                        return Err(Error::SwapOffStuck(u64::from(left)));
                    }
                    futex::wait_for(&self.freed, self.freed.load(Ordering::Acquire), WAIT_NS);
                }
                _ => progress_ns = clock::now_ns(),
            }
        }
    }

    /// The device is empty: behind the closed gate nobody can be looking at it.
    ///
    /// # Errors
    /// Somebody inside the gate waits for room, which only this device has.
    fn let_go(&self, device: &Device) -> Result<(), Error> {
        let _blocked = Blocked::new();
        if !self.gate.close_while(|| !self.devices.must_yield()) {
            return Err(Error::NoRoomInRam);
        }
        let file = self.devices.swap_off_done(device);
        self.gate.open();
        self.note_room();
        // A queue may keep the file open a moment longer, but it is not ours any more.
        if let Some(file) = &file {
            let _ = rustix::fs::flock(file, rustix::fs::FlockOperation::Unlock);
        }
        drop(file);
        Ok(())
    }
}

impl crate::device::Devices {
    /// Takes a device off the lists.
    fn swap_off_begin(&self, device: &Device) -> Result<(), Error> {
        let mut store = device.store().lock();
        let begun = self.table().swap_off_begin(device.id());
        if begun.is_err() {
            return Err(Error::DevicesChanging);
        }
        if store.state == DeviceState::On {
            let (pages, used) = (i64::from(store.slots.pages()), i64::from(store.slots.used()));
            self.account(used - pages, -pages);
        }
        store.state = DeviceState::Leaving;
        drop(store);
        self.set_leaving(Some(device.id()));
        // No slot of the device can come into a buffer any more; what is in them goes back.
        self.bar_buffers();
        Ok(())
    }

    /// Puts a device back whose pages could not all be brought back.
    pub(crate) fn swap_off_failed(&self, device: &Device) {
        let mut store = device.store().lock();
        let mut table = self.table();
        table.swap_off_failed(device.id());
        let is_retired = device.has_failed();
        if is_retired || store.slots.is_full() {
            table.on_full(device.id());
        } else {
            table.on_not_full(device.id());
        }
        drop(table);
        if is_retired {
            store.state = DeviceState::Retired;
        } else {
            store.state = DeviceState::On;
            let (pages, used) = (i64::from(store.slots.pages()), i64::from(store.slots.used()));
            self.account(pages - used, pages);
        }
        drop(store);
        // Behind the others: who finds no device going looks for its room once more.
        self.set_leaving(None);
        self.allow_buffers();
    }

    /// Forgets a device without pages; its file is closed by the caller.
    fn swap_off_done(&self, device: &Device) -> Option<std::fs::File> {
        let id: DeviceId = device.id();
        assert_eq!(device.used(), 0, "a device that is let go of holds no page");
        self.table().swap_off_done(id);
        self.set_leaving(None);
        let file = device.remove();
        if self.list().next().is_some() {
            self.allow_buffers();
        }
        self.changes.fetch_add(1, Ordering::Release);
        file
    }
}
