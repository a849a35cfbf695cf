//! Reading a trace, block by block; nothing that a file says is believed before it is checked.
use crate::header::{LINE_MAX, MAGIC, NEWEST, OLDER};
use crate::{Event, Header, RECORD_VERSION, Sample, code};
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use twox_hash::XxHash3_64;

/// Bytes of a block's events at most.
pub(crate) const BLOCK_BYTES_MAX: usize = 64 << 10;

const HEAD_BYTES: usize = 36;
const HASHED_FROM: usize = 8;

/// Stands for the number of events where a block has a sample.
pub(crate) const SAMPLE: u32 = u32::MAX;

/// What stands before a block's events.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct BlockHead {
    /// Bytes of the events; 0 without lost ones is the end of the trace.
    pub bytes: u32,
    /// The same, compressed.
    pub packed: u32,
    /// [`SAMPLE`] if they are no events.
    pub events: u32,
    /// Events that are missing before these.
    pub lost: u64,
    pub at_ms: u64,
}

impl BlockHead {
    pub fn to_bytes(self, packed: &[u8]) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        head[8..12].copy_from_slice(&self.bytes.to_le_bytes());
        head[12..16].copy_from_slice(&self.packed.to_le_bytes());
        head[16..20].copy_from_slice(&self.events.to_le_bytes());
        head[20..28].copy_from_slice(&self.lost.to_le_bytes());
        head[28..].copy_from_slice(&self.at_ms.to_le_bytes());
        let hash = hash(&head, packed);
        head[..HASHED_FROM].copy_from_slice(&hash.to_le_bytes());
        head
    }

    fn from_bytes(head: &[u8; HEAD_BYTES]) -> Self {
        let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four"));
        let long = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight"));
        let (lost, at_ms) = (long(20), long(28));
        Self { bytes: word(8), packed: word(12), events: word(16), lost, at_ms }
    }

    fn is_end(self) -> bool {
        self.events == 0 && self.lost == 0
    }
}

fn hash(head: &[u8; HEAD_BYTES], packed: &[u8]) -> u64 {
    let of_head = XxHash3_64::oneshot(&head[HASHED_FROM..]);
    XxHash3_64::oneshot_with_seed(of_head, packed)
}

/// What is wrong with a trace: one line, with the file.
#[derive(Debug)]
pub struct BadTrace {
    file: String,
    reason: String,
}

impl fmt::Display for BadTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file, self.reason)
    }
}

impl std::error::Error for BadTrace {}

/// Events that were written together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Block {
    /// What happened, in its order.
    pub events: Vec<Event>,
    /// Events that are missing before these.
    pub lost: u64,
    /// When it was written, since the trace began.
    pub at_ms: u64,
    /// A block of a record has this, or events.
    pub sample: Option<Box<Sample>>,
}

/// How far a trace has been read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// To the end of a block.
    NotYet,
    /// To the block that says so.
    Said,
    /// To a block of which there is a part: the program was killed as it was written, or the file was cut since.
    Cut,
}

/// A trace that is being read.
pub struct Reader<R: BufRead> {
    file: String,
    from: R,
    header: Header,
    /// Bytes of what has been read.
    offset: u64,
    end: End,
}

/// Whether there is a plain file that begins as traces and records do, of whatever version.
pub fn is_trace(file: &Path) -> bool {
    let mut begin = [0; MAGIC.len()];
    // A pipe that nobody writes to would be waited for.
    std::fs::metadata(file).is_ok_and(|there| there.is_file())
        && File::open(file).and_then(|mut file| file.read_exact(&mut begin)).is_ok()
        && begin == *MAGIC.as_bytes()
}

impl Reader<BufReader<File>> {
    /// Opens a file.
    ///
    /// # Errors
    /// It cannot be read, or is no trace of this version.
    pub fn open(path: &Path) -> Result<Self, BadTrace> {
        let file = path.display().to_string();
        let refuse = |error: io::Error| BadTrace { file: file.clone(), reason: error.to_string() };
        let opened = File::open(path).map_err(refuse)?;
        Self::new(file, BufReader::new(opened))
    }
}

