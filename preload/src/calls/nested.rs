//! Memory that a call names in other memory, or whose length an operation tells: what the table's rows cannot say.
use super::arguments::{Arguments, entry, parts, unknown};
use super::held::Held;
use super::reading::Reader;
use super::table::unnamed;
use crate::abi::raw::Span;
use crate::abi::system_call::make;
use libc::{c_int, c_long, iovec};
use std::mem::{MaybeUninit, size_of};

/// A value of so many bytes as another argument says (fsconfig(2)).
const FSCONFIG_SET_BINARY: u32 = 2;

/// Keeps it in RAM, beside what the call's row names.
pub fn hold(held: &mut Held, number: c_long, arguments: Arguments) {
    match number {
        libc::SYS_io_uring_register => registered(held, arguments),
        libc::SYS_ioctl => requested(held, arguments),
        libc::SYS_semctl => semaphores(held, arguments),
        libc::SYS_keyctl => key(held, arguments),
        libc::SYS_fsconfig if arguments[1] as u32 == FSCONFIG_SET_BINARY => {
            held.add(Span { address: arguments[3], bytes: arguments[4] as u32 as usize });
        }
        libc::SYS_ptrace => traced(held, arguments),
        libc::SYS_io_uring_enter => waited_for(held, arguments),
        unnamed::IO_PGETEVENTS => {
            if let Some([set, bytes]) = entry::<[usize; 2]>(arguments[5], 0) {
                held.add(Span { address: set, bytes });
            }
        }
        unnamed::SETXATTRAT | unnamed::GETXATTRAT => {
            if let Some([address, bytes]) = entry::<[usize; 2]>(arguments[4], 0) {
                held.add(Span { address, bytes: bytes as u32 as usize });
            }
        }
        libc::SYS_futex_waitv => words(held, arguments[0], arguments[1]),
        unnamed::FUTEX_REQUEUE => words(held, arguments[0], 2),
        libc::SYS_setsockopt | libc::SYS_prctl | libc::SYS_seccomp => {
            if let Some(at) = filter_of(number, arguments) {
                filter(held, at);
            }
        }
        _ => {}
    }
}

/// The words that threads wait for, of entries (futex_waitv) whose second word says where each is.
fn words(held: &mut Held, list: usize, count: usize) {
    /// Most that the kernel takes (FUTEX_WAITV_MAX).
    const MOST: usize = 128;
    for index in 0..count.min(MOST) {
        let Some([_, address, _]) = entry::<[usize; 3]>(list, index) else { return };
        held.add(Span { address, bytes: 4 });
    }
}

/// A set of registers of a process that is traced (iovec), or which of its signals are wanted (ptrace_peeksiginfo_args).
fn traced(held: &mut Held, [request, _, address, at, ..]: Arguments) {
    const PEEKSIGINFO: u32 = 0x4209;
    match request as u32 {
        libc::PTRACE_GETREGSET | libc::PTRACE_SETREGSET => parts(held, at, 1),
        PEEKSIGINFO => held.add(Span { address, bytes: 16 }),
        _ => {}
    }
}

/// How long a ring is waited for, and with which signals (io_uring_getevents_arg).
fn waited_for(held: &mut Held, [_, _, _, flags, at, _]: Arguments) {
    const EXT_ARG: usize = 1 << 3;
    /// It is in memory that was registered.
    const EXT_ARG_REG: usize = 1 << 6;
    if flags & (EXT_ARG | EXT_ARG_REG) == EXT_ARG
        && let Some([signals, _, time]) = entry::<[usize; 3]>(at, 0)
    {
        held.add(Span { address: signals, bytes: size_of::<u64>() });
        held.add(Span { address: time, bytes: size_of::<libc::timespec>() });
    }
}

/// As many entries as were told, each of so many bytes, after a head.
fn list(held: &mut Held, address: usize, head: usize, count: Option<usize>, bytes: usize) {
    held.add(Span { address, bytes: head + count.unwrap_or(0).saturating_mul(bytes) });
}

/// What the memory of an ioctl points to, or has behind it.
fn requested(held: &mut Held, [_, number, at, ..]: Arguments) {
    /// Extents of a file, and ranges of files that may be alike.
    const FS_IOC_FIEMAP: u32 = 0xc020_660b;
    const FIDEDUPERANGE: u32 = 0xc018_9436;
    /// The addresses of network devices, and what their drivers are asked.
    const SIOCGIFCONF: u32 = 0x8912;
    const SIOCETHTOOL: u32 = 0x8946;
    /// A command to a disk.
    const SG_IO: u32 = 0x2285;
    if at == 0 {
        return;
    }
    match number as u32 {
        FS_IOC_FIEMAP => {
            let count = entry::<u32>(at, 6).map(|count| count as usize);
            list(held, at, 32, count, 56);
        }
        FIDEDUPERANGE => list(held, at, 24, entry::<u16>(at, 8).map(usize::from), 32),
        SIOCGIFCONF => {
            if let (Some(bytes), Some(address)) = (entry::<u32>(at, 0), entry::<usize>(at, 1)) {
                held.add(Span { address, bytes: bytes as usize });
            }
        }
        SIOCETHTOOL => {
            if let Some(address) = entry::<usize>(at, 2) {
                held.add(unknown(address));
            }
        }
        SG_IO => command(held, at),
        _ => {}
    }
}

