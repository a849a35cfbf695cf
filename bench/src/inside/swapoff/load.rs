//! The program whose memory the kernel's swapoff brings back: it fills its memory, has all of it paged out,
//! says so, and waits. Then it looks at every page.

use crate::sys::memory::{Backing, Memory, Populate, Protection};
use crate::sys::page_bytes;
use std::io::{self, Read, Write};
use std::process::ExitCode;
use std::sync::atomic::Ordering::Relaxed;

/// What it says when everything is out.
pub(crate) const OUT_MARK: &str = "paged out";

/// Fills `bytes` of memory and waits, paged out, until its standard input ends.
pub(super) fn run(bytes: u64) -> ExitCode {
    match hold(bytes) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("userswap bench: the load failed: {error}");
            ExitCode::FAILURE
        }
    }
}

fn hold(bytes: u64) -> io::Result<()> {
    let bytes = usize::try_from(bytes).map_err(io::Error::other)?;
    let (shape, populate) = (Protection::ReadWrite, Populate::OnTouch);
    let memory = Memory::new(&Backing::Anonymous, bytes, shape, populate)?;
    for (place, word) in memory.words().iter().enumerate() {
        word.store(content(place), Relaxed);
    }
    memory.page_out()?;
    println!("{OUT_MARK}");
    io::stdout().flush()?;
    io::stdin().read_to_end(&mut Vec::new())?;
    let step = page_bytes() as usize / size_of::<u64>();
    let wrong = (0..memory.words().len())
        .step_by(step)
        .find(|&place| memory.words()[place].load(Relaxed) != content(place));
    wrong.map_or(Ok(()), |place| Err(io::Error::other(format!("word {place} is wrong"))))
}

/// The word at `place`: never zero, and no page like another.
pub(super) fn content(place: usize) -> u64 {
    (place as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1
}
