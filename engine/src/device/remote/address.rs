//! What names a remote store: `redis://[USER@]HOST[:PORT][,HOST[:PORT]…]/PREFIX`, or `rediss://` for TLS. There a HOST may be
//! `NAME=ADDRESS`: the server at ADDRESS, whose certificate is for NAME.
//!
//! A password has no place in it: command lines are seen by everyone on a machine.
use super::options::Options;
use crate::device::spec::SpecError;
use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// The port of a server that is named without one.
const PORT: u16 = 6379;

/// The longest prefix of keys, and the longest name of a user or a host.
const NAME_MAX: usize = 64;

/// What begins the name of a store that is spoken to in plain text.
const PLAIN: &str = "redis://";

/// The same, for one that is spoken to by TLS.
const TLS: &str = "rediss://";

/// Where it belongs.
const NO_PASSWORD: &str = "a password is no part of it: set USERSWAP_REDIS_PASSWORD";

/// How options begin that are meant to have one.
const PASSWORDS: [&str; 4] = [",password=", ",passwd=", ",pass=", ",auth="];

/// How servers are spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// In plain text.
    Plain,
    /// By TLS.
    Tls,
}

impl Scheme {
    /// That of a text, and what comes after it; None where it is meant as a path.
    fn split(text: &str) -> Option<(Self, &str)> {
        let of = |scheme: Self| Some((scheme, text.strip_prefix(scheme.text())?));
        of(Self::Plain).or_else(|| of(Self::Tls))
    }

    fn text(self) -> &'static str {
        match self {
            Self::Plain => PLAIN,
            Self::Tls => TLS,
        }
    }
}

/// A server, by name or number.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Host {
    /// Its name, or its address without brackets.
    pub name: String,
    /// Where it is, if that is not asked for by its name.
    pub at: Option<IpAddr>,
    /// The port that it listens on.
    pub port: u16,
}

/// Where a remote store is, and what its keys begin with.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Address {
    /// How they are spoken to.
    pub scheme: Scheme,
    /// Whom the servers know us as; None for their default user.
    pub user: Option<String>,
    /// At least one server: the only one, or some of a cluster's.
    pub hosts: Vec<Host>,
    /// What keys begin with.
    pub prefix: String,
    /// How the servers keep pages.
    pub options: Options,
}

impl Address {
    /// The address that `text` is meant as; None where it is a path.
    ///
    /// # Errors
    /// It has a password, lacks a host or a prefix, or has what keys cannot carry; `spec` is what a message may show.
    pub fn parse(spec: &str, text: &str) -> Result<Option<Self>, SpecError> {
        let refuse = |reason: &'static str| Err(SpecError::remote(spec, reason));
        let Some((scheme, rest)) = Scheme::split(text) else { return Ok(None) };
        let Some((servers, prefix)) = rest.split_once('/') else {
            return refuse("names no prefix for keys: write redis://HOST[:PORT]/PREFIX[:SIZE]");
        };
        let (user, hosts) = match servers.rsplit_once('@') {
            Some((user, hosts)) => (Some(user), hosts),
            None => (None, servers),
        };
        if user.is_some_and(|user| user.contains(':')) {
            return refuse(NO_PASSWORD);
        }
        if !is_name(prefix) || user.is_some_and(|user| !is_name(user)) {
            return refuse(
                "a prefix or a user is of 1 to 64 letters, digits, \".\", \"_\" and \"-\"",
            );
        }
        let parse = |host| Host::parse(host).ok_or_else(|| SpecError::remote(spec, no_host(host)));
        let hosts: Vec<_> = hosts.split(',').map(parse).collect::<Result<_, _>>()?;
        if scheme == Scheme::Plain && hosts.iter().any(|host| host.at.is_some()) {
            return refuse(
                "NAME=ADDRESS is for a certificate: write rediss://, or the address alone",
            );
        }
        let (user, prefix) = (user.map(str::to_owned), prefix.to_owned());
        Ok(Some(Self { scheme, user, hosts, prefix, options: Options::default() }))
    }
}

