//! A program's own caches: shrinkers, which are asked to free objects, and accounts of what they hold.
use crate::engine::us_engine;
use crate::failure::{Failure, code_of, us_error, value_of};
use crate::handle;
use crate::handle::{Handle, Part, find};
use crate::text::{store, text};
use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;
use userswap::{Account, Engine, NodeId, Registration, ShrinkRequest, ShrinkResult, Shrinker};

/// A cache that is asked to become smaller.
pub struct us_shrinker {
    _opaque: [u8; 0],
}

/// Memory of the program's own that counts toward the budget.
pub struct us_account {
    _opaque: [u8; 0],
}

handle!(us_shrinker, Part<Registration>);
handle!(us_account, Part<CountedAccount>);

/// What `scan` returns when nothing can be done now.
pub const US_STOP: u64 = u64::MAX;

/// A cache, as the engine sees it. A thread of the engine calls both functions, one at a time; they must neither throw nor
/// wait for a lock whose holder may touch memory of the engine, which may itself wait for what is freed here.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct us_cache {
    /// Objects of a node that could go; approximate, and quick.
    pub count: Option<extern "C" fn(user: *mut c_void, node: u32) -> u64>,
    /// Looks at up to so many objects of a node, and frees those that are not needed: how many, or US_STOP.
    pub scan: Option<extern "C" fn(user: *mut c_void, node: u32, objects: u64) -> u64>,
    /// Handed to both.
    pub user: *mut c_void,
    /// What an object costs to make again, in reads from a disk: 2 if in doubt.
    pub seeks: u32,
}

struct Callbacks {
    count: extern "C" fn(*mut c_void, u32) -> u64,
    scan: extern "C" fn(*mut c_void, u32, u64) -> u64,
    user: *mut c_void,
    seeks: u32,
}

// SAFETY: `user` is only handed back, and the caller knows that a thread of the engine calls.
unsafe impl Send for Callbacks {}
// SAFETY: as above.
unsafe impl Sync for Callbacks {}

impl Shrinker for Callbacks {
    fn count(&self, request: &ShrinkRequest) -> u64 {
        (self.count)(self.user, request.node.0.into())
    }

    fn scan(&self, request: &mut ShrinkRequest) -> ShrinkResult {
        let objects = std::mem::take(&mut request.nr_to_scan);
        match (self.scan)(self.user, request.node.0.into(), objects) {
            US_STOP => ShrinkResult::Stop,
            freed => ShrinkResult::Freed(freed),
        }
    }

    fn seeks(&self) -> u32 {
        self.seeks
    }
}

/// Asks a cache to become smaller from now on, whenever pages are reclaimed; `name` is what `userswap status` calls it. NULL on
/// failure.
///
/// # Safety
/// The name is NULL or a C string. The functions can be called by any thread, with `user`, until us_shrinker_close returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn us_shrinker_new(
    engine: *mut us_engine,
    name: *const c_char,
    cache: *const us_cache,
) -> *mut us_shrinker {
    value_of(null_mut(), || {
        let engine = find(engine)?;
        // SAFETY: the caller's promise.
        let name = unsafe { text(name, "cache's name") }?;
        // SAFETY: the caller's promise.
        let cache = unsafe { cache.as_ref() };
        let us_cache { count, scan, user, seeks } =
            *cache.ok_or_else(|| Failure::invalid("the us_cache is NULL: pass its address"))?;
        let functions = count.zip(scan);
        let (count, scan) = functions.ok_or_else(|| {
            Failure::invalid(format!(
                "the cache \"{name}\" lacks count or scan: it needs both functions"
            ))
        })?;
        let callbacks = Arc::new(Callbacks { count, scan, user, seeks });
        let register = |engine: &Engine| Ok(engine.register_shrinker(name, callbacks)?);
        Ok(us_shrinker::open().insert(Part::of(&engine, register)?))
    })
}

/// Does not ask the cache any more; waits for a scan that is under way. Not to be called with a lock that a scan waits for.
#[unsafe(no_mangle)]
pub extern "C" fn us_shrinker_close(shrinker: *mut us_shrinker) -> c_int {
    code_of(|| {
        let shrinker = us_shrinker::open().remove(shrinker)?;
        // Another thread may be in the middle of a call with it, and this is not the last reference.
        shrinker.end();
        Ok(())
    })
}

/// Objects that the cache was asked to look at, and that it freed.
///
/// # Safety
/// Both places are NULL or to be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn us_shrinker_totals(
    shrinker: *const us_shrinker,
    scanned: *mut u64,
    freed: *mut u64,
) -> c_int {
    code_of(|| {
        let totals = find(shrinker)?.scanned();
        // SAFETY: the caller's promise.
        unsafe { store(scanned, totals.scanned, "objects scanned") }?;
        // SAFETY: the caller's promise.
        unsafe { store(freed, totals.freed, "objects freed") }
    })
}

/// An account, and how many nodes there are.
pub struct CountedAccount {
    account: Account,
    nodes: u32,
}

impl CountedAccount {
    fn node(&self, node: u32) -> Result<NodeId, Failure> {
        if node < self.nodes {
            return Ok(NodeId(node as u16));
        }
        let last = self.nodes - 1;
        Err(Failure::invalid(format!("there is no node {node}: the engine's are 0 to {last}")))
    }
}

