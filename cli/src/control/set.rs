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
    key: Option<String>,
    /// Its new value; without it, the one that it has is shown
    #[arg(allow_hyphen_values = true)]
    value: Option<String>,
}

/// Changes it and shows what it has become.
///
/// # Errors
/// There is no such engine or setting, or it does not take the value.
pub fn set(args: SetArgs) -> Result<ExitCode, Failure> {
    let mut client = Client::of(args.pid)?;
    let key = args.key;
    let request = match (key.clone(), args.value) {
        (Some(key), Some(value)) => Request::Set { key, value },
        _ => Request::Settings {},
    };
    said::print(match ask(&mut client, &request)? {
        Answer::Set { key, value } => format!("{} = {}\n", plain(&key), plain(&value)),
        Answer::Settings { settings } => show(&chosen(settings, key.as_deref(), &client)?),
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

/// The one that was asked for, or all.
fn chosen(
    settings: Vec<SettingValue>,
    key: Option<&str>,
    client: &Client,
) -> Result<Vec<SettingValue>, Failure> {
    let Some(key) = key else { return Ok(settings) };
    let known: Vec<_> = settings.iter().map(|setting| setting.key.clone()).collect();
    match settings.into_iter().find(|setting| setting.key == key) {
        Some(setting) => Ok(vec![setting]),
        None => Err(client.refusal(&format!("{key:?} cannot be set: use {}", known.join(" or ")))),
    }
}

fn show(settings: &[SettingValue]) -> String {
    let titles = [("KEY", Lean::Left), ("VALUE", Lean::Left), ("ALLOWED", Lean::Left)];
    let row = |setting: &SettingValue| {
        [plain(&setting.key), plain(&setting.value), plain(&setting.allowed)]
    };
    table(titles, &settings.iter().map(row).collect::<Vec<_>>())
}
