//! The batched free alone: no region and no page, batches of slots in an order of chance.
use crate::inside::memory_device;
use crate::random::{Random, shuffled};
use std::sync::Barrier;
use std::sync::atomic::Ordering::Relaxed;
use userswap::internals::clock::thread_cpu_ns;
use userswap::internals::{Devices, PAGE_BYTES, Topology, open};
use userswap::{Error, NodeId};
use userswap_policy::free_batch::FreeOrder;
use userswap_policy::slot_cache::BATCH;

/// Slots that are allocated and freed: 1024 batches, some milliseconds.
const SLOTS: u32 = 1024 * BATCH as u32;

/// What frees, and how.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) devices: u32,
    pub(super) threads: u32,
    pub(super) order: FreeOrder,
}

/// CPU time per slot, in nanoseconds, of freeing batches that mix so many devices.
pub(super) fn ns_per_slot(shape: Shape, seed: u64) -> Result<f64, Error> {
    // More than one device takes them all, and what a CPU's buffer holds.
    let bytes = u64::from(SLOTS) * PAGE_BYTES as u64 + (64 << 20);
    let spec = memory_device(bytes);
    let opened = (0..shape.devices).map(|_| open::open(&spec, bytes)).collect::<Result<_, _>>()?;
    let devices = Devices::new(opened, &Topology::one())?;
    devices.set_free_order(shape.order);
    let allocate = || devices.allocate(1, NodeId(0)).expect("the devices are large enough").first;
    let slots: Vec<_> = (0..SLOTS).map(|_| allocate()).collect();
    let order = shuffled(slots.len(), &mut Random::new(seed));
    let mut mixed: Vec<_> = order.into_iter().map(|at| slots[at as usize]).collect();
    let start = Barrier::new(shape.threads as usize);
    let share = mixed.len() / shape.threads as usize / BATCH * BATCH;
    let spent_ns: u64 = std::thread::scope(|scope| {
        let (devices, start) = (&devices, &start);
        let free = |mine: &'_ mut [_]| {
            start.wait();
            let begin = thread_cpu_ns();
            mine.chunks_mut(BATCH).for_each(|batch| devices.free_batch(batch));
            thread_cpu_ns() - begin
        };
        let mine = mixed.chunks_mut(share).take(shape.threads as usize);
        let workers: Vec<_> = mine.map(|mine| scope.spawn(move || free(mine))).collect();
        workers.into_iter().map(|worker| worker.join().expect("freeing does not panic")).sum()
    });
    let freed: u64 = devices.list().map(|device| device.freed.load(Relaxed)).sum();
    assert_eq!(freed, share as u64 * u64::from(shape.threads), "all are free");
    Ok(spent_ns as f64 / freed as f64)
}
