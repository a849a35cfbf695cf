//! Rings of io_uring are mapped, and a mapping keeps its ring: no forked child is to have them.
//!
//! The ring's own mappings could be left out by its builder, but not those of its copy at a high number, which are found by the
//! number of their file.
use super::maps::Maps;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;

/// Leaves the mappings of these descriptors out of children; of those without any nothing is to be found. `shared` is a descriptor
/// whose file has the number of all that have none of their own: on kernels where rings are such, nothing is done.
pub fn keep_to_process(fds: &[RawFd], shared: RawFd) {
    let Some(mut maps) = Maps::open() else { return };
    let (Some(others), Some(())) = (number_of(shared), maps.read()) else { return };
    for mapped in maps.all() {
        let [_, number] = mapped.file;
        let number = str::from_utf8(number).ok().and_then(|text| text.parse::<u64>().ok());
        let is_ring = |number: &u64| {
            *number != others && fds.iter().any(|fd| number_of(*fd) == Some(*number))
        };
        if mapped.protection.ends_with(b"s") && number.as_ref().is_some_and(is_ring) {
            let (start, bytes) = (mapped.addresses.start, mapped.addresses.len());
            // SAFETY: changes no content; a mapping of ours, or one that has gone by now.
            unsafe { libc::madvise(start as *mut libc::c_void, bytes, libc::MADV_DONTFORK) };
        }
    }
}

/// The number of a descriptor's file.
fn number_of(fd: RawFd) -> Option<u64> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: there is room for a stat.
    if unsafe { libc::fstat(fd, status.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: fstat has filled it in.
    Some(unsafe { status.assume_init() }.st_ino)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::bench::process::{self, Fork};
    use crate::sys::fd::Event;
    use crate::sys::uring::Ring;
    use std::os::fd::AsRawFd;

    fn rings_mapped() -> usize {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().filter(|line| line.contains("[io_uring]")).count()
    }

    #[test]
    fn a_child_has_no_mapping_of_rings_that_are_kept_from_it() {
        let Ok(ring) = Ring::new(8) else {
            return eprintln!("NOT TESTED: io_uring is forbidden here");
        };
        let event = Event::new().unwrap();
        let mapped_in_child = || match process::fork().unwrap() {
            Fork::Child => process::end(i32::from(rings_mapped() > 0)),
            Fork::Parent { child } => process::wait(child).unwrap().status.code(),
        };
        assert!(rings_mapped() > 0);
        assert_eq!(mapped_in_child(), Some(1), "a child has all that is mapped");
        keep_to_process(&[event.as_raw_fd(), ring.as_raw_fd()], event.as_raw_fd());
        assert_eq!(mapped_in_child(), Some(0));
    }
}
