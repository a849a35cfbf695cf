//! What an engine is built from: words by key, the same as on the command line.
use crate::failure::{Failure, code_of, value_of};
use crate::handle;
use crate::handle::{Handle, find};
use crate::text::text;
use std::ffi::{c_char, c_int};
use std::fmt::Display;
use std::str::FromStr;
use userswap::internals::lock::Lock;
use userswap::internals::{PAGE_CLUSTERS, page_cluster_of};
use userswap::{Builder, parse_size};

/// What an engine is built from.
pub struct us_options {
    _opaque: [u8; 0],
}

handle!(us_options, Lock<Builder>);

/// The keys, as in "use …".
const KEYS: &str = "swap, fault, transfer, io, on_full, placement, poll, swap_ra_policy, page_cluster, vma_ra_enabled, \
     arena, ram_of_node, fake_numa or control";

/// Options for an engine with a RAM budget of so many bytes, at least 16 MiB; NULL on failure.
#[unsafe(no_mangle)]
pub extern "C" fn us_options_new(ram_bytes: u64) -> *mut us_options {
    value_of(std::ptr::null_mut(), || {
        Ok(us_options::open().insert(Lock::new(Builder::new(ram_bytes))))
    })
}

/// Chooses something other than the default. Keys and values:
/// swap `PATH[:SIZE][,pri=N]` or `mem:SIZE` (again for each device); fault thread|signal; transfer auto|move|copy;
/// io auto|uring|threads; on_full exceed|stop; placement near|spread; poll auto|off|idle|MICROSECONDS;
/// swap_ra_policy stream|scaling|fixed|vma|off; page_cluster 0-10; vma_ra_enabled true|false;
/// arena SIZE (address space, 256G); ram_of_node NODE:SIZE (again for each node); fake_numa NODES;
/// control on (a socket for `userswap status`). All is looked at when the engine is built.
///
/// # Safety
/// Both texts are NULL or C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn us_options_set(
    options: *mut us_options,
    key: *const c_char,
    value: *const c_char,
) -> c_int {
    code_of(|| {
        let options = find(options)?;
        // SAFETY: the caller's promise.
        let key = unsafe { text(key, "key") }?;
        // SAFETY: the caller's promise.
        let value = unsafe { text(value, "value") }?;
        let before = options.lock().clone();
        *options.lock() = changed(before, key, value)?;
        Ok(())
    })
}

/// Forgets options; engines that were built from them go on.
#[unsafe(no_mangle)]
pub extern "C" fn us_options_free(options: *mut us_options) -> c_int {
    code_of(|| us_options::open().remove(options).map(drop))
}

fn changed(builder: Builder, key: &str, value: &str) -> Result<Builder, Failure> {
    Ok(match key {
        "swap" => builder.swap(read(value)?),
        "fault" => builder.fault(read(value)?),
        "transfer" => builder.transfer(read(value)?),
        "io" => builder.io(read(value)?),
        "on_full" => builder.on_full(read(value)?),
        "placement" => builder.placement(read(value)?),
        "poll" => builder.poll(read(value)?),
        "swap_ra_policy" => builder.readahead(read(value)?),
        "vma_ra_enabled" => builder.address_order(read(value)?),
        "page_cluster" => {
            let number =
                page_cluster_of(value).map_err(|_| not(value, key, PAGE_CLUSTERS.values))?;
            builder.page_cluster(number)
        }
        "arena" => builder.arena_bytes(size(value)?),
        "ram_of_node" => {
            let wrong = || not(value, key, "NODE:SIZE, such as 0:64M");
            let (node, bytes) = value.split_once(':').ok_or_else(wrong)?;
            builder.ram_of_node(node.parse().map_err(|_| wrong())?, size(bytes)?)
        }
        "fake_numa" => {
            let nodes = value.parse().ok().filter(|nodes| (1..=64).contains(nodes));
            builder.fake_numa(nodes.ok_or_else(|| not(value, key, "a number from 1 to 64"))?)
        }
        "control" if value == "on" => builder.control(),
        "control" => return Err(not(value, key, "on")),
        _ => return Err(Failure::invalid(format!("\"{key}\" is no option: use {KEYS}"))),
    })
}

fn read<T: FromStr<Err: Display>>(value: &str) -> Result<T, Failure> {
    value.parse().map_err(|error: T::Err| Failure::invalid(error.to_string()))
}

fn size(value: &str) -> Result<u64, Failure> {
    parse_size(value).map_err(|error| Failure::invalid(error.to_string()))
}

fn not(value: &str, key: &str, allowed: &str) -> Failure {
    Failure::invalid(format!("\"{value}\" is not a {key}: use {allowed}"))
}
