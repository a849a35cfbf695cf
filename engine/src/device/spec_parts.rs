//! Where the parts of a swap specification begin: options, and the size before them.
use super::remote;
use super::s3::address as s3;
use super::spec::{COMPRESSED_WORD, ENCRYPT_WORD, MEMORY_WORD, SpecError};
use crate::base::size::parse_size;
use std::str::FromStr;

/// A value with a name; or `encrypt`, also when that is misspelt: a file of that name would not be encrypted. A comma in
/// a directory's or file's name is not ours.
pub(super) fn is_meant_as_option(text: &str) -> bool {
    let start = text.get(..3).unwrap_or_default();
    !text.contains('/') && (text.contains('=') || start.eq_ignore_ascii_case(&ENCRYPT_WORD[..3]))
}

/// Nothing but letters: an option without its value, or none at all.
pub(super) fn is_word(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphabetic())
}

/// Whether a comma after that, with nothing behind it, is too many: no path ends in a size or in an option.
pub(super) fn is_needless_comma(before: &str) -> bool {
    let is_size = split_size(before, before).is_ok_and(|(_, size)| size.is_some());
    let last = before.rsplit_once(',').map(|(_, last)| last);
    is_size || last.is_some_and(|last| last.is_empty() || is_meant_as_option(last))
}

/// A number of digits only: no sign, no space.
pub(super) fn digits<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Separates a trailing `:SIZE` from the path.
pub(super) fn split_size<'a>(
    spec: &str,
    text: &'a str,
) -> Result<(&'a str, Option<u64>), SpecError> {
    let Some((path, tail)) = text.rsplit_once(':') else { return Ok((text, None)) };
    match parse_size(tail) {
        Ok(bytes) => Ok((path, Some(bytes))),
        Err(error)
            if [MEMORY_WORD, COMPRESSED_WORD].contains(&path)
                // A prefix has no colon.
                || remote::has_prefix(path)
                || is_meant_as_size(tail) =>
        {
            Err(SpecError::Size { spec: spec.to_owned(), error })
        }
        Err(_) => Ok((text, None)),
    }
}

/// What a message may show of a text, in which there may be a password where none belongs; `named` is what names the device.
///
/// # Errors
/// It is an address of a kind that there is none of, or there is a password among its options.
pub(super) fn shown_of(spec: &str, named: &str) -> Result<String, SpecError> {
    let Some(scheme) = scheme_of(named) else { return Ok(spec.to_owned()) };
    let shown = remote::hide_password(spec);
    if remote::is_meant(named) {
        remote::check_password(spec, &shown)?;
    } else if !s3::is_meant(named) {
        return Err(SpecError::UnknownScheme { spec: shown, scheme: scheme.to_owned() });
    }
    Ok(shown)
}

/// The `redis://` of an address, whatever the word; a path can be written with `./` before it.
fn scheme_of(text: &str) -> Option<&str> {
    let (word, _) = text.split_once("://")?;
    let is_word = word.starts_with(|c: char| c.is_ascii_alphabetic())
        && word.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    is_word.then(|| &text[..word.len() + "://".len()])
}

/// Nothing, or a number with a short word after it. Names below `/dev/disk/by-path` end in
/// `:1f.2-ata-1` and the like; those are paths.
fn is_meant_as_size(tail: &str) -> bool {
    let number = tail.trim_start_matches(['+', '-']);
    let unit = number.trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
    let starts_with_digit = number.starts_with(|c: char| c.is_ascii_digit());
    tail.is_empty()
        || starts_with_digit && unit.len() <= 3 && unit.chars().all(|c| c.is_ascii_alphabetic())
}
