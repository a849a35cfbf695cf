//! The memory that pages pass through: the frames of all nodes, pages of zeros, and where slots go that are read
//! over.
use crate::base::index::FrameIndex;
use crate::base::limits::{GAP_MAX, RUN_MAX};
use crate::base::topology::Topology;
use crate::state::node::Node;
use crate::sys::mapping::Mapping;
use crate::sys::{PAGE_BYTES, numa, pages};
use std::io;

/// Address space of an engine's own pages.
pub struct Memory {
    frames: Mapping,
    zeros: Mapping,
    gap: Mapping,
}

impl Memory {
    /// Frames for all of `nodes`, which follow each other: small pages only, nothing of them in core dumps, each
    /// node's from its own memory.
    ///
    /// # Errors
    /// What mmap and madvise say.
    pub fn new(nodes: &[Node], topology: &Topology) -> io::Result<Self> {
        let map = |pages: u32| Mapping::undumped(pages as usize * PAGE_BYTES);
        let frames = map(nodes.iter().map(Node::positions).sum())?;
        let (zeros, gap) = (map(RUN_MAX)?, map(GAP_MAX)?);
        // Kernels built without transparent huge pages refuse the advice: there is nothing to advise then.
        let _ = frames.advise(0, frames.bytes(), libc::MADV_NOHUGEPAGE);
        // Read once, so that the source of zeros is mapped to the shared zero page.
        pages::touch(zeros.address(), RUN_MAX as usize);
        let memory = Self { frames, zeros, gap };
        memory.bind(nodes, topology);
        Ok(memory)
    }

    /// Makes each node's frames come from its memory, before any is touched.
    fn bind(&self, nodes: &[Node], topology: &Topology) {
        for node in nodes {
            let Some(memory) = topology.memory_of(node.id) else { continue };
            let first = self.frame_address(node.first_frame());
            let bytes = node.positions() as usize * PAGE_BYTES;
            if let Err(error) = numa::prefer(first, bytes, memory) {
                crate::base::log::not_bound(error.raw_os_error().unwrap_or(0));
            }
        }
    }

    /// Where the frames are.
    pub fn frames(&self) -> &Mapping {
        &self.frames
    }

    /// The address of a frame.
    ///
    /// # Panics
    /// No node has a frame of this number.
    pub fn frame_address(&self, frame: FrameIndex) -> usize {
        let offset = frame as usize * PAGE_BYTES;
        assert!(offset < self.frames.bytes(), "the frame is in the pool");
        self.frames.address() + offset
    }

    /// The address of `RUN_MAX` pages of zeros.
    pub fn zeros_address(&self) -> usize {
        self.zeros.address()
    }

    /// The address of `GAP_MAX` pages to which slots are read that lie between wanted ones; never looked at.
    pub fn gap_address(&self) -> usize {
        self.gap.address()
    }
}
