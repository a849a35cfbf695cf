//! Our side: an engine whose memory is paged out again and again, and read back by one way or another.

use super::super::words::word_at;
use super::Failure;
use crate::disk::{self, Requests};
use crate::interrupt::Interrupt;
use serde::Serialize;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;
use userswap::internals::PAGE_BYTES;
use userswap::internals::{Proceed, SwapoffMethod};
use userswap::{Builder, Engine, Error, Region, Stayed};

/// Slots beyond the pages: each CPU's last cluster is not full.
const SLOTS_SPARE_BYTES: u64 = 64 << 20;

/// An engine with a region that fills most of its budget.
pub(super) struct Ours<'a> {
    interrupt: &'a Interrupt,
    engine: Engine,
    region: Region,
    directory: PathBuf,
    /// The device, as `--swap` has it.
    spec: String,
}

/// How swapoff goes about a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) method: SwapoffMethod,
    pub(super) page_cluster: u8,
}

/// What a swapoff took.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Walked {
    pub(super) seconds: f64,
    /// How often it was asked between two requests whether to go on.
    pub(super) requests: u64,
}

impl<'a> Ours<'a> {
    /// Fills `bytes` of memory with a budget of `ram_bytes`; the swap file has no name.
    pub(super) fn start(
        interrupt: &'a Interrupt,
        ram_bytes: u64,
        bytes: u64,
        directory: &Path,
    ) -> Result<Self, Failure> {
        let spec = format!("{}:{}", directory.display(), bytes + SLOTS_SPARE_BYTES);
        let swap = spec.parse().map_err(|error| Failure::Spec(format!("{error}")))?;
        let engine = Builder::new(ram_bytes).swap(swap).build()?;
        let mut region = engine.map(usize::try_from(bytes).expect("memory has a size"))?;
        for (index, word) in region.as_typed_mut::<u64>().iter_mut().enumerate() {
            *word = word_at(index);
        }
        Ok(Self { interrupt, engine, region, directory: directory.to_owned(), spec })
    }

    /// Everything on the device, nothing in memory.
    pub(super) fn page_out(&self) -> Result<(), Failure> {
        self.interrupt.check()?;
        let stayed = self.engine.page_out_all();
        if stayed == Stayed::default() { Ok(()) } else { Err(Failure::Stayed(stayed)) }
    }

    /// Seconds that plain reads of the slots in use take, past the page cache, in the requests that a
    /// swapoff uses.
    pub(super) fn read_plainly(&self) -> Result<f64, Failure> {
        let ours = self.engine.core().swapoff_requests();
        let file = self.file()?;
        let (bytes, in_flight) = (ours.pages_max as usize * PAGE_BYTES, ours.in_flight as usize);
        let requests = Requests { bytes, in_flight };
        Ok(disk::read(&file, &self.used(), requests).map_err(Failure::Disk)?.as_secs_f64())
    }

    /// The swap file once more, with O_DIRECT.
    fn file(&self) -> Result<File, Failure> {
        let device = self.engine.core().devices.list().next().expect("there is a device");
        let path = format!("/proc/self/fd/{}", device.descriptor());
        let open = File::options().read(true).custom_flags(libc::O_DIRECT).open(path);
        let file = open.map_err(Failure::Disk)?;
        if disk::is_direct(&file).map_err(Failure::Disk)? {
            Ok(file)
        } else {
            Err(Failure::NotDirect(self.directory.clone()))
        }
    }

    /// Bytes of the file that hold pages.
    fn used(&self) -> Vec<Range<u64>> {
        let device = self.engine.core().devices.list().next().expect("there is a device");
        let bytes = |slot: u32| u64::from(slot) * PAGE_BYTES as u64;
        let store = device.store().lock();
        store.slots.used_runs().map(|run| bytes(run.first)..bytes(run.first + run.count)).collect()
    }

    /// Seconds to empty the device; a new one replaces it afterwards.
    pub(super) fn swapoff(&self, way: Way) -> Result<Walked, Failure> {
        self.engine.set("page_cluster", &way.page_cluster.to_string())?;
        let begin = Instant::now();
        let core = self.engine.core();
        let mut requests = 0;
        let swapped = core.swapoff_by(&self.directory, way.method, &mut |_| {
            requests += 1;
            self.interrupt.check().map_or(Proceed::Cancel, |()| Proceed::GoOn)
        });
        let seconds = begin.elapsed().as_secs_f64();
        self.interrupt.check()?;
        swapped?;
        let resident = u64::from(self.engine.usage().resident) * PAGE_BYTES as u64;
        if resident < self.region.len() as u64 {
            return Err(Failure::NotBack(resident));
        }
        let spec = self.spec.parse().map_err(|error| Failure::Spec(format!("{error}")))?;
        core.swapon(&spec)?;
        Ok(Walked { seconds, requests })
    }

    /// Looks at every word.
    pub(super) fn verify(&self) -> Result<(), Failure> {
        let words = self.region.as_typed::<u64>();
        let wrong = words.iter().enumerate().find(|(index, word)| **word != word_at(*index));
        wrong.map_or(Ok(()), |(index, _)| Err(Failure::Wrong(index)))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}
