//! The threads that ask: one looks for engines, each engine has one that waits for its answers, and each request one more.
//!
//! Whatever an engine does not answer keeps its own thread waiting, and nothing else: what they learn goes to one queue.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SendError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use userswap::internals::directory::EngineName;
use userswap::internals::protocol::{Answer, Request};
use userswap::internals::status::Status;

use super::model::{News, PROGRAMS_MAX};
use super::program::SwapoffState;
use crate::control::{Client, plain, target};
use crate::failure::Failure;

/// Engines are looked for this often at least.
const LOOK_MAX: Duration = Duration::from_secs(2);
/// A swapoff is told to stop within this time.
const PATIENCE: Duration = Duration::from_millis(100);

/// The ways to ask, and the way that news take.
pub struct Asking {
    news: Sender<News>,
    /// Swapoffs under way, with what tells them to stop.
    swapoffs: BTreeMap<EngineName, Sender<()>>,
    sockets: Arc<Mutex<BTreeMap<EngineName, PathBuf>>>,
}

impl Asking {
    /// Begins to look for engines, and to ask each every `interval`; `first` is one that may be in no directory of ours.
    pub fn start(
        news: Sender<News>,
        interval: Duration,
        first: Option<(EngineName, PathBuf)>,
    ) -> Self {
        let sockets = Arc::new(Mutex::new(BTreeMap::new()));
        let look = Looking {
            news: news.clone(),
            interval,
            first,
            sockets: sockets.clone(),
            watchers: BTreeMap::new(),
            refused: Arc::default(),
        };
        thread::spawn(move || look.go_on());
        Self { news, swapoffs: BTreeMap::new(), sockets }
    }

    /// Asks for all settings of an engine.
    pub fn settings(&self, of: EngineName) {
        self.spawn(of, News::Told, move |client| match client.ask(&Request::Settings {})? {
            Answer::Settings { settings } => Ok(News::Settings(of, settings)),
            other => Err(client.nonsense(&format!("{other:?}"))),
        });
    }

    /// Changes a setting, and asks for all of them when it has changed.
    pub fn set(&self, of: EngineName, key: String, value: String) {
        let news = self.news.clone();
        self.spawn(of, News::Told, move |client| {
            let told = match client.ask_patiently(&Request::Set { key, value })? {
                Answer::Set { key, value } => {
                    News::Told(format!("{of}: {} = {}", plain(&key), plain(&value)))
                }
                other => return Err(client.nonsense(&format!("{other:?}"))),
            };
            if let Answer::Settings { settings } = client.ask(&Request::Settings {})? {
                // Nobody hears it any more when `top` ends.
                let _ = news.send(News::Settings(of, settings));
            }
            Ok(told)
        });
    }

    /// Starts a swapoff; its end is told in any case, also when it could not begin.
    pub fn swapoff(&mut self, of: EngineName, device: String) {
        let (stop, stopped) = channel();
        self.swapoffs.insert(of, stop);
        let news = self.news.clone();
        let ended = move |state, told: String| News::SwapoffEnded { of, state, told: plain(&told) };
        let refused = move |reason| ended(SwapoffState::Refused, reason);
        self.spawn(of, refused, move |client| {
            let (state, told) = match follow(client, of, &device, &news, &stopped)? {
                Answer::Done { .. } => (SwapoffState::Done, "done"),
                Answer::Cancelled {} => (SwapoffState::Cancelled, "cancelled, it stays in use"),
                Answer::Error { message } => return Err(client.refusal(&message)),
                other => return Err(client.nonsense(&format!("{other:?}"))),
            };
            Ok(ended(state, format!("{of}: swapoff {device}: {told}")))
        });
    }

    /// Tells the swapoff under way to stop; how it ended comes as news.
    pub fn cancel_swapoff(&mut self, of: EngineName) {
        if let Some(stop) = self.swapoffs.remove(&of) {
            // It may have ended by itself.
            let _ = stop.send(());
        }
    }

