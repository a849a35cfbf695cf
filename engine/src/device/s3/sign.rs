//! Who asks: the signature of a request, AWS Signature Version 4.
//!
//! Nothing here allocates: requests are signed in signal handlers. What is signed is hashed as it is written, and never
//! lies anywhere as a whole.
use super::address::Address;
use super::credentials::Credentials;
use ring::digest::{Context, Digest, SHA256};
use ring::hmac::{self, HMAC_SHA256};
use std::fmt::{self, Display, Write};

/// Seconds of a day.
const DAY_S: u64 = 86_400;

/// The hash of nothing.
pub const NOTHING: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// What a request says.
pub struct Request<'a> {
    /// What is to be done.
    pub method: &'static str,
    /// The object, from the root.
    pub path: &'a dyn Display,
    /// What follows it after a question mark, in the order of names.
    pub query: &'a str,
    /// The bytes that are wanted, if not all.
    pub range: Option<Range>,
    /// The hash of what is sent, in hexadecimal.
    pub content: &'a str,
}

/// Bytes of an object, the last one included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// The first.
    pub first: u64,
    /// The last.
    pub last: u64,
}

/// What signs.
pub struct Signer {
    id: String,
    /// Of the secret, after which the day's key is made.
    secret: hmac::Key,
    token: Option<String>,
    host: String,
    region: String,
}

/// A moment as requests say it.
#[derive(Clone, Copy)]
pub struct Moment {
    /// Since 1970.
    pub seconds: u64,
}

/// Bytes in hexadecimal.
pub struct Hex<'a>(pub &'a [u8]);

/// Something that is written to is hashed.
struct Hasher(Context);

impl Write for Hasher {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.update(text.as_bytes());
        Ok(())
    }
}

impl Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bytes={}-{}", self.first, self.last)
    }
}

impl Moment {
    /// The day, as in 20130524.
    fn day(self) -> impl Display {
        let (year, month, day) = civil(self.seconds / DAY_S);
        Digits([(year, 4), (month, 2), (day, 2)], "")
    }

    /// The time of the day, as in 000000.
    fn time(self) -> impl Display {
        let seconds = self.seconds % DAY_S;
        Digits([(seconds / 3600, 2), (seconds / 60 % 60, 2), (seconds % 60, 2)], "")
    }
}

/// Numbers of so many digits.
struct Digits([(u64, usize); 3], &'static str);

impl Display for Digits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(number, width)| write!(f, "{number:0width$}{}", self.1))
    }
}

/// Year, month and day of the day with this number since 1970: years begin in March here, so that leap days end them.
fn civil(day: u64) -> (u64, u64, u64) {
    let day = day + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let from_january = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(from_january <= 2), from_january, of_month)
}

