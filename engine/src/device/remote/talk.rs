//! What is said to servers about slots, word by word of 64, and what their answers mean.
use super::cluster::Target;
use super::keeper;
use super::keys::{Copy, Key};
use super::server::Purpose;
use super::wire::{Reply, Wire, nonsense};
use super::{Copies, Remote};
use crate::sys::request::Pieces;
use crate::sys::{PAGE_BYTES, pages};
use std::cell::Cell;
use std::io;
use userswap_policy::lent::SlotWord;

/// How often a cluster may send us elsewhere for one group before that is trouble.
const REDIRECTIONS_MAX: usize = 8;

/// What is to be done with slots.
#[derive(Clone, Copy)]
pub enum Act<'a> {
    /// Their pages are read, to memory for `first` and what follows it.
    Read { first: u32, into: &'a Pieces },
    /// Their pages are written, from there.
    Write { first: u32, from: &'a Pieces, missed: Missed<'a> },
    /// Their groups are kept for so many seconds more.
    Keep { lease_s: u32 },
    /// They are deleted.
    Delete { missed: Missed<'a> },
    /// Their groups are deleted.
    DeleteGroups,
    /// Their groups are copied to another engine's keys.
    Copy { to: &'a Remote },
}

/// Words whose server is spared, by the last bits of their indexes; None where each must be done.
pub(super) type Missed<'a> = Option<&'a Cell<u64>>;

/// How the answer about one word ended, on a connection that goes on.
enum Ended {
    /// As it should.
    Well,
    /// With an error.
    Badly(io::Error),
    /// Another server has it.
    Elsewhere(Target),
}

/// What is said to one server.
#[derive(Clone, Copy)]
struct Order<'a> {
    act: Act<'a>,
    copy: Copy,
    /// It does not own the hash slot yet, and does what it is told so.
    asking: bool,
}

impl Order<'_> {
    /// Before each command: it is good for one.
    fn ask(self, wire: &mut Wire) -> io::Result<()> {
        if self.asking { wire.say(&[b"ASKING"]) } else { Ok(()) }
    }

    /// What the server says to that.
    fn asked(self, wire: &mut Wire) -> io::Result<()> {
        if self.asking { wire.reply().map(drop) } else { Ok(()) }
    }
}

impl<'a> Act<'a> {
    /// Whether a part of it is of no use.
    fn is_all_or_nothing(&self) -> bool {
        match self {
            Self::Read { .. } | Self::Write { .. } | Self::Copy { .. } => true,
            Self::Keep { .. } | Self::Delete { .. } | Self::DeleteGroups => false,
        }
    }

    /// The same, with what is not done for a server's silence noted: of what is written or deleted.
    pub(super) fn noting<'b>(self, missed: &'b Cell<u64>) -> Act<'b>
    where
        'a: 'b,
    {
        let missed = Some(missed);
        match self {
            Self::Write { first, from, .. } => Act::Write { first, from, missed },
            Self::Delete { .. } => Act::Delete { missed },
            other => other,
        }
    }

    fn missed(&self) -> Missed<'a> {
        match self {
            Self::Write { missed, .. } | Self::Delete { missed } => *missed,
            _ => None,
        }
    }

    fn purpose(&self) -> Purpose {
        match self {
            Self::Read { .. } => Purpose::Look,
            // A short lease that comes after a long one would be the one that counts.
            Self::Keep { .. }
            | Self::Write { .. }
            | Self::Delete { .. }
            | Self::DeleteGroups
            | Self::Copy { .. } => Purpose::Change,
        }
    }
}

/// The addresses of the pages of a word's slots.
fn pages_of(pieces: &Pieces, first: u32, word: SlotWord) -> impl Iterator<Item = usize> {
    let addresses = pieces.iter().flat_map(|piece| {
        (0..piece.bytes / PAGE_BYTES).map(move |page| piece.address + page * PAGE_BYTES)
    });
    let slot = word.index as u32 * u64::BITS + word.mask.trailing_zeros();
    addresses.skip((slot - first) as usize)
}

/// A word's bit in [`Missed`].
pub(super) fn bit_of(word: &SlotWord) -> u64 {
    1 << (word.index as u32 % u64::BITS)
}