    /// Runs `request` on a connection of its own, and sends what comes of it, or what `failed` makes of the reason.
    fn spawn(
        &self,
        of: EngineName,
        failed: impl FnOnce(String) -> News + Send + 'static,
        request: impl FnOnce(&mut Client) -> Result<News, Failure> + Send + 'static,
    ) {
        let news = self.news.clone();
        let socket = lock(&self.sockets).get(&of).cloned();
        thread::spawn(move || {
            let client = match socket {
                Some(socket) => Client::connect(of, &socket),
                None => Client::of(of),
            };
            let told = client.and_then(|mut client| request(&mut client));
            let _ = news.send(told.unwrap_or_else(|failure| failed(failure.message)));
        });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // A thread that panics ends `top`.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends progress until the last answer.
fn follow(
    client: &mut Client,
    of: EngineName,
    device: &str,
    news: &Sender<News>,
    stopped: &Receiver<()>,
) -> Result<Answer, Failure> {
    client.send(&Request::Swapoff { path: device.to_owned(), readahead: None })?;
    loop {
        if stopped.try_recv().is_ok() {
            client.send(&Request::Cancel {})?;
        }
        match client.answer_within(PATIENCE)? {
            Some(Answer::Progress { pages_left, pages_total }) => {
                let _ = news.send(News::Progress { of, pages_left, pages_total });
            }
            Some(last) => return Ok(last),
            None => {}
        }
    }
}

/// The thread that looks for engines.
struct Looking {
    news: Sender<News>,
    interval: Duration,
    first: Option<(EngineName, PathBuf)>,
    sockets: Arc<Mutex<BTreeMap<EngineName, PathBuf>>>,
    watchers: BTreeMap<EngineName, JoinHandle<()>>,
    /// Names that nobody listened at when they were last tried: of programs that have become others.
    refused: Arc<Mutex<BTreeSet<EngineName>>>,
}

impl Looking {
    fn go_on(mut self) {
        loop {
            let mut found: BTreeMap<_, _> = target::named().into_iter().collect();
            found.extend(self.first.clone().filter(|(_, socket)| socket.exists()));
            if self.look(found).is_err() {
                return;
            }
            thread::sleep(self.interval.min(LOOK_MAX));
        }
    }

    /// Watches all that were found, and tells which of them there are; an error when nobody hears it any more.
    fn look(&mut self, mut found: BTreeMap<EngineName, PathBuf>) -> Result<(), SendError<News>> {
        self.watchers.retain(|_, thread| !thread.is_finished());
        while found.len() > PROGRAMS_MAX {
            found.pop_last();
        }
        for (name, socket) in &found {
            self.watchers.entry(*name).or_insert_with(|| {
                let watcher = Watcher {
                    name: *name,
                    socket: socket.clone(),
                    news: self.news.clone(),
                    interval: self.interval,
                    refused: self.refused.clone(),
                };
                thread::spawn(move || watcher.go_on())
            });
        }
        let refused = lock(&self.refused);
        let names = found.keys().filter(|name| !refused.contains(name)).copied().collect();
        drop(refused);
        *lock(&self.sockets) = found;
        self.news.send(News::Found(names))
    }
}

/// The thread that asks one engine how it is doing, again and again.
struct Watcher {
    name: EngineName,
    socket: PathBuf,
    news: Sender<News>,
    interval: Duration,
    refused: Arc<Mutex<BTreeSet<EngineName>>>,
}

impl Watcher {
    fn go_on(self) {
        let Ok(mut client) = self.connect() else { return };
        let mut has_answered = false;
        loop {
            let asked = Instant::now();
            // However long it takes: the model says that it is silent meanwhile.
            let mut answer = ask_status(&mut client);
            if answer.is_err() && has_answered {
                // An engine closes a connection that was silent for long, as when `top` was stopped.
                answer = self.connect().and_then(|again| {
                    client = again;
                    ask_status(&mut client)
                });
            }
            let news = match answer {
                Ok(status) => News::Status(self.name, status),
                Err(failure) => {
                    // One that has too many clients says so, and is asked again.
                    let _ = self.news.send(match has_answered {
                        true => News::Gone(self.name, failure.message),
                        false => News::Told(failure.message),
                    });
                    return;
                }
            };
            has_answered = true;
            if self.news.send(news).is_err() {
                return;
            }
            thread::sleep(self.interval.saturating_sub(asked.elapsed()));
        }
    }

    fn connect(&self) -> Result<Client, Failure> {
        let client = Client::connect(self.name, &self.socket);
        let mut refused = lock(&self.refused);
        match &client {
            Ok(_) => refused.remove(&self.name),
            Err(_) => refused.insert(self.name),
        };
        client
    }
}

fn ask_status(client: &mut Client) -> Result<Box<Status>, Failure> {
    match client.ask_patiently(&Request::Status {})? {
        Answer::Status { status } => Ok(status),
        other => Err(client.nonsense(&format!("{other:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;

    use super::super::examples::status;
    use super::*;

    const NAME: EngineName = EngineName { pid: 7, number: 1 };

    /// An engine that reads a line and sends each of `answers` in turn; its last word is read by nobody.
    fn engine(answers: Vec<Vec<u8>>) -> (tempfile::TempDir, PathBuf) {
        engine_of(vec![answers])
    }

    /// The same with several connections, one after the other.
    fn engine_of(connections: Vec<Vec<Vec<u8>>>) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("7.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        thread::spawn(move || {
            for answers in connections {
                let (stream, _) = listener.accept().unwrap();
                let mut lines = BufReader::new(stream);
                for answer in answers {
                    lines.read_line(&mut String::new()).unwrap();
                    lines.get_mut().write_all(&answer).unwrap();
                }
            }
        });
        (directory, socket)
    }

    fn asking(socket: PathBuf) -> (Asking, Receiver<News>) {
        let (sender, news) = channel();
        let sockets = Arc::new(Mutex::new([(NAME, socket)].into()));
        (Asking { news: sender, swapoffs: BTreeMap::new(), sockets }, news)
    }

    #[test]
    fn a_swapoff_tells_its_progress_and_ends_when_it_is_told_to() {
        let progress = Answer::Progress { pages_left: 3, pages_total: 9 }.to_line();
        let (_directory, socket) = engine(vec![progress, Answer::Cancelled {}.to_line()]);
        let (mut asking, news) = asking(socket);
        asking.swapoff(NAME, "/swap".to_owned());
        let first = news.recv().unwrap();
        assert!(
            matches!(first, News::Progress { of: NAME, pages_left: 3, pages_total: 9 }),
            "{first:?}"
        );
        asking.cancel_swapoff(NAME);
        let last = news.recv().unwrap();
        assert!(
            matches!(&last, News::SwapoffEnded { state: SwapoffState::Cancelled, told, .. } if told.contains("/swap")),
            "{last:?}"
        );
    }

    #[test]
    fn a_setting_is_told_with_what_all_are_now() {
        let set = Answer::Set { key: "ram".to_owned(), value: "24M".to_owned() };
        let all = Answer::Settings { settings: Vec::new() };
        let (_directory, socket) = engine(vec![set.to_line(), all.to_line()]);
        let (asking, news) = asking(socket);
        asking.set(NAME, "ram".to_owned(), "24M".to_owned());
        assert!(matches!(news.recv().unwrap(), News::Settings(NAME, _)));
        assert!(matches!(news.recv().unwrap(), News::Told(line) if line == "7: ram = 24M"));
    }

    #[test]
    fn what_is_refused_is_told_in_the_engines_words() {
        for (answer, part) in [
            (Answer::error("ram: too small"), "ram: too small"),
            (Answer::Done { warning: None }, "does not understand"),
        ] {
            let (_directory, socket) = engine(vec![answer.to_line()]);
            let (asking, news) = asking(socket);
            asking.settings(NAME);
            assert!(matches!(news.recv().unwrap(), News::Told(line) if line.contains(part)));
        }
    }

    #[test]
    fn an_engine_is_watched_until_it_has_no_other_connection_for_one_that_ends() {
        let status = Answer::Status { status: Box::new(status()) }.to_line();
        let farewell = Answer::error("no request within 30 s").to_line();
        for connections in [
            vec![vec![status.clone(), status.clone()]],
            vec![vec![status.clone(), farewell], vec![status.clone()]],
            vec![vec![status.clone()], vec![status]],
        ] {
            let (_directory, socket) = engine_of(connections);
            let (sender, news) = channel();
            let (interval, refused) = (Duration::ZERO, Arc::default());
            Watcher { name: NAME, socket, news: sender, interval, refused }.go_on();
            let news: Vec<_> = news.into_iter().collect();
            assert!(
                matches!(&news[..], [News::Status(..), News::Status(..), News::Gone(NAME, why)] if why.contains("ended")),
                "{news:?}"
            );
        }
    }

    #[test]
    fn a_swapoff_that_cannot_begin_has_ended() {
        let directory = tempfile::tempdir().unwrap();
        let (mut asking, news) = asking(directory.path().join("7.sock"));
        asking.swapoff(NAME, "/swap".to_owned());
        let told = news.recv().unwrap();
        assert!(
            matches!(&told, News::SwapoffEnded { of: NAME, state: SwapoffState::Refused, told } if told.contains("has just ended")),
            "{told:?}"
        );
    }

    #[test]
    fn a_name_that_has_refused_is_found_as_soon_as_one_listens_at_it() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("7.sock");
        drop(UnixListener::bind(&socket).unwrap());
        let (sender, news) = channel();
        let mut looking = Looking {
            news: sender,
            interval: Duration::from_secs(3600),
            first: None,
            sockets: Arc::default(),
            watchers: BTreeMap::new(),
            refused: Arc::default(),
        };
        let found: BTreeMap<_, _> = [(NAME, socket.clone())].into();
        looking.look(found.clone()).unwrap();
        while !looking.watchers[&NAME].is_finished() {
            thread::yield_now();
        }
        std::fs::remove_file(&socket).unwrap();
        let listener = UnixListener::bind(&socket).unwrap();
        looking.look(found.clone()).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&Answer::Status { status: Box::new(status()) }.to_line()).unwrap();
        while !matches!(news.recv().unwrap(), News::Status(NAME, _)) {}
        looking.look(found).unwrap();
        assert!(matches!(news.recv().unwrap(), News::Found(names) if names.contains(&NAME)));
    }
}
