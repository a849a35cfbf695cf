//! From a system call's arguments to the memory that they name.
use super::buffers::LIST_MAX;
use super::held::{Held, MESSAGE_BYTES, is_needed, text};
use super::nested;
use super::reading::Reader;
use super::table::{self, Row};
use crate::abi::raw::{self, Span};
pub use crate::abi::system_call::Arguments;
use crate::state::process;
use libc::{c_char, c_int, c_long, iovec, mmsghdr, msghdr};
use std::mem::size_of;
use userswap::internals::PAGE_BYTES;

/// What an argument points to. The numbers in brackets are arguments, counted from 0, unless they say otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Memory {
    /// A C string.
    Text,
    /// A list of C strings, up to a null pointer.
    Texts,
    /// So many bytes.
    Fixed(usize),
    /// As many entries as an argument says, each of so many bytes.
    Each(usize, usize),
    /// A number of eight bytes, and then as many bytes as an argument says (msgbuf).
    Typed(usize),
    /// As many bytes as the 32-bit number says that an argument points to.
    Sized(usize),
    /// A bit for each descriptor below the number in an argument.
    Sets(usize),
    /// Buffers (iovec), as many as an argument says.
    Parts(usize),
    /// One message (msghdr).
    One,
    /// Messages (mmsghdr), as many as an argument says.
    Messages(usize),
    /// Requests (iocb), by pointers, as many as an argument says.
    Iocbs(usize),
    /// What an ioctl takes, whose number in an argument may tell.
    Request(usize),
    /// Only the kernel knows.
    Unknown,
}

/// The arguments of a call with so many.
pub fn of<const COUNT: usize>(given: [usize; COUNT]) -> Arguments {
    std::array::from_fn(|index| given.get(index).copied().unwrap_or(0))
}

/// How far memory of unknown length is kept.
const UNKNOWN_BYTES: usize = 256;

/// Keeps the memory of a call in RAM.
pub fn hold(number: c_long, arguments: &Arguments) -> Held {
    if let Some(row) = table::row(number) {
        let mut held = hold_row(row, arguments);
        nested::hold(&mut held, number, *arguments);
        return held;
    }
    let mut held = Held::none();
    arguments.iter().for_each(|argument| held.add(unknown(*argument)));
    held
}

/// The same, where it is needed at all.
pub fn hold_if_needed(number: c_long, arguments: &Arguments) -> Option<Held> {
    is_needed().then(|| hold(number, arguments))
}

/// The same for a function that is no system call.
pub fn hold_row(row: Row, arguments: &Arguments) -> Held {
    let mut held = Held::none();
    for (index, memory) in row {
        keep(&mut held, *memory, arguments[*index], arguments);
    }
    held
}

fn keep(held: &mut Held, memory: Memory, address: usize, arguments: &Arguments) {
    // Without a buffer a length is asked for.
    if address == 0 && !matches!(memory, Memory::Sized(_)) {
        return;
    }
    let of = |bytes| Span { address, bytes };
    match memory {
        Memory::Text => held.add(text(address as *const c_char)),
        Memory::Texts => texts(held, address),
        Memory::Fixed(bytes) => held.add(of(bytes)),
        Memory::Each(count, bytes) => held.add(of(arguments[count].saturating_mul(bytes))),
        Memory::Typed(count) => held.add(of(arguments[count].saturating_add(8))),
        Memory::Sized(length) => sized(held, address, arguments[length]),
        Memory::Sets(count) => held.add(of((arguments[count] as u32 as usize).div_ceil(64) * 8)),
        Memory::Parts(count) => parts(held, address, arguments[count]),
        Memory::One => {
            widen_for_messages(held, arguments);
            message(held, address);
        }
        Memory::Messages(count) => {
            widen_for_messages(held, arguments);
            messages(held, address, arguments[count] as u32 as usize);
        }
        Memory::Iocbs(count) => requests(held, address, arguments[count]),
        Memory::Request(number) => request(held, address, arguments[number]),
        Memory::Unknown => held.add(unknown(address)),
    }
}

