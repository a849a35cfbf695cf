//! What a bench swaps to: the devices as `run` has them, checked before anything is measured, and the disk that they are on.

use super::args::UsageError;
use crate::choice;
use crate::kernel::Rival;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use userswap::internals::open::default_directory;
use userswap::internals::{Options, check_devices, swaps_of};
use userswap::{Compress, SwapPath, SwapSpec};

/// The devices of a bench, compressed memory in front of them where that is asked for.
#[derive(Debug, Clone)]
pub(super) struct Devices(Vec<SwapSpec>);

impl Devices {
    /// Those that the command line names, as far as `run` will accept them.
    pub(super) fn checked(
        swap: &[String],
        compress: Option<Compress>,
        ram_bytes: u64,
    ) -> Result<Self, UsageError> {
        let parsed = swap.iter().map(|spec| spec.parse::<SwapSpec>());
        let swaps = parsed.collect::<Result<Vec<_>, _>>().map_err(refused)?;
        let options = Options { swaps, compress, ..Options::new(ram_bytes) };
        let all = swaps_of(&options).map_err(refused)?;
        // Servers are for the runs to ask, which have the passwords and the keys.
        let are_here = !all.iter().any(|spec| is_elsewhere(&spec.path));
        if are_here && !options.swaps.is_empty() {
            check_devices(&options).map_err(refused)?;
        }
        Ok(Self(all))
    }

    /// Refuses a rival that has no disk for its file.
    pub(super) fn check_beside(&self, rival: Option<Rival>) -> Result<(), UsageError> {
        match rival {
            Some(rival @ (Rival::Kernel | Rival::Zswap)) if self.directory().is_none() => {
                let swap: Vec<String> = self.0.iter().map(ToString::to_string).collect();
                Err(UsageError::NoDisk { rival: choice::name(&rival), swap: swap.join(" ") })
            }
            _ => Ok(()),
        }
    }

    /// Where the kernel's swap file goes: beside the first of these that is in a file system.
    pub(super) fn swap_directory(&self) -> PathBuf {
        self.directory().unwrap_or_else(default_directory)
    }

    fn directory(&self) -> Option<PathBuf> {
        self.0.iter().find_map(|spec| directory_of(&spec.path))
    }

    /// Whether all that is swapped goes to the disk below that directory, as it is and as fast as the disk takes it.
    pub(super) fn are_on_one_disk(&self) -> bool {
        let disk = |spec: &SwapSpec| {
            let directory = directory_of(&spec.path).filter(|_| spec.throttle.is_none())?;
            fs::metadata(directory).ok().map(|directory| directory.dev())
        };
        let mut disks = self.0.iter().map(disk);
        let first = disks.next().flatten();
        first.is_some() && disks.all(|disk| disk == first)
    }

    /// How pages are compressed, if a device keeps them in RAM.
    pub(super) fn compression(&self) -> Option<&'static str> {
        self.0.iter().find_map(|spec| match &spec.path {
            SwapPath::Compressed(compression) => Some(compression.algorithm.name()),
            SwapPath::Path(_) | SwapPath::Memory | SwapPath::Remote(_) | SwapPath::S3(_) => None,
        })
    }
}

fn refused(why: impl ToString) -> UsageError {
    UsageError::Swap(why.to_string())
}

fn is_elsewhere(path: &SwapPath) -> bool {
    matches!(path, SwapPath::Remote(_) | SwapPath::S3(_))
}

/// The directory that a device is, or that its file is in; beside a block device there are no files.
fn directory_of(path: &SwapPath) -> Option<PathBuf> {
    let SwapPath::Path(path) = path else { return None };
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.clone());
    match fs::metadata(&path) {
        Ok(found) if found.is_dir() => return Some(path),
        Ok(found) if !found.is_file() => return None,
        // A file that is going to be made.
        _ => {}
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    Some(parent.unwrap_or(Path::new(".")).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RAM: u64 = 64 << 20;

    fn devices(swap: &[&str]) -> Devices {
        let swap: Vec<String> = swap.iter().map(ToString::to_string).collect();
        Devices::checked(&swap, None, RAM).unwrap()
    }

    #[test]
    fn the_kernels_file_is_on_the_disk_of_the_first_device_in_a_file_system() {
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = directory.path().canonicalize().unwrap();
        let named = path.to_str().unwrap();
        for swap in [format!("{named}:1G,pri=3"), format!("{named}/swap.img:64M")] {
            assert_eq!(devices(&["mem:1G", &swap]).swap_directory(), path, "{swap}");
        }
        assert_eq!(devices(&[]).swap_directory(), default_directory().canonicalize().unwrap());
    }

    #[test]
    fn a_rival_without_a_disk_is_refused() {
        let memory = devices(&["mem:1G", "zram:1G"]);
        for rival in [Rival::Kernel, Rival::Zswap] {
            let refusal = memory.check_beside(Some(rival)).unwrap_err().to_string();
            assert!(refusal.contains("mem:1G zram:1G") && !refusal.contains('\n'), "{refusal}");
            assert_eq!(devices(&["mem:1G", "/var/tmp"]).check_beside(Some(rival)), Ok(()));
        }
        assert_eq!(memory.check_beside(Some(Rival::Zram)), Ok(()));
        assert_eq!(memory.check_beside(None), Ok(()));
    }

    #[test]
    fn only_where_all_is_on_one_disk_its_speed_is_a_bound() {
        assert!(devices(&["/var/tmp:1G", "/var/tmp:2G"]).are_on_one_disk());
        assert!(devices(&[]).are_on_one_disk());
        for swap in [
            &["mem:1G"][..],
            &["/var/tmp:1G", "mem:1G"],
            &["zram:1G", "/var/tmp:1G"],
            &["/var/tmp:1G,throttle=100"],
            &["/var/tmp:1G", "/proc/self/fd"],
        ] {
            let all = swap.iter().map(|spec| spec.parse().unwrap()).collect();
            assert!(!Devices(all).are_on_one_disk(), "{swap:?}");
        }
        let compressed = Devices::checked(&[], Some(Compress::Auto), RAM).unwrap();
        assert!(!compressed.are_on_one_disk());
        assert_eq!((compressed.compression(), devices(&[]).compression()), (Some("zstd"), None));
        assert_eq!(devices(&["/var/tmp:1G", "zram:1G"]).compression(), Some("lz4"));
    }

    #[test]
    fn what_run_would_refuse_is_refused_before_anything_is_measured() {
        for (swap, value) in [("mem:1K", "mem: 1K"), ("/no/such/place/x", "/no/such/place")] {
            let refusal = Devices::checked(&[swap.to_owned()], None, RAM).unwrap_err().to_string();
            assert!(refusal.starts_with("--swap: ") && refusal.contains(value), "{refusal}");
            assert!(!refusal.contains('\n'), "{refusal}");
        }
    }
}