impl<R: BufRead> Reader<R> {
    /// Reads the header of what is called `file`.
    ///
    /// # Errors
    /// It is no trace of this version.
    pub fn new(file: String, mut from: R) -> Result<Self, BadTrace> {
        let bad = |reason: String| BadTrace { file: file.clone(), reason };
        let no_trace =
            || bad("is no trace: name a file that userswap run --trace or --record wrote".into());
        let mut line = Vec::new();
        let limited = Read::by_ref(&mut from).take(LINE_MAX as u64).read_until(b'\n', &mut line);
        limited.map_err(|error| bad(error.to_string()))?;
        let text = std::str::from_utf8(&line).map_err(|_| no_trace())?;
        let rest = text.strip_prefix(MAGIC).and_then(|rest| rest.strip_suffix('\n'));
        let (version, fields) = rest.and_then(|rest| rest.split_once(' ')).ok_or_else(no_trace)?;
        let known = |number: &u32| (OLDER.trace..=RECORD_VERSION).contains(number);
        let Some(version) = version.parse().ok().filter(known) else {
            let known =
                format!("this userswap reads {} to {RECORD_VERSION}: record it again", OLDER.trace);
            return Err(bad(format!("is a trace of version {version:?}, {known}")));
        };
        let header: Header = serde_json::from_str(fields)
            .map_err(|error| bad(format!("its header is damaged ({error}): record it again")))?;
        if ![OLDER, NEWEST].iter().any(|versions| versions.of(&header) == version) {
            return Err(bad("its header is damaged (another version's): record it again".into()));
        }
        if header.page_bytes == 0 || header.pages == 0 {
            return Err(bad("its header has no pages: record it again".into()));
        }
        Ok(Self { offset: line.len() as u64, file, from, header, end: End::NotYet })
    }

    /// What the trace is of.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Whether the end has been read: that of a program that was killed is missing.
    pub fn has_ended(&self) -> bool {
        self.end == End::Said
    }

    /// Where the last whole block ends, if all that is left is a part of the next one.
    pub fn cut_at(&self) -> Option<u64> {
        (self.end == End::Cut).then_some(self.offset)
    }

    /// The next block; None after the last whole one.
    ///
    /// # Errors
    /// The file is damaged, or cannot be read.
    pub fn next_block(&mut self) -> Result<Option<Block>, BadTrace> {
        let Some((head, packed)) = self.next_packed()? else { return Ok(None) };
        if head.is_end() {
            self.end = End::Said;
            let goes_on = self.fill(&mut [0])? > 0;
            return if goes_on { Err(self.damaged("goes on after its end")) } else { Ok(None) };
        }
        let mut bytes = vec![0; head.bytes as usize];
        let unpacked = lz4_flex::block::decompress_into(&packed, &mut bytes);
        if !unpacked.is_ok_and(|unpacked| unpacked == bytes.len()) {
            return Err(self.damaged("is damaged"));
        }
        let mut block =
            Block { events: Vec::new(), lost: head.lost, at_ms: head.at_ms, sample: None };
        if head.events == SAMPLE {
            block.sample = Some(self.sample(&bytes)?);
        } else {
            block.events = self.events(head, &bytes)?;
        }
        Ok(Some(block))
    }

    fn sample(&self, bytes: &[u8]) -> Result<Box<Sample>, BadTrace> {
        let sample = serde_json::from_slice(bytes).ok().filter(|_| self.header.record.is_some());
        sample.ok_or_else(|| self.damaged("is damaged"))
    }

    fn events(&self, head: BlockHead, bytes: &[u8]) -> Result<Vec<Event>, BadTrace> {
        let events = code::decode(bytes);
        let is_of_header = |events: &Vec<Event>| {
            let last = |event: &Event| u64::from(event.first) + u64::from(event.count);
            events.len() == head.events as usize
                && events.iter().all(|event| last(event) <= u64::from(self.header.pages))
        };
        events.filter(is_of_header).ok_or_else(|| self.damaged("is damaged"))
    }

    fn next_packed(&mut self) -> Result<Option<(BlockHead, Vec<u8>)>, BadTrace> {
        let mut bytes = [0; HEAD_BYTES];
        if self.end != End::NotYet {
            return Ok(None);
        }
        match self.fill(&mut bytes)? {
            0 => return Ok(None),
            HEAD_BYTES => {}
            _ => return Ok(self.cut()),
        }
        let head = BlockHead::from_bytes(&bytes);
        let packed_max = lz4_flex::block::get_maximum_output_size(BLOCK_BYTES_MAX);
        if head.bytes as usize > BLOCK_BYTES_MAX || head.packed as usize > packed_max {
            return Err(self.damaged("is damaged"));
        }
        let mut packed = vec![0; head.packed as usize];
        if self.fill(&mut packed)? < packed.len() {
            return Ok(self.cut());
        }
        if hash(&bytes, &packed).to_le_bytes() != bytes[..HASHED_FROM] {
            return Err(self.damaged("is damaged"));
        }
        self.offset += (HEAD_BYTES + packed.len()) as u64;
        Ok(Some((head, packed)))
    }

    /// There is nothing more that is whole.
    fn cut<T>(&mut self) -> Option<T> {
        self.end = End::Cut;
        None
    }

    /// Fills `bytes` as far as there is something left; returns how far.
    fn fill(&mut self, bytes: &mut [u8]) -> Result<usize, BadTrace> {
        let mut filled = 0;
        while filled < bytes.len() {
            match self.from.read(&mut bytes[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.bad(error.to_string())),
            }
        }
        Ok(filled)
    }

    fn damaged(&self, how: &str) -> BadTrace {
        self.bad(format!("{how} at byte {}: record it again", self.offset))
    }

    fn bad(&self, reason: String) -> BadTrace {
        BadTrace { file: self.file.clone(), reason }
    }
}
