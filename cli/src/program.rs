//! Finds the program to run and makes sure that the engine will really be inside it.
//!
//! A program that ignores the injected library would run unmanaged without a word, so everything
//! that makes the dynamic linker ignore it is looked for first: static linking, another processor or
//! C library, changed privileges. Scripts are followed to the program that reads them. Searching is
//! execvp(3)'s, exit statuses are env(1)'s.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};
use userswap::internals::elf::{self, Linkage};
use userswap::internals::sanitizer::has_sanitizer;

use crate::failure::Failure;
use userswap::internals::script::{self, Reader};

/// As many scripts reading scripts as the kernel follows.
const SCRIPT_DEPTH_MAX: u32 = 5;

/// Where execvp(3) looks when `PATH` is not set.
const PATH_DEFAULT: &str = "/bin:/usr/bin";

/// Reads files that are neither ELF nor name a reader, as execvp(3) does.
const SHELL: &str = "/bin/sh";

/// A program that can be run with the engine inside.
#[derive(Debug, PartialEq, Eq)]
pub struct Program {
    /// What to execute.
    pub path: PathBuf,
    /// What comes before the program's own arguments.
    pub first_arguments: Vec<OsString>,
}

/// Finds `name` in the directories of `search_path` and checks that it can be served.
///
/// # Errors
/// Status 127 when there is no such program, 126 when it cannot be run or served.
pub fn resolve(name: &OsStr, search_path: Option<&OsStr>) -> Result<Program, Failure> {
    let path = find(name, search_path)?;
    let direct = Program { path: path.clone(), first_arguments: Vec::new() };
    match examine(&path)? {
        Kind::Elf => Ok(direct),
        Kind::Script(reader) => follow(&path, reader, search_path).map(|()| direct),
        Kind::PlainText => {
            follow(&path, Reader::Path(SHELL.into()), search_path)?;
            Ok(Program { path: SHELL.into(), first_arguments: vec![path.into()] })
        }
    }
}

/// What kind of program a file is, after the checks that are possible for it.
#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Elf,
    Script(Reader),
    PlainText,
}

fn follow(script: &Path, mut reader: Reader, search_path: Option<&OsStr>) -> Result<(), Failure> {
    for _ in 0..SCRIPT_DEPTH_MAX {
        let (Reader::Path(name) | Reader::Searched(name)) = &reader;
        let path = match &reader {
            Reader::Path(path) => find_at(Path::new(path)),
            Reader::Searched(name) => find(name, search_path),
        }
        .map_err(|failure| read_by(script, without_return(name, failure)))?;
        match examine(&path).map_err(|failure| read_by(script, failure))? {
            Kind::Elf => return Ok(()),
            Kind::Script(next) => reader = next,
            Kind::PlainText => {
                let path = path.display();
                let problem = Failure::not_runnable(format!("{path} is not a program"));
                return Err(read_by(script, problem));
            }
        }
    }
    Err(Failure::not_runnable(format!(
        "{}: its interpreter is a script of a script, {SCRIPT_DEPTH_MAX} deep: name the program itself",
        script.display()
    )))
}

/// A carriage return would not be seen in what is said.
fn without_return(name: &OsStr, failure: Failure) -> Failure {
    let Some(name) = name.as_bytes().strip_suffix(b"\r") else { return failure };
    let name = OsStr::from_bytes(name).display();
    let message = format!(
        "\"{name}\" and a carriage return: no such program: give the script line ends without one (sed -i 's/\\r$//')"
    );
    Failure { message, ..failure }
}

fn read_by(script: &Path, failure: Failure) -> Failure {
    let message = format!("{}: its interpreter: {}", script.display(), failure.message);
    Failure { message, ..failure }
}

/// Looks for `name` as execvp(3) does.
fn find(name: &OsStr, search_path: Option<&OsStr>) -> Result<PathBuf, Failure> {
    if name.as_bytes().contains(&b'/') {
        return find_at(Path::new(name));
    }
    let mut obstacle = None;
    let directories = search_path.unwrap_or(OsStr::new(PATH_DEFAULT));
    for directory in std::env::split_paths(directories).filter(|_| !name.is_empty()) {
        let directory = if directory.as_os_str().is_empty() { ".".into() } else { directory };
        match find_at(&directory.join(name)) {
            Ok(path) => return Ok(path),
            Err(failure) if failure.status == crate::failure::STATUS_NOT_FOUND => {}
            Err(failure) => obstacle = obstacle.or(Some(failure)),
        }
    }
    Err(obstacle.unwrap_or_else(|| {
        let name = name.display();
        Failure::not_found(format!(
            "\"{name}\": no such program in PATH: check its name or give its path"
        ))
    }))
}

