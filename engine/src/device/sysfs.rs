//! What sysfs says of the block device below a file: which node it is close to, and whether it has to seek.
use crate::base::index::NodeId;
use std::fs::{File, canonicalize, read_to_string};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// What a device is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hardware {
    /// The engine's number of the node that it is close to.
    pub node: Option<NodeId>,
    /// It has to seek.
    pub is_rotational: bool,
}

/// The kernel's number of the node that a swap file or block device is close to; None for what is close to
/// none (memory, network file systems, most virtual disks).
pub fn node_of(sysfs: &Path, file: &File) -> Option<u32> {
    above(&block_device(sysfs, file)?)
}

/// Whether the kernel takes the device for one that seeks; virtual disks are unless their host says
/// otherwise, and what has no block device below it is not.
pub fn is_rotational(sysfs: &Path, file: &File) -> bool {
    block_device(sysfs, file).is_some_and(|device| seeks(&device))
}

/// Where the kernel describes the block device below a file, which it lists by number.
fn block_device(sysfs: &Path, file: &File) -> Option<PathBuf> {
    let found = file.metadata().ok()?;
    let device = if found.file_type().is_block_device() { found.rdev() } else { found.dev() };
    let (major, minor) = (libc::major(device), libc::minor(device));
    canonicalize(sysfs.join(format!("dev/block/{major}:{minor}"))).ok()
}

/// A partition has no queue of its own: its disk's counts.
fn seeks(device: &Path) -> bool {
    let queue = |above: &Path| read_to_string(above.join("queue/rotational")).ok();
    device.ancestors().find_map(queue).is_some_and(|text| text.trim() == "1")
}

/// A partition's node is its disk's, a disk's that of the controller above it.
fn above(device: &Path) -> Option<u32> {
    device.ancestors().find_map(|directory| {
        let files: [PathBuf; 2] = [directory.join("numa_node"), directory.join("device/numa_node")];
        let node = files.iter().find_map(|file| read_to_string(file).ok())?;
        // -1: it exists and is close to no node. Nothing above will know better.
        Some(node.trim().parse::<u32>().ok())
    })?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_is_where_its_controller_is() {
        let directory = tempfile::tempdir().unwrap();
        let partition = directory.path().join("pci0/nvme0/nvme0n1/nvme0n1p1");
        std::fs::create_dir_all(&partition).unwrap();
        assert_eq!(above(&partition), None);
        std::fs::write(directory.path().join("pci0/numa_node"), "3\n").unwrap();
        assert_eq!(above(&partition), Some(3));
        let device = directory.path().join("pci0/nvme0/nvme0n1/device");
        std::fs::create_dir(&device).unwrap();
        std::fs::write(device.join("numa_node"), "-1\n").unwrap();
        assert_eq!(above(&partition), None, "the nearest answer counts, and it is: none");
    }

    #[test]
    fn memory_is_close_to_no_node_and_does_not_seek() {
        let memory = crate::sys::fd::memory_file().unwrap();
        let sysfs = Path::new(crate::base::topology::SYSFS);
        assert_eq!((node_of(sysfs, &memory), is_rotational(sysfs, &memory)), (None, false));
    }

    #[test]
    fn a_partition_seeks_as_its_disk_does() {
        let directory = tempfile::tempdir().unwrap();
        let partition = directory.path().join("vda/vda1");
        std::fs::create_dir_all(&partition).unwrap();
        assert!(!seeks(&partition));
        std::fs::create_dir(directory.path().join("vda/queue")).unwrap();
        std::fs::write(directory.path().join("vda/queue/rotational"), "1\n").unwrap();
        assert!(seeks(&partition));
    }
}
