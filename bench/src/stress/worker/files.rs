//! Files that a device reads into a worker's pages, and writes from them.
use super::{Worker, Wrong, advice, pages_of};
use crate::stress::content::Stamp;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use userswap::internals::PAGE_BYTES;
use userswap::internals::bench::stress::{Span, WORDS, lost_here};

/// Pages of the file that is read, and of each worker's part of the one that is written.
pub const FILE_PAGES: usize = 256;

/// The files of a load, which have no names.
pub struct Files {
    /// Its pages hold [`Stamp::of_file`]; opened with O_DIRECT where the file system has it.
    stamps: File,
    /// What is written, opened in the same way.
    written: File,
    /// The same file, for who looks at it through the page cache.
    look: File,
}

impl Files {
    /// Files in a directory, for so many workers.
    ///
    /// # Errors
    /// They cannot be made, or there is no room.
    pub fn new(directory: &Path, workers: usize) -> io::Result<Self> {
        const O_TMPFILE: i32 = 0o20_200_000;
        let unnamed = || {
            let mut options = File::options();
            options.read(true).write(true).custom_flags(O_TMPFILE).open(directory)
        };
        let (stamps, look) = (unnamed()?, unnamed()?);
        for page in 0..FILE_PAGES {
            let words = (0..WORDS).flat_map(|index| Stamp::of_file(page).word(index).to_ne_bytes());
            stamps.write_all_at(&words.collect::<Vec<u8>>(), (page * PAGE_BYTES) as u64)?;
        }
        stamps.sync_all()?;
        look.set_len((workers * FILE_PAGES * PAGE_BYTES) as u64)?;
        Ok(Self { stamps: direct(stamps), written: direct(look.try_clone()?), look })
    }
}

/// The same file opened with O_DIRECT, where the file system has it.
fn direct(file: File) -> File {
    const O_DIRECT: i32 = 0o40_000;
    let name = format!("/proc/self/fd/{}", file.as_raw_fd());
    let direct = File::options().read(true).write(true).custom_flags(O_DIRECT).open(name);
    direct.unwrap_or(file)
}

impl Worker<'_> {
    pub(super) fn read_file(&mut self, area: usize, span: Span) -> Result<(), Wrong> {
        let page = self.random.below(FILE_PAGES as u64) as usize;
        let span = Span { count: span.count.min(FILE_PAGES - page), ..span };
        let file = &self.shared.files.stamps;
        let read = self.areas[area].read(span, file, page * PAGE_BYTES);
        self.have_read(area, span, page, read)
    }

    pub(super) fn read_by_ring(&mut self, area: usize, span: Span) -> Result<(), Wrong> {
        let page = self.random.below(FILE_PAGES as u64) as usize;
        let span = Span { count: span.count.min(FILE_PAGES - page), ..span };
        let Some(ring) = &mut self.ring else { return Ok(()) };
        let file = &self.shared.files.stamps;
        let read = self.areas[area].read_by_ring(span, file, page * PAGE_BYTES, ring);
        self.have_read(area, span, page, read)
    }

    /// After a read that failed nobody knows what has come.
    fn have_read(
        &mut self,
        area: usize,
        span: Span,
        first: usize,
        read: io::Result<()>,
    ) -> Result<(), Wrong> {
        for (page, of_file) in pages_of(span).zip(first..) {
            match &read {
                Ok(()) => self.set_stamp(area, page, Stamp::of_file(of_file)),
                Err(_) => self.fill(area, page, Stamp::of_file(of_file)),
            }
        }
        if read.is_err() {
            self.note_refusal();
        }
        self.verify(area, span)
    }

    /// Half of the time from pages that have just come back, and are on their slots as well.
    pub(super) fn write_file(&mut self, area: usize, span: Span) -> Result<(), Wrong> {
        let page = self.random.below(FILE_PAGES as u64) as usize;
        let span = Span { count: span.count.min(FILE_PAGES - page), ..span };
        if self.random.below(2) == 0 {
            self.advise(area, span, advice::PAGEOUT)?;
            self.verify(area, span)?;
        }
        let (first, before) = (self.id * FILE_PAGES + page, lost_here());
        let file = &self.shared.files.written;
        let written = self.areas[area].write(span, file, first * PAGE_BYTES);
        self.find_lost(area, before);
        let seen = written.and_then(|()| {
            let mut pages = pages_of(span).zip(first..);
            pages.try_for_each(|(page, in_file)| self.look_at_file(area, page, in_file))
        });
        match seen {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                Err(Wrong(error.to_string()))
            }
            Err(_) => {
                self.note_refusal();
                Ok(())
            }
        }
    }

    /// A page of the file holds what the page that it was written from does.
    ///
    /// # Errors
    /// InvalidData where it does not; it cannot be read.
    pub(super) fn look_at_file(&self, area: usize, page: usize, in_file: usize) -> io::Result<()> {
        let (mut bytes, stamp) = ([0; PAGE_BYTES], self.stamp(area, page));
        self.shared.files.look.read_exact_at(&mut bytes, (in_file * PAGE_BYTES) as u64)?;
        let words = bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word));
        let Some((index, word)) =
            words.enumerate().find(|(index, word)| *word != stamp.word(*index))
        else {
            return Ok(());
        };
        let Wrong(report) = self.report(area, page, index);
        let text =
            format!("a device wrote {word:#x} from word {index} of a page to a file: {report}");
        Err(io::Error::new(io::ErrorKind::InvalidData, text))
    }
}
