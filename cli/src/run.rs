//! `userswap run`: checks everything, then becomes the program with the engine inside.
//!
//! Whatever can be wrong is found before the program starts, and nothing is left behind when it is.
//! The program replaces this process, so its exit status and signals are its own.

use std::convert::Infallible;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use userswap::internals::Cipher;
use userswap::internals::PAGE_CLUSTER_DEFAULT;
use userswap::internals::cpu_latency;
use userswap::internals::directories::names;
use userswap::internals::filters;
use userswap::internals::told::Told;
use userswap::internals::{
    Allowed, MIN_REGION_DEFAULT_BYTES, OPTIONS_VARIABLE, Options, PAGE_CLUSTERS, RA_POLICIES,
    VMA_RA, check_devices, directory, open, page_cluster_of, remote, s3, signal,
};
use userswap::internals::{Ledger, ledger};
use userswap::{AddressOrder, Compress, Poll, ReadaheadPolicy};
use userswap::{ByteSize, parse_size};
use userswap::{FaultMode, IoBackend, OnFull, Placement, RawCalls, Transfer};
use userswap::{SwapPath, SwapSpec};

use crate::failure::{Failure, STATUS_NOT_FOUND};
use crate::memory::PAGE_BYTES;
use crate::outputs::{Identity, check_replaced, is_plain, remove_older};
use crate::ram::{self, Ram, default_ram, parse_ram};
use crate::said::say;
use crate::{library, program};

/// Where swap goes when the default directory has a name that cannot be written down.
const PLAIN_DIRECTORY: &str = "/var/tmp";

/// Options of `run`.
#[derive(Args)]
pub struct RunArgs {
    /// RAM budget of the program and all that it starts, such as 512M, or by node, such as 0:2G,1:2G
    /// [default: half of the available memory]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    ram: Option<Ram>,
    /// What the budget can be raised to while the program runs, at least [default: about four times --ram]
    #[arg(long, value_name = "SIZE", value_parser = parse_ram, allow_hyphen_values = true)]
    ram_max: Option<u64>,
    /// Give each process of the program the whole budget, not all together
    #[arg(long)]
    ram_per_process: bool,
    /// Pretend that the CPUs belong to this many NUMA nodes
    #[arg(long, value_name = "NODES", value_parser = clap::value_parser!(u32).range(1..=64))]
    fake_numa: Option<u32>,
    /// Swap device: PATH[:SIZE][,pri=N][,tier=N][,node=N][,encrypt], zram:SIZE, redis://HOST/PREFIX[:SIZE], s3://BUCKET/PREFIX[:SIZE] or mem:SIZE; may be repeated [default:
    /// an unlinked file in $TMPDIR or /var/tmp]
    #[arg(long, value_name = "SPEC", allow_hyphen_values = true, value_parser = parse_swap)]
    swap: Vec<SwapSpec>,
    /// Keep pages compressed in at most SIZE of the budget before they go to a device, or in as much as it brings (auto)
    #[arg(long, value_name = "SIZE|auto", allow_hyphen_values = true)]
    compress: Option<Compress>,
    /// Encrypt what is written to swap devices, all of them
    #[arg(long)]
    encrypt: bool,
    /// Devices without a priority: near (each node its own first) or spread (all equal, in turns)
    #[arg(long, value_name = "ORDER", default_value_t = Placement::Near)]
    placement: Placement,
    /// How page faults are delivered: thread or signal
    #[arg(long, value_name = "MODE", default_value_t = FaultMode::Thread)]
    fault: FaultMode,
    /// Manage private mappings of at least this size
    #[arg(long, value_name = "SIZE", value_parser = parse_min_region, allow_hyphen_values = true,
          default_value_t = ByteSize(MIN_REGION_DEFAULT_BYTES))]
    min_region: ByteSize,
    /// When every swap device is full: exceed the budget, or stop the program
    #[arg(long, value_name = "ANSWER", default_value_t = OnFull::Exceed)]
    on_full: OnFull,
    /// Write counters as JSON to this file at exit
    #[arg(long, value_name = "FILE")]
    stats: Option<PathBuf>,
    /// Record faults and the pages that leave to this file, FILE.PID for children; see docs/trace.md
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Record that and how the engine is doing to this file, for `userswap report`; see docs/record.md
    #[arg(long, value_name = "FILE", conflicts_with = "trace")]
    pub record: Option<PathBuf>,
    /// Do not say what runs outside the budget
    #[arg(long)]
    quiet: bool,
    /// How pages travel: auto, move or copy
    #[arg(long, value_name = "WAY", default_value_t = Transfer::Auto)]
    transfer: Transfer,
    /// System calls in a program's own code: auto (caught where they matter), trap or pass
    #[arg(long, value_name = "ANSWER", default_value_t = RawCalls::Auto)]
    raw_calls: RawCalls,
    /// How devices are driven: auto, uring or threads
    #[arg(long, value_name = "BACKEND", default_value_t = IoBackend::Auto)]
    io: IoBackend,
    /// How the thread that serves faults waits: auto (it looks on while that pays), off (it sleeps), idle
    /// (as auto, and idle CPUs do not halt while faults are dense) or microseconds to look on for
    #[arg(long, value_name = "WAY", default_value_t = Poll::Auto, allow_hyphen_values = true)]
    poll: Poll,
    /// What is read ahead: stream, scaling (or 0), fixed (or 1), vma or off
    #[arg(long, value_name = "POLICY", default_value_t = ReadaheadPolicy::Stream, value_parser = parse_policy)]
    swap_ra_policy: ReadaheadPolicy,
    /// Largest window of scaling, fixed and vma, as a power of two: 0 to 10
    #[arg(long, value_name = "N", default_value_t = PAGE_CLUSTER_DEFAULT,
          value_parser = parse_page_cluster, allow_hyphen_values = true)]
    page_cluster: u8,
    /// Whether scaling reads in the order of addresses where no device seeks: true or false
    #[arg(long, value_name = "BOOL", default_value_t = AddressOrder::Enabled,
          value_parser = parse_address_order)]
    vma_ra_enabled: AddressOrder,
    /// Take no defaults from variables (USERSWAP_RAM), ~/.config/userswap.toml and /etc/userswap.toml, which count in
    /// this order after the command line
    #[arg(long)]
    pub no_defaults: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM ARGS")]
    pub command: Vec<OsString>,
}

