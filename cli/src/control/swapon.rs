//! `userswap swapon`: gives a running program one more swap device.

use std::process::ExitCode;

use clap::Args;
use userswap::SwapSpec;
use userswap::internals::directory::EngineName;
use userswap::internals::open;
use userswap::internals::protocol::{Answer, Request};

use super::client::Client;
use crate::failure::Failure;
use crate::run::parse_swap;
use crate::said::say;

/// Options of `swapon`.
#[derive(Args)]
pub struct SwaponArgs {
    /// The process, as `userswap list` shows it
    pid: EngineName,
    /// The device: PATH[:SIZE][,pri=N][,tier=N][,node=N][,encrypt], zram:SIZE, redis://HOST/PREFIX[:SIZE], s3://BUCKET/PREFIX[:SIZE],endpoint=URL,tier=N or mem:SIZE
    #[arg(allow_hyphen_values = true, value_parser = parse_swap)]
    spec: SwapSpec,
}

/// Hands the device over; the program itself opens it, with its own rights.
///
/// # Errors
/// There is no such engine, or it cannot use the device.
pub fn swapon(args: SwaponArgs) -> Result<ExitCode, Failure> {
    let here = std::env::current_dir()
        .map_err(|error| Failure::unavailable(format!("the working directory: {error}")))?;
    args.spec.check_front().map_err(Failure::usage)?;
    let spec = open::resolved(args.spec.absolute(&here)).map_err(Failure::usage)?;
    if let Some(warning) = ask(&mut Client::of(args.pid)?, spec.to_string())? {
        say(format_args!("warning: {warning}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns its warning. A file is allocated, and servers are asked: that takes as long as they need.
pub(super) fn ask(client: &mut Client, spec: String) -> Result<Option<String>, Failure> {
    match client.ask_and_wait(&Request::Swapon { spec })? {
        Answer::Done { warning } => Ok(warning),
        other => Err(client.nonsense(&format!("{other:?}"))),
    }
}
