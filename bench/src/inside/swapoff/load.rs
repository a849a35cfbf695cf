//! The program whose memory the kernel's swapoff reads back: it fills its memory, has all of it paged out,
//! says so, and waits. Then it looks at every page.

use super::super::words::{PAGE_WORDS, word_at};
use std::io::{self, Read, Write};
use std::process::ExitCode;
use std::sync::atomic::Ordering::Relaxed;
use userswap::internals::bench::memory::{Backing, Memory, Populate, Protection};

/// What it says when everything is out.
pub(crate) const OUT_MARK: &str = "paged out";

/// Fills `bytes` of memory and waits, paged out, until its standard input ends.
pub(super) fn run(bytes: u64) -> ExitCode {
    match hold(bytes) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say!("userswap bench: the load failed: {error}");
            ExitCode::FAILURE
        }
    }
}

fn hold(bytes: u64) -> io::Result<()> {
    let bytes = usize::try_from(bytes).map_err(io::Error::other)?;
    let (shape, populate) = (Protection::ReadWrite, Populate::OnTouch);
    let memory = Memory::new(&Backing::Anonymous, bytes, shape, populate)?;
    for (index, word) in memory.words().iter().enumerate() {
        word.store(word_at(index), Relaxed);
    }
    memory.page_out()?;
    writeln!(io::stdout(), "{OUT_MARK}")?;
    io::stdin().read_to_end(&mut Vec::new())?;
    let wrong = (0..memory.words().len())
        .step_by(PAGE_WORDS)
        .find(|&index| memory.words()[index].load(Relaxed) != word_at(index));
    wrong.map_or(Ok(()), |index| Err(io::Error::other(format!("word {index} is wrong"))))
}
