//! What doctor says: one line for each thing that it looked at, and the fix.

use std::fmt::Display;

use serde::Serialize;

/// What a finding means for `run`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum State {
    /// As it should be.
    #[serde(rename = "OK")]
    Good,
    /// `run` works, slower or with less.
    #[serde(rename = "limited")]
    Limited,
    /// `run` cannot work.
    #[serde(rename = "missing")]
    Missing,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            State::Good => "OK",
            State::Limited => "limited",
            State::Missing => "missing",
        }
    }
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub topic: &'static str,
    pub state: State,
    pub found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Finding {
    pub fn good(topic: &'static str, found: impl Display) -> Finding {
        Finding { topic, state: State::Good, found: found.to_string(), fix: None }
    }

    pub fn limited(topic: &'static str, found: impl Display, fix: impl Display) -> Finding {
        let (found, fix) = (found.to_string(), Some(fix.to_string()));
        Finding { topic, state: State::Limited, found, fix }
    }

    pub fn missing(topic: &'static str, found: impl Display, fix: impl Display) -> Finding {
        Finding { state: State::Missing, ..Finding::limited(topic, found, fix) }
    }
}

/// Whether `run` works where all this was found.
pub fn works(findings: &[Finding]) -> bool {
    findings.iter().all(|finding| finding.state != State::Missing)
}

/// The findings as lines, a fix below the one that it is for.
pub fn text(findings: &[Finding]) -> String {
    let line = |Finding { topic, state, found, fix }: &Finding| {
        let fix = fix.iter().map(|fix| format!("{:25} fix: {fix}\n", "")).collect::<String>();
        format!("{:8} {topic:16} {found}\n{fix}", state.name())
    };
    let verdict = match works(findings) {
        true => "`userswap run` works here.\n",
        false => "`userswap run` does not work here: see what is missing.\n",
    };
    findings.iter().map(line).chain([verdict.to_owned()]).collect()
}

/// The same for programs.
pub fn json(findings: &[Finding]) -> String {
    let all = serde_json::json!({ "works": works(findings), "findings": findings });
    serde_json::to_string_pretty(&all).expect("findings are plain text") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_missing_keeps_run_from_working() {
        let limited =
            [Finding::good("a", "well"), Finding::limited("io_uring", "forbidden", "allow it")];
        assert!(works(&limited));
        let said = text(&limited);
        let lines: Vec<_> = said.lines().map(str::trim_end).collect();
        assert_eq!(lines[1], "limited  io_uring         forbidden");
        assert_eq!(lines[2].trim_start(), "fix: allow it");
        let missing = [limited[0].clone(), Finding::missing("userfaultfd", "forbidden", "be root")];
        assert!(text(&missing).ends_with("does not work here: see what is missing.\n"));
        let json: serde_json::Value = serde_json::from_str(&json(&missing)).unwrap();
        assert_eq!(
            (&json["works"], &json["findings"][1]["state"]),
            (&false.into(), &"missing".into())
        );
        assert_eq!(json["findings"][0].get("fix"), None);
    }
}