/// The number of a day since 1970.
pub fn day_of(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

impl Signer {
    /// For requests to a bucket.
    pub fn new(address: &Address, credentials: &Credentials) -> Self {
        let secret = format!("AWS4{}", credentials.secret);
        Self {
            id: credentials.id.clone(),
            secret: hmac::Key::new(HMAC_SHA256, secret.as_bytes()),
            token: credentials.token.clone(),
            host: address.endpoint().to_string(),
            region: address.options.region().to_owned(),
        }
    }

    /// Writes the head of a request, up to the length of what is sent with it.
    pub fn write(&self, to: &mut dyn Write, request: &Request, now: Moment) -> fmt::Result {
        let Request { method, path, query, range, content } = request;
        let (day, time) = (now.day(), now.time());
        let mark = if query.is_empty() { "" } else { "?" };
        write!(to, "{method} {path}{mark}{query} HTTP/1.1\r\nhost: {}\r\n", self.host)?;
        if let Some(range) = range {
            write!(to, "range: {range}\r\n")?;
        }
        write!(to, "x-amz-content-sha256: {content}\r\nx-amz-date: {day}T{time}Z\r\n")?;
        if let Some(token) = &self.token {
            write!(to, "x-amz-security-token: {token}\r\n")?;
        }
        let signature = self.signature(request, now);
        let signed = Signed { range: range.is_some(), token: self.token.is_some() };
        write!(
            to,
            "authorization: AWS4-HMAC-SHA256 Credential={}/{day}/{}/s3/aws4_request,SignedHeaders={signed},Signature={}\r\n",
            self.id,
            self.region,
            Hex(signature.as_ref()),
        )
    }

    fn signature(&self, request: &Request, now: Moment) -> hmac::Tag {
        let canonical = self.canonical(request, now);
        let (day, time) = (now.day(), now.time());
        let mut key = self.secret.clone();
        let mut text = Text::default();
        write!(text, "{day}").expect("a day is short");
        for part in [text.as_bytes(), self.region.as_bytes(), b"s3", b"aws4_request"] {
            key = hmac::Key::new(HMAC_SHA256, hmac::sign(&key, part).as_ref());
        }
        let mut signed = Tagger(hmac::Context::with_key(&key));
        write!(
            signed,
            "AWS4-HMAC-SHA256\n{day}T{time}Z\n{day}/{}/s3/aws4_request\n{}",
            self.region,
            Hex(canonical.as_ref())
        )
        .expect("hashing does not fail");
        signed.0.sign()
    }

    /// The hash of a request in the form in which both sides write it down.
    fn canonical(&self, request: &Request, now: Moment) -> Digest {
        let mut to = Hasher(Context::new(&SHA256));
        self.write_canonical(&mut to, request, now).expect("hashing does not fail");
        to.0.finish()
    }

    fn write_canonical(&self, to: &mut Hasher, request: &Request, now: Moment) -> fmt::Result {
        let Request { method, path, query, range, content } = request;
        let (day, time) = (now.day(), now.time());
        write!(to, "{method}\n{path}\n{query}\nhost:{}\n", self.host)?;
        if let Some(range) = range {
            writeln!(to, "range:{range}")?;
        }
        write!(to, "x-amz-content-sha256:{content}\nx-amz-date:{day}T{time}Z\n")?;
        if let Some(token) = &self.token {
            writeln!(to, "x-amz-security-token:{token}")?;
        }
        let signed = Signed { range: range.is_some(), token: self.token.is_some() };
        write!(to, "\n{signed}\n{content}")
    }
}

/// Which headers are signed.
struct Signed {
    range: bool,
    token: bool,
}

impl Display for Signed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let range = if self.range { "range;" } else { "" };
        let token = if self.token { ";x-amz-security-token" } else { "" };
        write!(f, "host;{range}x-amz-content-sha256;x-amz-date{token}")
    }
}

struct Tagger(hmac::Context);

impl Write for Tagger {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.update(text.as_bytes());
        Ok(())
    }
}

/// A day's text.
#[derive(Default)]
struct Text {
    bytes: [u8; 8],
    length: usize,
}

impl Text {
    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let to = self.bytes.get_mut(self.length..self.length + text.len()).ok_or(fmt::Error)?;
        to.copy_from_slice(text.as_bytes());
        self.length += text.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the documentation of S3, "Examples: Signature Calculations in AWS Signature Version 4".
    #[test]
    fn requests_are_signed_as_the_documentation_does() {
        let signer = Signer {
            id: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret: hmac::Key::new(HMAC_SHA256, b"AWS4wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
            token: None,
            host: "examplebucket.s3.amazonaws.com".to_owned(),
            region: "us-east-1".to_owned(),
        };
        let now = Moment { seconds: day_of(2013, 5, 24) * DAY_S };
        let of = |path: &str, query, range| {
            let request = Request { method: "GET", path: &path, query, range, content: NOTHING };
            Hex(signer.signature(&request, now).as_ref()).to_string()
        };
        assert_eq!(
            of("/test.txt", "", Some(Range { first: 0, last: 9 })),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
        );
        assert_eq!(
            of("/", "max-keys=2&prefix=J", None),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
        );
    }

    #[test]
    fn days_have_the_numbers_that_they_should() {
        let mut expected = (1970, 1, 1);
        for day in 0..60_000 {
            assert_eq!(civil(day), expected);
            assert_eq!(day_of(expected.0, expected.1, expected.2), day);
            let leap = expected.0 % 4 == 0 && (expected.0 % 100 != 0 || expected.0 % 400 == 0);
            let days = [31, 28 + u64::from(leap), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
            expected.2 += 1;
            if expected.2 > days[expected.1 as usize - 1] {
                expected = (expected.0, expected.1 + 1, 1);
            }
            if expected.1 > 12 {
                expected = (expected.0 + 1, 1, 1);
            }
        }
    }
}
