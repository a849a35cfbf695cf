//! Deletes what engines have left that were killed, or ended without a word: whoever uses the same prefix next does it.
//!
//! An engine that lives writes its *lease* again and again, before its first segment and every quarter of the time that it
//! is for. How old that is the store's own clock says, in the list of objects and beside it.
use super::sign::day_of;
use super::store::{Name, S3};
use std::collections::BTreeMap;
use std::io;

/// An engine is given twice the time that it has asked for, or so much longer if that is less, in seconds.
const GRACE_S: u64 = 60;

/// No engine asks for less.
const LEASE_MIN_S: u64 = 10;

/// How long objects are kept whose engine has not said for how long.
const UNSAID_S: u64 = 3600;

/// Lists of a thousand objects that are read.
const LISTS_MAX: u32 = 1000;

/// Seconds of an hour, and of a day.
const HOUR_S: u64 = 3600;
const DAY_S: u64 = 24 * HOUR_S;

const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";

/// What an engine has.
#[derive(Debug, Default, PartialEq, Eq)]
struct Left {
    /// Names of objects, without the engine's.
    names: Vec<String>,
    /// When the newest of them was written, in seconds.
    newest: u64,
    /// When its lease was, if it has one.
    leased: Option<u64>,
}

/// Objects by engine.
type Engines = BTreeMap<String, Left>;

impl S3 {
    /// Deletes the objects of engines that are gone.
    ///
    /// # Errors
    /// What the store says.
    pub(super) fn sweep(&self) -> io::Result<()> {
        let (engines, now) = self.list()?;
        let own = format!("{:016x}", self.config.engine);
        for (engine, left) in engines.iter().filter(|(engine, _)| **engine != own) {
            if now.saturating_sub(left.leased.unwrap_or(left.newest)) <= LEASE_MIN_S {
                continue;
            }
            let number = u64::from_str_radix(engine, 16).expect("only such are listed");
            if self.is_left(number, left, now) {
                self.delete_left(number, left)?;
            }
        }
        Ok(())
    }

    fn is_left(&self, engine: u64, left: &Left, now: u64) -> bool {
        let lease_s = match left.leased {
            None => Some(UNSAID_S),
            Some(_) => {
                let config = super::store::Config { engine, ..self.config.clone() };
                let said = self.server.ask(&config.object(Name::Lease), "");
                said.ok().and_then(|said| said.text.parse().ok())
            }
        };
        let since = left.leased.unwrap_or(left.newest);
        lease_s.is_some_and(|lease_s| now > since + lease_s + GRACE_S.min(lease_s))
    }

    /// The lease goes last: what is left over by this is deleted by the next.
    fn delete_left(&self, engine: u64, left: &Left) -> io::Result<()> {
        let super::address::Address { bucket, prefix, .. } = &self.config.address;
        for name in &left.names {
            if self.is_over() {
                break;
            }
            self.server.delete(&format_args!("/{bucket}/{prefix}/{engine:016x}/{name}"))?;
        }
        Ok(())
    }

    /// All objects below the prefix, and the store's time.
    fn list(&self) -> io::Result<(Engines, u64)> {
        let super::address::Address { bucket, prefix, .. } = &self.config.address;
        let (mut engines, mut now, mut next) = (Engines::new(), 0, String::new());
        for _ in 0..LISTS_MAX {
            let query = format!("{next}list-type=2&prefix={prefix}%2F");
            let said = self.server.ask(&format_args!("/{bucket}"), &query)?;
            now = seconds_of_http(&said.date).ok_or(io::ErrorKind::InvalidData)?;
            take(&said.text, prefix, &mut engines);
            match part(&said.text, "NextContinuationToken") {
                Some(token) => next = format!("continuation-token={}&", encoded(&plain(token))),
                None => return Ok((engines, now)),
            }
        }
        // A lease comes after all segments of its engine: that of the last one may be beyond the end.
        engines.retain(|_, left| left.leased.is_some());
        Ok((engines, now))
    }
}

