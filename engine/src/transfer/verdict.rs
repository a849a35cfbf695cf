//! The failure policy of the kernel calls that move pages: what a refusal means for the page it is about.
//!
//! One table, call by error number, each row with its reason. The callers apply a verdict and know no error number
//! of their own; what the table does not list cannot be, and ends the process before a page is lost. The program can
//! make every listed refusal happen: it protects, locks and unmaps memory, forks, and lends pages to devices, some of
//! it by raw system calls that nobody tells the engine of.
//!
//! None of these calls may wait for a fault: the caller owns the page, and a fault on it would wait for the caller.

/// A kernel call on pages that the caller owns, or on frames that it holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    /// UFFDIO_MOVE of frames to missing pages.
    MoveIn,
    /// UFFDIO_COPY of content to missing pages.
    CopyIn,
    /// UFFDIO_COPY of zeros to missing pages, which have no content.
    CopyZeros,
    /// UFFDIO_COPY of zeros to frames, which gives them physical pages.
    FillFrames,
    /// UFFDIO_MOVE of pages to frames.
    MoveOut,
    /// The same for one page that was shared by fork and is the process's own now.
    MoveUnshared,
    /// The same to a place that may be executed, as the page may.
    MoveByStage,
    /// UFFDIO_MOVE of a page back to where it was.
    MoveBack,
    /// UFFDIO_WRITEPROTECT of pages that are going to be copied.
    Protect,
    /// Lifting that from pages that stay.
    Unprotect,
    /// Reading the bytes of pages that could stay as well.
    Read,
    /// Reading the bytes of a page that has to go elsewhere.
    ReadKept,
    /// Dropping the memory of pages whose content is in frames.
    DropCopied,
    /// Dropping the memory of pages that the program wants gone.
    DropUnwanted,
    /// Dropping the memory of frames.
    DropFrames,
}

/// What the refused call was about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Extent {
    /// Several pages: not all of them need be the reason.
    Run,
    /// One page.
    Page,
}

impl Extent {
    /// The extent of so many pages.
    pub(crate) fn of(pages: u32) -> Self {
        if pages > 1 { Self::Run } else { Self::Page }
    }
}

/// What a refusal means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// The page stays where it is, with its content.
    Stays,
    /// The page went past the engine, by the program's own doing: it has no content any more.
    Gone,
    /// Gone if nothing is mapped there, else it stays.
    GoneIfMissing,
    /// Gone if nothing is mapped there, else the process ends.
    GoneOrDie,
    /// The call is repeated, a few times.
    Again,
    /// The call is repeated for each page alone.
    PageByPage,
    /// The content is copied instead.
    CopyInstead,
    /// A write that changes nothing makes the page the process's own; then it is tried once more.
    Unshare,
    /// The page's mapping is moved instead.
    Remap,
    /// The memory is unlocked, and the call repeated.
    Unlock,
    /// The process ends: there is no going on without losing a page.
    Die,
}

/// What a refusal means for a run, and for a page alone.
#[derive(Clone, Copy)]
struct Meaning {
    run: Verdict,
    page: Verdict,
}

struct Row {
    call: Call,
    errno: i32,
    meaning: Meaning,
    #[cfg_attr(not(test), expect(dead_code, reason = "for the reader"))]
    why: &'static str,
}

const fn row(call: Call, errno: i32, meaning: Meaning, why: &'static str) -> Row {
    Row { call, errno, meaning, why }
}

/// The same for a run as for a page: the kernel names the page that it refused.
const fn both(verdict: Verdict) -> Meaning {
    Meaning { run: verdict, page: verdict }
}

/// Of a run any page may be the reason; this is what it means for one alone.
const fn alone(page: Verdict) -> Meaning {
    Meaning { run: Verdict::PageByPage, page }
}

use Verdict::{
    Again, CopyInstead, Die, Gone, GoneIfMissing, GoneOrDie, Remap, Stays, Unlock, Unshare,
};

