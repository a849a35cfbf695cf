//! What a forked child has of its parent's devices.
//!
//! It borrows those on which it has pages (`loans`), and gets an empty one of its own beside each that was the parent's
//! own, of the same kind and in the same place. Of a device that holds nothing there is nothing to borrow. Where a device
//! cannot be lent (no row, no number, no /proc), its slots are copied before the fork, and the child owns the copy.
use super::Devices;
use super::far::{Far, Inherited};
use super::loans::Loan;
use super::open::{self, DeviceKind, Direct, OpenDevice, OpenError, memory_device};
use super::record::{Device, DeviceState, Holding, Label};
use super::spec::SwapSpec;
use super::sysfs::Hardware;
use crate::base::error::Error;
use crate::base::log;
use crate::sys::PAGE_BYTES;
use crate::sys::fd;
use crate::sys::file_limit;
use crate::sys::mapping::Mapping;
use crate::sys::own_fd::Own;
use crate::sys::own_table::{Brought, NotBrought};
use crate::sys::request::{self, Direction, Pieces};
use std::fs::File;
use std::io;
use std::iter;
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::sync::Arc;

/// What is copied at a time.
const COPY_BYTES: usize = 1 << 20;

/// How a child comes by the slots of one device.
pub enum Handed {
    /// It has no page there.
    Nothing,
    /// It reads the parent's.
    Loan(Loan),
    /// It has a copy already: the pages are in memory that fork has copied.
    Memory,
    /// It has a copy.
    Copy(File),
    /// It has a copy on the servers.
    RemoteCopy(Box<dyn Far>),
}

/// What a fork hands over: each device in use, by index.
pub struct Estate {
    devices: Vec<Handed>,
    /// Slots that had to be copied.
    pub copied: u64,
    /// The process that forks, for the names of its devices.
    parent: u32,
    /// The parent's devices that came later, where the thread that forks has a table of its own.
    brought: Brought,
}

impl Devices {
    /// Before fork, with the gate closed and the buffers drained: lends or copies what is in use.
    ///
    /// # Errors
    /// No room for a copy, or reading or writing failed, or a number of ours is the program's in the table of this thread.
    pub fn hand_over(&self) -> Result<Estate, Error> {
        let numbers = self.list().flat_map(|device| {
            let rows = device.loans().map(|loans| loans.descriptor());
            iter::once(device.descriptor()).chain(rows)
        });
        let brought = Brought::of(numbers).map_err(|why| match why {
            NotBrought::Taken(number) => Error::ForkNumber(number),
            NotBrought::Refused(error) => Error::Tables(error),
        })?;
        let mut copied = 0;
        let mut banks = self.banks();
        let hand_over = |device: &Device| {
            let max = device.label().map_or(0, |label| label.max);
            let (used, holding) = {
                let store = device.store().lock();
                (store.used(), store.holding)
            };
            if device.is_compressed() {
                return Ok(Handed::Memory);
            }
            if used == 0 {
                return Ok(Handed::Nothing);
            }
            // Beside one of the parent's own the child gets another of its size.
            let mut then = banks;
            let is_numbered = holding == Holding::Borrowed || then.take(max).is_some();
            if is_numbered && let Some(loan) = device.lend() {
                banks = then;
                return Ok(Handed::Loan(loan));
            }
            copied += u64::from(used);
            if let Some(remote) = device.remote() {
                let words: Vec<_> = device.store().lock().used_words().collect();
                match remote.copied(&mut words.into_iter()).map_err(Error::ForkCopy)? {
                    Inherited::Far(copy) => return Ok(Handed::RemoteCopy(copy)),
                    Inherited::File => {}
                }
            }
            device.copy_file().map(Handed::Copy)
        };
        let devices = self.list().map(hand_over).collect::<Result<_, _>>()?;
        Ok(Estate { devices, copied, parent: std::process::id(), brought })
    }

    /// In the child: goes on with what was handed over.
    ///
    /// # Errors
    /// An empty device cannot be made, or what dup3 says.
    pub fn take_over(&self, estate: Estate) -> Result<(), Error> {
        self.lock_key();
        estate.brought.keep();
        let devices: Vec<&Device> = self.list().collect();
        let (mut own, mut unused) = (Vec::new(), Vec::new());
        for (device, handed) in devices.into_iter().zip(estate.devices) {
            let holding = device.store().lock().holding;
            match (handed, holding) {
                (Handed::Nothing, Holding::Borrowed) => unused.push(device),
                (Handed::Nothing, Holding::Own) => {
                    if let Some(remote) = device.remote() {
                        device.go_on_with(remote.another().map_err(Error::Tables)?);
                    }
                    self.own(device, &device.own_file()?)?;
                }
                (Handed::Memory, _) => {}
                (Handed::Copy(file), _) => {
                    device.go_on_in_file();
                    self.own(device, &file)?;
                }
                (Handed::RemoteCopy(mut copy), _) => {
                    copy.adopt();
                    device.go_on_with(copy);
                    self.own(device, &device.own_file()?)?;
                }
                (Handed::Loan(loan), holding) => {
                    if holding == Holding::Own && !device.is_too_long() {
                        let node = device.label().and_then(|label| label.node);
                        let is_rotational = device.is_rotational();
                        own.push((self.like(device)?, Hardware { node, is_rotational }));
                    }
                    self.borrow(device, &loan, estate.parent)?;
                }
            }
        }
        for (opened, hardware) in own {
            self.take_into_use(opened, hardware)?;
        }
        // Only now: the parent has found numbers for the others beside these.
        unused.into_iter().try_for_each(|device| self.let_go(device))
    }