/// Takes the objects of a list.
fn take(text: &str, prefix: &str, engines: &mut Engines) {
    for object in text.split("<Contents>").skip(1) {
        let named = part(object, "Key").and_then(|key| key.strip_prefix(prefix));
        let named =
            named.and_then(|name| name.strip_prefix('/')).and_then(|name| name.split_once('/'));
        let (Some((engine, name)), Some(written)) =
            (named, part(object, "LastModified").and_then(seconds_of_list))
        else {
            continue;
        };
        // Nothing else is ours.
        let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_ours = is_hex(name) && name.len() == 8 || ["lease", "probe"].contains(&name);
        if engine.len() != 16 || !is_hex(engine) || !is_ours {
            continue;
        }
        let left = engines.entry(engine.to_owned()).or_default();
        left.newest = left.newest.max(written);
        if name == "lease" {
            left.leased = Some(written);
        }
        left.names.push(name.to_owned());
    }
}

/// What is between a tag and its end.
fn part<'a>(text: &'a str, tag: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{tag}>"))?;
    rest.split_once(&format!("</{tag}>")).map(|(part, _)| part)
}

/// Without the escapes of XML.
fn plain(text: &str) -> String {
    [("&quot;", "\""), ("&apos;", "'"), ("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")]
        .into_iter()
        .fold(text.to_owned(), |text, (escape, character)| text.replace(escape, character))
}

/// As part of a query.
fn encoded(text: &str) -> String {
    let mut to = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                to.push(char::from(byte));
            }
            _ => to.push_str(&format!("%{byte:02X}")),
        }
    }
    to
}

/// Of 2026-11-22T23:07:10.000Z.
fn seconds_of_list(text: &str) -> Option<u64> {
    let (day, time) = text.split_once('T')?;
    let mut parts = day.split('-').map(|part| part.parse().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    seconds_of(year, month, day, time.get(..8)?)
}

/// Of Sun, 22 Nov 2026 23:07:10 GMT.
fn seconds_of_http(text: &str) -> Option<u64> {
    let mut words = text.split_once(", ")?.1.split(' ');
    let day = words.next()?.parse().ok()?;
    let month = MONTHS.find(words.next()?)? as u64 / 3 + 1;
    let year = words.next()?.parse().ok()?;
    seconds_of(year, month, day, words.next()?)
}

fn seconds_of(year: u64, month: u64, day: u64, time: &str) -> Option<u64> {
    if !(1970..10_000).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let mut parts = time.split(':').map(|part| part.parse::<u64>().ok());
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next()??);
    Some(day_of(year, month, day) * DAY_S + hour * HOUR_S + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_to_write_a_moment_say_the_same() {
        let seconds = 1_795_388_830;
        assert_eq!(seconds_of_list("2026-11-22T23:07:10.000Z"), Some(seconds));
        assert_eq!(seconds_of_http("Sun, 22 Nov 2026 23:07:10 GMT"), Some(seconds));
        for text in ["", "2026", "2026-13-01T00:00:00Z", "2026-11-22T23:07", "x-y-zT00:00:00Z"] {
            assert_eq!(seconds_of_list(text), None, "{text}");
        }
        assert_eq!(seconds_of_http("yesterday"), None);
    }

    #[test]
    fn of_a_list_only_what_is_ours_is_taken() {
        let object = |key: &str, second: u32| {
            format!(
                "<Contents><Key>{key}</Key><LastModified>1970-01-01T00:00:{second:02}.000Z</LastModified></Contents>"
            )
        };
        let text = [
            object("a/0000000000000001/00000007", 3),
            object("a/0000000000000001/lease", 2),
            object("a/0000000000000002/0000000a", 9),
            object("a/0000000000000002/holiday.jpg", 9),
            object("a/report", 1),
            object("a/000000000000000g/lease", 1),
            object("ab/0000000000000003/lease", 1),
        ];
        let mut engines = Engines::new();
        take(&format!("<?xml?><ListBucketResult>{}", text.concat()), "a", &mut engines);
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let one = Left { names: names(&["00000007", "lease"]), newest: 3, leased: Some(2) };
        let two = Left { names: names(&["0000000a"]), newest: 9, leased: None };
        let of = |engine: &str, left| (engine.to_owned(), left);
        let expected = [of("0000000000000001", one), of("0000000000000002", two)];
        assert_eq!(engines, expected.into_iter().collect());
    }

    #[test]
    fn a_token_is_sent_as_it_was_meant() {
        let text = "<NextContinuationToken>a+b/c&amp;lt;=</NextContinuationToken>";
        let token = part(text, "NextContinuationToken").unwrap();
        assert_eq!(plain(token), "a+b/c&lt;=");
        assert_eq!(encoded(&plain(token)), "a%2Bb%2Fc%26lt%3B%3D");
    }
}
