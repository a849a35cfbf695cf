//! Rings of io_uring are mapped, and a mapping keeps its ring: no forked child is to have them.
//!
//! The ring's own mappings could be left out by its builder, but not those of its copy at a high number, which are found by the
//! number of their file.
use super::maps::Maps;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;

/// Leaves the mappings of these descriptors out of children; of those without any nothing is to be found. `shared` is a descriptor
/// whose file is that of all that have none of their own: on kernels where rings are such, nothing is done.
pub fn keep_to_process(fds: &[RawFd], shared: RawFd) {
    let Some(mut maps) = Maps::open() else { return };
    let (Some(others), Some(())) = (File::of(shared), maps.read()) else { return };
    for mapped in maps.all() {
        let file = File::read(mapped.file);
        let is_ring =
            |file: &File| *file != others && fds.iter().any(|fd| File::of(*fd) == Some(*file));
        if mapped.protection.ends_with(b"s") && file.as_ref().is_some_and(is_ring) {
            let (start, bytes) = (mapped.addresses.start, mapped.addresses.len());
            // SAFETY: changes no content; a mapping of ours, or one that has gone by now.
            unsafe { libc::madvise(start as *mut libc::c_void, bytes, libc::MADV_DONTFORK) };
        }
    }
}

/// What tells files apart.
#[derive(Clone, Copy, PartialEq, Eq)]
struct File {
    /// Major and minor number.
    device: (u32, u32),
    number: u64,
}

impl File {
    /// A descriptor's.
    fn of(fd: RawFd) -> Option<Self> {
        let mut status = MaybeUninit::<libc::stat>::uninit();
        // SAFETY: there is room for a stat.
        if unsafe { libc::fstat(fd, status.as_mut_ptr()) } != 0 {
            return None;
        }
        // SAFETY: fstat has filled it in.
        let status = unsafe { status.assume_init() };
        let device = (libc::major(status.st_dev), libc::minor(status.st_dev));
        Some(Self { device, number: status.st_ino })
    }

    /// A mapping's: its device as MAJOR:MINOR in hexadecimal, and its number.
    fn read(file: [&[u8]; 2]) -> Option<Self> {
        let [device, number] = file.map(str::from_utf8);
        let (major, minor) = device.ok()?.split_once(':')?;
        let part = |text| u32::from_str_radix(text, 16).ok();
        Some(Self { device: (part(major)?, part(minor)?), number: number.ok()?.parse().ok()? })
    }
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
