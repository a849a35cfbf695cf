//! `userswap top`: this user's programs with an engine, live, and what can be changed in them.
//!
//! Pure parts: `history` and `figures` (answers to rates), `model` (what is shown), `keys` and `panel` (what keys change), `draw`
//! (the model to a frame). Threads, sockets and signals are in `asking` and here, the terminal in `terminal`.

mod asking;
mod draw;
#[cfg(test)]
mod examples;
mod figures;
mod history;
mod keys;
mod latency;
mod model;
mod panel;
mod program;
mod terminal;
mod text;

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use clap::Args;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use userswap::internals::directory::EngineName;

use crate::control::target;
use crate::failure::Failure;
use asking::Asking;
use model::{Act, Model, News};
use terminal::Screen;

/// Keys are looked for this often, and a signal or news shown as soon.
const TURN: Duration = Duration::from_millis(50);
/// What is shown in seconds changes this often without any news.
const REDRAW: Duration = Duration::from_secs(1);
/// An engine closes a connection that is silent for half a minute.
const INTERVAL_MAX_SECONDS: f64 = 10.0;
const INTERVAL_MIN_SECONDS: f64 = 0.1;

/// Options of `top`.
#[derive(Args)]
pub struct TopArgs {
    /// How often programs are asked, in seconds from 0.1 to 10
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    interval: Duration,
    /// The process to begin with, as `userswap list` shows it
    #[arg(long)]
    pid: Option<EngineName>,
}

fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok();
    let allowed = INTERVAL_MIN_SECONDS..=INTERVAL_MAX_SECONDS;
    seconds.filter(|seconds| allowed.contains(seconds)).map(Duration::from_secs_f64).ok_or_else(|| {
        format!("\"{text}\" is not allowed: use seconds from {INTERVAL_MIN_SECONDS} to {INTERVAL_MAX_SECONDS}, such as 0.5")
    })
}

/// Shows the programs until the user leaves, or a signal says so.
///
/// # Errors
/// There is no terminal, or no such engine.
pub fn top(args: &TopArgs) -> Result<ExitCode, Failure> {
    let first = args.pid.map(|name| target::find(name).map(|socket| (name, socket))).transpose()?;
    let ended = end_on_signals()?;
    let mut screen = Screen::enter()?;
    let (sender, news) = channel();
    let mut model = Model::new(args.interval);
    if let Some((of, _)) = first {
        model.screen = model::Screen::Program { of, scroll: 0 };
        model.hear(Duration::ZERO, News::Found(vec![of]));
    }
    let asking = Asking::start(sender, args.interval, first);
    let mut session = Session { start: Instant::now(), model, asking, news };
    match session.run(&mut screen, &ended) {
        // A terminal that has gone says so by SIGHUP as well, perhaps a little later.
        Err(error) if !ended.load(Ordering::Relaxed) => {
            drop(screen);
            Err(Failure::unavailable(format!("the terminal cannot be used: {error}")))
        }
        Ok(()) | Err(_) => Ok(ExitCode::SUCCESS),
    }
}

fn end_on_signals() -> Result<Arc<AtomicBool>, Failure> {
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGHUP, SIGINT] {
        flag::register(signal, ended.clone())
            .map_err(|error| Failure::unavailable(format!("signals cannot be handled: {error}")))?;
    }
    Ok(ended)
}

/// What is shown, and what it is learnt from.
struct Session {
    start: Instant,
    model: Model,
    asking: Asking,
    news: Receiver<News>,
}

impl Session {
    fn run(&mut self, screen: &mut Screen, ended: &AtomicBool) -> io::Result<()> {
        let mut shown: Option<Instant> = None;
        loop {
            let mut is_fresh = shown.is_none_or(|shown| shown.elapsed() >= REDRAW);
            while let Ok(news) = self.news.try_recv() {
                self.model.hear(self.start.elapsed(), news);
                is_fresh = true;
            }
            if is_fresh {
                self.model.now = self.start.elapsed();
                screen.show(&mut self.model)?;
                shown = Some(Instant::now());
            }
            if ended.load(Ordering::Relaxed) {
                return Ok(());
            }
            // Keys that wait are taken together.
            let mut patience = TURN;
            while event::poll(patience)? {
                patience = Duration::ZERO;
                shown = None;
                let Event::Key(key) = event::read()? else { continue };
                if key.kind != KeyEventKind::Press {
                    continue;
                }
                match keys::press(&mut self.model, key) {
                    Some(Act::Leave) => return Ok(()),
                    Some(Act::Suspend) => screen.suspend()?,
                    Some(act) => self.act(act),
                    None => {}
                }
            }
        }
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Leave | Act::Suspend => {}
            Act::AskSettings(of) => self.asking.settings(of),
            Act::Set { of, key, value } => self.asking.set(of, key, value),
            Act::Swapoff { of, device } => self.asking.swapoff(of, device),
            Act::CancelSwapoff(of) => self.asking.cancel_swapoff(of),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_seconds_within_bounds() {
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        for text in ["0", "0.05", "11", "-1", "nan", "inf", "1s", ""] {
            assert!(interval(text).unwrap_err().contains("use seconds from 0.1 to 10"), "{text}");
        }
    }
}