fn parse_min_region(text: &str) -> Result<ByteSize, String> {
    let bytes = parse_size(text).map_err(|error| error.to_string())?;
    match bytes {
        PAGE_BYTES.. => Ok(ByteSize(bytes)),
        _ => Err(format!("\"{text}\" is less than a page: give at least {}", ByteSize(PAGE_BYTES))),
    }
}

/// A device as it is named on a command line, where an option may stand for its name by mistake.
///
/// # Errors
/// It is none.
pub fn parse_swap(text: &str) -> Result<SwapSpec, String> {
    let swap: SwapSpec = text.parse().map_err(|error: userswap::SpecError| error.to_string())?;
    match &swap.path {
        SwapPath::Path(path) if path.as_os_str().as_bytes().starts_with(b"-") => {
            Err(format!("\"{text}\" names no device: for a file of that name write ./{text}"))
        }
        _ => Ok(swap),
    }
}

fn not_allowed(text: &str, Allowed { values, .. }: Allowed) -> String {
    format!("{text:?} is not allowed: use {values}")
}

fn parse_policy(text: &str) -> Result<ReadaheadPolicy, String> {
    text.parse().map_err(|_| not_allowed(text, RA_POLICIES))
}

fn parse_page_cluster(text: &str) -> Result<u8, String> {
    page_cluster_of(text).map_err(|_| not_allowed(text, PAGE_CLUSTERS))
}

fn parse_address_order(text: &str) -> Result<AddressOrder, String> {
    text.parse().map_err(|_| not_allowed(text, VMA_RA))
}

/// How the C library is set.
const TUNABLES_VARIABLE: &str = "GLIBC_TUNABLES";
/// The C library keeps the stacks of all threads that have ended for others: it would free the tables of thread-locals
/// that go with them as another thread ends, with all signals blocked, and they may be in managed memory.
const KEEP_STACKS: &str = "glibc.pthread.stack_cache_size=0x7fffffffffff";

