//! Vectors of the specification, then random operations against two queues.
use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;

const DEVICES: Decision = Decision::Allocate(Source::Devices);
const BUFFERS: Decision = Decision::Allocate(Source::Buffers);

/// What a switch for 4 CPUs says first, the free slots at which it decides, and its answer.
#[rustfmt::skip]
const C1_TO_C4: [(&str, Source, i64, Decision, Source); 6] = [
    ("C1", Source::Devices, 1280, DEVICES, Source::Devices),
    ("C2", Source::Devices, 1281, BUFFERS, Source::Buffers),
    ("C3", Source::Buffers, 512, BUFFERS, Source::Buffers),
    ("C4", Source::Buffers, 511, Decision::DrainAll, Source::Devices),
    ("below the lower threshold", Source::Devices, 511, DEVICES, Source::Devices),
    ("a device is being swapped off", Source::Buffers, -90, Decision::DrainAll, Source::Devices),
];

fn switch(source: Source) -> Switch {
    Switch { cpus: 4, enabled: true, active: source == Source::Buffers }
}

#[test]
fn buffers_are_used_above_one_threshold_and_given_up_below_another() {
    for (row, before, free_slots, decision, source) in C1_TO_C4 {
        let mut switch = switch(before);
        assert_eq!(switch.before_allocation(free_slots), decision, "{row}");
        assert_eq!(switch.source(), source, "{row}");
    }
}

#[test]
fn a_disabled_switch_changes_nothing_until_it_is_enabled_again() {
    let mut switch = Switch::new(4);
    assert_eq!(switch.before_allocation(9999), DEVICES);
    switch.enable();
    assert_eq!(switch.before_allocation(9999), BUFFERS);
    switch.disable();
    assert_eq!((switch.before_allocation(0), switch.source()), (DEVICES, Source::Devices));
    switch.enable();
    assert_eq!(switch.source(), Source::Buffers);
}

/// A CPU in front of devices that give out ascending numbers.
struct Cpu {
    ready: Ready<u32>,
    returned: Returned<u32>,
    free: u32,
    next: u32,
    batches: u32,
    freed: Vec<Vec<u32>>,
}

impl Cpu {
    fn new(free_slots: u32) -> Self {
        let (ready, returned) = (Ready::new(), Returned::new());
        Self { ready, returned, free: free_slots, next: 0, batches: 0, freed: Vec::new() }
    }

    fn fetch(&mut self, want: u32) -> Vec<u32> {
        let first = self.next;
        self.next += want.min(self.free);
        self.free -= self.next - first;
        (first..self.next).collect()
    }

    fn allocate(&mut self, source: Source) -> Option<u32> {
        let mut take = self.ready.take(source);
        if take == Take::Refill {
            self.batches += 1;
            let slots = self.fetch(BATCH as u32);
            take = self.ready.refill(&slots);
        }
        match take {
            Take::Slot(slot) => Some(slot),
            Take::Devices => self.fetch(1).first().copied(),
            Take::Refill => panic!("a refill never asks for another"),
        }
    }

    fn free(&mut self, slot: u32, source: Source) {
        match self.returned.put(slot, source) {
            Put::Stored => {}
            Put::Flush(batch) => self.give_back(Some(batch)),
            Put::Free(slot) => self.give_back(Batch::new(&[slot])),
        }
    }

    fn drain(&mut self) {
        let (ready, returned) = (self.ready.drain(), self.returned.drain());
        self.give_back(ready);
        self.give_back(returned);
    }

    fn give_back(&mut self, batch: Option<Batch<u32>>) {
        if let Some(mut batch) = batch {
            self.free += batch.slots().len() as u32;
            self.freed.push(batch.slots().to_vec());
        }
    }
}

