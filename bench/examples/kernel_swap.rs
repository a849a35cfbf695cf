//! Any program on the kernel's own swap: `kernel_swap RAM_BYTES SWAP_BYTES DIRECTORY PROGRAM [ARGUMENTS]`.
//!
//! The program's output is handed on, and after it, as the last line of standard error, the seconds that it took. What
//! is set up for it is removed on every way out; tests/programs measures with this.

use std::path::Path;
use std::process::{Command, ExitCode};
use userswap_bench::kernel;

const USAGE: &str = "usage: kernel_swap RAM_BYTES SWAP_BYTES DIRECTORY PROGRAM [ARGUMENTS]";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [ram, swap, directory, program, arguments @ ..] = &words[..] else {
        return refuse(USAGE);
    };
    let (Ok(ram_bytes), Ok(swap_bytes)) = (ram.parse(), swap.parse()) else {
        return refuse(USAGE);
    };
    let mut command = Command::new(program);
    command.args(arguments);
    match kernel::run_limited(&mut command, ram_bytes, swap_bytes, Path::new(directory)) {
        Ok(finished) => {
            print!("{}", finished.stdout);
            eprint!("{}", finished.stderr);
            eprintln!("{}", finished.wall.as_secs_f64());
            ExitCode::from(if finished.status.success() { 0 } else { 1 })
        }
        Err(error) => refuse(&error.to_string()),
    }
}

fn refuse(reason: &str) -> ExitCode {
    eprintln!("kernel_swap: {reason}");
    ExitCode::from(2)
}