    /// Lets go of borrowed devices that hold none of this process's pages any more; the gate is closed, and
    /// the buffers drained.
    ///
    /// # Errors
    /// As for a swapoff.
    pub fn let_go_of_empty(&self) -> Result<(), Error> {
        let is_empty = |device: &&Device| {
            let store = device.store().lock();
            store.holding == Holding::Borrowed
                && store.state == DeviceState::Retired
                && store.used() == 0
        };
        self.remove_empty_packs();
        let empty: Vec<&Device> = self.list().filter(is_empty).collect();
        empty.into_iter().try_for_each(|device| self.let_go(device))
    }

    fn let_go(&self, device: &Device) -> Result<(), Error> {
        self.swapoff_begin(device)?;
        drop(self.swapoff_done(device));
        Ok(())
    }

    /// The device is another process's from now on.
    fn borrow(&self, device: &Device, loan: &Loan, parent: u32) -> Result<(), Error> {
        let loans = device.loans().expect("what is lent has a table");
        loans.borrow(loan).map_err(Error::Tables)?;
        let mut store = device.store().lock();
        if store.state == DeviceState::On {
            self.counts.subtract(store.counts());
        }
        // What the parent has lent is not the child's.
        store.give_back(|_| 0);
        let was = std::mem::replace(&mut store.holding, Holding::Borrowed);
        store.state = DeviceState::Retired;
        drop(store);
        self.table().on_full(device.id());
        if let Some(remote) = device.remote() {
            let words: Vec<_> = device.store().lock().used_words().collect();
            let borrowed = remote.borrowed(&mut words.into_iter());
            device.go_on_with(borrowed.map_err(Error::Tables)?);
        }
        if was == Holding::Own {
            let label = device.label().expect("a device in use has a label");
            device.set_label(Label {
                name: format!("{} of {parent}", label.name),
                ..(*label).clone()
            });
        }
        Ok(())
    }

    /// The device is this process's from now on, in a file that nobody else has.
    fn own(&self, device: &Device, file: &File) -> Result<(), Error> {
        fd::replace(device.descriptor(), file.as_raw_fd()).map_err(Error::Tables)?;
        let label = device.label().expect("a device in use has a label");
        let mut store = device.store().lock();
        device.set_unshared(&label, &mut store);
        if store.state == DeviceState::On {
            self.counts.subtract(store.counts());
        }
        store.give_back(|_| 0);
        store.holding = Holding::Own;
        store.state = match device.has_failed() || device.is_too_long() {
            true => DeviceState::Retired,
            false => DeviceState::On,
        };
        if store.state == DeviceState::On {
            self.counts.add(store.counts());
            if !store.is_full() {
                self.table().on_not_full(device.id());
            }
        }
        Ok(())
    }

    /// An empty device beside this one.
    fn like(&self, device: &Device) -> Result<OpenDevice, Error> {
        let label = device.label().expect("a device in use has a label");
        let priority = self.table().device(device.id()).map(|known| known.priority);
        let directory = label.directory.as_ref().and_then(|directory| directory.try_clone().ok());
        Ok(OpenDevice {
            file: label.kind.is_file().then(|| device.empty_file()).transpose()?,
            path: place(&label),
            kind: if label.kind.is_file() { DeviceKind::Temporary } else { label.kind },
            bytes: label.bytes(),
            direct: Direct::Yes,
            warning: None,
            priority: priority.filter(|priority| *priority >= 0),
            tier: device.tier(),
            node: None,
            throttle: device.throttle(),
            faulty: device.faulty().map(|faulty| faulty.plan),
            encrypt: device.is_encrypted(),
            directory: directory.map(Own::raised),
            remote: device
                .remote()
                .map(|remote| remote.another())
                .transpose()
                .map_err(Error::Tables)?,
        })
    }
}

impl Device {
    /// In the child: this is how it comes by its slots from now on.
    fn go_on_with(&self, remote: Box<dyn Far>) {
        self.remote().into_iter().for_each(|parents| parents.leave());
        self.set_remote(Some(Arc::from(remote)));
    }