/// An account on which nothing is charged; NULL on failure.
#[unsafe(no_mangle)]
pub extern "C" fn us_account_new(engine: *mut us_engine) -> *mut us_account {
    value_of(null_mut(), || {
        let engine = find(engine)?;
        let account = Part::of(&engine, |engine| {
            Ok(CountedAccount { account: engine.account(), nodes: engine.nodes() as u32 })
        })?;
        Ok(us_account::open().insert(account))
    })
}

/// Closes an account; what is still charged on it is given back.
#[unsafe(no_mangle)]
pub extern "C" fn us_account_close(account: *mut us_account) -> c_int {
    code_of(|| us_account::open().remove(account).map(drop))
}

/// Takes pages of a node's budget, before the program takes the memory. Waits for reclaim as long as it makes progress;
/// US_NO_MEMORY, with nothing charged, after 40 ms without any.
#[unsafe(no_mangle)]
pub extern "C" fn us_charge(account: *mut us_account, node: u32, pages: u32) -> c_int {
    charged_by(account, node, pages, Account::charge)
}

/// As us_charge, but US_NO_MEMORY at once where that would wait.
#[unsafe(no_mangle)]
pub extern "C" fn us_try_charge(account: *mut us_account, node: u32, pages: u32) -> c_int {
    charged_by(account, node, pages, Account::try_charge)
}

/// Gives pages back to a node's budget, after the program has freed the memory.
#[unsafe(no_mangle)]
pub extern "C" fn us_uncharge(account: *mut us_account, node: u32, pages: u32) -> c_int {
    code_of(|| {
        let account = find(account)?;
        let node = account.node(node)?;
        let charged = account.account.charged(node);
        if charged < pages {
            let line = format!(
                "{pages} pages to uncharge, of {charged} that are charged: give back what was taken"
            );
            return Err(Failure::new(us_error::US_RANGE, line));
        }
        account.account.uncharge(node, pages);
        Ok(())
    })
}

/// Pages that are charged to a node; 0 on failure.
#[unsafe(no_mangle)]
pub extern "C" fn us_charged(account: *const us_account, node: u32) -> u32 {
    value_of(0, || {
        let account = find(account)?;
        Ok(account.account.charged(account.node(node)?))
    })
}

fn charged_by(
    account: *const us_account,
    node: u32,
    pages: u32,
    charge: fn(&Account, NodeId, u32) -> bool,
) -> c_int {
    code_of(|| {
        let account = find(account)?;
        if charge(&account.account, account.node(node)?, pages) {
            return Ok(());
        }
        let line =
            format!("no room for {pages} pages on node {node}: free objects, or raise the budget");
        Err(Failure::new(us_error::US_NO_MEMORY, line))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::us_counter;
    use crate::engine::{us_engine_close, us_engine_new};
    use crate::options::{us_options_free, us_options_new, us_options_set};
    use crate::region::{us_map, us_region_address, us_unmap};
    use std::sync::atomic::{AtomicU64, Ordering};
    use userswap::internals::{PAGE_BYTES, bench};

    const OK: c_int = us_error::US_OK as c_int;
    const BYTES: usize = 64 << 20;

    static ASKED: AtomicU64 = AtomicU64::new(0);

    extern "C" fn count(_: *mut c_void, _: u32) -> u64 {
        ASKED.fetch_add(1, Ordering::SeqCst)
    }

    extern "C" fn scan(_: *mut c_void, _: u32, _: u64) -> u64 {
        US_STOP
    }

    fn small_engine() -> *mut us_engine {
        let options = us_options_new(16 << 20);
        for (key, value) in [(c"swap", c"mem:128M"), (c"arena", c"1G")] {
            // SAFETY: both are C strings.
            assert_eq!(unsafe { us_options_set(options, key.as_ptr(), value.as_ptr()) }, OK);
        }
        let engine = us_engine_new(options);
        assert!(!engine.is_null());
        assert_eq!(us_options_free(options), OK);
        engine
    }

    #[test]
    fn a_closed_cache_is_not_asked_though_a_call_with_it_is_under_way() {
        let engine = small_engine();
        let cache = us_cache { count: Some(count), scan: Some(scan), user: null_mut(), seeks: 2 };
        // SAFETY: a C string, and functions that any thread may call.
        let shrinker = unsafe { us_shrinker_new(engine, c"closed".as_ptr(), &raw const cache) };
        let call = find(shrinker).unwrap();
        assert_eq!(us_shrinker_close(shrinker), OK);
        let before = ASKED.load(Ordering::SeqCst);
        let region = us_map(engine, BYTES);
        let first = us_region_address(region).addr();
        for page in (first..first + BYTES).step_by(PAGE_BYTES) {
            bench::raw::write(page, 1);
        }
        let mut reclaimed = 0;
        // SAFETY: a C string, and a value to be written.
        let told = unsafe { us_counter(engine, c"pswpout".as_ptr(), &raw mut reclaimed) };
        assert!(told == OK && reclaimed > 1000, "{reclaimed} pages");
        assert_eq!(ASKED.load(Ordering::SeqCst), before);
        drop(call);
        assert_eq!((us_unmap(region), us_engine_close(engine)), (OK, OK));
    }
}
