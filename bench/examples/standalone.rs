//! The benchmarks without the rest of userswap: `standalone usemem …` and `standalone bench …`.
//!
//! `run` executes what follows `--` without managing its memory, so that `bench` can be tried
//! (and is tested) where there is no engine.

use clap::Parser;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

#[derive(Debug, Parser)]
#[command(name = "bench")]
struct Bench {
    #[command(flatten)]
    line: userswap_bench::BenchLine,
}

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next().as_deref().and_then(|verb| verb.to_str()) {
        Some("usemem") => userswap_bench::usemem::main(args),
        Some("bench") => {
            let line = std::iter::once(OsString::from("bench")).chain(args);
            Bench::parse_from(line).line.run().unwrap_or(ExitCode::from(2))
        }
        Some("run") => execute(args.skip_while(|arg| arg != "--").skip(1)),
        _ => {
            eprintln!("usage: standalone usemem|bench|run …");
            ExitCode::from(2)
        }
    }
}

fn execute(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let Some(program) = args.next() else {
        eprintln!("run: no program given after --");
        return ExitCode::from(2);
    };
    let error = Command::new(&program).args(args).exec();
    eprintln!("run: cannot execute {}: {error}", program.display());
    ExitCode::from(127)
}
