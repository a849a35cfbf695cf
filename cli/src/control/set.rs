//! `userswap set`: changes a setting of a running engine, or shows what there is to set.

use std::process::ExitCode;

use clap::Args;
use userswap::internals::directory::EngineName;
use userswap::internals::protocol::{Answer, Request, SettingValue};

use super::client::Client;
use super::table::{Lean, plain, table};
use crate::failure::Failure;
use crate::said;

/// Options of `set`.
#[derive(Args)]
pub struct SetArgs {
    /// The process, as `userswap list` shows it
    pid: EngineName,
    /// The setting; without it, all are shown
    #[arg(requires = "value")]
    key: Option<String>,
    /// Its new value
    #[arg(allow_hyphen_values = true)]
    value: Option<String>,
}

/// Changes it and shows what it has become.
///
/// # Errors
/// There is no such engine or setting, or it does not take the value.
pub fn set(args: SetArgs) -> Result<ExitCode, Failure> {
    let mut client = Client::of(args.pid)?;
    let request = match (args.key, args.value) {
        (Some(key), Some(value)) => Request::Set { key, value },
        _ => Request::Settings {},
    };
    said::print(match ask(&mut client, &request)? {
        Answer::Set { key, value } => format!("{} = {}\n", plain(&key), plain(&value)),
        Answer::Settings { settings } => show(&settings),
        other => return Err(client.nonsense(&format!("{other:?}"))),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// A change takes as long as the devices need: for `hibernate` everything moves, for `ram` what is compressed.
pub(super) fn ask(client: &mut Client, request: &Request) -> Result<Answer, Failure> {
    match request {
        Request::Set { .. } => client.ask_and_wait(request),
        _ => client.ask(request),
    }
}

fn show(settings: &[SettingValue]) -> String {
    let titles = [("KEY", Lean::Left), ("VALUE", Lean::Left), ("ALLOWED", Lean::Left)];
    let row = |setting: &SettingValue| {
        [plain(&setting.key), plain(&setting.value), plain(&setting.allowed)]
    };
    table(titles, &settings.iter().map(row).collect::<Vec<_>>())
}
