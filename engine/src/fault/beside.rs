//! What the policy `stream` reads with a page that no stream expects: the block of slots around it, while `policy::beside`
//! finds that such blocks are used.
//!
//! Pages that leave together are often used together again, in no order of addresses: rows of a table, the halves of an
//! object, nodes of a tree. They lie on slots beside each other and come by one request.
use crate::base::index::{NodeId, PageIndex, Slot};
use crate::state::batch::SwapEntry;
use crate::state::core::Core;
use crate::state::wants::{Span, Want};
use userswap_policy::readahead::{Fault, Limits, ReadWindow, Readahead as _};
use userswap_policy::stream::{Ahead, Window};

impl Core {
    /// The window of the stream that expects the page, or else the block around it.
    pub(crate) fn stream_or_block(
        &self,
        fault: Fault,
        target: SwapEntry,
        limits: &Limits,
    ) -> ReadWindow {
        let window = self.stream_window(&fault, limits);
        // Each compressed page takes its own time, wherever it lies.
        if window.count > 1 || self.devices.device_of(target.slot).is_compressed() {
            return ReadWindow::Stream(window);
        }
        match self.block(fault, target, limits, |fault| {
            self.readahead.beside.lock().window(fault, limits)
        }) {
            ReadWindow::One => ReadWindow::Stream(window),
            block => block,
        }
    }

    /// A page is used that was read ahead: the marker of a stream, or one of a block. For the streams that is as if its
    /// fault had read it: a scan whose pages come in blocks is one, too.
    pub(crate) fn stream_or_block_hit(
        &self,
        page: PageIndex,
        slot: Option<Slot>,
        near: NodeId,
        limits: &Limits,
    ) -> Option<Ahead> {
        let fault = self.fault_without_slot(page, near);
        let ahead = self.streams.lock().on_hit(page, fault.now_ns, limits);
        if ahead.is_none() {
            if let Some(slot) = slot {
                self.readahead.beside.lock().on_use(self.devices.number_of(slot));
            }
            let window = self.stream_window(&fault, limits);
            let Window { first, count, step, .. } = window;
            if count > 1 {
                self.want(Want::new(Span::Run { first, count, step }, near));
            }
            self.settle_stream(page, window, 0, near);
        }
        ahead
    }

    /// What comes with a page of a watched block.
    pub(crate) fn count_watched(&self, target: SwapEntry, pages: u32) {
        self.readahead.beside.lock().on_read(self.devices.number_of(target.slot), pages);
    }
}