#[test]
fn c5_c6_64_allocations_cost_one_request_and_the_next_a_second() {
    let mut cpu = Cpu::new(1000);
    assert_eq!(cpu.allocate(Source::Buffers), Some(0));
    assert_eq!((cpu.free, cpu.batches), (936, 1));
    assert!((1..64).all(|slot| cpu.allocate(Source::Buffers) == Some(slot)));
    assert_eq!((cpu.free, cpu.batches), (936, 1));
    assert_eq!(cpu.allocate(Source::Buffers), Some(64));
    assert_eq!((cpu.free, cpu.batches), (872, 2));
}

#[test]
fn c7_a_device_with_few_slots_fills_a_buffer_in_part() {
    let mut cpu = Cpu::new(10);
    assert_eq!(cpu.allocate(Source::Buffers), Some(0));
    assert_eq!((cpu.ready.len(), cpu.free), (9, 0));
}

#[test]
fn c8_c9_the_65th_free_flushes_the_64_before_it_and_is_kept() {
    let mut cpu = Cpu::new(1000);
    cpu.fetch(100);
    (0..64).for_each(|slot| cpu.free(slot, Source::Buffers));
    assert_eq!((cpu.freed.len(), cpu.returned.len(), cpu.free), (0, 64, 900));
    cpu.free(64, Source::Buffers);
    assert_eq!(cpu.freed, [(0..64).collect::<Vec<_>>()]);
    assert_eq!((cpu.returned.len(), cpu.free), (1, 964));
}

#[test]
fn c10_a_drain_frees_what_is_in_both_buffers() {
    let mut cpu = Cpu::new(1000);
    (0..20).for_each(|_| _ = cpu.allocate(Source::Buffers));
    (0..7).for_each(|slot| cpu.free(slot, Source::Buffers));
    assert_eq!((cpu.ready.next, cpu.ready.len(), cpu.returned.len()), (20, 44, 7));
    cpu.drain();
    assert_eq!(cpu.freed, [(20..64).collect::<Vec<_>>(), (0..7).collect()]);
    assert_eq!((cpu.ready.next, cpu.ready.len(), cpu.returned.len()), (0, 0, 0));
    assert!(cpu.ready.drain().is_none() && cpu.returned.drain().is_none());
}

#[test]
fn c11_after_a_swapoff_began_and_drained_no_buffer_fills_again() {
    let mut switch = switch(Source::Buffers);
    let mut cpus = [0; 4].map(|_| Cpu::new(1000));
    for cpu in &mut cpus {
        let slots = cpu.fetch(64);
        cpu.ready.slots.extend(slots);
        cpu.fetch(64).into_iter().for_each(|slot| cpu.free(slot, switch.source()));
        assert_eq!((cpu.ready.len(), cpu.returned.len()), (64, 64));
    }
    switch.disable();
    cpus.iter_mut().for_each(Cpu::drain);
    let freed: usize = cpus.iter().flat_map(|cpu| &cpu.freed).map(Vec::len).sum();
    assert_eq!(freed, 4 * (64 + 64));
    for cpu in &mut cpus {
        let slot = cpu.allocate(switch.source()).unwrap();
        cpu.free(slot, switch.source());
        assert!(cpu.ready.is_empty() && cpu.returned.is_empty());
    }
}

#[test]
fn c12_a_slot_freed_while_buffers_are_given_up_is_not_stored() {
    let mut switch = switch(Source::Buffers);
    let mut cpu = Cpu::new(1000);
    let slot = cpu.fetch(1)[0];
    assert_eq!(switch.source(), Source::Buffers);
    assert_eq!(switch.before_allocation(0), Decision::DrainAll);
    // The buffer's lock is held from here on: the first answer is out of date.
    cpu.free(slot, switch.source());
    assert_eq!((cpu.freed.len(), cpu.returned.len(), cpu.free), (1, 0, 1000));
}

#[test]
fn c13_after_an_empty_refill_one_slot_is_asked_for() {
    let mut ready = Ready::<u32>::new();
    assert_eq!(ready.take(Source::Buffers), Take::Refill);
    assert_eq!(ready.refill(&[]), Take::Devices);
    assert_eq!(Cpu::new(0).allocate(Source::Buffers), None);
}

