//! The load of the guest: fills memory, verifies it, and stays, by orders on standard input.
//!
//! It pauses after each mebibyte, so that the reclaimer of its node, which shares the node's only CPU with
//! it, keeps up. Without pauses the faults take pages of other nodes while they wait, and it is chance how
//! many: the kernel's limit of a control group, on the other side, stops the load until it has reclaimed.
use std::env;
use std::io::{self, BufRead};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;
use userswap::internals::PAGE_BYTES;

const PAGE_WORDS: usize = PAGE_BYTES / size_of::<u64>();
/// A mebibyte.
const PAGES_PER_PAUSE: usize = (1 << 20) / PAGE_BYTES;
/// Makes words of different pages and rounds differ in all bytes; odd, so that none becomes zero.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

fn main() -> ExitCode {
    let numbers: Vec<u64> = env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    let [mebibytes, pause_ms] = numbers[..] else {
        eprintln!("usage: numa-guest-load MEBIBYTES PAUSE_MS");
        return ExitCode::from(2);
    };
    let mut words = vec![0u64; ((mebibytes as usize) << 20) / size_of::<u64>()];
    let mut round = 0;
    for order in io::stdin().lock().lines().map_while(Result::ok) {
        match order.as_str() {
            "write" => {
                round += 1;
                write(&mut words, round, Duration::from_millis(pause_ms));
                println!("written {round}");
            }
            "verify" => match first_wrong(&words, round) {
                None => println!("verified {round}"),
                Some(page) => println!("wrong page {page} in round {round}"),
            },
            _ => return ExitCode::SUCCESS,
        }
    }
    ExitCode::SUCCESS
}

/// The word that page `page` is full of in a round; never zero.
fn word(page: usize, round: u64) -> u64 {
    ((page as u64) << 8 | round).wrapping_mul(SPREAD)
}

fn write(words: &mut [u64], round: u64, pause: Duration) {
    for (index, page) in words.chunks_exact_mut(PAGE_WORDS).enumerate() {
        page.fill(word(index, round));
        if (index + 1) % PAGES_PER_PAUSE == 0 {
            thread::sleep(pause);
        }
    }
}

fn first_wrong(words: &[u64], round: u64) -> Option<usize> {
    words
        .chunks_exact(PAGE_WORDS)
        .enumerate()
        .position(|(index, page)| page.iter().any(|found| *found != word(index, round)))
}
