//! What the jobs need of the machine: their programs as files, interpreters, a compiler, python's packages.

use super::job::{Job, Program, Runtime};
use super::venv;
use crate::kernel;
use crate::outside::alternate::BenchError;
use crate::process::{self, Course, Finished, Part, RunError};
use clap::ValueEnum;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the programs in python have in common.
const PARTS: (&str, &str) = ("parts.py", include_str!("programs/parts.py"));
/// Tells where the interpreter is, past scripts that choose one.
const FIND_PYTHON: &str = "import sqlite3, sys; print(sys.executable)";
/// java's heap for each entry: about twice what one takes, so that it collects garbage now and then.
const HEAP_BYTES_PER_ENTRY: u64 = 400;
const HEAP_MIN_BYTES: u64 = 64 << 20;
/// The first heap is a share of the largest one: 1 in this many.
const FIRST_HEAP_SHARE: u64 = 4;
/// Far beyond what the job needs; named because node would derive it from a control group's limit.
const NODE_HEAP: &str = "--max-old-space-size=16384";

/// What a job needs is not there: what that is, or why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NotInstalled(pub(super) String);

/// A directory with the programs, which goes with the value.
#[derive(Debug)]
pub(super) struct Workshop<'a> {
    directory: PathBuf,
    /// The binary that has the verb `usemem`.
    exe: &'a Path,
    venv: &'a Path,
}

impl<'a> Workshop<'a> {
    pub(super) fn new(exe: &'a Path, venv: &'a Path) -> io::Result<Self> {
        let directory = std::env::temp_dir().join(kernel::unique_name());
        fs::create_dir(&directory)?;
        let workshop = Self { directory, exe, venv };
        fs::write(workshop.directory.join(PARTS.0), PARTS.1)?;
        let programs = Job::value_variants().iter().map(|job| job.program());
        for Program { file, text, .. } in programs.filter(|program| !program.file.is_empty()) {
            fs::write(workshop.directory.join(file), text)?;
        }
        Ok(workshop)
    }

    /// Makes everything that `job` needs: the program that runs it, and its arguments.
    pub(super) fn prepare(
        &self,
        job: Job,
        scale: f64,
    ) -> Result<Result<Vec<OsString>, NotInstalled>, BenchError> {
        let (program, count) = (job.program(), job.count(scale));
        let file = self.directory.join(program.file);
        let missing = |what: &str| NotInstalled(what.to_owned());
        let words = match program.runtime {
            Runtime::Venv => venv::python(self.venv)?.map(|python| python_words(python, file)),
            Runtime::Python => answer("python3", &["-c", FIND_PYTHON])?
                .map(|found| python_words(found.stdout.trim().into(), file))
                .ok_or_else(|| missing("python3 with sqlite3")),
            Runtime::Node => answer("node", &["--version"])?
                .map(|_| vec!["node".into(), NODE_HEAP.into(), file.into()])
                .ok_or_else(|| missing("node")),
            Runtime::Java => self
                .compiled(&file)?
                .map(|classes| java_words(&classes, &file, count))
                .ok_or_else(|| missing("java and javac")),
            Runtime::Usemem => Ok(usemem_words(self.exe)),
        };
        Ok(words.map(|words| [words, vec![count.to_string().into()]].concat()))
    }

    /// Where the classes of a program are.
    fn compiled(&self, file: &Path) -> Result<Option<PathBuf>, BenchError> {
        let classes = self.directory.join("classes");
        let words = ["-d".as_ref(), classes.as_os_str(), file.as_os_str()];
        let is_there = answer("java", &["-version"])?.is_some();
        Ok((is_there && answer("javac", &words)?.is_some()).then_some(classes))
    }
}

impl Drop for Workshop<'_> {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.directory));
    }
}

/// Without the user's own packages and settings; the directory of the program is where `parts` is.
fn python_words(python: PathBuf, file: PathBuf) -> Vec<OsString> {
    vec![python.into(), "-E".into(), "-s".into(), "-B".into(), file.into()]
}

/// Nothing is left to what java would derive from the machine or from a control group's limit.
fn java_words(classes: &Path, file: &Path, count: u64) -> Vec<OsString> {
    let heap = (count * HEAP_BYTES_PER_ENTRY).max(HEAP_MIN_BYTES);
    let sizes = [format!("-Xms{}", heap / FIRST_HEAP_SHARE), format!("-Xmx{heap}")];
    let mut words: Vec<OsString> =
        ["java", "-XX:+UseG1GC", "-XX:-UseContainerSupport"].map(OsString::from).to_vec();
    words.extend(sizes.map(OsString::from));
    words.extend(["-cp".into(), classes.into()]);
    words.extend(file.file_stem().map(OsString::from));
    words
}

/// A page at a time, in the same random order on all sides; what is replaced is checked.
fn usemem_words(exe: &Path) -> Vec<OsString> {
    let words = ["usemem", "-q", "-R", "--random-seed", "1", "-j", "4096", "-r", "2"];
    [exe.into()].into_iter().chain(words.map(OsString::from)).collect()
}

/// What a program prints; none if it is not there or fails.
fn answer(
    program: &str,
    args: &[impl AsRef<std::ffi::OsStr>],
) -> Result<Option<Finished>, RunError> {
    match process::run(Command::new(program).args(args), &Course::new(Part::Whole)) {
        Ok(finished) => Ok(finished.status.success().then_some(finished)),
        Err(RunError::Start { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