impl Address {
    /// Whether no host is there by name.
    pub fn is_numeric(&self) -> bool {
        self.hosts.iter().all(|host| host.ip().is_some())
    }
}

impl Host {
    fn parse(text: &str) -> Option<Self> {
        let (named, text) = match text.split_once('=') {
            Some((name, text)) => (Some(name), text),
            None => (None, text),
        };
        let (name, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (name, rest) = rest.split_once(']')?;
                (name, rest.strip_prefix(':'))
            }
            None => match text.split_once(':') {
                Some((name, port)) => (name, Some(port)),
                None => (text, None),
            },
        };
        let port = port.map_or(Some(PORT), |port| port.parse().ok().filter(|port| *port > 0))?;
        let (name, at) = match named {
            Some(named) => (named, Some(name.parse().ok()?)),
            None => (name, None),
        };
        let is_host = |c: char| c.is_ascii_alphanumeric() || ".-_:".contains(c);
        let is_right = !name.is_empty() && name.len() <= 4 * NAME_MAX && name.chars().all(is_host);
        is_right.then(|| Self { name: name.to_owned(), at, port })
    }

    /// Its address, if nobody has to be asked for it.
    pub fn ip(&self) -> Option<IpAddr> {
        self.at.or_else(|| self.name.parse().ok())
    }

    /// It has been found.
    pub fn found(&mut self, scheme: Scheme, at: IpAddr) {
        match scheme {
            Scheme::Tls if self.ip().is_none() => self.at = Some(at),
            Scheme::Tls => {}
            Scheme::Plain => self.name = at.to_string(),
        }
    }
}

/// Whether a text is meant as a remote store.
pub fn is_meant(text: &str) -> bool {
    Scheme::split(text).is_some()
}

/// Whether a text is meant as one, as far as its prefix: what follows a comma then is an option, and no other server.
pub fn has_prefix(text: &str) -> bool {
    Scheme::split(text).is_some_and(|(_, rest)| rest.contains('/'))
}

/// Why a host cannot be read.
fn no_host(text: &str) -> Cow<'static, str> {
    match text.rsplit_once(':') {
        Some((name, port)) if !name.is_empty() && !port.parse().is_ok_and(|port: u16| port > 0) => {
            format!("\"{port}\" is no port: write HOST or HOST:PORT, with a port of 1 to 65535")
                .into()
        }
        _ => "names no server: write HOST or HOST:PORT, with a port of 1 to 65535".into(),
    }
}

/// Where an option begins that is meant to have the password.
fn password_option(spec: &str) -> Option<usize> {
    let lower = spec.to_ascii_lowercase();
    PASSWORDS.iter().filter_map(|option| lower.find(option)).min()
}

/// Refuses a password among the options, before a message shows one of them; `shown` is what a message may show.
///
/// # Errors
/// There is one.
pub fn check_password(spec: &str, shown: &str) -> Result<(), SpecError> {
    password_option(spec).map_or(Ok(()), |_| Err(SpecError::remote(shown, NO_PASSWORD)))
}

fn is_name(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    (1..=NAME_MAX).contains(&text.len()) && text.chars().all(is_plain)
}

