//! `userswap swapoff`: empties a device of a running program and takes it away.
//!
//! The engine does it, batch by batch, and tells how far it is; Ctrl-C asks it to stop and waits for what it
//! says. Closing the connection would cancel as well, but how it ended would stay unknown.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use signal_hook::consts::SIGINT;
use signal_hook::flag;
use userswap::internals::SwapoffMethod;
use userswap::internals::directory::EngineName;
use userswap::internals::protocol::{Answer, Request};
use userswap::internals::{remote, s3};

use super::client::Client;
use crate::failure::Failure;

/// As for a program that Ctrl-C has ended.
const STATUS_CANCELLED: u8 = 130;
/// A Ctrl-C is noticed within this time.
const PATIENCE: Duration = Duration::from_millis(100);

/// Options of `swapoff`.
#[derive(Args)]
pub struct SwapoffArgs {
    /// The process, as `userswap list` shows it
    pid: EngineName,
    /// The device, as `userswap status` names it
    path: PathBuf,
    /// How it is read: device (in its own order, by several threads), or for comparison as the kernel does,
    /// in the order of addresses with windows of 2^page_cluster slots at most (scaling) or always (fixed), or as before Linux 5.8 (scaling-5.6, bumped-5.6, forced-5.6)
    #[arg(long, value_name = "METHOD", default_value_t)]
    readahead: SwapoffMethod,
}

/// Empties the device; the program runs on meanwhile.
///
/// # Errors
/// There is no such engine or device, there is no room for its pages, or it was cancelled: the device
/// stays.
pub fn swapoff(args: SwapoffArgs) -> Result<ExitCode, Failure> {
    let path = name_of(&args.path)?;
    let mut client = Client::of(args.pid)?;
    let cancelled = cancel_on_interrupt()?;
    // Engines of older builds know the default only, and have no word for it.
    let readahead =
        (args.readahead != SwapoffMethod::default()).then(|| args.readahead.to_string());
    client.send(&Request::Swapoff { path: path.clone(), readahead })?;
    let progress = Progress::new();
    let outcome = follow(&mut client, &progress, &cancelled);
    progress.bar.finish_and_clear();
    match outcome? {
        Answer::Done { .. } => Ok(ExitCode::SUCCESS),
        Answer::Cancelled {} => Err(Failure {
            status: STATUS_CANCELLED,
            message: format!("swapoff {path} was cancelled: the device stays in use"),
        }),
        Answer::Error { message } => Err(client.refusal(&message)),
        other => Err(client.nonsense(&format!("{other:?}"))),
    }
}

/// A file is named from here, as for any command; what is no file here is a device's name as it is.
fn name_of(path: &Path) -> Result<String, Failure> {
    let refuse = |reason: &str| Failure::usage(format!("{}: {reason}", path.display()));
    if let Some(text) =
        path.to_str().filter(|text| remote::is_meant(text) || s3::address::is_meant(text))
    {
        return Ok(text.to_owned());
    }
    let is_name = path.parent() == Some(Path::new("")) && !path.exists();
    let path = match is_name {
        true => path.to_owned(),
        false => std::path::absolute(path).map_err(|error| refuse(&error.to_string()))?,
    };
    let text = path.into_os_string().into_string();
    text.map_err(|_| refuse("no device has such a name: use it as `userswap status` shows it"))
}

/// The first Ctrl-C sets a flag, the second ends this command at once.
fn cancel_on_interrupt() -> Result<Arc<AtomicBool>, Failure> {
    let cancelled = Arc::new(AtomicBool::new(false));
    // In this order: the first signal finds the flag unset.
    let status = i32::from(STATUS_CANCELLED);
    flag::register_conditional_shutdown(SIGINT, status, cancelled.clone())
        .and_then(|_| flag::register(SIGINT, cancelled.clone()))
        .map_err(|error| Failure::unavailable(format!("Ctrl-C cannot be handled: {error}")))?;
    Ok(cancelled)
}

