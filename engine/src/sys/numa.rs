//! What the kernel knows about nodes: where a thread runs, where a page lies, where memory should come from.
use std::io;

/// `MPOL_PREFERRED` of mbind(2): from this node while it has memory, else from the nearest.
const MPOL_PREFERRED: i32 = 1;
/// Bits of a node mask: more nodes than any machine has.
const MASK_BITS: usize = 1024;

type Mask = [u64; MASK_BITS / 64];

fn mask_of(node: u32) -> Mask {
    let mut mask = [0; MASK_BITS / 64];
    mask[node as usize / 64] |= 1 << (node % 64);
    mask
}

/// The CPU this thread runs on at this moment; safe in a signal handler.
pub fn cpu() -> u32 {
    // SAFETY: reads a number; without the vDSO it is a system call that cannot fail.
    unsafe { libc::sched_getcpu() }.max(0) as u32
}

/// Makes the pages of a range come from a node when they are first touched.
///
/// # Errors
/// A kernel without NUMA, or a node that does not exist.
pub fn prefer(address: usize, bytes: usize, node: u32) -> io::Result<()> {
    let mask = mask_of(node);
    // SAFETY: the range is a mapping of ours; a policy changes no content.
    let outcome = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            address,
            bytes,
            MPOL_PREFERRED,
            mask.as_ptr(),
            MASK_BITS + 1,
            0,
        )
    };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes what the kernel allocates for this thread come from a node, until dropped.
pub struct Preferred {
    mode: i32,
    mask: Mask,
}

impl Preferred {
    /// Prefers `node` from here on; None where the kernel knows no policies.
    pub fn new(node: u32) -> Option<Self> {
        let mut before = Self { mode: 0, mask: [0; MASK_BITS / 64] };
        // SAFETY: both are buffers for the answer, of the size that is passed.
        let read = unsafe {
            libc::syscall(
                libc::SYS_get_mempolicy,
                &mut before.mode,
                before.mask.as_mut_ptr(),
                MASK_BITS + 1,
                0,
                0,
            )
        };
        if read != 0 {
            return None;
        }
        let mask = mask_of(node);
        // SAFETY: the mask is readable for its size; a policy changes no content.
        let set = unsafe {
            libc::syscall(libc::SYS_set_mempolicy, MPOL_PREFERRED, mask.as_ptr(), MASK_BITS + 1)
        };
        (set == 0).then_some(before)
    }
}

impl Drop for Preferred {
    fn drop(&mut self) {
        let any = self.mask.iter().any(|word| *word != 0);
        let mask = if any { self.mask.as_ptr() } else { std::ptr::null() };
        // SAFETY: the policy is the one that was in force, the mask readable for its size or null.
        unsafe { libc::syscall(libc::SYS_set_mempolicy, self.mode, mask, MASK_BITS + 1) };
    }
}

/// Pages that one call asks for at most.
pub const ASKED_MAX: usize = 64;

/// The node of each of up to [`ASKED_MAX`] pages by their addresses; None where no page is present.
pub fn nodes_of(pages: usize, address: impl Fn(usize) -> usize) -> [Option<u32>; ASKED_MAX] {
    assert!(pages <= ASKED_MAX, "there is room for so many answers");
    let mut addresses = [0; ASKED_MAX];
    addresses[..pages].iter_mut().enumerate().for_each(|(page, to)| *to = address(page));
    let mut status = [-1i32; ASKED_MAX];
    match ask(&addresses[..pages], &mut status) {
        Ok(()) => status.map(|node| u32::try_from(node).ok()),
        Err(_) => [None; ASKED_MAX],
    }
}

/// Whether the kernel's page of zeros is mapped at an address, where something is mapped: such a page is on no node
/// (move_pages(2): EFAULT). One that is being migrated is none (ENOENT).
///
/// # Errors
/// The call is not permitted, or the kernel has it not.
pub fn is_zero_page(address: usize) -> io::Result<bool> {
    let mut status = [-1];
    ask(&[address], &mut status)?;
    match status[0] {
        node if node >= 0 || node == -libc::ENOENT => Ok(false),
        error if error == -libc::EFAULT => Ok(true),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

/// Asks for the node of each page, or the error that it has instead.
fn ask(addresses: &[usize], status: &mut [i32]) -> io::Result<()> {
    assert!(addresses.len() <= status.len(), "there is room for so many answers");
    let none: *const i32 = std::ptr::null();
    // SAFETY: without a list of nodes the call moves nothing; both arrays have room for as many pages.
    let outcome = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            0,
            addresses.len(),
            addresses.as_ptr(),
            none,
            status.as_mut_ptr(),
            0,
        )
    };
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Lets this thread run on the given CPUs only, as far as it is allowed to run there.
pub fn run_on(cpus: &[u32]) {
    let mut set = [0u64; MASK_BITS / 64];
    for cpu in cpus.iter().filter(|cpu| (**cpu as usize) < MASK_BITS) {
        set[*cpu as usize / 64] |= 1 << (cpu % 64);
    }
    // Where a container forbids all of them the thread stays where it is: placement is a preference.
    // SAFETY: the mask is readable for its size.
    unsafe {
        libc::syscall(libc::SYS_sched_setaffinity, 0, std::mem::size_of_val(&set), set.as_ptr());
    };
}

/// The CPU another thread of this process last ran on.
pub fn cpu_of_thread(thread: i32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).ok()?;
    // The second field is a name in parentheses that may hold anything; the CPU is field 39.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(36)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::PAGE_BYTES;
    use crate::sys::clock;
    use crate::sys::mapping::{Access, Mapping};

    #[test]
    fn a_thread_finds_its_own_cpu_both_ways() {
        let allowed: Vec<u32> = (0..clock::cpus()).collect();
        for cpu_wanted in allowed {
            std::thread::spawn(move || {
                run_on(&[cpu_wanted]);
                assert_eq!(cpu(), cpu_wanted);
                assert_eq!(cpu_of_thread(clock::thread_id()), Some(cpu_wanted));
            })
            .join()
            .unwrap();
        }
    }

    #[test]
    fn pages_that_are_present_have_a_node_and_others_none() {
        let memory = Mapping::new(64 * PAGE_BYTES, Access::ReadWrite).unwrap();
        prefer(memory.address(), memory.bytes(), 0).unwrap();
        crate::sys::pages::zero(memory.address() + PAGE_BYTES, 1);
        let nodes = nodes_of(64, |page| memory.address() + page * PAGE_BYTES);
        assert!(nodes[1].is_some() && nodes[0].is_none() && nodes[2].is_none(), "{nodes:?}");
    }

    #[test]
    fn a_preference_ends_when_dropped() {
        let before = Preferred::new(0).expect("a kernel with NUMA");
        assert_eq!(before.mode, 0, "the default policy was in force");
        drop(before);
        let again = Preferred::new(0).unwrap();
        assert_eq!(again.mode, 0);
    }
}
