//! Where the parts of a swap specification begin: options, and the size before them.
use super::spec::{COMPRESSED_WORD, ENCRYPT_WORD, MEMORY_WORD, SpecError};
use crate::base::size::parse_size;

/// A value with a name; or `encrypt`, also when that is misspelt: a file of that name would not be encrypted. A comma in
/// a directory's or file's name is not ours.
pub(super) fn is_meant_as_option(text: &str) -> bool {
    let start = text.get(..3).unwrap_or_default();
    !text.contains('/') && (text.contains('=') || start.eq_ignore_ascii_case(&ENCRYPT_WORD[..3]))
}

/// Separates a trailing `:SIZE` from the path.
pub(super) fn split_size<'a>(
    spec: &str,
    text: &'a str,
) -> Result<(&'a str, Option<u64>), SpecError> {
    let Some((path, tail)) = text.rsplit_once(':') else { return Ok((text, None)) };
    match parse_size(tail) {
        Ok(bytes) => Ok((path, Some(bytes))),
        Err(error) if [MEMORY_WORD, COMPRESSED_WORD].contains(&path) || is_meant_as_size(tail) => {
            Err(SpecError::Size { spec: spec.to_owned(), error })
        }
        Err(_) => Ok((text, None)),
    }
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
