//! Numbers: counters by name, what the budget is used for, how long faults took.
use crate::engine::us_engine;
use crate::failure::{Failure, code_of, us_error};
use crate::handle::find;
use crate::text::{c_string, store, text};
use std::ffi::{CString, c_char, c_int};
use std::sync::OnceLock;
use userswap::Snapshot;

/// What the pages of the budget, and the slots of the swap devices, are used for at one moment; a page is 4096 bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct us_usage {
    /// The budget.
    pub budget: u64,
    /// Mapped in regions and heaps.
    pub resident: u64,
    /// Not mapped, but in RAM.
    pub cached: u64,
    /// Charged to accounts.
    pub charged: u64,
    /// Held by compressed pages.
    pub compressed: u64,
    /// Being written to a device.
    pub writing: u64,
    /// Allocated from the kernel, and unused.
    pub free: u64,
    /// Not yet allocated from the kernel.
    pub spare: u64,
    /// In use beyond the budget.
    pub debt: u64,
    /// Slots that hold a page.
    pub slots_used: u64,
    /// Usable slots.
    pub slots: u64,
}

/// Nanoseconds from a fault's arrival to its end, below which a share of the faults stayed.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct us_latency {
    /// The median.
    pub p50: u64,
    /// 95 %.
    pub p95: u64,
    /// 99 %.
    pub p99: u64,
    /// The slowest fault.
    pub max: u64,
}

/// The name of a counter, in the order of their numbers, which begin at 0; NULL beyond the last. Stays valid.
#[unsafe(no_mangle)]
pub extern "C" fn us_counter_name(number: usize) -> *const c_char {
    static NAMES: OnceLock<Vec<CString>> = OnceLock::new();
    let names = NAMES.get_or_init(|| {
        Snapshot::default().values().into_iter().map(|(name, _)| c_string(name)).collect()
    });
    names.get(number).map_or(std::ptr::null(), |name| name.as_ptr())
}

/// A counter by name, such as "pswpin": pages read from swap.
///
/// # Safety
/// The name is NULL or a C string, the value NULL or to be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn us_counter(
    engine: *const us_engine,
    name: *const c_char,
    value: *mut u64,
) -> c_int {
    code_of(|| {
        let engine = find(engine)?;
        // SAFETY: the caller's promise.
        let name = unsafe { text(name, "counter's name") }?;
        let counter = engine.counters().values().into_iter().find(|(known, _)| *known == name);
        let (_, counted) = counter.ok_or_else(|| {
            Failure::invalid(format!("\"{name}\" is no counter: us_counter_name() names them all"))
        })?;
        // SAFETY: the caller's promise.
        unsafe { store(value, counted, "value") }
    })
}

/// All counters at one moment, by number, as many as there is room for; `count` has how many there are afterwards.
///
/// # Safety
/// `values` is NULL, or has room for `*count` values; `count` is NULL or to be read and written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn us_counters(
    engine: *const us_engine,
    values: *mut u64,
    count: *mut usize,
) -> c_int {
    code_of(|| {
        let counted = find(engine)?.counters().values();
        // SAFETY: the caller's promise.
        let room = unsafe { count.as_ref() }.copied().unwrap_or(0);
        // SAFETY: the caller's promise.
        unsafe { store(count, counted.len(), "count") }?;
        for (number, (_, value)) in counted.into_iter().enumerate().take(room) {
            // SAFETY: there is room for so many, the caller says.
            unsafe { store(values.wrapping_add(number), value, "values") }?;
        }
        Ok(())
    })
}

/// What the budget is used for. `bytes` is the size of what the program takes for the struct, sizeof(us_usage): a later
/// library may know more members, and fills in only those.
///
/// # Safety
/// `usage` is NULL, or has room for so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn us_usage_read(
    engine: *const us_engine,
    usage: *mut us_usage,
    bytes: usize,
) -> c_int {
    code_of(|| {
        let now = find(engine)?.usage();
        if bytes < size_of::<us_usage>() {
            let line = format!("{bytes} bytes are no us_usage: pass sizeof(us_usage)");
            return Err(Failure::new(us_error::US_RANGE, line));
        }
        let now = us_usage {
            budget: now.budget.into(),
            resident: now.resident.into(),
            cached: now.cached.into(),
            charged: now.charged.into(),
            compressed: now.compressed.into(),
            writing: now.writing.into(),
            free: now.free.into(),
            spare: now.spare.into(),
            debt: now.debt.into(),
            slots_used: now.slots_used,
            slots: now.slots,
        };
        // SAFETY: the caller's promise.
        unsafe { store(usage, now, "usage") }
    })
}

/// How long faults took since the start of the engine.
///
/// # Safety
/// `latency` is NULL or to be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn us_fault_latency(
    engine: *const us_engine,
    latency: *mut us_latency,
) -> c_int {
    code_of(|| {
        let now = find(engine)?.counters().fault_latency_ns;
        let now = us_latency { p50: now.p50, p95: now.p95, p99: now.p99, max: now.max };
        // SAFETY: the caller's promise.
        unsafe { store(latency, now, "latency") }
    })
}