/// What is taken or sent as a whole has more room; the call's first argument is a socket.
fn widen_for_messages(held: &mut Held, arguments: &Arguments) {
    if raw::has_messages(arguments[0] as c_int) {
        held.widen(MESSAGE_BYTES);
    }
}

pub(super) fn unknown(address: usize) -> Span {
    Span { address, bytes: UNKNOWN_BYTES.max(PAGE_BYTES - address % PAGE_BYTES) }
}

/// An entry of a list that the program passes; none where the program itself could not read it.
pub fn entry<T: Copy>(list: usize, index: usize) -> Option<T> {
    Reader::default().entry(list, index)
}

fn sized(held: &mut Held, address: usize, length: usize) {
    held.add(Span { address: length, bytes: 4 });
    if length != 0
        && process::is_managed(address)
        && let Some(bytes) = entry::<u32>(length, 0)
    {
        held.add(Span { address, bytes: bytes as usize });
    }
}

fn texts(held: &mut Held, list: usize) {
    let (mut reader, mut index) = (Reader::default(), 0);
    while let Some(item) = reader.entry::<usize>(list, index).filter(|item| *item != 0) {
        held.add(Span { address: list + index * 8, bytes: 16 });
        held.add(text(item as *const c_char));
        index += 1;
    }
}

pub(super) fn parts(held: &mut Held, list: usize, count: usize) {
    let count = count.min(LIST_MAX);
    held.add(Span { address: list, bytes: count * size_of::<iovec>() });
    let mut reader = Reader::default();
    for part in (0..count).map_while(|index| reader.entry::<iovec>(list, index)) {
        held.add(Span::of(part.iov_base, part.iov_len));
    }
}

fn message(held: &mut Held, address: usize) {
    let Some(message) = entry::<msghdr>(address, 0) else { return };
    held.add(Span { address, bytes: size_of::<msghdr>() });
    held.add(Span::of(message.msg_name, message.msg_namelen as usize));
    held.add(Span::of(message.msg_control, message.msg_controllen));
    if !message.msg_iov.is_null() {
        parts(held, message.msg_iov as usize, message.msg_iovlen);
    }
}

fn messages(held: &mut Held, list: usize, count: usize) {
    for index in 0..count.min(LIST_MAX) {
        let address = list + index * size_of::<mmsghdr>();
        message(held, address);
        held.add(Span { address, bytes: size_of::<mmsghdr>() });
    }
}

/// The kernel's iocb: the buffer is in its fourth word, the length in the fifth.
fn requests(held: &mut Held, list: usize, count: usize) {
    let count = count.min(LIST_MAX);
    held.add(Span { address: list, bytes: count * size_of::<usize>() });
    let mut reader = Reader::default();
    for index in 0..count {
        let Some(address) = reader.entry::<usize>(list, index).filter(|address| *address != 0)
        else {
            break;
        };
        let Some(words) = entry::<[usize; 8]>(address, 0) else { break };
        held.add(Span { address, bytes: size_of_val(&words) });
        let operation = words[2] as u16;
        match operation {
            // IOCB_CMD_PREADV and PWRITEV.
            7 | 8 => parts(held, words[3], words[4]),
            _ => held.add(Span { address: words[3], bytes: words[4] }),
        }
    }
}

/// Newer ioctls have the length of their argument in their number; older ones are of unknown length.
fn request(held: &mut Held, address: usize, number: usize) {
    let told = number >> 16 & 0x3fff;
    held.add(unknown(address));
    held.add(Span { address, bytes: told });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_of_unknown_length_reaches_into_the_next_page() {
        let span = unknown(3 * PAGE_BYTES - 8);
        assert_eq!((span.address, span.bytes), (3 * PAGE_BYTES - 8, UNKNOWN_BYTES));
        assert_eq!(unknown(PAGE_BYTES).bytes, PAGE_BYTES);
    }
}
