//! python's packages for the jobs, in an environment that is made once and kept.

use super::workshop::NotInstalled;
use crate::outside::alternate::BenchError;
use crate::outside::args::UsageError;
use crate::process::{self, Course, Part, RunError};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What pip installs. With other versions the figures would be others.
const REQUIREMENTS: &str = include_str!("programs/requirements.txt");
/// Marks a directory as ours; has the requirements in it as soon as they are installed.
const STAMP: &str = "userswap-jobs.txt";

/// In the user's cache.
pub(super) fn default_directory() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let below_home = || std::env::home_dir().unwrap_or_else(std::env::temp_dir).join(".cache");
    cache.filter(|path| path.is_absolute()).unwrap_or_else(below_home).join("userswap/jobs-venv")
}

/// Refuses a directory that has something else in it.
pub(super) fn check(directory: &Path) -> Result<(), UsageError> {
    let is_free = match fs::read_dir(directory) {
        Ok(mut entries) => directory.join(STAMP).exists() || entries.next().is_none(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    is_free.then_some(()).ok_or_else(|| UsageError::Venv(directory.to_owned()))
}

/// Has the packages installed below `directory`: python there, or why there is none.
pub(super) fn python(directory: &Path) -> Result<Result<PathBuf, NotInstalled>, BenchError> {
    let python = directory.join("bin/python3");
    let stamp = directory.join(STAMP);
    if fs::read_to_string(&stamp).is_ok_and(|text| text == REQUIREMENTS) && python.exists() {
        return Ok(Ok(python));
    }
    say!("installing {} in {}", words(REQUIREMENTS), directory.display());
    let failed = |step: &str, why: String| Ok(Err(NotInstalled(format!("{step}: {why}"))));
    if let Err(error) = fs::create_dir_all(directory).and_then(|()| fs::write(&stamp, "")) {
        return failed(&directory.display().to_string(), error.to_string());
    }
    let mut make = Command::new("python3");
    if let Some(why) = problem(make.args(["-m", "venv"]).arg(directory))? {
        return failed("python3 -m venv", why);
    }
    let mut install = Command::new(&python);
    install.args(["-I", "-m", "pip", "install", "--quiet", "--no-input", "--only-binary=:all:"]);
    install.args(["--disable-pip-version-check"]).args(REQUIREMENTS.split_whitespace());
    if let Some(why) = problem(&mut install)? {
        return failed("pip install", why);
    }
    match fs::write(&stamp, REQUIREMENTS) {
        Ok(()) => Ok(Ok(python)),
        Err(error) => failed(&stamp.display().to_string(), error.to_string()),
    }
}

/// Runs a command to its end; why it failed, by its last line.
fn problem(command: &mut Command) -> Result<Option<String>, RunError> {
    match process::run(command, &Course::new(Part::Whole)) {
        Ok(finished) if finished.status.success() => Ok(None),
        Ok(finished) => {
            let last = finished.stderr.lines().rfind(|line| !line.trim().is_empty());
            Ok(Some(
                last.map_or_else(|| finished.status.to_string(), |line| line.trim().to_owned()),
            ))
        }
        Err(error @ RunError::Start { .. }) => Ok(Some(error.to_string())),
        Err(error) => Err(error),
    }
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_empty_directory_or_one_of_ours_is_used() {
        let top = tempfile::tempdir().unwrap();
        check(&top.path().join("new")).unwrap();
        check(top.path()).unwrap();
        fs::write(top.path().join("thesis"), "").unwrap();
        assert_eq!(check(top.path()), Err(UsageError::Venv(top.path().to_owned())));
        fs::write(top.path().join(STAMP), "").unwrap();
        check(top.path()).unwrap();
        fs::create_dir(top.path().join("bin")).unwrap();
        fs::write(top.path().join("bin/python3"), "").unwrap();
        fs::write(top.path().join(STAMP), REQUIREMENTS).unwrap();
        assert_eq!(python(top.path()).unwrap(), Ok(top.path().join("bin/python3")));
    }

    #[test]
    fn a_command_that_fails_gives_its_last_line() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo one >&2; echo two >&2; echo >&2; exit 1"]);
        assert_eq!(problem(&mut shell).unwrap().as_deref(), Some("two"));
        assert!(problem(&mut Command::new("/no/such")).unwrap().unwrap().contains("/no/such"));
        assert_eq!(problem(&mut Command::new("true")).unwrap(), None);
    }
}
