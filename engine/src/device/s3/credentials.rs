//! Keys to a bucket: from the environment, or from the file that other programs for such stores read.
use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

/// The variables with a key, and those that name a file and a part of it.
const ID: &str = "AWS_ACCESS_KEY_ID";
const SECRET: &str = "AWS_SECRET_ACCESS_KEY";
const TOKEN: &str = "AWS_SESSION_TOKEN";
const FILE: &str = "AWS_SHARED_CREDENTIALS_FILE";
const PROFILE: &str = "AWS_PROFILE";

/// What `run` has found: the program's environment may be another by now.
static GIVEN: OnceLock<Credentials> = OnceLock::new();

/// A key.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    /// What is said of it.
    pub id: String,
    /// What is not.
    pub secret: String,
    /// What goes with a key for some hours.
    pub token: Option<String>,
}

/// Nothing of it is for a log.
impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials")
    }
}

impl Credentials {
    /// Whoever opens a bucket in this process from now on uses it, if there is one.
    pub fn keep(&self) {
        if *self != Self::default() {
            let _ = GIVEN.set(self.clone());
        }
    }

    /// What was kept, or what the environment or the file has.
    ///
    /// # Errors
    /// There is none, or a file that cannot be used.
    pub fn find() -> Result<Self, String> {
        if let Some(given) = GIVEN.get() {
            return Ok(given.clone());
        }
        let found = match (said(ID), said(SECRET)) {
            (Some(id), Some(secret)) => Self { id, secret, token: said(TOKEN) },
            (Some(_), None) => return Err(format!("{ID} is set and {SECRET} is not: set both")),
            (None, Some(_)) => return Err(format!("{SECRET} is set and {ID} is not: set both")),
            (None, None) => Self::of_file()?,
        };
        let is_sound = |part: &String| part.chars().all(|c| c.is_ascii_graphic());
        let parts = [Some(&found.id), Some(&found.secret), found.token.as_ref()];
        if !parts.into_iter().flatten().all(is_sound) {
            return Err(format!("{ID}, {SECRET} or {TOKEN} has a space or the like: correct it"));
        }
        Ok(found)
    }

    fn of_file() -> Result<Self, String> {
        let home = || said("HOME").map(|home| PathBuf::from(home).join(".aws/credentials"));
        let none = || format!("no key to this bucket is known: set {ID} and {SECRET}, or {FILE}");
        let path = said(FILE).map(PathBuf::from).or_else(home).ok_or_else(none)?;
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(_) if said(FILE).is_none() => return Err(none()),
            Err(error) => return Err(format!("{FILE}={}: {error}: correct it", path.display())),
        };
        let profile = said(PROFILE).unwrap_or_else(|| "default".to_owned());
        of_text(&text, &profile).ok_or_else(|| {
            let path = path.display();
            format!("{path} has no key in [{profile}]: add aws_access_key_id and aws_secret_access_key, or set {PROFILE}")
        })
    }
}

fn said(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The key of a part of such a file.
fn of_text(text: &str, profile: &str) -> Option<Credentials> {
    let mut lines = text.lines().map(str::trim);
    lines.find(|line| {
        let named = line.strip_prefix('[').and_then(|line| line.strip_suffix(']'));
        named.is_some_and(|named| named.trim() == profile)
    })?;
    let part: Vec<(&str, &str)> = lines
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.trim(), value.trim()))
        .collect();
    let of =
        |name| part.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned());
    Some(Credentials {
        id: of("aws_access_key_id")?,
        secret: of("aws_secret_access_key")?,
        token: of("aws_session_token"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_a_key_for_each_profile() {
        let text = "# keys\n[default]\naws_access_key_id = a\naws_secret_access_key=b\n\n[ job ]\n\
                    aws_secret_access_key = d=\naws_access_key_id = c\naws_session_token = e\n[empty]\n";
        let key = |profile| of_text(text, profile).map(|key| (key.id, key.secret, key.token));
        let of = |text: &str| text.to_owned();
        assert_eq!(key("default"), Some((of("a"), of("b"), None)));
        assert_eq!(key("job"), Some((of("c"), of("d="), Some(of("e")))));
        assert_eq!((key("empty"), key("other")), (None, None));
    }
}
