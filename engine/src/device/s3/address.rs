//! What names a bucket of objects: `s3://BUCKET/PREFIX`, and where that is:
//! `,endpoint=https://HOST[:PORT],region=NAME`.
//!
//! Keys to it have no place here: command lines are seen by everyone on a machine.
use crate::base::size::{ByteSize, parse_size};
use crate::device::remote::Scheme;
use crate::device::remote::tls::files::Files;
use crate::device::spec::{SpecError, SwapPath, SwapSpec, set_once};
use crate::sys::PAGE_BYTES;
use std::fmt;
use std::net::IpAddr;
use userswap_policy::segments::SEGMENT_PAGES_MAX;

/// What begins its name.
pub const SCHEME: &str = "s3://";

/// What is allowed of its own.
pub const ALLOWED: &str = ", endpoint=URL, cacert=FILE, region=NAME, segment=SIZE, lease=SECONDS";

/// What begins an endpoint that is spoken to in plain text.
const PLAIN: &str = "http://";

/// The same, for one that is spoken to by TLS.
const TLS: &str = "https://";

const ENDPOINT: &str = "endpoint=";

/// The options that contain what otherwise is part of a path, those that are refused included.
const PATHS: [&str; 4] = [ENDPOINT, "cacert=", "cert=", "key="];

/// The ports of endpoints that are named without one.
const PLAIN_PORT: u16 = 80;
const TLS_PORT: u16 = 443;

/// The longest name of a bucket, a prefix or a region, and of a host.
const NAME_MAX: usize = 63;
const HOST_MAX: usize = 253;

/// Segments in bytes: smaller ones would be many requests, larger ones much to wait for and to keep in memory.
const SEGMENT_MIN: u64 = 4 << 20;
const SEGMENT_MAX: u64 = SEGMENT_PAGES_MAX as u64 * PAGE_BYTES as u64;

/// What servers without regions take for theirs.
const REGION: &str = "us-east-1";

/// How long objects outlive an engine that was killed, unless it is said.
const LEASE_S: u32 = 3600;

/// Where a bucket is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// How it is spoken to.
    pub scheme: Scheme,
    /// The host's name or number, as it is told whom we mean.
    pub host: String,
    /// Its port.
    pub port: u16,
}

/// A bucket, and what names of objects in it begin with.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Address {
    /// The bucket.
    pub bucket: String,
    /// What names begin with.
    pub prefix: String,
    /// How it is reached, and used.
    pub options: Options,
}

/// What is said; what is not has a default.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Options {
    endpoint: Option<Endpoint>,
    region: Option<String>,
    segment: Option<u64>,
    lease_s: Option<u32>,
    /// By whom it must be known, if it speaks TLS.
    pub files: Files,
    /// The number of the endpoint's host, looked up already.
    at: Option<IpAddr>,
}

/// Whether a text is meant as a bucket.
pub fn is_meant(text: &str) -> bool {
    text.starts_with(SCHEME)
}

impl Address {
    /// The address that `path` is meant as, with these options.
    ///
    /// # Errors
    /// It lacks a bucket, a prefix or an endpoint; `spec` is what the user wrote.
    pub fn parse(spec: &str, path: &str, options: Options) -> Result<Self, SpecError> {
        let refuse = |reason: &'static str| Err(SpecError::remote(spec, reason));
        let rest = path.strip_prefix(SCHEME).expect("the caller has seen what it begins with");
        let Some((bucket, prefix)) = rest.split_once('/') else {
            return refuse("names no prefix for objects: write s3://BUCKET/PREFIX[:SIZE]");
        };
        if !is_name(bucket) || !is_name(prefix) {
            return refuse(
                "a bucket and a prefix are of 1 to 63 letters, digits, \".\", \"_\" and \"-\"",
            );
        }
        let Some(endpoint) = &options.endpoint else {
            return refuse(
                "names no server: add endpoint=https://HOST[:PORT], such as \
                 endpoint=https://s3.eu-central-1.amazonaws.com",
            );
        };
        if endpoint.scheme == Scheme::Plain && options.files != Files::default() {
            return refuse("a certificate is for TLS: write https://, or leave cacert out");
        }
        Ok(Self { bucket: bucket.to_owned(), prefix: prefix.to_owned(), options })
    }

    /// Whether nobody has to look its host up.
    pub fn is_numeric(&self) -> bool {
        self.options.at.is_some() || self.endpoint().name().parse::<IpAddr>().is_ok()
    }

    /// Where it is.
    pub fn endpoint(&self) -> &Endpoint {
        self.options.endpoint.as_ref().expect("an address without one is refused")
    }
}

