//! What the guest says on its console: messages, some with the output of a command below them.
use std::collections::HashMap;

/// `@KIND NAME=VALUE…`, and what follows up to `@.` if anything does.
#[derive(Debug, Default)]
pub struct Message {
    /// What it tells.
    pub kind: String,
    words: HashMap<String, String>,
    /// The lines of a command's output.
    pub body: Vec<String>,
}

impl Message {
    /// A word's value; empty when it is not there.
    pub fn word(&self, name: &str) -> &str {
        self.words.get(name).map_or("", String::as_str)
    }

    /// A word's value as a number.
    pub fn number<N: std::str::FromStr>(&self, name: &str) -> Option<N> {
        self.word(name).parse().ok()
    }

    /// The output as one text.
    pub fn text(&self) -> String {
        self.body.join("\n")
    }
}

/// Reads all messages; lines outside them are the firmware's and the kernel's.
pub fn messages(console: &str) -> Vec<Message> {
    let mut messages = Vec::new();
    let mut lines = console.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(head) = line.strip_prefix('@') else { continue };
        let mut message = head_of(head);
        let mut body = Vec::new();
        while let Some(line) = lines.next_if(|line| !line.starts_with('@')) {
            body.push(line.to_owned());
        }
        if lines.next_if(|line| *line == "@.").is_some() {
            message.body = body;
        }
        messages.push(message);
    }
    messages
}

fn head_of(head: &str) -> Message {
    let mut words = head.split_whitespace();
    let kind = words.next().unwrap_or_default().to_owned();
    let pair = |word: &str| word.split_once('=').map(|(name, value)| (name.into(), value.into()));
    Message { kind, words: words.filter_map(pair).collect(), body: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_its_words_and_the_output_below_it() {
        let console = "SeaBIOS\n@boot kernel=6.12 seconds=4.5\nnoise\n@swaps cpu=3 phase=full\n\
                       one\ntwo=2\n@.\n@end\n[   12.4] reboot: Power down";
        let messages = messages(console);
        assert_eq!(
            messages.iter().map(|m| m.kind.as_str()).collect::<Vec<_>>(),
            ["boot", "swaps", "end"]
        );
        assert_eq!(messages[0].word("kernel"), "6.12");
        assert!(messages[0].body.is_empty(), "a body that is not closed is none");
        assert_eq!((messages[1].number::<u32>("cpu"), messages[1].word("side")), (Some(3), ""));
        assert_eq!(messages[1].text(), "one\ntwo=2");
    }
}
