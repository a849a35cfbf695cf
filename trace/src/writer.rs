//! Writing a trace: events gather in memory, and go out as blocks that stand alone.
use crate::code::{EVENT_BYTES_MAX, Encoder};
use crate::reader::{BLOCK_BYTES_MAX, BlockHead, SAMPLE};
use crate::{Event, Header, Sample};
use std::io::{self, Write};

/// A trace that is being written.
pub struct Writer<W: Write> {
    to: W,
    /// Bytes of the header and of the blocks that were written whole.
    whole_bytes: u64,
    encoder: Encoder,
    bytes: Vec<u8>,
    packed: Vec<u8>,
    events: u32,
    lost: u64,
}

impl<W: Write> Writer<W> {
    /// Writes the header.
    ///
    /// # Errors
    /// What writing says.
    pub fn new(mut to: W, header: &Header) -> io::Result<Self> {
        let line = header.line();
        to.write_all(line.as_bytes())?;
        Ok(Self {
            to,
            whole_bytes: line.len() as u64,
            encoder: Encoder::default(),
            bytes: Vec::with_capacity(BLOCK_BYTES_MAX),
            packed: Vec::new(),
            events: 0,
            lost: 0,
        })
    }

    /// Adds an event; true when the block is full, and must be written before the next one.
    #[must_use = "a full block is to be written"]
    pub fn push(&mut self, event: Event) -> bool {
        self.encoder.put(event, &mut self.bytes);
        self.events += 1;
        self.bytes.len() + EVENT_BYTES_MAX > BLOCK_BYTES_MAX
    }

    /// Notes that so many events are missing here.
    pub fn note_lost(&mut self, events: u64) {
        self.lost += events;
    }

    /// Writes what there is as a block, at so many milliseconds since the trace began; nothing if there is nothing.
    ///
    /// # Errors
    /// What writing says; of the block there may be a part: see [`Self::whole_bytes`].
    pub fn flush(&mut self, at_ms: u64) -> io::Result<()> {
        if self.events == 0 && self.lost == 0 {
            return Ok(());
        }
        let head =
            BlockHead { events: self.events, lost: self.lost, at_ms, ..BlockHead::default() };
        self.write_packed(head)?;
        self.encoder = Encoder::default();
        (self.events, self.lost) = (0, 0);
        Ok(())
    }

    /// Writes what there is, and how the program is doing, as of so many milliseconds since the record began.
    ///
    /// # Errors
    /// As [`Self::flush`].
    pub fn sample(&mut self, mut sample: Sample, at_ms: u64) -> io::Result<()> {
        self.flush(at_ms)?;
        self.bytes = serde_json::to_vec(&sample)?;
        if self.bytes.len() > BLOCK_BYTES_MAX {
            // Names of devices and mappings can be long; numbers alone fit.
            sample.mappings = None;
            sample.devices.iter_mut().for_each(|device| device.name.truncate(0));
            sample.objects.iter_mut().for_each(|object| object.truncate(0));
            sample.origins.iter_mut().for_each(|origin| origin.name.truncate(0));
            self.bytes = serde_json::to_vec(&sample)?;
        }
        self.write_packed(BlockHead { events: SAMPLE, at_ms, ..BlockHead::default() })
    }

    /// Compresses and writes `bytes`.
    fn write_packed(&mut self, head: BlockHead) -> io::Result<()> {
        self.packed.clear();
        self.packed.resize(lz4_flex::block::get_maximum_output_size(self.bytes.len()), 0);
        let packed = lz4_flex::block::compress_into(&self.bytes, &mut self.packed)
            .map_err(io::Error::other)?;
        let head = BlockHead { bytes: self.bytes.len() as u32, packed: packed as u32, ..head };
        self.bytes.clear();
        self.write_block(head, packed)
    }

    /// Writes what there is, and the end.
    ///
    /// # Errors
    /// As [`Self::flush`].
    pub fn end(&mut self, at_ms: u64) -> io::Result<()> {
        self.flush(at_ms)?;
        self.write_block(BlockHead { at_ms, ..BlockHead::default() }, 0)
    }

    /// In one call: a program that is killed leaves whole blocks.
    fn write_block(&mut self, head: BlockHead, packed: usize) -> io::Result<()> {
        let packed = &self.packed[..packed];
        let mut block = head.to_bytes(packed).to_vec();
        block.extend_from_slice(packed);
        self.to.write_all(&block)?;
        self.whole_bytes += block.len() as u64;
        Ok(())
    }

    /// The length at which the trace ends with its last whole block.
    pub fn whole_bytes(&self) -> u64 {
        self.whole_bytes
    }

    /// What is written to.
    pub fn target(&self) -> &W {
        &self.to
    }
}