/// A command to a disk (sg_io_hdr): its bytes, the data, and what went wrong.
fn command(held: &mut Held, at: usize) {
    let Some([kind, lengths, data, command, sense]) = entry::<[usize; 5]>(at, 0) else { return };
    if kind as u32 != u32::from(b'S') {
        return;
    }
    let [command_bytes, sense_bytes, low, high, ..] = lengths.to_le_bytes();
    held.add(Span { address: command, bytes: command_bytes.into() });
    held.add(Span { address: sense, bytes: sense_bytes.into() });
    match u16::from_le_bytes([low, high]) {
        0 => held.add(Span { address: data, bytes: lengths >> 32 }),
        count => parts(held, data, count.into()),
    }
}

/// The values of a whole set, as many as the set has.
fn semaphores(held: &mut Held, [set, _, operation, address, ..]: Arguments) {
    const GETALL: c_int = 13;
    const SETALL: c_int = 17;
    if !matches!(operation as c_int, GETALL | SETALL) {
        return;
    }
    let mut description = MaybeUninit::<libc::semid_ds>::zeroed();
    let room = description.as_mut_ptr() as usize;
    make(libc::SYS_semctl, [set, 0, libc::IPC_STAT as usize, room, 0, 0]);
    // SAFETY: the type consists of numbers, which are zero where there is no such set.
    let count = unsafe { description.assume_init() }.sem_nsems as usize;
    list(held, address, 0, Some(count), size_of::<u16>());
}

/// A key's content, or what is said about it.
fn key(held: &mut Held, [operation, _, address, bytes, ..]: Arguments) {
    if matches!(
        operation as u32,
        libc::KEYCTL_UPDATE
            | libc::KEYCTL_DESCRIBE
            | libc::KEYCTL_READ
            | libc::KEYCTL_INSTANTIATE
            | libc::KEYCTL_GET_SECURITY
    ) {
        held.add(Span { address, bytes });
    }
}

/// Where a call that takes a filter has its number of instructions and their address (sock_fprog).
fn filter_of(number: c_long, [a, b, c, d, ..]: Arguments) -> Option<usize> {
    let attaches = [libc::SO_ATTACH_FILTER, libc::SO_ATTACH_REUSEPORT_CBPF];
    let (at, is_filter) = match number {
        libc::SYS_setsockopt => {
            (d, b as c_int == libc::SOL_SOCKET && attaches.contains(&(c as c_int)))
        }
        libc::SYS_prctl => {
            (c, a as c_int == libc::PR_SET_SECCOMP && b as u32 == libc::SECCOMP_MODE_FILTER)
        }
        _ => (c, a as u32 == libc::SECCOMP_SET_MODE_FILTER),
    };
    (is_filter && at != 0).then_some(at)
}

/// A filter's instructions, eight bytes each.
fn filter(held: &mut Held, at: usize) {
    if let (Some(count), Some(address)) = (entry::<u16>(at, 0), entry::<usize>(at, 1)) {
        list(held, address, 0, Some(count.into()), 8);
    }
}

/// Buffers for a ring, which the kernel pins in the call: all of them have to be there.
fn registered(held: &mut Held, [_, operation, at, count, ..]: Arguments) {
    /// What an io_uring_register of them is called: with a list, with a description of one, and of one for buffers
    /// in between.
    const BUFFERS: u32 = 0;
    const BUFFERS_2: u32 = 15;
    const BUFFERS_UPDATE: u32 = 16;
    /// The ring is named by its place among those that it has registered.
    const BY_PLACE: u32 = 1 << 31;
    /// Most that the kernel takes.
    const MOST: u32 = 1 << 14;
    if at == 0 {
        return;
    }
    let (list, count) = match operation as u32 & !BY_PLACE {
        BUFFERS => (Some(at), Some(count as u32)),
        BUFFERS_2 => (entry::<usize>(at, 2), entry::<u32>(at, 0)),
        BUFFERS_UPDATE => (entry::<usize>(at, 1), entry::<u32>(at, 6)),
        _ => return,
    };
    // Without a list a table is made that has none yet.
    let (Some(list @ 1..), Some(count @ ..=MOST)) = (list, count) else { return };
    held.add_whole(Span { address: list, bytes: count as usize * size_of::<iovec>() });
    let mut reader = Reader::default();
    for part in (0..count as usize).map_while(|index| reader.entry::<iovec>(list, index)) {
        held.add_whole(Span::of(part.iov_base.cast_const(), part.iov_len));
    }
}
