//! The statistics file: one flat JSON object, written at the end of the process.
//!
//! Plain names are written by the process that `run` became; with `%p` in the name, which stands for the
//! process number, every process writes its own. The entry points are as safe as the functions that they
//! stand in for.
use super::confined::{self, Ending};
use crate::abi::next;
use crate::calls::{filters, trap};
use crate::memory::unmanaged;
use crate::state::notices;
use crate::state::owner;
use crate::state::process::{self, Process};
use libc::c_int;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use userswap::internals::signal::Blocked;
use userswap::internals::whole_file;
use userswap::{Engine, Snapshot, Usage};

static WRITTEN: AtomicBool = AtomicBool::new(false);

/// Writes the file, once, if this process is to.
fn write() {
    let Some(process) = process::current() else { return };
    let Some(file) = file_of(process) else { return };
    if !WRITTEN.swap(true, Ordering::AcqRel) {
        put_into(&file, process);
    }
}

fn put_into(file: &Path, process: &Process) {
    let _blocked = Blocked::new();
    let text = describe(process);
    if let Err(error) = whole_file::replace(file, &text) {
        let remedy = match error.raw_os_error() {
            Some(libc::EFBIG) => "; raise the limit of a file's size (ulimit -f)",
            _ => "",
        };
        crate::abi::raw::say(&format!("--stats {}: {error}{remedy}", file.display()));
    }
}

/// Writes the file as things stand, if this process is to: it may not be able to do so at its end.
pub fn write_beforehand() {
    let Some(process) = process::current() else { return };
    if let Some(file) = file_of(process) {
        put_into(&file, process);
    }
}

/// The process ends in order, its engine with it. Where the program's filter of system calls might not permit that, it just ends,
/// and another thread does what it can.
pub fn end() {
    if !filters::is_filtered() || confined::process_ends() == Ending::Usual {
        finish();
    }
}

/// What is done before the end.
pub fn finish() {
    let engine = process::current().and_then(Process::engine);
    if owner::is_here() {
        unmanaged::look_back();
        engine.into_iter().for_each(Engine::end_trace);
        engine.into_iter().for_each(Engine::shorten_leases);
    }
    write();
    // A child that shares its parent's memory (vfork) removes nothing: the name is its parent's.
    let Some(process) = process::current() else { return };
    if let Some(engine) = engine {
        engine.withdraw_control();
    }
    process.member.iter().for_each(|member| member.leave());
}

/// From here on this process has a file of its own to write: at its start, and in the child of a fork. A
/// child that shares its parent's memory (vfork) never comes here and writes none.
pub fn renew() {
    WRITTEN.store(false, Ordering::Release);
    owner::renew();
}

fn file_of(process: &Process) -> Option<PathBuf> {
    let name = process.options.stats.as_ref()?.to_str()?;
    if !owner::is_here() {
        return None;
    }
    let pid = std::process::id();
    if name.contains("%p") {
        return Some(name.replace("%p", &pid.to_string()).into());
    }
    (pid == process.options.root_pid).then(|| name.into())
}

fn describe(process: &Process) -> String {
    let engine = process.engine();
    let counters = engine.map_or_else(Snapshot::default, |engine| engine.counters());
    let usage = engine.map_or_else(Usage::default, |engine| engine.usage());
    let mut text = String::from("{\n");
    let mut put = |name: &str, value: &dyn std::fmt::Display| {
        writeln!(text, "  \"{name}\": {value},").expect("writing to a string cannot fail");
    };
    put("engaged", &engine.is_some());
    put("pid", &std::process::id());
    put("ram_bytes", &process.options.ram_bytes);
    put("fault", &format!("\"{}\"", process.options.fault));
    for (name, value) in counters.values() {
        put(name, &value);
    }
    let latency = counters.fault_latency_ns;
    put("fault_latency_p50_ns", &latency.p50);
    put("fault_latency_p95_ns", &latency.p95);
    put("fault_latency_p99_ns", &latency.p99);
    put("fault_latency_max_ns", &latency.max);
    put_pages(&mut put, &usage);
    if let Some(member) = &process.member {
        put("job_budget_pages", &member.ledger.limit());
        put("job_held_pages_max", &member.ledger.peak());
        put("job_exceeded_pages", &member.ledger.exceeded());
        put("job_share_pages", &member.share());
    }
    put("slots_used", &usage.slots_used);
    put("slots_total", &usage.slots);
    put("unmanaged_bytes", &process.unmanaged_bytes.load(Ordering::Relaxed));
    put("raw_calls_trapped", &trap::trapped());
    put("unmanaged_children", &notices::unmanaged_children());
    writeln!(text, "  \"accessible_pages\": {}", process.accessible_pages())
        .expect("writing to a string cannot fail");
    text.push_str("}\n");
    text
}

fn put_pages(put: &mut impl FnMut(&str, &dyn std::fmt::Display), usage: &Usage) {
    put("budget_pages", &usage.budget);
    put("resident_pages", &usage.resident);
    put("cached_pages", &usage.cached);
    put("writing_pages", &usage.writing);
    put("free_pages", &usage.free);
    put("spare_pages", &usage.spare);
    put("debt_pages", &usage.debt);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn _exit(status: c_int) -> ! {
    end();
    next::_exit(status);
    unreachable!("_exit does not return")
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Exit(status: c_int) -> ! {
    // SAFETY: the same function by its other name.
    unsafe { _exit(status) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn quick_exit(status: c_int) -> ! {
    end();
    next::quick_exit(status);
    unreachable!("quick_exit does not return")
}
