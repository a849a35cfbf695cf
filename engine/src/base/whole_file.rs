//! A file that is replaced as a whole, so that nobody reads half of it: a new one takes the old one's name.
//!
//! Only a plain file has its name taken. Of a symbolic link the file that it names is replaced, and the link stays.
use crate::sys::file_limit;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Links that lead to links, as many as the kernel follows.
const LINKS_MAX: usize = 40;

/// Why a pipe, a device or a directory is refused.
pub const NOT_PLAIN: &str = "is no plain file";

/// The plain file that `name` leads to, which may not exist yet.
///
/// # Errors
/// There is something else.
pub fn target(name: &Path) -> io::Result<PathBuf> {
    // Followed first: some links of /proc name nothing that could be looked up.
    match fs::metadata(name) {
        Ok(there) if there.is_file() => return fs::canonicalize(name),
        Ok(_) => return Err(io::Error::new(ErrorKind::InvalidInput, NOT_PLAIN)),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let mut path = name.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(named) = fs::read_link(&path) else { break };
        path = path.parent().unwrap_or(Path::new("/")).join(named);
    }
    Ok(path)
}

/// Writes `text` beside the file, and gives it the file's name.
///
/// # Errors
/// It cannot be written, or is no plain file, or is longer than a file may be, as far as that is known (EFBIG: the write would end the
/// process); what is there is as it was.
pub fn replace(file: &Path, text: &str) -> io::Result<()> {
    if file_limit::is_beyond(text.len() as u64) {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    replace_by(file, |unfinished| unfinished.write_all(text.as_bytes()))
}

/// The same with what `write` writes.
///
/// # Errors
/// As for [`replace`], and what `write` says.
pub fn replace_by(file: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let file = target(file)?;
    let mut unfinished = file.as_os_str().to_owned();
    // Who gathers files by their ending does not read what a killed process has left.
    unfinished.push(format!(".{}.tmp", std::process::id()));
    let unfinished = Path::new(&unfinished);
    let written = create(unfinished).and_then(|mut created| write(&mut created)).and_then(|()| {
        // Somebody may have put something else there meanwhile.
        target(&file).and_then(|file| fs::rename(unfinished, file))
    });
    if written.is_err() {
        let _ = fs::remove_file(unfinished);
    }
    written
}

fn create(unfinished: &Path) -> io::Result<File> {
    // A link that somebody has put there is refused, not followed.
    let _ = fs::remove_file(unfinished);
    OpenOptions::new().write(true).create_new(true).open(unfinished)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileTypeExt, symlink};

    #[test]
    fn a_link_stays_and_the_file_that_it_names_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name| directory.path().join(name);
        for link in ["of-a-file", "of-a-link", "of-nothing"] {
            let named = if link == "of-a-link" { "of-a-file" } else { "file" };
            let _ = fs::remove_file(at("file"));
            if link != "of-nothing" {
                fs::write(at("file"), "old").unwrap();
            }
            symlink(named, at(link)).unwrap();
            replace(&at(link), "new").unwrap();
            assert!(at(link).is_symlink(), "{link}");
            assert_eq!(fs::read_to_string(at("file")).unwrap(), "new", "{link}");
        }
    }

    #[test]
    fn what_is_written_in_part_leaves_all_as_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "old").unwrap();
        let half = |to: &mut File| to.write_all(b"new").and(Err(ErrorKind::StorageFull.into()));
        let error = replace_by(&file, half).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        assert_eq!(fs::read_to_string(&file).unwrap(), "old");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_no_plain_file_stays_and_nothing_is_left_beside_it() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name| directory.path().join(name);
        rustix::fs::mknodat(
            rustix::fs::CWD,
            at("pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .unwrap();
        symlink("pipe", at("link")).unwrap();
        fs::create_dir(at("directory")).unwrap();
        for name in ["pipe", "link", "directory"] {
            let error = replace(&at(name), "new").unwrap_err();
            assert_eq!(error.to_string(), NOT_PLAIN, "{name}");
        }
        assert!(fs::metadata(at("pipe")).unwrap().file_type().is_fifo());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 3);
    }
}
