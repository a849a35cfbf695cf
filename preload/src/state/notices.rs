//! What the user is told once for the whole job: what of it runs outside the budget.
//!
//! Nothing here allocates: a child of vfork tells of the program that it is about to become.
use crate::abi::raw;
use crate::state::process;
use std::fmt::{self, Write as _};
use std::sync::OnceLock;
use userswap::internals::Options;
use userswap::internals::told::Told;

/// Longer lines are cut.
const LINE_BYTES: usize = 512;

static QUIET: OnceLock<()> = OnceLock::new();

/// In the constructor. A process that cannot reach what the job has told (another user's root directory) tells
/// for itself and its forked children.
pub fn start(options: &Options) {
    if options.quiet {
        let _ = QUIET.set(());
    }
    let told = options.told.as_deref().and_then(|path| Told::open(path).ok());
    if let Some(told) = told.or_else(|| Told::alone().ok()) {
        told.keep();
    }
}

/// Children that were executed unmanaged, of the whole job.
pub fn unmanaged_children() -> u64 {
    Told::ours().map_or(0, Told::children)
}

/// Counts a child that will run unmanaged.
pub fn count_child() {
    if let Some(told) = Told::ours() {
        told.count_child();
    }
    let member = process::current().and_then(|process| process.member.as_ref());
    member.into_iter().for_each(|member| member.count_unmanaged());
}

/// Says a line, unless the job has said one about `subject` in this `matter`.
pub fn tell_once(matter: u64, subject: &[u8], line: fmt::Arguments) {
    let is_first = Told::ours().is_some_and(|told| told.is_first(hash(matter, subject)));
    if !is_first || QUIET.get().is_some() {
        return;
    }
    let mut text = Line { bytes: [0; LINE_BYTES], length: 0 };
    // It is cut rather than refused.
    let _ = text.write_fmt(line);
    raw::say_bytes(&text.bytes[..text.length]);
}

/// FNV-1a.
fn hash(matter: u64, subject: &[u8]) -> u64 {
    subject.iter().fold(0xcbf2_9ce4_8422_2325 ^ matter, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

struct Line {
    bytes: [u8; LINE_BYTES],
    length: usize,
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = LINE_BYTES - self.length;
        let part = &text.as_bytes()[..text.len().min(room)];
        self.bytes[self.length..self.length + part.len()].copy_from_slice(part);
        self.length += part.len();
        Ok(())
    }
}
