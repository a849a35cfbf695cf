//! System V shared memory at an address in the arena (shmat): foreign there, as a file that the program maps.
//!
//! It is attached elsewhere first, so that what the kernel refuses changes nothing, and then moved over the range.
use super::mappings::{give_up_probe, over_what, reserve};
use super::replace;
use crate::abi::next;
use crate::abi::raw::{self, Errno, RemapRequest, Span, errno};
use crate::state::areas::Area;
use crate::state::process::{self, Phase, Process, Request};
use libc::{EINVAL, PROT_NONE, c_int, c_void};
use std::collections::BTreeMap;
use userswap::internals::PAGE_BYTES;
use userswap::internals::PageRange;
use userswap::internals::lock::Lock;
use userswap::internals::signal::Blocked;

/// What is attached in the arena, by its first page; taken after the phase, and held across fork.
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
    let whole = |bytes| Request::new(Span { address, bytes }).filter(Request::is_whole);
    if address == 0 || !whole(bytes)?.is_aligned() {
        return None;
    }
    let _blocked = Blocked::new();
    let anywhere = flags & !(libc::SHM_REMAP | libc::SHM_RND);
    let elsewhere = match next::shmat(id, std::ptr::null(), anywhere) {
        libc::MAP_FAILED => return Some(Err(errno())),
        there => there.addr(),
    };
    let place = mapped_bytes(elsewhere, bytes).and_then(|bytes| Some((whole(bytes)?, bytes)));
    let moved = place.map_or(Err(EINVAL), |(exact, bytes)| {
        let from = Span { address: elsewhere, bytes };
        move_over(&exact, from, flags & libc::SHM_REMAP != 0)
    });
    if moved.is_err() {
        next::shmdt(elsewhere as *const c_void);
    }
    Some(moved)
}

fn move_over(exact: &Request, from: Span, replaces: bool) -> Result<usize, Errno> {
    let (process, range) = (exact.process, exact.pages());
    let (bytes, new_bytes, new_address) = (from.bytes, from.bytes, exact.asked.start);
    let flags = if replaces { libc::MAP_FIXED } else { libc::MAP_FIXED_NOREPLACE };
    let phase = process.phase();
    let over = over_what(process, range, flags).map_err(|_| EINVAL)?;
    let claim = replace::claim(process, range, over).map_err(|_| EINVAL)?;
    replace::separate(process, &phase, &claim)?;
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    let moving = RemapRequest { address: from.address, bytes, new_bytes, flags, new_address };
    // A child would have it twice.
    let _ = raw::advise(from, libc::MADV_DONTFORK);
    let moved = replace::with_foreign(process, &phase, &claim, || {
        let moved = raw::remap(moving)?;
        let _ = raw::advise(process.span_of(range), libc::MADV_DOFORK);
        ATTACHED.lock().insert(range.first, range);
        Ok(moved)
    });
    moved.inspect_err(|_| give_up_probe(process, &phase, range))
}

/// shmdt; None where the kernel has to do it.
///
/// # Errors
/// The kernel's.
pub fn detach(address: usize) -> Option<Result<usize, Errno>> {
    let process = process::current()?;
    if !process.arena.contains(address) || !address.is_multiple_of(PAGE_BYTES) {
        return None;
    }
    let page = process.arena.page_of(address);
    let _blocked = Blocked::new();
    let phase = process.phase();
    let _alone = process.alone(&phase);
    let known = ATTACHED.lock().get(&page).copied();
    // It may have come here by mremap.
    let range = known.or_else(|| process.arena.region_of(page))?;
    // SAFETY: what it detaches is the program's to give. The raw system call passes by an interposed shmdt, which might come back.
    if unsafe { libc::syscall(libc::SYS_shmdt, address) } != 0 {
        return Some(Err(errno()));
    }
    ATTACHED.lock().remove(&page);
    let own = process.arena.own_within(range);
    for (part, area) in own.into_iter().flat_map(|own| process.areas_within(own)) {
        if area == Area::Foreign {
            plug(process, &phase, part);
        }
    }
    Some(Ok(0))
}

/// What is not mapped any more is plain memory again; parts may have been mapped over, or moved. At the limit on mappings a hole
/// stays one.
fn plug(process: &Process, phase: &Phase<'_>, range: PageRange) {
    if reserve(process.span_of(range)).is_ok() {
        if replace::put_plain(process, phase, range, PROT_NONE).is_ok() {
            let mut areas = process.areas.lock();
            areas.clear(range);
            process.arena.free(range);
        }
    } else if range.count > 1 && !is_mapped(process, range) {
        let half = PageRange { first: range.first, count: range.count / 2 };
        plug(process, phase, half);
        plug(process, phase, PageRange { first: half.end(), count: range.count - half.count });
    }
}

fn is_mapped(process: &Process, range: PageRange) -> bool {
    let mut told = vec![0; range.count as usize];
    raw::in_core(process.span_of(range), told.as_mut_ptr()).is_ok()
}

/// How much is mapped there of a segment of `bytes`: whole huge pages, where it has such. None where these may be any.
fn mapped_bytes(address: usize, bytes: usize) -> Option<usize> {
    const HUGE_BYTES: usize = 2 << 20;
    const LARGEST_BYTES: usize = 1 << 30;
    // No huge page grows cold (mm/madvise.c, can_madv_lru_vma), nor what is locked (mlockall).
    let is_cold =
        || raw::advise(Span { address, bytes: PAGE_BYTES }, libc::MADV_COLD) != Err(EINVAL);
    let unlock = || raw::lock(libc::SYS_munlock, Span { address, bytes }, 0);
    if is_cold() || unlock().is_ok() && is_cold() || bytes.is_multiple_of(LARGEST_BYTES) {
        return Some(bytes);
    }
    match address.is_multiple_of(LARGEST_BYTES) {
        true => None,
        false => bytes.checked_next_multiple_of(HUGE_BYTES),
    }
}

fn bytes_of(id: c_int) -> Option<usize> {
    let mut segment = std::mem::MaybeUninit::<libc::shmid_ds>::uninit();
    // SAFETY: there is room for what it tells. The raw system call passes by an interposed shmctl.
    let told = unsafe { libc::syscall(libc::SYS_shmctl, id, libc::IPC_STAT, segment.as_mut_ptr()) };
    // SAFETY: it has been filled then.
    (told == 0).then(|| unsafe { segment.assume_init() }.shm_segsz)
}
