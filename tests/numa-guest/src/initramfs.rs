//! The guest's root: busybox, the programs under test with their libraries, and the scripts.
use crate::outcome::Outcome;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The scripts, by their path in the guest.
const SCRIPTS: [(&str, &str); 4] = [
    ("init", include_str!("../guest/init")),
    ("guest/load.sh", include_str!("../guest/load.sh")),
    ("guest/placement.sh", include_str!("../guest/placement.sh")),
    ("guest/copy.sh", include_str!("../guest/copy.sh")),
];

/// A program to be copied in.
pub struct Program {
    /// Where it is here.
    pub from: PathBuf,
    /// Where it goes, relative to the guest's root.
    pub to: &'static str,
}

/// Packs the guest's root, built in `directory`, into a file beside it.
///
/// # Errors
/// A program is missing, or there is no room.
pub fn build(directory: &Path, programs: &[Program]) -> Result<PathBuf, Outcome> {
    let root = directory.join("root");
    let io = |error: io::Error| Outcome::failed(format!("{}: {error}", root.display()));
    for program in programs {
        copy(&program.from, &root.join(program.to)).map_err(io)?;
        for library in libraries(&program.from).map_err(io)? {
            let path = library.strip_prefix("/").expect("ldd prints absolute paths");
            copy(&library, &root.join(path)).map_err(io)?;
        }
    }
    for (name, text) in SCRIPTS {
        write_script(&root.join(name), text).map_err(io)?;
    }
    let packed = directory.join("initramfs");
    pack(&root, &packed).map_err(io)?;
    Ok(packed)
}

/// Copies what a path leads to, with its permissions.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to.parent().expect("a file is in a directory"))?;
    if to.exists() {
        return Ok(());
    }
    fs::copy(from, to).map(drop)
}

fn write_script(path: &Path, text: &str) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    fs::create_dir_all(path.parent().expect("a file is in a directory"))?;
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o755).open(path)?.write_all(text.as_bytes())
}

/// The libraries of a program and the loader; none if it is static.
fn libraries(program: &Path) -> io::Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(program).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let path = |line: &str| {
        let found = line.split_whitespace().find(|word| word.starts_with('/'))?;
        Some(PathBuf::from(found))
    };
    Ok(text.lines().filter_map(path).collect())
}

/// An uncompressed archive: unpacking takes longer under emulation than reading.
fn pack(root: &Path, packed: &Path) -> io::Result<()> {
    let mut names = Vec::new();
    list(root, Path::new("."), &mut names)?;
    let mut cpio = Command::new("cpio")
        .args(["--create", "--format=newc", "--quiet"])
        .current_dir(root)
        .stdin(Stdio::piped())
        .stdout(File::create(packed)?)
        .spawn()?;
    let mut input = cpio.stdin.take().expect("the input is a pipe");
    for name in names {
        writeln!(input, "{}", name.display())?;
    }
    drop(input);
    match cpio.wait()?.success() {
        true => Ok(()),
        false => Err(io::Error::other("cpio failed")),
    }
}

/// Everything below `root`, directories before their content.
fn list(root: &Path, below: &Path, names: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(below))? {
        let entry = entry?;
        let name = below.join(entry.file_name());
        names.push(name.clone());
        if entry.file_type()?.is_dir() {
            list(root, &name, names)?;
        }
    }
    Ok(())
}