/// The C library's settings, with what is needed where faults come by signal; of two values it takes the last.
fn tunables(given: Option<OsString>) -> OsString {
    let mut all = given.unwrap_or_default();
    if !all.is_empty() {
        all.push(":");
    }
    all.push(KEEP_STACKS);
    all
}

/// Sets what libraries of the program's look up in the environment.
fn set_libraries(command: &mut Command, fault: FaultMode) {
    if fault == FaultMode::Signal {
        command.env(TUNABLES_VARIABLE, tunables(env::var_os(TUNABLES_VARIABLE)));
    }
}

/// Checks the options and becomes the program.
///
/// # Errors
/// Anything that keeps the program from running under the engine; on success there is no return.
pub fn run(args: RunArgs) -> Result<Infallible, Failure> {
    let (name, arguments) = args.command.split_first().expect("clap demands a program");
    let mut options = options(&args)?;
    for warning in check_swaps(&options)? {
        say(format_args!("warning: {warning}"));
    }
    let search_path = env::var_os("PATH");
    let program = program::resolve(name, search_path.as_deref())?;
    check_kernel(&options)?;
    let library = library::install()?;
    options.filters = filters::tried();
    options.control = control_directory();
    options.told = told(&library);
    options.ledger = match args.ram_per_process {
        true => None,
        false => options
            .control
            .as_deref()
            .map(|directory| make_ledger(directory, &options))
            .transpose()?,
    };
    options.trace.as_deref().map_or(Ok(()), |file| remove_older("--trace", file))?;
    options.record.as_deref().map_or(Ok(()), |file| remove_older("--record", file))?;
    let mut command = Command::new(&program.path);
    set_libraries(&mut command, options.fault);
    if program.first_arguments.is_empty() {
        command.arg0(name);
    }
    command
        .args(&program.first_arguments)
        .args(arguments)
        .env("LD_PRELOAD", preload(&library, env::var_os("LD_PRELOAD").as_deref()))
        .env(OPTIONS_VARIABLE, handed_on(options).to_text());
    let error = signal::keep_pipe_ignored(&mut command).exec();
    let message = format!("{}: cannot be started: {error}", program.path.display());
    match error.kind() {
        std::io::ErrorKind::NotFound => Err(Failure { status: STATUS_NOT_FOUND, message }),
        _ => Err(Failure::not_runnable(message)),
    }
}

/// What `run` would use with these options.
pub struct Checked {
    pub swaps: Vec<SwapSpec>,
    pub warnings: Vec<String>,
}

/// Checks the options as [`run`] does, and changes nothing.
///
/// # Errors
/// As for [`run`].
pub fn checked(args: &RunArgs) -> Result<Checked, Failure> {
    let options = options(args)?;
    let warnings = check_swaps(&options)?;
    Ok(Checked { swaps: options.swaps, warnings })
}

/// Where the job's processes note what the user was told; without it they may say it more than once.
fn told(library: &Path) -> Option<PathBuf> {
    let directory = library.parent().filter(|directory| is_plain(directory))?;
    for name in names(directory, usize::MAX).unwrap_or_default() {
        let process = name.to_str().and_then(|name| name.strip_prefix(TOLD_PREFIX)?.parse().ok());
        if process.is_some_and(|process| !directory::is_running(process)) {
            // An error means that another start was faster.
            let _ = fs::remove_file(directory.join(name));
        }
    }
    let path = directory.join(format!("{TOLD_PREFIX}{}", std::process::id()));
    Told::create(&path).ok().map(|()| path)
}

/// How the names of such files begin; the number of the process that `run` became follows.
const TOLD_PREFIX: &str = "told-";

/// Engines listen in a directory that only this user can enter.
fn control_directory() -> Option<PathBuf> {
    let refusal = match library::private_directory() {
        Ok(directory) if is_plain(&directory) => return Some(directory),
        Ok(directory) => format!("{}: is not plain UTF-8", directory.display()),
        Err(failure) => failure.message,
    };
    say(format_args!("warning: the program will have no control socket: {refusal}"));
    None
}