/// What a message may show of a text.
pub fn hide_password(spec: &str) -> String {
    if let Some(at) = password_option(spec) {
        let (before, option) = spec.split_at(at);
        let name = option.split('=').next().unwrap_or_default();
        return hide_password(before) + name + "=…";
    }
    let begin = spec.find("://").map_or(0, |at| at + 3);
    match (spec[begin..].find(':'), spec.rfind('@')) {
        (Some(colon), Some(at)) if begin + colon < at => {
            format!("{}:…{}", &spec[..begin + colon], &spec[at..])
        }
        _ => spec.to_owned(),
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.scheme.text())?;
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        for (index, host) in self.hosts.iter().enumerate() {
            write!(f, "{}{host}", if index > 0 { "," } else { "" })?;
        }
        write!(f, "/{}", self.prefix)
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(at) = self.at {
            return write!(f, "{}={}", self.name, SocketAddr::new(at, self.port));
        }
        match self.name.contains(':') {
            true => write!(f, "[{}]:{}", self.name, self.port),
            false => write!(f, "{}:{}", self.name, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::device::spec::SwapSpec;

    #[test]
    fn printing_gives_the_text_back() {
        for text in [
            "redis://127.0.0.1:6379/a",
            "redis://me@[::1]:7000,b.example:7001/job-1:8G,lease=60,copies=2,pri=1,encrypt",
            "rediss://127.0.0.1:6379/a:8G,cacert=/etc/a b/ca.pem,pri=1",
            "rediss://me@b.example=10.0.0.7:7000,c=[::1]:6379/a,lease=60,cacert=/a,cert=/b,key=/c",
        ] {
            assert_eq!(text.parse::<SwapSpec>().unwrap().to_string(), text);
        }
        let short: SwapSpec = "redis://b.example/a,encrypt".parse().unwrap();
        assert_eq!(short.to_string(), "redis://b.example:6379/a,encrypt");
    }

    #[test]
    fn every_refusal_names_the_value_and_the_remedy() {
        for (text, named, remedy) in [
            ("redis://host:6379", "redis://host", "/PREFIX"),
            ("redis:///a", "redis:///a", "HOST"),
            ("redis://host:0/a", "\"0\" is no port", "1 to 65535"),
            ("redis://host:99999/a", "\"99999\" is no port", "1 to 65535"),
            ("redis://b,host:abc/a", "\"abc\" is no port", "1 to 65535"),
            ("rediss://[::1]:x/a", "\"x\" is no port", "1 to 65535"),
            ("redis://::1/a", "names no server", "HOST:PORT"),
            ("redis://host/a:xyz", "\"xyz\" is not a size", "512M"),
            ("redis://me:secret@host/a:xyz", "redis://me:…@host", "512M"),
            ("redis://me:secret@host/a,pri=x", "redis://me:…@host", "0 to 32767"),
            ("redis://host/a,password=secret", "a,password=…\"", "USERSWAP_REDIS_PASSWORD"),
            ("redis://host/a,Auth=b,x=/secret", "a,Auth=…\"", "USERSWAP_REDIS_PASSWORD"),
            ("valkey://me:secret@host/a", "\"valkey://\"", "redis://"),
            ("valkey://host/a,password=secret", "\"valkey://\"", "redis://"),
            ("REDIS://host/a,lease=60", "\"REDIS://\"", "rediss://"),
            ("faulty:ftp://host/a", "\"ftp://\"", "s3://"),
            ("redis://host/", "redis://host/", "letters"),
            ("redis://host/a/b", "a/b", "letters"),
            ("redis://host/a,b", "unknown option \"b\"", "pri=N"),
            ("redis://host/a:12Q", "12Q", "512M"),
            ("redis://host/a,lease=9", "lease=9", "10 to 604800"),
            ("redis://host/a,copies=3", "copies=3", "1, or 2"),
            ("redis://host/a,leese=9", "leese=9", "lease=SECONDS"),
            ("redis://me:secret@host/a", "redis://me:…@host/a", "USERSWAP_REDIS_PASSWORD"),
            ("/a,lease=60", "lease=60", "pri=N"),
            ("redis://host/a,cacert=/ca.pem", "cacert=/ca.pem", "rediss://"),
            ("redis://host=10.0.0.7/a", "host=10.0.0.7", "rediss://"),
            ("rediss://host=name/a", "host=name", "HOST:PORT"),
            ("rediss://host/a,cert=/c.pem", "cert=/c.pem", "both, or none"),
            ("rediss://host/a,cacert=/c,cacert=/d", "cacert", "once"),
            ("rediss://host/a,cacert=", "cacert=", "a file in PEM"),
            ("rediss://host/a,cafile=/c", "unknown option \"cafile=/c\"", "cacert=FILE"),
        ] {
            let refusal = text.parse::<SwapSpec>().expect_err(text).to_string();
            assert!(refusal.contains(named) && refusal.contains(remedy), "{refusal}");
            assert!(!refusal.contains("secret"), "{refusal}");
            assert_eq!(refusal.lines().count(), 1);
        }
    }
}