/// The numbers of the bits of a mask.
pub(super) fn fields(mask: u64) -> impl Iterator<Item = u64> {
    (0..u64::from(u64::BITS)).filter(move |bit| mask >> bit & 1 == 1)
}

impl Remote {
    /// Does something with slots, wherever they are.
    ///
    /// # Errors
    /// What went wrong first. The rest is not tried of what is read or written; else it is, but for servers that say nothing.
    pub(super) fn act(&self, act: Act, copy: Copy, words: &[SlotWord]) -> io::Result<()> {
        let (mut rest, mut ended) = (words, Ok(()));
        while let Some(first) = rest.first() {
            let server = self.owner(*first, copy);
            // The first whoever has it by now: another thread may have heard so in between.
            let more =
                rest[1..].iter().take_while(|word| self.owner(**word, copy) == server).count();
            let (stretch, others) = rest.split_at(1 + more);
            if ended.is_ok() || !self.cluster.server(server).is_silent() {
                ended = ended.and(self.act_at(server, act, copy, stretch));
            }
            if ended.is_err() && act.is_all_or_nothing() {
                break;
            }
            rest = others;
        }
        ended
    }

    /// Does it with slots that one server seems to have.
    fn act_at(&self, server: usize, act: Act, copy: Copy, words: &[SlotWord]) -> io::Result<()> {
        let target = Target { server, asking: false };
        match self.attempt(target, act, copy, words)? {
            Ended::Well => Ok(()),
            Ended::Badly(error) => Err(error),
            Ended::Elsewhere(_) if act.is_all_or_nothing() => {
                words.iter().try_for_each(|word| self.follow(act, copy, *word))
            }
            Ended::Elsewhere(_) => {
                let follow = |word: &SlotWord| self.follow(act, copy, *word);
                words.iter().map(follow).fold(Ok(()), io::Result::and)
            }
        }
    }

    pub(super) fn owner(&self, word: SlotWord, copy: Copy) -> usize {
        self.cluster.owner(&self.key(word.index, copy))
    }

    /// Does it with slots of one word, wherever the servers send us.
    fn follow(&self, act: Act, copy: Copy, word: SlotWord) -> io::Result<()> {
        let mut target = Target { server: self.owner(word, copy), asking: false };
        for _ in 0..REDIRECTIONS_MAX {
            match self.attempt(target, act, copy, &[word])? {
                Ended::Well => return Ok(()),
                Ended::Badly(error) => return Err(error),
                Ended::Elsewhere(next) => target = next,
            }
        }
        Err(io::Error::from_raw_os_error(libc::EAGAIN))
    }

    /// Does it in one conversation with one server; of several words that do not end well, one tells how.
    fn attempt(
        &self,
        target: Target,
        act: Act,
        copy: Copy,
        words: &[SlotWord],
    ) -> io::Result<Ended> {
        let server = self.cluster.server(target.server);
        // What is there already can be read and kept: it went there without us.
        let is_far = || server.address().is_some_and(|it| !self.config.reach.includes(it));
        if matches!(act, Act::Write { .. }) && is_far() {
            return Ok(Ended::Badly(io::Error::from_raw_os_error(libc::EPERM)));
        }
        if let Some(missed) = act.missed().filter(|_| server.is_spared(&self.config)) {
            missed.set(words.iter().fold(missed.get(), |bits, word| bits | bit_of(word)));
            self.note_silence(&self.key(words[0].index, copy));
            return Ok(Ended::Well);
        }
        let order = Order { act, copy, asking: target.asking };
        let outcome = server.converse(&self.config, act.purpose(), &mut |wire| {
            for word in words {
                self.send(wire, order, *word)?;
            }
            wire.flush()?;
            let mut all = Ended::Well;
            for word in words {
                match self.receive(wire, order, *word)? {
                    Ended::Well => {}
                    ended => all = ended,
                }
            }
            Ok(all)
        });
        if outcome.is_err() {
            self.note_silence(&self.key(words[0].index, copy));
        }
        outcome
    }

    /// The server that seems to own a key does not answer: another may have taken its place, and the keeper asks it.
    fn note_silence(&self, key: &Key) {
        self.cluster.doubt(key);
        if self.config.copies == Copies::Two {
            self.want(keeper::SILENCE);
        }
    }