#[rustfmt::skip]
const ROWS: [Row; 46] = [
    row(Call::MoveIn, libc::EBUSY, both(Again), "the device that filled the frame lets go of it a moment after the read has returned"),
    row(Call::MoveIn, libc::EINVAL, both(CopyInstead), "the pages are protected or locked otherwise than the frames, or in several mappings: a copy does not mind"),
    row(Call::MoveIn, libc::ENOENT, both(CopyInstead), "no mapping of ours is there any more: the copy finds out of which pages that is true"),
    row(Call::MoveIn, libc::ENOMEM, both(Again), "no memory for a page table, for the moment"),

    row(Call::CopyIn, libc::ENOENT, alone(Die), "the run is in several mappings; or a raw system call took away the mapping of a page that has content"),
    row(Call::CopyIn, libc::ENOMEM, both(Again), "no memory, for the moment"),
    row(Call::CopyZeros, libc::ENOENT, alone(Gone), "the run is in several mappings; or the fault's message is old, and something else is mapped there by now"),
    row(Call::CopyZeros, libc::EINVAL, alone(Gone), "as before, with shared memory or a file in the place"),
    row(Call::CopyZeros, libc::ENOMEM, both(Again), "no memory, for the moment"),
    row(Call::FillFrames, libc::ENOMEM, both(Again), "no memory, for the moment"),

    row(Call::MoveOut, libc::EBUSY, both(Unshare), "shared by fork, or held by a device: the next try tells"),
    row(Call::MoveOut, libc::EINVAL, alone(CopyInstead), "the run is in several mappings; or the page is protected or locked otherwise than the frames"),
    row(Call::MoveOut, libc::ENOENT, both(Gone), "a raw system call dropped or unmapped it"),
    row(Call::MoveOut, libc::EFAULT, both(Stays), "not a page but a mark of the kernel's: a guard page by a raw madvise, or a memory error"),
    row(Call::MoveOut, libc::ENOMEM, both(Stays), "no memory for a page table, for the moment"),
    row(Call::MoveUnshared, libc::EBUSY, both(Stays), "a device holds it: a copy would miss what the device still writes"),
    row(Call::MoveUnshared, libc::EINVAL, both(Stays), "protected meanwhile: it is tried again when it is the oldest once more"),
    row(Call::MoveUnshared, libc::ENOENT, both(Gone), "a raw system call dropped or unmapped it meanwhile"),
    row(Call::MoveUnshared, libc::EFAULT, both(Stays), "a mark of the kernel's, as above"),
    row(Call::MoveUnshared, libc::ENOMEM, both(Stays), "no memory for a page table, for the moment"),

    row(Call::MoveByStage, libc::EBUSY, both(Stays), "a device holds it, or it is shared: a copy would miss what the device still writes"),
    row(Call::MoveByStage, libc::EINVAL, both(Unlock), "a raw mlockall has locked the place; refused once more, it is the page that is locked, or has a key"),
    row(Call::MoveByStage, libc::ENOENT, both(Gone), "a raw system call dropped or unmapped it meanwhile"),
    row(Call::MoveByStage, libc::EFAULT, both(Stays), "a mark of the kernel's, as above"),
    row(Call::MoveByStage, libc::ENOMEM, both(Stays), "no memory for a page table, for the moment"),

    row(Call::MoveBack, libc::EBUSY, both(Remap), "a device holds it, or another process shares it: it goes back with its mapping"),
    row(Call::MoveBack, libc::EINVAL, both(Remap), "the program has protected its place meanwhile: it goes back with its mapping, protected so"),
    row(Call::MoveBack, libc::EFAULT, both(Remap), "a mark of the kernel's is there instead of the page"),
    row(Call::MoveBack, libc::ENOENT, both(Gone), "the kernel has dropped it, or a raw system call its place"),
    row(Call::MoveBack, libc::ENOMEM, both(Again), "no memory for a page table, for the moment"),

    row(Call::Protect, libc::ENOENT, alone(GoneIfMissing), "part of the run is no mapping of ours any more; or the kernel cannot protect on this processor"),
    row(Call::Protect, libc::EINVAL, both(Stays), "a kernel that cannot protect against writing: a copy would not be safe"),
    row(Call::Protect, libc::ENOMEM, both(Stays), "no memory for a page table, for the moment"),
    row(Call::Unprotect, libc::ENOENT, alone(Gone), "unmapped meanwhile: there is nothing to lift"),
    row(Call::Unprotect, libc::EINVAL, both(Gone), "a kernel that cannot protect has not done so"),

    row(Call::Read, libc::EIO, alone(GoneIfMissing), "missing, where every other way of reading would wait for us; or the kernel forbids reading past a protection"),
    row(Call::Read, libc::ENOMEM, both(Stays), "no memory, for the moment"),
    row(Call::Read, libc::ENOENT, both(Stays), "there is no /proc to read the process's memory by"),
    row(Call::ReadKept, libc::EIO, both(GoneOrDie), "missing; or unreadable, and then its content cannot go with it"),
    row(Call::ReadKept, libc::ENOMEM, both(Again), "no memory, for the moment"),

    row(Call::DropCopied, libc::EINVAL, alone(Stays), "the program has locked it, past us or as a user of the library: it is to be in RAM"),
    row(Call::DropCopied, libc::EPERM, alone(Stays), "sealed by a raw mseal"),
    row(Call::DropCopied, libc::ENOMEM, alone(Gone), "unmapped by a raw system call since it was read"),
    row(Call::DropUnwanted, libc::EINVAL, both(Unlock), "locked, but the program has asked for its content to go"),
    row(Call::DropUnwanted, libc::ENOMEM, both(Gone), "unmapped by a raw system call: what was left of the range has been dropped"),
    row(Call::DropFrames, libc::EINVAL, both(Unlock), "a raw mlockall has locked the pool, too"),
];