/// Where the processes share the budget out, in the directory of the control sockets.
fn make_ledger(directory: &Path, options: &Options) -> Result<PathBuf, Failure> {
    ledger::sweep(directory, directory::is_running);
    let pages = u32::try_from(options.ram_bytes / PAGE_BYTES).unwrap_or(u32::MAX);
    Ledger::create(directory, options.root_pid, pages).map_err(|error| {
        let directory = directory.display();
        Failure::unavailable(format!(
            "cannot write to {directory}: {error}; make room, or use --ram-per-process"
        ))
    })
}

/// Makes sure that the kernel has what the options ask for.
fn check_kernel(options: &Options) -> Result<(), Failure> {
    let support = userswap::probe().map_err(Failure::unavailable)?;
    if options.transfer == Transfer::Move && !support.moving {
        return Err(Failure::usage(format!("--transfer: {}", userswap::Error::NoMove)));
    }
    if let Some(remedy) = remedy(options.fault, support) {
        say(format_args!(
            "note: requests of io_uring fail on swapped memory, and with --raw-calls pass all calls that bypass the C library: {remedy}"
        ));
    }
    if options.poll == Poll::Idle
        && let Err(error) = cpu_latency::check()
    {
        say(format_args!("note: --poll idle: {error}"));
    }
    Ok(())
}

/// What has the kernel serve all faults that system calls take; None if it does.
fn remedy(fault: FaultMode, support: userswap::Support) -> Option<&'static str> {
    match (fault, support.kernel_faults) {
        (FaultMode::Thread, true) => None,
        (FaultMode::Signal, true) => Some("--fault thread serves them"),
        (_, false) => Some(
            "to serve them, this user needs CAP_SYS_PTRACE, vm.unprivileged_userfaultfd=1 or access to /dev/userfaultfd",
        ),
    }
}

fn options(args: &RunArgs) -> Result<Options, Failure> {
    let here = working_directory(args)?;
    let ram = args.ram.clone().map_or_else(|| default_ram().map(Ram::total), Ok)?;
    let mut options = ram.options();
    options.ram_max_bytes = args.ram_max.unwrap_or(0);
    options.fake_numa = args.fake_numa;
    ram::check(&options)?;
    choose_devices(args, &here, &mut options)?;
    options.placement = args.placement;
    options.fault = args.fault;
    options.min_region_bytes = args.min_region.0;
    options.on_full = args.on_full;
    let output = |option, file: &Option<PathBuf>| {
        file.as_ref().map(|file| check_replaced(option, &here.join(file))).transpose()
    };
    options.stats = output("--stats", &args.stats)?;
    options.trace = output("--trace", &args.trace)?;
    options.record = output("--record", &args.record)?;
    options.quiet = args.quiet;
    options.transfer = args.transfer;
    options.io = args.io;
    options.poll = args.poll;
    options.raw_calls = args.raw_calls;
    options.swap_ra_policy = args.swap_ra_policy;
    options.page_cluster = args.page_cluster;
    options.vma_ra_enabled = args.vma_ra_enabled;
    // The program takes over this process and its number.
    options.root_pid = std::process::id();
    Ok(options)
}

/// Where relative paths begin. A directory that has been removed matters only to these.
fn working_directory(args: &RunArgs) -> Result<PathBuf, Failure> {
    let root = Path::new("/");
    let files = [&args.stats, &args.trace, &args.record];
    let is_relative = files.into_iter().flatten().any(|file| file.is_relative())
        || args.swap.iter().any(|swap| swap.clone().absolute(root) != *swap);
    match env::current_dir() {
        Ok(here) => Ok(here),
        Err(_) if !is_relative => Ok(root.to_owned()),
        Err(error) => Err(Failure::unavailable(format!(
            "the working directory: {error}: change to another one, or name files from the root"
        ))),
    }
}