fn find_at(path: &Path) -> Result<PathBuf, Failure> {
    let shown = path.display();
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            return Err(Failure::not_runnable(format!(
                "{shown}: {error}: ask its owner for access"
            )));
        }
        Err(_) => {
            return Err(Failure::not_found(format!("{shown}: no such program: check its path")));
        }
    };
    if metadata.is_dir() {
        return Err(Failure::not_runnable(format!(
            "{shown}: is a directory: name a program in it"
        )));
    }
    if !metadata.is_file() || accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS).is_err() {
        return Err(Failure::not_runnable(format!("{shown}: is not executable: chmod +x it")));
    }
    Ok(path.to_owned())
}

fn examine(path: &Path) -> Result<Kind, Failure> {
    let shown = path.display();
    let unreadable = |error: std::io::Error| {
        Failure::not_runnable(format!(
            "{shown}: cannot be read to see whether it can be served ({error}): chmod +r it"
        ))
    };
    let file = File::open(path).map_err(unreadable)?;
    let mut start = [0; script::LINE_BYTES_MAX];
    let bytes = file.read_at(&mut start, 0).map_err(unreadable)?;
    let start = &start[..bytes];
    if elf::is_elf(start) {
        let linkage = elf::linkage(&file).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => Failure::not_runnable(format!(
                "{shown}: is not whole, it ends before what its header tells: build or copy it again"
            )),
            _ => unreadable(error),
        })?;
        check_linkage(path, linkage)?;
        if has_sanitizer(&file) {
            return Err(Failure::not_runnable(format!(
                "{shown} is built with a sanitizer, which has the address space to itself: userswap cannot serve it; use \
                 a build without, or run it without userswap"
            )));
        }
        check_privileges(path, &file.metadata().map_err(unreadable)?)?;
        return Ok(Kind::Elf);
    }
    if let Some(reader) = script::reader(start) {
        return Ok(Kind::Script(reader));
    }
    if start.contains(&0) {
        return Err(Failure::not_runnable(format!(
            "{shown}: is neither an ELF program nor a script: name the program that runs it"
        )));
    }
    Ok(Kind::PlainText)
}

fn check_linkage(path: &Path, linkage: Linkage) -> Result<(), Failure> {
    let path = path.display();
    let interpreter = match linkage {
        Linkage::Dynamic(interpreter) => interpreter,
        Linkage::Static => {
            return Err(Failure::not_runnable(format!(
                "{path} is statically linked: userswap cannot serve it; relink it dynamically or run \
                 it without userswap"
            )));
        }
        Linkage::Narrow => {
            return Err(Failure::not_runnable(format!(
                "{path} is a 32-bit program: userswap cannot serve it; use a 64-bit build of it"
            )));
        }
        Linkage::Foreign { machine } => {
            return Err(Failure::not_runnable(format!(
                "{path} is for another processor (ELF machine {machine}): use a build for {}",
                std::env::consts::ARCH
            )));
        }
    };
    let shown = interpreter.path().display();
    if interpreter.is_musl() {
        return Err(Failure::not_runnable(format!(
            "{path} is linked to musl ({shown}): userswap serves glibc programs; use a build for glibc"
        )));
    }
    if !interpreter.path().exists() {
        return Err(Failure::not_found(format!(
            "{path}: its dynamic linker {shown} does not exist: install it or use another build"
        )));
    }
    Ok(())
}

/// Where running a program changes privileges, the dynamic linker ignores what is injected.
fn check_privileges(path: &Path, found: &Metadata) -> Result<(), Failure> {
    let user = rustix::process::geteuid().as_raw();
    let group = rustix::process::getegid().as_raw();
    let changes = if found.mode() & 0o4000 != 0 && found.uid() != user {
        "is setuid"
    } else if found.mode() & 0o2010 == 0o2010 && found.gid() != group {
        "is setgid"
    } else if user != 0 && has_capabilities(path) {
        "has file capabilities"
    } else {
        return Ok(());
    };
    let path = path.display();
    Err(Failure::not_runnable(format!(
        "{path} {changes}: the dynamic linker would ignore userswap; run it as its owner or use a \
         copy without the privilege"
    )))
}

