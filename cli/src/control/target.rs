//! From a process to the socket of its engine, or to one line that says why there is none.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use userswap::internals::directory;
use userswap::internals::directory::EngineName;
use userswap::internals::ledger;
use userswap::internals::status::JobStatus;
use userswap::internals::{OPTIONS_VARIABLE, Options};

use super::status::children;
use crate::failure::Failure;

/// What the system says about a process.
struct Process {
    user: u32,
    state: State,
}

#[derive(PartialEq, Eq)]
enum State {
    GoesOn,
    /// By SIGSTOP or a terminal (Ctrl-Z): all its threads.
    Stopped,
    Ended,
}

/// The socket of one engine.
///
/// # Errors
/// The process does not exist, belongs to another user, or has no engine.
pub fn find(name: EngineName) -> Result<PathBuf, Failure> {
    let pid = name.pid;
    let Some(process) = process(pid).filter(|process| process.state != State::Ended) else {
        return Err(Failure::unavailable(format!(
            "process {pid} does not exist: `userswap list` shows those that can be asked"
        )));
    };
    let own = directory::user();
    if process.user != own && own != 0 {
        return Err(Failure::unavailable(format!(
            "process {pid} belongs to user {}: ask as that user or as root",
            process.user
        )));
    }
    let directories = directories(pid, process.user);
    for directory in &directories {
        let socket = directory.join(name.file());
        // A process that has become another program leaves its socket behind.
        if fs::symlink_metadata(&socket).is_ok() && !directory::is_stale(&socket) {
            return Ok(socket);
        }
    }
    Err(Failure::unavailable(without_engine(name, &directories)))
}

/// The engines of this user, with their sockets; what ended ones left behind is removed.
pub fn all() -> Vec<(EngineName, PathBuf)> {
    listened_at(named())
}

/// Those that somebody listens at; the first of those of one name, as [`find`] takes it.
fn listened_at(mut found: Vec<(EngineName, PathBuf)>) -> Vec<(EngineName, PathBuf)> {
    found.retain(|(_, socket)| !directory::is_stale(socket));
    found.dedup_by_key(|(name, _)| *name);
    found
}

/// As [`all`], without a connection to each: at some nobody may listen any more.
pub fn named() -> Vec<(EngineName, PathBuf)> {
    let mut found = Vec::new();
    for directory in private(directory::candidates_here(), directory::user()) {
        directory::sweep(&directory, usize::MAX);
        ledger::sweep(&directory, directory::is_running);
        let names = directory::names(&directory).into_iter();
        found.extend(names.map(|name| (name, directory.join(name.file()))));
    }
    // Those of one name stay in the order of their directories.
    found.sort_by_key(|(name, _)| *name);
    found
}

/// The jobs of this user that have members.
pub fn jobs() -> Vec<JobStatus> {
    let directories = private(directory::candidates_here(), directory::user());
    let jobs = directories.iter().flat_map(|directory| ledger::jobs(directory));
    jobs.map(|ledger| ledger.status()).collect()
}

/// Where a process's socket can be: where it was told to put it, or where its user or we would.
fn directories(pid: u32, user: u32) -> Vec<PathBuf> {
    let environment = Environment::of(pid);
    let told = environment.get(OPTIONS_VARIABLE).and_then(|text| text.into_string().ok());
    let told = told.and_then(|text| Options::from_text(&text).ok()?.control);
    let theirs = directory::candidates(user, |name| environment.get(name));
    let usual = directory::candidates(user, |name| match name {
        "XDG_RUNTIME_DIR" => Some(format!("/run/user/{user}").into()),
        name => std::env::var_os(name),
    });
    let ours = directory::candidates(user, |name| std::env::var_os(name));
    let mapped = with_ledger(pid);
    let all = told.into_iter().chain(mapped).chain(theirs).chain(ours).chain(usual);
    private(all, user)
}

/// Where the ledger is that a process maps: servers write their titles over their environment.
fn with_ledger(pid: u32) -> Option<PathBuf> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let file = maps.lines().find_map(|line| {
        let path = line.get(line.find('/')?..)?;
        path.strip_suffix(" (deleted)").unwrap_or(path).strip_suffix(".ledger")
    })?;
    Path::new(file).parent().map(Path::to_owned)
}

/// Those that only `user` can enter, once each: any other could be a trap.
fn private(directories: impl IntoIterator<Item = PathBuf>, user: u32) -> Vec<PathBuf> {
    let mut seen = BTreeSet::new();
    // Above them there may be links, such as one from /usr/tmp to /var/tmp: two names of one directory.
    let is_new = |directory: &PathBuf| {
        fs::symlink_metadata(directory).is_ok_and(|found| seen.insert((found.dev(), found.ino())))
    };
    let directories = directories.into_iter();
    directories.filter(|it| directory::check_private(it, user).is_ok()).filter(is_new).collect()
}