#[test]
fn what_a_buffer_holds_is_handed_out_though_buffers_are_barred() {
    let mut ready = Ready::new();
    assert_eq!(ready.refill(&[7, 8]), Take::Slot(7));
    assert_eq!(ready.take(Source::Devices), Take::Slot(8));
    assert_eq!(ready.take(Source::Devices), Take::Devices);
}

#[test]
#[should_panic(expected = "1 slots are still to be handed out")]
fn filling_a_buffer_that_is_not_empty_is_refused() {
    let mut ready = Ready::new();
    let _ = ready.refill(&[1, 2]);
    let _ = ready.refill(&[3]);
}

/// Both buffers and the devices, slot by slot.
#[derive(Default)]
struct Model {
    ready: VecDeque<u32>,
    returned: Vec<u32>,
    out: Vec<u32>,
    next: u32,
}

impl Model {
    fn allocate(&mut self, source: Source, slots: u32) -> Option<u32> {
        let left = slots - self.next;
        if self.ready.is_empty() {
            let count = if source == Source::Buffers { 64.min(left) } else { 1.min(left) };
            self.ready.extend(self.next..self.next + count);
            self.next += count;
        }
        let slot = self.ready.pop_front();
        self.out.extend(slot);
        slot
    }

    fn free(&mut self, index: usize, source: Source) -> (u32, Vec<u32>) {
        let slot = self.out.swap_remove(index % self.out.len());
        if source == Source::Devices {
            return (slot, vec![slot]);
        }
        let full = self.returned.len() == 64;
        let flushed = if full { core::mem::take(&mut self.returned) } else { Vec::new() };
        self.returned.push(slot);
        (slot, flushed)
    }
}

const SLOTS: u32 = 2000;

fn apply(cpu: &mut Cpu, model: &mut Model, operation: u32, index: usize, source: Source) {
    cpu.freed.clear();
    let mut freed = Vec::new();
    match operation {
        0..=89 => assert_eq!(cpu.allocate(source), model.allocate(source, SLOTS)),
        90..=198 if !model.out.is_empty() => {
            let slot;
            (slot, freed) = model.free(index, source);
            cpu.free(slot, source);
        }
        199 => {
            cpu.drain();
            freed.extend(model.ready.drain(..));
            freed.append(&mut model.returned);
        }
        _ => {}
    }
    assert_eq!(cpu.freed.concat(), freed);
    assert_eq!((cpu.ready.len(), cpu.returned.len()), (model.ready.len(), model.returned.len()));
}

proptest! {
    #[test]
    fn buffers_equal_two_queues(
        operations in prop::collection::vec((0u32..200, any::<usize>(), 0u32..8), 1..1500),
    ) {
        let (mut cpu, mut model) = (Cpu::new(SLOTS), Model::default());
        for (operation, index, source) in operations {
            // Numbers are given out once, so that no slot can be confused with another.
            cpu.free = SLOTS - cpu.next;
            let source = if source == 0 { Source::Devices } else { Source::Buffers };
            apply(&mut cpu, &mut model, operation, index, source);
        }
    }

    #[test]
    fn a_switch_equals_its_two_thresholds(
        steps in prop::collection::vec((0u32..10, 0i64..600), 1..200),
    ) {
        let mut switch = Switch::new(1);
        let (mut enabled, mut active) = (false, false);
        for (step, free_slots) in steps {
            match step {
                0 => { switch.disable(); enabled = false; }
                1..=2 => { switch.enable(); enabled = true; }
                _ => {
                    let was_active = active;
                    if enabled {
                        active = if active { free_slots >= 128 } else { free_slots > 320 };
                    }
                    let expected = match (enabled, was_active, active) {
                        (true, true, false) => Decision::DrainAll,
                        (true, _, true) => BUFFERS,
                        _ => DEVICES,
                    };
                    prop_assert_eq!(switch.before_allocation(free_slots), expected);
                }
            }
            let usable = enabled && active;
            prop_assert_eq!(switch.source() == Source::Buffers, usable);
        }
    }
}
