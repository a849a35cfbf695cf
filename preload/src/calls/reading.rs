//! Memory that a program passes to a call, read only where the program itself could: for anything else the kernel says EFAULT.
//!
//! Of managed memory the areas know. Of other memory the kernel is asked, by a call that reads a set of signals and then
//! refuses what is to be done with it: no program's filter of system calls forbids that one.
use super::held::Held;
use crate::abi::raw::Span;
use crate::abi::system_call::{error, make};
use crate::state::process;
use libc::c_char;
use userswap::internals::PAGE_BYTES;

/// rt_sigprocmask has no such operation.
const NO_OPERATION: usize = usize::MAX;
const SET_BYTES: usize = size_of::<u64>();

/// A list of C strings that ends with a null pointer.
pub type Texts = *const *const c_char;

/// Reads, and does not ask twice about a page.
#[derive(Default)]
pub struct Reader {
    known: Option<usize>,
}

impl Reader {
    /// Whether the program could read so much.
    pub fn can_read(&mut self, Span { address, bytes }: Span) -> bool {
        let Some(more) = bytes.checked_sub(1) else { return true };
        let Some(last) = address.checked_add(more) else { return false };
        (address / PAGE_BYTES..=last / PAGE_BYTES).all(|page| self.can_read_page(page))
    }

    fn can_read_page(&mut self, page: usize) -> bool {
        if self.known == Some(page) {
            return true;
        }
        // Of the first page there is no telling: a set at the null pointer is none.
        let can = page != 0 && is_readable(page * PAGE_BYTES);
        if can {
            self.known = Some(page);
        }
        can
    }

    /// A value, wherever it begins.
    pub fn value<T: Copy>(&mut self, address: usize) -> Option<T> {
        // SAFETY: memory that the program can read; what is asked for consists of numbers.
        self.can_read(Span { address, bytes: size_of::<T>() })
            .then(|| unsafe { (address as *const T).read_unaligned() })
    }

    /// An entry of a list.
    pub fn entry<T: Copy>(&mut self, list: usize, index: usize) -> Option<T> {
        self.value(list.checked_add(index.checked_mul(size_of::<T>())?)?)
    }

    /// Whether the program could read a C string up to its zero.
    fn can_read_text(&mut self, text: *const c_char) -> bool {
        let mut address = text as usize;
        loop {
            if !self.can_read_page(address / PAGE_BYTES) {
                return false;
            }
            let bytes = PAGE_BYTES - address % PAGE_BYTES;
            // SAFETY: the rest of a page that the program can read.
            if unsafe { libc::strnlen(address as *const c_char, bytes) } < bytes {
                return true;
            }
            address += bytes;
        }
    }

    /// The same of a list of them; of no list too.
    fn can_read_texts(&mut self, list: Texts) -> bool {
        let mut index = 0;
        while !list.is_null() {
            match self.entry::<usize>(list as usize, index) {
                None => return false,
                Some(0) => return true,
                Some(text) if !self.can_read_text(text as *const c_char) => return false,
                Some(_) => index += 1,
            }
        }
        true
    }
}

/// The strings of a list that the program could read, up to the null pointer that ends it; none of no list.
pub fn strings(list: Texts) -> impl Iterator<Item = *const c_char> {
    let mut next = list;
    std::iter::from_fn(move || {
        // SAFETY: the list ends with a null pointer, which has not been met yet.
        let text = unsafe { next.as_ref() }.filter(|text| !text.is_null())?;
        next = next.wrapping_add(1);
        Some(*text)
    })
}

/// Whether the program could read what another is executed with; no path is none.
pub fn can_execute(path: *const c_char, lists: [Texts; 2]) -> bool {
    let mut reader = Reader::default();
    (path.is_null() || reader.can_read_text(path))
        && lists.into_iter().all(|list| reader.can_read_texts(list))
}

/// Whether the program could read the page of an address.
fn is_readable(address: usize) -> bool {
    // The arena has foreign mappings, too.
    if process::is_managed(address) && Held::is_readable(Span { address, bytes: 1 }) {
        return true;
    }
    let asked = [NO_OPERATION, address, 0, SET_BYTES, 0, 0];
    make(libc::SYS_rt_sigprocmask, asked) != error(libc::EFAULT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_can_read_is_not_read() {
        let bytes = 2 * PAGE_BYTES;
        let (prot, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: anywhere.
        let address =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, prot, flags, -1, 0) } as usize;
        let end = address + PAGE_BYTES;
        // SAFETY: the second page of the mapping.
        unsafe { libc::mprotect(end as *mut libc::c_void, PAGE_BYTES, libc::PROT_NONE) };
        let mut reader = Reader::default();
        assert_eq!(reader.value::<u64>(end - 8), Some(0));
        assert_eq!(reader.value::<u64>(end - 7), None);
        assert_eq!(reader.value::<u64>(end), None);
        assert_eq!(reader.value::<u64>(usize::MAX - 3), None);
        assert_eq!(reader.entry::<u64>(8, usize::MAX / 4), None);
        assert!(!reader.can_read(Span { address: 0, bytes: 1 }));
        assert!(reader.can_read(Span { address: 0, bytes: 0 }));
        let texts = [end - 1, 0];
        assert!(can_execute(c"x".as_ptr(), [texts.as_ptr().cast(), std::ptr::null()]));
        // SAFETY: the last byte of the first page.
        unsafe { ((end - 1) as *mut u8).write(1) };
        assert!(!can_execute(c"x".as_ptr(), [texts.as_ptr().cast(), std::ptr::null()]));
        assert!(!can_execute((end - 1) as *const c_char, [std::ptr::null(); 2]));
        assert!(!can_execute(c"x".as_ptr(), [end as Texts, std::ptr::null()]));
        // SAFETY: nothing uses the mapping any more.
        unsafe { libc::munmap(address as *mut libc::c_void, bytes) };
    }
}