fn without_engine(name: EngineName, directories: &[PathBuf]) -> String {
    let pid = name.pid;
    let found = directories.iter().flat_map(|directory| directory::names(directory));
    let others: Vec<_> =
        found.filter(|other| other.pid == pid && *other != name).map(|it| it.to_string()).collect();
    if !others.is_empty() {
        return format!("there is no engine {name}: process {pid} has {}", others.join(" and "));
    }
    match is_injected(pid) {
        Some(true) => format!(
            "process {pid} has no engine yet: its memory still fits its budget{}; ask again when it has \
             grown",
            children(unmanaged_beside(pid))
        ),
        Some(false) => format!(
            "process {pid} is not served by userswap: only what `userswap run` has started can be asked"
        ),
        None => format!(
            "process {pid} is not served by userswap, or its memory still fits its budget so it has no \
             engine yet: `userswap list` shows those that can be asked"
        ),
    }
}

/// Programs that the job of a process has executed that userswap could not be in.
fn unmanaged_beside(pid: u32) -> u64 {
    let is_member = |job: &JobStatus| job.members.iter().any(|member| member.pid == pid);
    jobs().into_iter().find(is_member).map_or(0, |job| job.unmanaged_children)
}

/// Whether the library is in a process, if that can be seen.
fn is_injected(pid: u32) -> Option<bool> {
    let maps = fs::read(format!("/proc/{pid}/maps")).ok()?;
    Some(maps.windows(LIBRARY.len()).any(|part| part == LIBRARY))
}

/// How the name of the injected library begins, in its directory.
const LIBRARY: &[u8] = b"/libuserswap-";

fn process(pid: u32) -> Option<Process> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |name| status.lines().find_map(|line| line.strip_prefix(name));
    // Real, effective, saved, file system: what it acts as decides.
    let user = field("Uid:")?.split_whitespace().nth(1)?.parse().ok()?;
    let state = match field("State:")?.trim_start().as_bytes() {
        [b'T', ..] => State::Stopped,
        // It is the main thread's: others may go on without it.
        [b'Z' | b'X', ..] if threads(pid) < 2 => State::Ended,
        _ => State::GoesOn,
    };
    Some(Process { user, state })
}

fn threads(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count)
}

/// Whether a process is stopped, and cannot answer.
pub fn is_stopped(pid: u32) -> bool {
    process(pid).is_some_and(|process| process.state == State::Stopped)
}

/// The environment that a process was started with, as far as it can be read.
struct Environment(Vec<u8>);

impl Environment {
    fn of(pid: u32) -> Self {
        Self(fs::read(Path::new("/proc").join(pid.to_string()).join("environ")).unwrap_or_default())
    }

    fn get(&self, name: &str) -> Option<OsString> {
        let value = self.0.split(|byte| *byte == 0).find_map(|entry| {
            entry.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"="))
        });
        value.map(|value| OsString::from_vec(value.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn variables_are_found_by_their_whole_name() {
        let environment = Environment(b"TMPDIRS=/x\0TMPDIR=/a=b\0HOME=\0".to_vec());
        assert_eq!(environment.get("TMPDIR"), Some("/a=b".into()));
        assert_eq!(environment.get("HOME"), Some("".into()));
        assert_eq!(environment.get("TMP"), None);
    }

    #[test]
    fn a_directory_of_two_names_is_looked_at_once() {
        let parent = tempfile::tempdir().unwrap();
        let path = |name: &str| parent.path().join(name);
        fs::create_dir(path("tmp")).unwrap();
        symlink("tmp", path("link")).unwrap();
        let [here, other] = ["tmp/one", "tmp/other"].map(path);
        assert!([&here, &other].iter().all(|it| directory::make_private(it).is_ok()));
        let all = [path("link/one"), here.clone(), here, other.clone()];
        assert_eq!(private(all, directory::user()), [path("link/one"), other]);
    }

    #[test]
    fn of_one_name_the_first_that_somebody_listens_at_is_taken() {
        let parent = tempfile::tempdir().unwrap();
        let socket = |number| parent.path().join(format!("{number}.sock"));
        let _listening = [2, 3, 4].map(|number| UnixListener::bind(socket(number)).unwrap());
        drop(UnixListener::bind(socket(1)).unwrap());
        let named = |pid, number| (EngineName { pid, number: 1 }, socket(number));
        let found = vec![named(7, 1), named(7, 2), named(7, 3), named(8, 4)];
        assert_eq!(listened_at(found), [named(7, 2), named(8, 4)]);
    }

    #[test]
    fn this_process_is_alive_and_ours_and_not_served() {
        let pid = std::process::id();
        let this = process(pid).unwrap();
        assert!(this.user == directory::user() && this.state == State::GoesOn);
        assert_eq!(is_injected(pid), Some(false));
        let refusal = find(EngineName { pid, number: 1 }).unwrap_err();
        assert!(refusal.message.contains("not served by userswap"), "{}", refusal.message);
    }
}
