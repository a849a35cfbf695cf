//! A file of defaults: read only where nobody else can have written it, as it names devices and files to write to.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use toml::{Spanned, Value};
use userswap::internals::directory;

use crate::failure::Failure;

/// Far more than every option needs.
const BYTES_MAX: u64 = 64 << 10;

const NOBODYS: [ErrorKind; 3] =
    [ErrorKind::NotFound, ErrorKind::NotADirectory, ErrorKind::PermissionDenied];

/// An option with its values, and where that stands.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: String,
    pub values: Vec<String>,
    /// `FILE:LINE`, or a variable.
    pub origin: String,
}

/// The entries of a file, in no order; None where there is none.
///
/// # Errors
/// It cannot be read, others could have written it, or it is not of the form.
pub fn read(path: &Path) -> Result<Option<Vec<Entry>>, Failure> {
    let refuse = |reason: String| Failure::usage(format!("{}: {reason}", path.display()));
    let Some(text) = text_of(path).map_err(refuse)? else { return Ok(None) };
    entries(path, &text).map(Some)
}

fn text_of(path: &Path) -> Result<Option<String>, String> {
    // Of a home that this user cannot look into, as after su without a new environment, nothing is his.
    if fs::metadata(path).is_err_and(|error| NOBODYS.contains(&error.kind())) {
        return Ok(None);
    }
    // A pipe of that name would not answer.
    let flags = OFlags::NONBLOCK.bits() as i32;
    let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = file.map_err(|error| format!("{error}: make it readable, or use --no-defaults"))?;
    check(&file)?;
    let mut text = String::new();
    let read = file.take(BYTES_MAX + 1).read_to_string(&mut text);
    let read = read.map_err(|error| format!("{error}: write it in UTF-8"))?;
    match read as u64 {
        ..=BYTES_MAX => Ok(Some(text)),
        _ => Err("is over 64K: keep options in it only".to_owned()),
    }
}

fn check(file: &File) -> Result<(), String> {
    let found = file.metadata().map_err(|error| error.to_string())?;
    if !found.is_file() {
        return Err("is no plain file: make it one".to_owned());
    }
    let user = directory::user();
    if ![0, user].contains(&found.uid()) {
        return Err(format!(
            "belongs to user {}: have it belong to user {user} or root, or use --no-defaults",
            found.uid()
        ));
    }
    match found.mode() & 0o022 {
        0 => Ok(()),
        _ => Err(format!("others can write to it (mode {:o}): chmod go-w", found.mode() & 0o777)),
    }
}

/// The entries of a text, as if it stood there.
pub(super) fn entries(path: &Path, text: &str) -> Result<Vec<Entry>, Failure> {
    let origin = |at: usize| format!("{}:{}", path.display(), line_of(text, at));
    let table: BTreeMap<Spanned<String>, Spanned<Value>> =
        toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let reason = error.message().lines().next().unwrap_or_default().to_owned();
            let line =
                text.lines().nth(line_of(text, at) - 1).unwrap_or_default().trim().to_owned();
            Failure::usage(format!(
                "{}: {line:?}: {reason}; write OPTION = \"VALUE\", such as ram = \"512M\"",
                origin(at)
            ))
        })?;
    let entry = |(key, value): (Spanned<String>, Spanned<Value>)| {
        let origin = origin(key.span().start);
        let key = key.into_inner();
        match values(value.into_inner()) {
            Some(values) => Ok(Entry { key, values, origin }),
            None => Err(Failure::usage(format!(
                "{origin}: {key}: is no value: use text, a number, true or false, or for swap an array of texts"
            ))),
        }
    };
    table.into_iter().map(entry).collect()
}

fn values(value: Value) -> Option<Vec<String>> {
    match value {
        Value::String(text) => Some(vec![text]),
        Value::Integer(number) => Some(vec![number.to_string()]),
        Value::Boolean(answer) => Some(vec![answer.to_string()]),
        Value::Array(all) => all.into_iter().map(|one| values(one)?.pop()).collect(),
        Value::Float(_) | Value::Datetime(_) | Value::Table(_) => None,
    }
}

fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// Where files of defaults are, the one that wins first.
pub fn paths(variable: impl Fn(&str) -> Option<PathBuf>) -> Vec<PathBuf> {
    let home = || Some(variable("HOME").filter(|home| home.is_absolute())?.join(".config"));
    // As the specification has it, a relative name does not count.
    let configuration =
        variable("XDG_CONFIG_HOME").filter(|directory| directory.is_absolute()).or_else(home);
    configuration
        .into_iter()
        .chain([PathBuf::from("/etc")])
        .map(|it| it.join("userswap.toml"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn entries_know_their_lines() {
        let text = "# mine\nram = \"512M\"\npage-cluster = 4\n\nquiet = true\nswap = [\"/a\", \"/b:1G\"]\n";
        let found = entries(Path::new("/f"), text).unwrap();
        let mut found: Vec<_> = found
            .iter()
            .map(|it| format!("{} {} {}", it.origin, it.key, it.values.join(" ")))
            .collect();
        found.sort();
        assert_eq!(
            found,
            ["/f:2 ram 512M", "/f:3 page-cluster 4", "/f:5 quiet true", "/f:6 swap /a /b:1G"]
        );
    }

    #[test]
    fn what_is_not_of_the_form_is_named_with_its_line() {
        for (text, line, named) in [
            ("ram = \"1G\"\nfault = signal\n", 2, "fault = signal"),
            ("\n\nram", 3, "\"ram\""),
            ("[run]\nram = \"1G\"\n", 1, "run"),
            ("ram = \"1G\"\nram = \"2G\"\n", 2, "ram = "),
            ("page-cluster = 1.5\n", 1, "page-cluster"),
        ] {
            let refusal = entries(Path::new("/f"), text).unwrap_err().message;
            assert!(refusal.starts_with(&format!("/f:{line}: ")), "{refusal}");
            assert!(refusal.contains(named) && !refusal.contains('\n'), "{refusal}");
        }
    }

    #[test]
    fn a_file_that_others_can_write_to_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("userswap.toml");
        assert_eq!(read(&path), Ok(None));
        fs::write(&path, "ram = \"64M\"\n").unwrap();
        for (mode, good) in [(0o644, true), (0o600, true), (0o664, false), (0o646, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let found = read(&path);
            assert_eq!(found.is_ok(), good, "{mode:o}: {found:?}");
            let refusal = found.err().map_or(String::new(), |refusal| refusal.message);
            assert!(good || refusal.contains("chmod go-w"), "{refusal}");
        }
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(read(&path).unwrap_err().message.contains("no plain file"));
    }

    #[test]
    fn the_users_file_comes_before_the_machines() {
        let with = |set: &'static [(&str, &str)]| {
            paths(|name| Some(set.iter().find(|(variable, _)| *variable == name)?.1.into()))
        };
        let machines = PathBuf::from("/etc/userswap.toml");
        assert_eq!(with(&[]), std::slice::from_ref(&machines));
        for (set, users) in [
            (&[("HOME", "/h")][..], "/h/.config/userswap.toml"),
            (&[("HOME", "/h"), ("XDG_CONFIG_HOME", "/x")], "/x/userswap.toml"),
            (&[("HOME", "/h"), ("XDG_CONFIG_HOME", "x")], "/h/.config/userswap.toml"),
        ] {
            assert_eq!(with(set), [PathBuf::from(users), machines.clone()]);
        }
    }
}
