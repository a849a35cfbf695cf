//! The batched free alone: no region, no page, no other thread; batches of slots in an order of chance.
use crate::random::{Random, shuffled};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;
use userswap::internals::{Devices, Topology, open};
use userswap::{Error, NodeId, SwapSpec};
use userswap_policy::free_batch::FreeOrder;
use userswap_policy::slot_cache::BATCH;

/// Slots that are allocated and freed: 1024 batches, some milliseconds.
const SLOTS: u32 = 1024 * BATCH as u32;

/// Nanoseconds per slot of freeing batches that mix so many devices.
pub(super) fn ns_per_slot(devices: u32, order: FreeOrder, seed: u64) -> Result<f64, Error> {
    let bytes = 256 << 20;
    let spec: SwapSpec = format!("mem:{bytes},pri=1").parse().expect("a specification of ours");
    let opened = (0..devices).map(|_| open::open(&spec, bytes)).collect::<Result<_, _>>()?;
    let devices = Devices::new(opened, &Topology::one())?;
    devices.set_free_order(order);
    let allocate = || devices.allocate(1, NodeId(0)).expect("the devices are large enough").first;
    let slots: Vec<_> = (0..SLOTS).map(|_| allocate()).collect();
    let order = shuffled(slots.len(), &mut Random::new(seed));
    let mut mixed: Vec<_> = order.into_iter().map(|at| slots[at as usize]).collect();
    let begin = Instant::now();
    mixed.chunks_mut(BATCH).for_each(|batch| devices.free_batch(batch));
    let spent = begin.elapsed();
    let freed: u64 = devices.list().map(|device| device.freed.load(Relaxed)).sum();
    assert_eq!(freed, u64::from(SLOTS), "all are free");
    Ok(spent.as_nanos() as f64 / f64::from(SLOTS))
}