/// What the program swaps to, and what opens it.
fn choose_devices(args: &RunArgs, here: &Path, options: &mut Options) -> Result<(), Failure> {
    options.swaps = args.swap.iter().map(|swap| swap.clone().absolute(here)).collect();
    if options.swaps.is_empty() {
        options.swaps.push(default_swap());
    }
    options.encrypt = args.encrypt;
    options.compress = args.compress;
    // First: it names what was written, without what is found out about it.
    userswap::internals::swaps_of(options)
        .map_err(|error| Failure::usage(format!("--swap: {error}")))?;
    let resolved = std::mem::take(&mut options.swaps).into_iter().map(open::resolved);
    options.swaps = resolved.collect::<Result<_, _>>().map_err(Failure::usage)?;
    options.password = remote::open::Password::of_environment();
    if let Some(swap) = args.swap.iter().find(|swap| swap.bucket().is_some()) {
        options.credentials = s3::credentials::Credentials::find()
            .map_err(|reason| Failure::usage(format!("--swap: \"{swap}\": {reason}")))?;
    }
    Ok(())
}

/// What the program gets: it opens its devices when it needs them.
fn handed_on(mut options: Options) -> Options {
    options.swaps = options.swaps.into_iter().map(SwapSpec::handed_on).collect();
    options
}

fn default_swap() -> SwapSpec {
    let swap = SwapSpec::at(open::default_directory());
    if reads_back(&swap) { swap } else { SwapSpec::at(PLAIN_DIRECTORY) }
}

/// Whether a specification survives being handed on as text.
fn reads_back(swap: &SwapSpec) -> bool {
    swap.to_string().parse().as_ref() == Ok(swap)
}

/// Opens every device as the engine will, undoes it, and returns the warnings.
fn check_swaps(options: &Options) -> Result<Vec<String>, Failure> {
    if options.encrypt || options.swaps.iter().any(|swap| swap.encrypt) {
        Cipher::check().map_err(Failure::unavailable)?;
    }
    if let Some(swap) = options.swaps.iter().find(|swap| !reads_back(swap)) {
        return Err(Failure::usage(format!(
            "--swap {swap}: cannot be passed on to the program: use a path in plain UTF-8"
        )));
    }
    check_names(options)?;
    check_devices(options).map_err(Failure::usage)
}

/// Refuses a file that is to be two things, under whatever names.
fn check_names(options: &Options) -> Result<(), Failure> {
    let swaps = options.swaps.iter().filter_map(|swap| match &swap.path {
        SwapPath::Path(path) if !path.is_dir() => Some(("--swap", path)),
        _ => None,
    });
    let outputs =
        [("--stats", &options.stats), ("--trace", &options.trace), ("--record", &options.record)];
    let outputs = outputs.into_iter().filter_map(|(option, file)| Some((option, file.as_ref()?)));
    let mut known: Vec<(Identity, String)> = Vec::new();
    for (option, file) in swaps.chain(outputs) {
        let (identity, said) = (Identity::of(file), format!("{option} {}", file.display()));
        match known.iter().find(|(other, _)| *other == identity) {
            Some((_, other)) if *other == said => {
                return Err(Failure::usage(format!("{said}: is named twice: name it once")));
            }
            Some((_, other)) => {
                return Err(Failure::usage(format!(
                    "{said}: is the file of {other}: name another"
                )));
            }
            None => known.push((identity, said)),
        }
    }
    Ok(())
}

/// Puts the library in front of what is preloaded already.
fn preload(library: &Path, existing: Option<&OsStr>) -> OsString {
    let mut names = library.as_os_str().to_owned();
    if let Some(existing) = existing.filter(|existing| !existing.is_empty() && *existing != library)
    {
        names.push(":");
        names.push(existing);
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_below_a_page_is_refused_with_the_minimum() {
        assert!(parse_min_region("100").unwrap_err().contains("at least 4K"));
    }

    #[test]
    fn the_library_comes_before_what_is_preloaded_already() {
        let library = Path::new("/run/x/lib.so");
        assert_eq!(preload(library, None), "/run/x/lib.so");
        assert_eq!(preload(library, Some(OsStr::new("/a.so"))), "/run/x/lib.so:/a.so");
        assert_eq!(preload(library, Some(library.as_os_str())), "/run/x/lib.so");
    }
}