    fn send(&self, wire: &mut Wire, order: Order, word: SlotWord) -> io::Result<()> {
        let key = self.key(word.index, order.copy);
        let count = word.mask.count_ones() as usize;
        order.ask(wire)?;
        match order.act {
            Act::Read { .. } => {
                wire.command(2 + count)?;
                wire.word(b"HMGET")?;
                wire.word(key.text())?;
                fields(word.mask).try_for_each(|field| wire.number(field))
            }
            Act::Write { first, from, .. } => {
                wire.command(2 + 2 * count)?;
                wire.word(b"HSET")?;
                wire.word(key.text())?;
                for (field, page) in fields(word.mask).zip(pages_of(from, first, word)) {
                    wire.number(field)?;
                    wire.word(pages::view(page, PAGE_BYTES))?;
                }
                order.ask(wire)?;
                self.send_lease(wire, &key, self.lease_s())
            }
            Act::Keep { lease_s } => self.send_lease(wire, &key, lease_s),
            Act::Delete { .. } => {
                wire.command(2 + count)?;
                wire.word(b"HDEL")?;
                wire.word(key.text())?;
                fields(word.mask).try_for_each(|field| wire.number(field))
            }
            Act::DeleteGroups => wire.say(&[b"UNLINK", key.text()]),
            Act::Copy { to } => {
                let other = to.key(word.index, order.copy);
                wire.say(&[b"COPY", key.text(), other.text(), b"REPLACE"])?;
                order.ask(wire)?;
                self.send_lease(wire, &other, self.lease_s())
            }
        }
    }

    fn send_lease(&self, wire: &mut Wire, key: &Key, lease_s: u32) -> io::Result<()> {
        wire.command(3)?;
        wire.word(b"EXPIRE")?;
        wire.word(key.text())?;
        wire.number(lease_s.into())
    }

    fn receive(&self, wire: &mut Wire, order: Order, word: SlotWord) -> io::Result<Ended> {
        order.asked(wire)?;
        match order.act {
            Act::Read { first, into } => self.receive_pages(wire, into, first, word),
            Act::Keep { .. } | Act::Delete { .. } | Act::DeleteGroups => self.receive_number(wire),
            Act::Write { .. } | Act::Copy { .. } => {
                let done = self.receive_number(wire)?;
                order.asked(wire)?;
                let kept = self.receive_number(wire)?;
                Ok(if matches!(done, Ended::Well) { kept } else { done })
            }
        }
    }

    fn receive_number(&self, wire: &mut Wire) -> io::Result<Ended> {
        match wire.reply()? {
            Reply::Number(_) => Ok(Ended::Well),
            Reply::Refused => Ok(self.refused(wire)),
            _ => Err(nonsense()),
        }
    }

    /// What is not there is left as it is, if something is: who wants it has its checksum. What is no page is as little what
    /// was written as nothing is.
    fn receive_pages(
        &self,
        wire: &mut Wire,
        into: &Pieces,
        first: u32,
        word: SlotWord,
    ) -> io::Result<Ended> {
        let count = word.mask.count_ones() as usize;
        match wire.reply()? {
            Reply::Array(found) if found == count => {}
            Reply::Refused => return Ok(self.refused(wire)),
            _ => return Err(nonsense()),
        }
        let mut found = 0;
        for page in pages_of(into, first, word).take(count) {
            match wire.reply()? {
                Reply::Bulk(PAGE_BYTES) => wire.take(pages::view_mut(page, PAGE_BYTES))?,
                Reply::Bulk(bytes) => {
                    wire.skip(bytes + 2)?;
                    continue;
                }
                Reply::Nothing => continue,
                _ => return Err(nonsense()),
            }
            found += 1;
        }
        Ok(match found {
            0 => Ended::Badly(io::Error::from_raw_os_error(libc::ENODATA)),
            _ => Ended::Well,
        })
    }

    fn refused(&self, wire: &Wire) -> Ended {
        match self.cluster.redirected(wire.refusal()) {
            Some(target) => {
                if !target.asking {
                    self.note_move();
                }
                Ended::Elsewhere(target)
            }
            None => Ended::Badly(wire.refusal().error()),
        }
    }
}
