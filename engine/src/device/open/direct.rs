//! O_DIRECT, believed only after a page has really gone to the device and come back.
//!
//! Some file systems refuse the flag, some accept it and refuse the first request, and those in
//! memory accept everything although there is no device to go to.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::existing::{HeaderPage, OUR_MARK};
use super::{Direct, OpenError, room};

/// Turns O_DIRECT on for an empty file and tries it with a page, which is gone again afterwards.
pub(super) fn try_on_empty(file: &File, path: &Path) -> Result<Direct, OpenError> {
    let page = HeaderPage::marked(OUR_MARK);
    let direct = try_with(file, path, Some(&page));
    file.set_len(0).map_err(|error| OpenError::io(path, "truncate a file in", error))?;
    direct
}

/// Turns O_DIRECT on and tries it: by writing `page` and reading it back, or by reading alone.
pub(super) fn try_with(
    file: &File,
    path: &Path,
    page: Option<&HeaderPage>,
) -> Result<Direct, OpenError> {
    if room::is_memory(file) {
        transfer(file, page, path)?;
        return Ok(Direct::No { reason: "its file system keeps files in memory".to_owned() });
    }
    let refusal = match set(file, OFlags::DIRECT) {
        Ok(()) => match transfer(file, page, path) {
            Ok(()) => return Ok(Direct::Yes),
            Err(error @ OpenError::Unreliable { .. }) => return Err(error),
            Err(OpenError::Io { source, .. }) => source.to_string(),
            Err(error) => return Err(error),
        },
        Err(errno) => errno.to_string(),
    };
    set(file, OFlags::empty())
        .map_err(|error| OpenError::io(path, "turn O_DIRECT off on", error))?;
    // The page cache must do what the device would not, or the device is of no use at all.
    transfer(file, page, path)?;
    Ok(Direct::No { reason: format!("O_DIRECT is refused: {refusal}") })
}

/// One line about what working without O_DIRECT means.
pub(super) fn warning(path: &Path, direct: &Direct) -> Option<String> {
    let Direct::No { reason } = direct else { return None };
    let path = path.display();
    Some(format!("{path}: no direct I/O ({reason}); a directory on a local disk is better"))
}

fn set(file: &File, direct: OFlags) -> rustix::io::Result<()> {
    let flags = fcntl_getfl(file)? - OFlags::DIRECT;
    fcntl_setfl(file, flags | direct)
}

fn transfer(file: &File, page: Option<&HeaderPage>, path: &Path) -> Result<(), OpenError> {
    let mut read = HeaderPage::zeroed();
    if let Some(page) = page {
        file.write_all_at(&page.0, 0)
            .map_err(|error| OpenError::io(path, "write a page to", error))?;
    }
    file.read_exact_at(&mut read.0, 0)
        .map_err(|error| OpenError::io(path, "read a page of", error))?;
    match page {
        Some(page) if page.0 != read.0 => Err(OpenError::Unreliable { path: path.to_owned() }),
        _ => Ok(()),
    }
}