fn has_capabilities(path: &Path) -> bool {
    rustix::fs::getxattr(path, "security.capability", &mut [0u8; 64][..])
        .is_ok_and(|bytes| bytes > 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::failure::{STATUS_NOT_FOUND, STATUS_NOT_RUNNABLE};

    fn file(directory: &Path, name: &str, content: &str, mode: u32) -> PathBuf {
        let path = directory.join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn the_first_executable_in_path_is_found() {
        let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        file(a.path(), "tool", "#!/bin/sh\n", 0o644);
        let expected = file(b.path(), "tool", "#!/bin/sh\n", 0o755);
        let search = std::env::join_paths([a.path(), b.path()]).unwrap();
        let program = resolve(OsStr::new("tool"), Some(&search)).unwrap();
        assert_eq!(program, Program { path: expected, first_arguments: Vec::new() });
        let only_a = resolve(OsStr::new("tool"), Some(a.path().as_os_str())).unwrap_err();
        assert_eq!(only_a.status, STATUS_NOT_RUNNABLE);
    }

    #[test]
    fn what_does_not_exist_is_127_and_what_cannot_run_is_126() {
        let directory = tempfile::tempdir().unwrap();
        let status = |path: &Path| resolve(path.as_os_str(), None).unwrap_err().status;
        assert_eq!(status(&directory.path().join("none")), STATUS_NOT_FOUND);
        assert_eq!(status(directory.path()), STATUS_NOT_RUNNABLE);
        assert_eq!(status(&file(directory.path(), "data", "x", 0o644)), STATUS_NOT_RUNNABLE);
        assert_eq!(status(&file(directory.path(), "blob", "\0\u{1}", 0o755)), STATUS_NOT_RUNNABLE);
        assert_eq!(resolve(OsStr::new(""), None).unwrap_err().status, STATUS_NOT_FOUND);
        assert_eq!(resolve(OsStr::new("no-such-tool"), None).unwrap_err().status, STATUS_NOT_FOUND);
    }

    #[test]
    fn scripts_are_followed_to_their_reader() {
        let directory = tempfile::tempdir().unwrap();
        let script = |name, line: &str| file(directory.path(), name, line, 0o755);
        let resolve = |path: &Path| resolve(path.as_os_str(), Some(OsStr::new("/usr/bin:/bin")));
        let plain = script("plain", "#!/bin/sh\n");
        assert_eq!(resolve(&plain).unwrap().path, plain);
        let second = script("second", &format!("#!{}\n", plain.display()));
        assert_eq!(resolve(&second).unwrap().path, second);
        assert!(resolve(&script("env", "#!/usr/bin/env sh\n")).is_ok());
        let gone = resolve(&script("gone", "#!/no/such/reader\n")).unwrap_err();
        assert_eq!(gone.status, STATUS_NOT_FOUND);
        assert!(gone.message.contains("/no/such/reader"), "{}", gone.message);
        for line in ["#!/bin/sh\r\n", "#!/usr/bin/env sh\r\n"] {
            let foreign = resolve(&script("foreign", line)).unwrap_err();
            assert_eq!(foreign.status, STATUS_NOT_FOUND);
            assert!(foreign.message.contains("carriage return"), "{}", foreign.message);
            assert!(!foreign.message.contains('\r'), "{:?}", foreign.message);
        }
        let own = directory.path().join("loop");
        let own = script("loop", &format!("#!{}\n", own.display()));
        assert!(resolve(&own).unwrap_err().message.contains("deep"));
    }

    #[test]
    fn a_text_without_a_reader_is_the_shells() {
        let directory = tempfile::tempdir().unwrap();
        let text = file(directory.path(), "text", "echo hello\n", 0o755);
        let program = resolve(text.as_os_str(), None).unwrap();
        assert_eq!((program.path, program.first_arguments), (SHELL.into(), vec![text.into()]));
    }
}
