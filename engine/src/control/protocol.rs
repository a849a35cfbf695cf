//! The language of the control socket: one JSON object per line, requests in, answers out.
//!
//! docs/control.md shows it. Both sides may be of different builds: unknown fields of an answer are left
//! alone, unknown requests are refused by name.
use crate::base::status::Status;
use crate::swapoff::Progress;
use serde::{Deserialize, Serialize};

/// The longest request, in bytes: a path of 4096 bytes, each written as `\u00xx`, fits.
pub const REQUEST_BYTES_MAX: usize = 32 << 10;

/// What can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// Asks how the engine is doing.
    Status {},
    /// Asks for all settings with their values.
    Settings {},
    /// Changes a setting.
    Set {
        /// Its name.
        key: String,
        /// Its new value.
        value: String,
    },
    /// Takes one more device into use.
    Swapon {
        /// As for `--swap`, with an absolute path.
        spec: String,
    },
    /// Empties a device and releases it.
    Swapoff {
        /// The device's name in the status.
        path: String,
        /// The name of a [`SwapoffMethod`](crate::internals::SwapoffMethod); the default one if there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        readahead: Option<String>,
    },
    /// Ends the swapoff that is under way on this connection; the device stays.
    Cancel {},
    /// Brings pages in that the client is about to read or write (process_vm_readv(2)).
    Populate {
        /// Where they begin.
        address: u64,
        /// How many bytes, of which 1 MiB is brought in at once.
        bytes: u64,
    },
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "lowercase")]
pub enum Answer {
    /// It is done.
    Done {
        /// What the user should know of what was done.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        warning: Option<String>,
    },
    /// How the engine is doing.
    Status {
        /// Devices, lists and nodes, boxed as other answers are small.
        status: Box<Status>,
    },
    /// All settings.
    Settings {
        /// In the order of the documentation.
        settings: Vec<SettingValue>,
    },
    /// A setting has this value now.
    Set {
        /// Its name.
        key: String,
        /// Its value, which may be rounded.
        value: String,
    },
    /// A swapoff is under way; more answers follow.
    Progress {
        /// Pages still on the device.
        pages_left: u64,
        /// Pages on it when it began.
        pages_total: u64,
    },
    /// A swapoff was cancelled: the device stays.
    Cancelled {},
    /// Pages were brought in.
    Populated {
        /// From the address on; 0 where no page of the engine's is.
        bytes: u64,
    },
    /// Refused, nothing is changed.
    Error {
        /// One line that names the value and the remedy.
        message: String,
    },
}

/// A setting and its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingValue {
    /// Its name.
    pub key: String,
    /// Its value at this moment.
    pub value: String,
    /// What it can be.
    pub allowed: String,
}

impl Answer {
    /// A refusal with one line that says why.
    pub fn error(message: impl ToString) -> Self {
        Self::Error { message: message.to_string() }
    }

    /// The answer as it is sent, with its line end.
    pub fn to_line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).expect("an answer is strings, numbers and lists");
        line.push(b'\n');
        line
    }
}

impl From<Progress> for Answer {
    fn from(Progress { pages_left, pages_total }: Progress) -> Self {
        Self::Progress { pages_left, pages_total }
    }
}

impl Request {
    /// Reads a line, with its end or without.
    ///
    /// # Errors
    /// It is no request; the text says what is wrong.
    pub fn from_line(line: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(line).map_err(|error| {
            // It names what it found, whatever that is.
            let error = error.to_string().replace(char::is_control, "?");
            format!("the line is no request: {error}")
        })
    }

    /// The request as it is sent, with its line end.
    pub fn to_line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).expect("a request is strings");
        line.push(b'\n');
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_written_as_documented() {
        for (request, line) in [
            (Request::Status {}, r#"{"request":"status"}"#),
            (Request::Cancel {}, r#"{"request":"cancel"}"#),
            (
                Request::Set { key: "ram".into(), value: "1G".into() },
                r#"{"request":"set","key":"ram","value":"1G"}"#,
            ),
            (
                Request::Swapon { spec: "/a:1G,pri=3".into() },
                r#"{"request":"swapon","spec":"/a:1G,pri=3"}"#,
            ),
            (
                Request::Populate { address: 4096, bytes: 1 },
                r#"{"request":"populate","address":4096,"bytes":1}"#,
            ),
            (
                Request::Swapoff { path: "/a".into(), readahead: None },
                r#"{"request":"swapoff","path":"/a"}"#,
            ),
            (
                Request::Swapoff { path: "/a".into(), readahead: Some("fixed".into()) },
                r#"{"request":"swapoff","path":"/a","readahead":"fixed"}"#,
            ),
        ] {
            assert_eq!(String::from_utf8(request.to_line()).unwrap(), format!("{line}\n"));
            assert_eq!(Request::from_line(line.as_bytes()), Ok(request));
        }
    }

    #[test]
    fn what_is_no_request_is_refused_in_one_line() {
        for line in
            ["", "{", "7", r#"{"request":"re\nboot"}"#, r#"{"request":"status","x":1}"#, "\u{ff}"]
        {
            let refusal = Request::from_line(line.as_bytes()).expect_err(line);
            assert!(refusal.starts_with("the line is no request: "), "{refusal}");
            assert_eq!(refusal.lines().count(), 1, "{refusal}");
        }
    }

    #[test]
    fn progress_is_written_as_documented() {
        let answer = Answer::from(Progress { pages_left: 3, pages_total: 9 });
        let line = r#"{"answer":"progress","pages_left":3,"pages_total":9}"#;
        assert_eq!(String::from_utf8(answer.to_line()).unwrap(), format!("{line}\n"));
    }
}
