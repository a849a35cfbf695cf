//! The terminal: taken over at the start, given back on every way out.
//!
//! Ways out are the end of [`Screen`], a panic of any thread, the terminal's own end, and what the shell is given while `top` is suspended. A signal ends
//! `top` in order, by way of the model, so that it is the end of the screen as well.

use std::io::{self, IsTerminal, Stdout, Write};
use std::panic;
use std::process;
use std::thread;

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::terminal::{
    BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
    disable_raw_mode, enable_raw_mode,
};
use ratatui::crossterm::{execute, queue};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Signal, getpid, kill_process};

use super::draw::{Paint, draw};
use super::model::Model;
use crate::failure::Failure;

/// As for any Rust program that panics.
const STATUS_PANIC: i32 = 101;

/// The terminal while it is ours.
pub struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    paint: Paint,
}

impl Screen {
    /// Takes the terminal over.
    ///
    /// # Errors
    /// There is none, or it cannot move its cursor.
    pub fn enter() -> Result<Self, Failure> {
        check()?;
        give_back_on_panic();
        thread::spawn(end_with_the_terminal);
        let terminal = take().and_then(|()| Terminal::new(CrosstermBackend::new(io::stdout())));
        match terminal {
            Ok(terminal) => Ok(Self { terminal, paint: Paint::here() }),
            Err(error) => {
                give_back();
                Err(Failure::unavailable(format!("the terminal cannot be used: {error}")))
            }
        }
    }

    /// Shows the model.
    ///
    /// # Errors
    /// The terminal has gone.
    pub fn show(&mut self, model: &mut Model) -> io::Result<()> {
        let mut hidden_lines = 0;
        // A terminal that knows how shows the whole frame at once.
        queue!(io::stdout(), BeginSynchronizedUpdate)?;
        self.terminal.draw(|frame| hidden_lines = draw(frame, model, self.paint))?;
        execute!(io::stdout(), EndSynchronizedUpdate)?;
        model.bound_scroll(hidden_lines);
        Ok(())
    }

    /// Gives the terminal back and stops, as Ctrl-Z does elsewhere; goes on when the shell says so.
    ///
    /// # Errors
    /// The terminal has gone.
    pub fn suspend(&mut self) -> io::Result<()> {
        give_back();
        kill_process(getpid(), Signal::TSTP)?;
        take()?;
        // All is drawn anew.
        let area = self.terminal.size()?.into();
        self.terminal.resize(area)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// Refuses what is no terminal before anything is written to it.
fn check() -> Result<(), Failure> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(Failure::unavailable(
            "top needs a terminal for its input and its output: use `userswap list`, or `userswap status --json`, elsewhere",
        ));
    }
    match std::env::var("TERM").as_deref() {
        Ok("dumb") | Err(_) => Err(Failure::unavailable(
            "TERM says that this terminal cannot move its cursor: use `userswap list`, or set TERM to what it is",
        )),
        Ok(_) => Ok(()),
    }
}

fn take() -> io::Result<()> {
    enable_raw_mode()?;
    execute!(io::stdout(), EnterAlternateScreen, Hide)
}

/// Ends `top` when the terminal has gone: what reads keys of it looks for the next one without an end then.
fn end_with_the_terminal() {
    let stdin = io::stdin();
    // Being gone is told without being asked for.
    let mut gone = [PollFd::new(&stdin, PollFlags::empty())];
    while poll(&mut gone, None).is_err() {}
    process::exit(0);
}

/// Errors mean that there is no terminal any more.
fn give_back() {
    let _ = execute!(io::stdout(), EndSynchronizedUpdate, LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
    let _ = io::stdout().flush();
}

/// A panic's message is for the screen of before; and whichever thread it was, `top` ends.
fn give_back_on_panic() {
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |what| {
        give_back();
        report(what);
        process::exit(STATUS_PANIC);
    }));
}

#[cfg(test)]
#[path = "../../tests/terminal_support/mod.rs"]
mod real;

#[cfg(test)]
mod tests {
    use super::real::Tmux;
    use super::*;

    /// The name of the test below, as the test program knows it.
    const PANICS: &str = "top::terminal::tests::panics_while_the_terminal_is_ours";

    #[test]
    fn a_panic_of_any_thread_gives_the_terminal_back() {
        let this = std::env::current_exe().unwrap();
        let terminal = Tmux::start(&[], (80, 24));
        terminal.remember_settings();
        let end =
            terminal.run(&format!("{} --exact {PANICS} --ignored --nocapture", this.display()));
        terminal.shows(&format!("{end}{STATUS_PANIC}"));
        terminal.shows("the story ends here");
        terminal.is_as_remembered();
    }

    #[test]
    #[ignore = "the test above runs it on a terminal"]
    fn panics_while_the_terminal_is_ours() {
        let _screen = Screen::enter().map_err(|failure| failure.message).unwrap();
        std::thread::spawn(|| panic!("the story ends here"))
            .join()
            .expect("it does not come so far");
    }
}