/// Shows progress until the last answer.
fn follow(
    client: &mut Client,
    progress: &Progress,
    cancelled: &AtomicBool,
) -> Result<Answer, Failure> {
    let mut told = false;
    loop {
        if cancelled.load(Ordering::Relaxed) && !told {
            told = true;
            client.send(&Request::Cancel {})?;
        }
        // A device that hangs is silent for long: the user decides how long.
        match client.answer_within(PATIENCE)? {
            Some(Answer::Progress { pages_left, pages_total }) => {
                progress.show(pages_left, pages_total);
            }
            Some(last) => return Ok(last),
            None => {}
        }
    }
}

/// A bar on a terminal, nothing elsewhere.
struct Progress {
    bar: ProgressBar,
}

impl Progress {
    fn new() -> Progress {
        let target = match std::io::stderr().is_terminal() {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        let style = ProgressStyle::with_template("{bar:40} {msg}").expect("it is well-formed");
        Progress { bar: ProgressBar::with_draw_target(Some(0), target).with_style(style) }
    }

    fn show(&self, pages_left: u64, pages_total: u64) {
        self.bar.set_length(pages_total);
        self.bar.set_position(pages_total.saturating_sub(pages_left));
        let rate = self.bar.per_sec();
        self.bar.set_message(format!("{pages_left} pages left, {rate:.0} pages/s"));
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;

    use super::*;

    const NAME: EngineName = EngineName { pid: 7, number: 1 };

    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Interrupt {
        None,
        First,
    }

    /// Follows an engine that says `first`, waits for the line that an interrupt sends, and says `last`.
    fn followed(first: &str, interrupt: Interrupt, last: &str) -> Result<Answer, Failure> {
        let cancelled = interrupt == Interrupt::First;
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("7.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut stream = listener.accept().unwrap().0;
                stream.write_all(first.as_bytes()).unwrap();
                if cancelled {
                    let mut line = String::new();
                    BufReader::new(&stream).read_line(&mut line).unwrap();
                    assert_eq!(line, "{\"request\":\"cancel\"}\n");
                }
                stream.write_all(last.as_bytes()).unwrap();
            });
            let mut client = Client::connect(NAME, &socket).unwrap();
            follow(&mut client, &Progress::new(), &AtomicBool::new(cancelled))
        })
    }

    const PROGRESS: &str = "{\"answer\":\"progress\",\"pages_left\":3,\"pages_total\":9}\n";

    #[test]
    fn progress_is_followed_to_the_last_answer() {
        let done = "{\"answer\":\"done\"}\n";
        assert_eq!(
            followed(&PROGRESS.repeat(3), Interrupt::None, done),
            Ok(Answer::Done { warning: None })
        );
        let (half, rest) = PROGRESS.split_at(20);
        assert_eq!(
            followed(half, Interrupt::None, &format!("{rest}{done}")),
            Ok(Answer::Done { warning: None })
        );
    }

    #[test]
    fn an_interrupt_is_passed_on_once_and_the_answer_waited_for() {
        let cancelled = "{\"answer\":\"cancelled\"}\n";
        assert_eq!(followed(PROGRESS, Interrupt::First, cancelled), Ok(Answer::Cancelled {}));
    }

    #[test]
    fn an_engine_that_ends_or_talks_nonsense_is_reported() {
        let ended = followed(PROGRESS, Interrupt::None, "").unwrap_err();
        assert!(ended.message.contains("ended the connection"), "{}", ended.message);
        let nonsense = followed(PROGRESS, Interrupt::None, "{\"answer\":\"maybe\"}\n").unwrap_err();
        assert!(nonsense.message.contains("does not understand"), "{}", nonsense.message);
    }

    #[test]
    fn a_device_is_named_from_here_unless_it_is_no_file() {
        for name in ["mem", "redis://h/a", "s3://b/a"] {
            assert_eq!(name_of(Path::new(name)).unwrap(), name);
        }
        assert_eq!(name_of(Path::new("/var/tmp")).unwrap(), "/var/tmp");
        let here = std::env::current_dir().unwrap();
        let expected = |name: &str| here.join(name).to_str().unwrap().to_owned();
        assert_eq!(name_of(Path::new("Cargo.toml")).unwrap(), expected("Cargo.toml"));
        assert_eq!(name_of(Path::new("no/such")).unwrap(), expected("no/such"));
    }
}