    /// In the child: what was in objects is in a file from now on.
    fn go_on_in_file(&self) {
        let Some(parents) = self.remote() else { return };
        parents.leave();
        self.set_remote(None);
        if let Some(label) = self.label() {
            let (kind, path) = (DeviceKind::Temporary, open::default_directory());
            let name = format!("{} in {}", label.name, path.display());
            self.set_label(Label { name, kind, path, ..(*label).clone() });
        }
    }

    fn lend(&self) -> Option<Loan> {
        let store = self.store().lock();
        let loans = store.loans.as_ref()?;
        loans.lend(store.used_words().map(|word| (word.index, word.mask))).ok()
    }

    /// A new unlinked file (or memory) with the same content in every used slot.
    fn copy_file(&self) -> Result<File, Error> {
        let copy = self.empty_file()?;
        if self.is_remote() || fd::reflink(self.descriptor(), copy.as_raw_fd()).is_err() {
            self.copy_slots(&copy).map_err(Error::ForkCopy)?;
        }
        Ok(copy)
    }

    /// Whether the limit of a file's size forbids a child another like it, on disk or in memory.
    fn is_too_long(&self) -> bool {
        let label = self.label().expect("a device in use has a label");
        let has_slots = label.kind.is_file() || label.kind == DeviceKind::Memory;
        has_slots && file_limit::forbids(label.bytes())
    }

    /// For a child's own slots; of no bytes where it can have none.
    fn own_file(&self) -> Result<File, Error> {
        match self.is_too_long() {
            true => memory_device(0).map_err(Error::Tables),
            false => self.empty_file(),
        }
    }

    fn empty_file(&self) -> Result<File, Error> {
        let label = self.label().expect("a device in use has a label");
        let bytes = label.bytes();
        let file = match (label.kind, &label.directory) {
            (DeviceKind::Memory, _) => return memory_device(bytes).map_err(Error::Tables),
            // Nothing of them is in their file.
            (DeviceKind::Compressed(_) | DeviceKind::Packed | DeviceKind::Remote, _) => {
                return memory_device(0).map_err(Error::Tables);
            }
            (DeviceKind::S3, _) if self.used() == 0 => {
                return memory_device(0).map_err(Error::Tables);
            }
            _ => label
                .file_beside(bytes)
                .unwrap_or_else(|| temporary(open::default_directory(), bytes)),
        };
        let file = or_memory(file, bytes)?;
        file_limit::set_len(&file, bytes).map_err(Error::ForkCopy)?;
        Ok(file)
    }

    fn copy_slots(&self, copy: &File) -> io::Result<()> {
        let buffer = Mapping::undumped(COPY_BYTES)?;
        for run in self.store().lock().slots.used_runs() {
            let mut offset = u64::from(run.first) * PAGE_BYTES as u64;
            let end = u64::from(run.first + run.count) * PAGE_BYTES as u64;
            while offset < end {
                let pieces = Pieces::one(buffer.address(), COPY_BYTES.min((end - offset) as usize));
                match self.remote() {
                    Some(remote) => remote.transfer(Direction::Read, offset, &pieces)?,
                    None => request::transfer(self.descriptor(), Direction::Read, offset, &pieces)?,
                }
                request::transfer(copy.as_raw_fd(), Direction::Write, offset, &pieces)?;
                offset += pieces.bytes() as u64;
            }
        }
        Ok(())
    }
}

impl Label {
    /// Of all its slots.
    fn bytes(&self) -> u64 {
        u64::from(self.max) * PAGE_BYTES as u64
    }

    /// One more temporary file in the directory of the device; none where it has no such directory.
    pub(crate) fn file_beside(&self, bytes: u64) -> Option<Result<File, OpenError>> {
        let directory = self.directory.as_ref()?;
        Some(open::open_beside(directory.as_fd(), &self.path, bytes))
    }
}

/// The directory in which a child's own file is made.
fn place(label: &Label) -> PathBuf {
    match label.kind {
        DeviceKind::File | DeviceKind::Block => open::default_directory(),
        _ => label.path.clone(),
    }
}

/// A process that may not make files any more (another user, Landlock) has memory.
fn or_memory(file: Result<File, OpenError>, bytes: u64) -> Result<File, Error> {
    match file {
        Err(error) if error.is_refusal() => {
            log::swapped_to_memory(&error.to_string());
            memory_device(bytes).map_err(Error::Tables)
        }
        outcome => Ok(outcome?),
    }
}

fn temporary(directory: PathBuf, bytes: u64) -> Result<File, OpenError> {
    let opened = open::open(&SwapSpec::at(directory), bytes)?;
    Ok(opened.file.expect("a directory gives a file"))
}
