//! System V shared memory at an address in the arena (shmat): foreign there, as a file that the program maps.
use super::mappings::{give_up_probe, over_what};
use super::{ranges, replace};
use crate::abi::next;
use crate::abi::raw::{Errno, MapRequest, Span, errno};
use crate::state::process::{self, Process, Request};
use libc::{EINVAL, PROT_NONE, c_int, c_void};
use std::collections::BTreeMap;
use userswap::internals::PAGE_BYTES;
use userswap::internals::PageRange;
use userswap::internals::lock::Lock;
use userswap::internals::signal::Blocked;

/// What is attached in the arena, by its first page; held across fork.
pub static ATTACHED: Lock<BTreeMap<u32, PageRange>> = Lock::new(BTreeMap::new());

/// shmat; None where the kernel can do it, or has to say what is wrong.
///
/// # Errors
/// The kernel's; EINVAL where something is, and may not be replaced.
pub fn attach(id: c_int, address: usize, flags: c_int) -> Option<Result<usize, Errno>> {
    let address = match flags & libc::SHM_RND {
        0 => address,
        _ => address - address % PAGE_BYTES,
    };
    let bytes = bytes_of(id)?.checked_next_multiple_of(PAGE_BYTES)?;
    let exact = Request::new(Span { address, bytes })?;
    if address == 0 || !exact.is_aligned() || !exact.is_whole() {
        return None;
    }
    let replaces = flags & libc::SHM_REMAP != 0;
    let map = libc::MAP_FIXED | if replaces { 0 } else { libc::MAP_FIXED_NOREPLACE };
    let _blocked = Blocked::new();
    let request =
        MapRequest { address, bytes, protection: PROT_NONE, flags: map, fd: -1, offset: 0 };
    let range = exact.pages();
    // Before it is there: a child of a fork has both, or finds that the entry means nothing.
    ATTACHED.lock().insert(range.first, range);
    let attached = attach_over(exact.process, range, &request, || {
        match next::shmat(id, address as *const c_void, flags | libc::SHM_REMAP) {
            libc::MAP_FAILED => Err(errno()),
            there => Ok(there.addr()),
        }
    });
    if attached.is_err() {
        ATTACHED.lock().remove(&range.first);
    }
    Some(attached)
}

fn attach_over(
    process: &Process,
    range: PageRange,
    request: &MapRequest,
    attach: impl FnOnce() -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    let phase = process.phase();
    let over = over_what(process, range, request).map_err(|_| EINVAL)?;
    let claim = replace::claim(process, range, over).map_err(|_| EINVAL)?;
    replace::separate(process, &phase, &claim)?;
    let attached = replace::with_foreign(process, &phase, &claim, attach);
    attached.inspect_err(|_| give_up_probe(process, range))
}

/// shmdt; None where the kernel has to do it.
///
/// # Errors
/// ENOMEM at the limit on mappings.
pub fn detach(address: usize) -> Option<Result<usize, Errno>> {
    let process = process::current()?;
    if !process.arena.contains(address) || !address.is_multiple_of(PAGE_BYTES) {
        return None;
    }
    let _blocked = Blocked::new();
    let range = ATTACHED.lock().remove(&process.arena.page_of(address))?;
    // It may have been mapped over since.
    if process.arena.foreign_within(range) != [range] {
        return None;
    }
    Some(ranges::unmap(process, range).map(|()| 0))
}

fn bytes_of(id: c_int) -> Option<usize> {
    let mut segment = std::mem::MaybeUninit::<libc::shmid_ds>::uninit();
    // SAFETY: there is room for what it tells. The raw system call passes by an interposed shmctl.
    let told = unsafe { libc::syscall(libc::SYS_shmctl, id, libc::IPC_STAT, segment.as_mut_ptr()) };
    // SAFETY: it has been filled then.
    (told == 0).then(|| unsafe { segment.assume_init() }.shm_segsz)
}