impl Options {
    /// The region that requests are signed for.
    pub fn region(&self) -> &str {
        self.region.as_deref().unwrap_or(REGION)
    }

    /// Pages of a segment.
    pub fn segment_pages(&self) -> u32 {
        (self.segment.unwrap_or(SEGMENT_MIN) / PAGE_BYTES as u64) as u32
    }

    /// For how many seconds objects stay that nobody says are needed.
    pub fn lease_s(&self) -> u32 {
        self.lease_s.unwrap_or(LEASE_S)
    }

    /// Where the endpoint is, if that was looked up.
    pub fn at(&self) -> Option<IpAddr> {
        self.at
    }

    /// Keeps where it was found.
    pub fn found_at(&mut self, at: IpAddr) {
        self.at = Some(at);
    }

    /// Reads an option of `spec`, if it is one of these.
    pub fn read(&mut self, spec: &str, option: &str) -> Option<Result<(), SpecError>> {
        let (name, value) = option.split_once('=')?;
        let twice = |option| SpecError::OptionTwice { spec: spec.to_owned(), option };
        let (spec_of, option_of) = (spec.to_owned(), option.to_owned());
        let refuse =
            |allowed| Err(SpecError::OptionValue { spec: spec_of, option: option_of, allowed });
        Some(match name {
            "endpoint" => match Endpoint::parse(value) {
                Ok(endpoint) => set_once(&mut self.endpoint, endpoint, || twice("endpoint")),
                Err(allowed) => refuse(allowed),
            },
            "cert" | "key" => refuse("a store knows us by the signature: only cacert=FILE"),
            "cacert" if value.is_empty() => refuse("the path of a file in PEM"),
            "cacert" => set_once(&mut self.files.cacert, value.into(), || twice("cacert")),
            "region" if is_name(value) => {
                set_once(&mut self.region, value.to_owned(), || twice("region"))
            }
            "region" => refuse("a region is of 1 to 63 letters, digits and \"-\""),
            "segment" => match parse_size(value) {
                Ok(bytes) if is_segment(bytes) => {
                    set_once(&mut self.segment, bytes, || twice("segment"))
                }
                _ => refuse("a segment is 4M to 16M, in whole mebibytes"),
            },
            "lease" => match value.parse() {
                Ok(lease_s) if (10..=604_800).contains(&lease_s) => {
                    set_once(&mut self.lease_s, lease_s, || twice("lease"))
                }
                _ => refuse("a lease is 10 to 604800 seconds, a week"),
            },
            "at" => match value.parse() {
                Ok(at) => set_once(&mut self.at, at, || twice("at")),
                Err(_) => refuse("it is the endpoint's numeric address"),
            },
            _ => return None,
        })
    }
}

impl Endpoint {
    fn parse(text: &str) -> Result<Self, &'static str> {
        const FORM: &str =
            "an endpoint is https://HOST[:PORT] or http://HOST[:PORT], with a port of 1 to 65535";
        let of = |scheme| Some((scheme, text.strip_prefix(begin_of(scheme))?));
        let (scheme, rest) = of(Scheme::Plain).or_else(|| of(Scheme::Tls)).ok_or(FORM)?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()),
            _ => (rest, Some(port_of(scheme))),
        };
        let is_host = |c: char| c.is_ascii_alphanumeric() || ".-_:[]".contains(c);
        let port = port.filter(|port| *port > 0);
        match port {
            Some(port) if (1..=HOST_MAX).contains(&host.len()) && host.chars().all(is_host) => {
                Ok(Self { scheme, host: host.to_owned(), port })
            }
            _ => Err(FORM),
        }
    }

    /// The host without brackets.
    pub fn name(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }
}

fn begin_of(scheme: Scheme) -> &'static str {
    match scheme {
        Scheme::Plain => PLAIN,
        Scheme::Tls => TLS,
    }
}

fn port_of(scheme: Scheme) -> u16 {
    match scheme {
        Scheme::Plain => PLAIN_PORT,
        Scheme::Tls => TLS_PORT,
    }
}

/// Whether an option is one with a path, which may have slashes.
pub fn names_path(option: &str) -> bool {
    PATHS.iter().any(|name| option.starts_with(name))
}

fn is_segment(bytes: u64) -> bool {
    (SEGMENT_MIN..=SEGMENT_MAX).contains(&bytes) && bytes.is_multiple_of(1 << 20)
}

fn is_name(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let is_way = [".", ".."].contains(&text);
    (1..=NAME_MAX).contains(&text.len()) && text.chars().all(is_plain) && !is_way
}

