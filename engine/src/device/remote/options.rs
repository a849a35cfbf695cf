//! How servers keep pages, as a user says it: `,lease=SECONDS` and `,copies=N`; by whom they are known (`tls/files.rs`).
use super::address::Scheme;
use super::tls::files::{self, Files};
use crate::device::spec::{SpecError, set_once};
use std::fmt;

/// How long slots outlive an engine that was killed, unless it is said: an hour, for which a program can be stopped and
/// go on.
const LEASE_S: u32 = 3600;

/// How many servers have each slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Copies {
    /// One.
    One,
    /// Two of a cluster: a server can die.
    Two,
}

/// What is allowed, for a message.
pub const ALLOWED: &str =
    ", lease=SECONDS, copies=N and, of rediss://, cacert=FILE, cert=FILE, key=FILE";

/// What is said; what is not has a default.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Options {
    lease_s: Option<u32>,
    copies: Option<Copies>,
    /// Certificates.
    pub files: Files,
}

/// Whether an option is one with a path, which may have slashes.
pub fn names_file(option: &str) -> bool {
    option.split_once('=').is_some_and(|(name, _)| files::NAMES.contains(&name))
}

impl Options {
    /// For how many seconds servers keep what nobody asks them to keep longer.
    pub fn lease_s(&self) -> u32 {
        self.lease_s.unwrap_or(LEASE_S)
    }

    /// How many servers have each page.
    pub fn copies(&self) -> Copies {
        self.copies.unwrap_or(Copies::One)
    }

    /// Whether they go together, and with how servers are spoken to.
    ///
    /// # Errors
    /// They do not.
    pub fn check(&self, spec: &str, scheme: Scheme) -> Result<(), SpecError> {
        let reason = match (scheme, &self.files.cert, &self.files.key) {
            (Scheme::Plain, ..) if self.files != Files::default() => {
                "certificates are for TLS: write rediss://, or leave cacert, cert and key out"
            }
            (Scheme::Tls, Some(_), None) | (Scheme::Tls, None, Some(_)) => {
                "cert and key go together: give both, or none"
            }
            _ => return Ok(()),
        };
        Err(SpecError::remote(spec, reason))
    }

    /// Reads an option of `spec`, if it is one of these.
    pub fn read(&mut self, spec: &str, option: &str) -> Option<Result<(), SpecError>> {
        let (name, value) = option.split_once('=')?;
        if let Some(file) = self.files.named(name) {
            if value.is_empty() {
                return Some(Err(SpecError::OptionValue {
                    spec: spec.to_owned(),
                    option: option.to_owned(),
                    allowed: "the path of a file in PEM",
                }));
            }
            let name = files::NAMES.into_iter().find(|known| *known == name)?;
            let twice = || SpecError::OptionTwice { spec: spec.to_owned(), option: name };
            return Some(set_once(file, value.into(), twice));
        }
        let refuse = |allowed| {
            Err(SpecError::OptionValue {
                spec: spec.to_owned(),
                option: option.to_owned(),
                allowed,
            })
        };
        let twice = |option| SpecError::OptionTwice { spec: spec.to_owned(), option };
        let lease_s = value.parse().ok().filter(|lease_s| (10..=604_800).contains(lease_s));
        match (name, value, lease_s) {
            ("lease", _, Some(lease_s)) => {
                Some(set_once(&mut self.lease_s, lease_s, || twice("lease")))
            }
            ("lease", ..) => Some(refuse("a lease is 10 to 604800 seconds, a week")),
            ("copies", "1", _) => Some(set_once(&mut self.copies, Copies::One, || twice("copies"))),
            ("copies", "2", _) => Some(set_once(&mut self.copies, Copies::Two, || twice("copies"))),
            ("copies", ..) => Some(refuse("1, or 2 on a cluster")),
            _ => None,
        }
    }
}

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(lease_s) = self.lease_s {
            write!(f, ",lease={lease_s}")?;
        }
        match self.copies {
            Some(Copies::One) => f.write_str(",copies=1")?,
            Some(Copies::Two) => f.write_str(",copies=2")?,
            None => {}
        }
        write!(f, "{}", self.files)
    }
}