/// What it means that the kernel refused `call` with `errno`.
pub(crate) fn verdict(call: Call, extent: Extent, errno: i32) -> Verdict {
    let found = ROWS.iter().find(|row| row.call == call && row.errno == errno);
    found.map_or(Die, |row| match extent {
        Extent::Run => row.meaning.run,
        Extent::Page => row.meaning.page,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLS: [Call; 15] = [
        Call::MoveIn,
        Call::CopyIn,
        Call::CopyZeros,
        Call::FillFrames,
        Call::MoveOut,
        Call::MoveUnshared,
        Call::MoveByStage,
        Call::MoveBack,
        Call::Protect,
        Call::Unprotect,
        Call::Read,
        Call::ReadKept,
        Call::DropCopied,
        Call::DropUnwanted,
        Call::DropFrames,
    ];

    /// What the code that makes a call can apply.
    fn applies(call: Call, verdict: Verdict) -> bool {
        match call {
            Call::MoveIn => matches!(verdict, Again | CopyInstead | Die),
            Call::CopyIn | Call::FillFrames => matches!(verdict, Again | Verdict::PageByPage | Die),
            Call::CopyZeros => matches!(verdict, Again | Verdict::PageByPage | Gone | Die),
            Call::MoveOut => !matches!(verdict, Again | GoneIfMissing | GoneOrDie | Remap | Unlock),
            Call::MoveBack => matches!(verdict, Again | Gone | Remap | Die),
            Call::MoveUnshared => matches!(verdict, Stays | Gone | Die),
            Call::MoveByStage => matches!(verdict, Stays | Unlock | Gone | Die),
            Call::Protect | Call::Read | Call::DropCopied => {
                matches!(verdict, Verdict::PageByPage | Stays | Gone | GoneIfMissing | Die)
            }
            Call::Unprotect => matches!(verdict, Verdict::PageByPage | Gone | Die),
            Call::ReadKept => matches!(verdict, Again | GoneOrDie | Die),
            Call::DropUnwanted => matches!(verdict, Gone | Unlock | Die),
            Call::DropFrames => matches!(verdict, Unlock | Die),
        }
    }

    #[test]
    fn every_row_says_once_what_its_caller_can_do_and_why() {
        for (index, row) in ROWS.iter().enumerate() {
            let name = format!("{:?} with errno {}", row.call, row.errno);
            let again = |other: &Row| other.call == row.call && other.errno == row.errno;
            assert!(!ROWS[..index].iter().any(again), "{name} has two rows");
            assert!(row.why.len() > 10, "{name} has no reason");
            let Meaning { run, page } = row.meaning;
            assert_eq!(verdict(row.call, Extent::of(2), row.errno), run, "{name}");
            assert_eq!(verdict(row.call, Extent::of(1), row.errno), page, "{name}");
            assert!(applies(row.call, run) && applies(row.call, page), "{name}");
            assert_ne!(page, Verdict::PageByPage, "{name}: a page alone has no parts");
        }
    }

    #[test]
    fn content_is_given_up_only_where_nothing_is_mapped() {
        for row in &ROWS {
            let gives_up = [row.meaning.run, row.meaning.page].contains(&Gone);
            let nothing_there = matches!(row.errno, libc::ENOENT | libc::ENOMEM);
            let had_none = matches!(row.call, Call::CopyZeros | Call::Unprotect);
            assert!(!gives_up || nothing_there || had_none, "{:?} {}", row.call, row.errno);
        }
    }

    #[test]
    fn what_is_not_listed_ends_the_process() {
        for call in CALLS {
            for errno in [0, libc::EEXIST, libc::EBADF, libc::ENOTTY, libc::ESRCH] {
                assert_eq!(verdict(call, Extent::Run, errno), Die, "{call:?} {errno}");
                assert_eq!(verdict(call, Extent::Page, errno), Die, "{call:?} {errno}");
            }
        }
    }
}