impl SwapSpec {
    /// The bucket that it names, if it does.
    pub fn bucket(&self) -> Option<&Address> {
        match &self.path {
            SwapPath::S3(address) => Some(&**address),
            _ => None,
        }
    }

    /// Whether a bucket has a tier in front of it.
    ///
    /// # Errors
    /// It has none.
    pub fn check_front(&self) -> Result<(), SpecError> {
        match (&self.path, self.tier) {
            (SwapPath::S3(_), None | Some(0)) => {
                Err(SpecError::TierInFrontMissing(self.to_string()))
            }
            _ => Ok(()),
        }
    }
}

/// As it is said to the server: without the port that everybody expects.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port == port_of(self.scheme) {
            true => f.write_str(&self.host),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.bucket, self.prefix)
    }
}

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(endpoint) = &self.endpoint {
            write!(f, ",{ENDPOINT}{}{endpoint}", begin_of(endpoint.scheme))?;
        }
        write!(f, "{}", self.files)?;
        if let Some(region) = &self.region {
            write!(f, ",region={region}")?;
        }
        if let Some(bytes) = self.segment {
            write!(f, ",segment={}", ByteSize(bytes))?;
        }
        if let Some(lease_s) = self.lease_s {
            write!(f, ",lease={lease_s}")?;
        }
        self.at.map_or(Ok(()), |at| write!(f, ",at={at}"))
    }
}

#[cfg(test)]
mod tests {
    use crate::device::spec::{SwapSpec, check_tiers};

    #[test]
    fn printing_gives_the_text_back() {
        for text in [
            "s3://b/a,endpoint=http://127.0.0.1:9000,tier=1",
            "s3://b.c/job-1:8G,endpoint=http://[::1]:9000,region=eu-1,segment=16M,lease=60,at=::1,pri=1,tier=2,encrypt",
            "s3://b/a:64M,endpoint=http://s3.example,tier=1",
            "s3://b/a,endpoint=https://s3.example,cacert=/etc/ca.pem,tier=1",
            "s3://b/a,endpoint=https://[::1]:9443,tier=1",
        ] {
            assert_eq!(text.parse::<SwapSpec>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn every_refusal_names_the_value_and_the_remedy() {
        let at = "endpoint=http://127.0.0.1:9";
        for (text, named, remedy) in [
            (format!("s3://bucket,{at}"), "s3://bucket", "/PREFIX"),
            (format!("s3:///a,{at}"), "s3:///a", "letters"),
            (format!("s3://b/a/c,{at}"), "a/c", "letters"),
            (format!("s3://b/..,{at}"), "..", "letters"),
            ("s3://b/a".to_owned(), "s3://b/a", "endpoint=https://HOST"),
            (format!("s3://b/a,{at},cacert=/a"), "s3://b/a", "write https://"),
            (format!("s3://b/a,{at},cert=/a/b.pem"), "cert=/a/b.pem", "cacert=FILE"),
            (format!("s3://b/a,{at},cacert="), "cacert=", "a file in PEM"),
            ("s3://b/a,endpoint=https://".to_owned(), "https://", "https://HOST"),
            ("s3://b/a,endpoint=ftp://h".to_owned(), "ftp://h", "http://HOST"),
            ("s3://b/a,endpoint=http://h:0".to_owned(), "http://h:0", "1 to 65535"),
            (format!("s3://b/a,{at},segment=1M"), "segment=1M", "4M to 16M"),
            (format!("s3://b/a,{at},lease=9"), "lease=9", "10 to 604800"),
            (format!("s3://b/a,{at},rejion=x"), "rejion=x", "region=NAME"),
            (format!("s3://b/a:12Q,{at}"), "12Q", "512M"),
            ("/a,segment=4M".to_owned(), "segment=4M", "pri=N"),
        ] {
            let refusal = text.parse::<SwapSpec>().expect_err(&text).to_string();
            assert!(refusal.contains(named) && refusal.contains(remedy), "{refusal}");
            assert_eq!(refusal.lines().count(), 1);
        }
    }

    #[test]
    fn a_bucket_is_behind_something_else() {
        let all = |texts: &[&str]| -> Vec<SwapSpec> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        let s3 = "s3://b/a,endpoint=http://h";
        for alone in [s3.to_owned(), format!("{s3},tier=0")] {
            let refusal = check_tiers(&all(&[&alone])).unwrap_err().to_string();
            assert!(refusal.contains(&alone) && refusal.contains("tier=1"), "{refusal}");
        }
        check_tiers(&all(&["/a,tier=0", &format!("{s3},tier=1")])).unwrap();
    }
}
