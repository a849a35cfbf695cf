//! Events as bytes: mostly one or two each.
//!
//! A byte has the kind in its low half. The high half has the distance from where an event of this kind was to be expected,
//! zigzag; what does not fit follows as a varint, and so does the length of a run. Expected are: a fault or a mapping where the
//! last of these was, a page that leaves or is dropped after the last one that was. All begins anew with each block.
use crate::{Event, Kind, RUN_MAX};

/// The high half of a byte whose distance follows.
const FOLLOWS: u64 = 15;

/// Bytes of an event at most.
pub const EVENT_BYTES_MAX: usize = 1 + 2 * VARINT_BYTES_MAX;
const VARINT_BYTES_MAX: usize = 5;

/// Where the next event of a kind is expected.
#[derive(Clone, Copy, Default)]
struct Expected {
    mapped: u32,
    left: u32,
    dropped: u32,
}

impl Expected {
    fn of(&mut self, kind: Kind) -> &mut u32 {
        match kind {
            Kind::Left => &mut self.left,
            Kind::Dropped => &mut self.dropped,
            _ => &mut self.mapped,
        }
    }

    fn after(&mut self, event: Event) {
        let end = event.first.wrapping_add(event.count);
        let next = if matches!(event.kind, Kind::Left | Kind::Dropped) { end } else { event.first };
        *self.of(event.kind) = next;
    }
}

/// Appends events to bytes.
#[derive(Default)]
pub struct Encoder(Expected);

impl Encoder {
    pub fn put(&mut self, event: Event, bytes: &mut Vec<u8>) {
        let distance = event.first.wrapping_sub(*self.0.of(event.kind)) as i32;
        let zigzag = u64::from(((distance << 1) ^ (distance >> 31)) as u32);
        bytes.push(event.kind as u8 | (zigzag.min(FOLLOWS) as u8) << 4);
        if zigzag >= FOLLOWS {
            put_varint(zigzag - FOLLOWS, bytes);
        }
        if !event.kind.is_fault() {
            put_varint(u64::from(event.count - 1), bytes);
        }
        self.0.after(event);
    }
}

fn put_varint(mut value: u64, bytes: &mut Vec<u8>) {
    while value >= 128 {
        bytes.push(value as u8 | 128);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// The events in bytes; None where they are none.
pub fn decode(mut bytes: &[u8]) -> Option<Vec<Event>> {
    let mut expected = Expected::default();
    let mut events = Vec::new();
    while let Some((head, rest)) = bytes.split_first() {
        bytes = rest;
        let kind = Kind::from_number(head & 15)?;
        let zigzag = match u64::from(head >> 4) {
            FOLLOWS => u32::try_from(FOLLOWS + take_varint(&mut bytes)?).ok()?,
            near => near as u32,
        };
        let distance = (zigzag >> 1) as i32 ^ -((zigzag & 1) as i32);
        let first = expected.of(kind).wrapping_add_signed(distance);
        let more = if kind.is_fault() { 0 } else { take_varint(&mut bytes)? };
        let count = u32::try_from(more).ok().filter(|more| *more < RUN_MAX)? + 1;
        first.checked_add(count - 1)?;
        let event = Event { kind, first, count };
        expected.after(event);
        events.push(event);
    }
    Some(events)
}

fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for index in 0..VARINT_BYTES_MAX {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 127) << (7 * index);
        if byte & 128 == 0 {
            return Some(value);
        }
    }
    None
}
