//! The load generator: allocate memory in tasks, access it in a pattern, print what it took.
//!
//! It takes usemem's options, prints usemem's lines and counts as usemem counts, so that existing
//! scripts and figures fit. Tasks are threads within processes; everything that the kernel or a
//! preloaded library should see is done through the C library. This file starts the tasks;
//! `task` is what each of them does, `pass` holds the loops that touch memory.

mod barrier;
mod content;
mod latency;
mod notice;
mod options;
mod page_reads;
mod pass;
mod report;
mod scattered;
mod task;

use barrier::Barrier;
pub(crate) use content::Content;
use notice::Notice;
use options::{Freeing, Options, Refusal};
use std::ffi::OsString;
use std::io;
use std::process::ExitCode;
use std::time::Instant;
use task::{Failure, Task, Team};
use userswap::internals::bench::process::{self, Fork, Pid};

pub(crate) use content::Data;
pub(crate) use report::{
    LATENCY_UNIT, OPERATIONS_UNIT, PAGE_READS_UNIT, THROUGHPUT_UNIT, WAITING_MARK,
};
pub(crate) use scattered::{SCATTERED_MIN_BYTES, SKEW, Scattered};

/// The exit status of a wrong command line.
const EXIT_USAGE: u8 = 2;

/// Runs the load generator with the arguments that follow its name; the last is the size.
///
/// The process must have no other threads when this is called, because it may fork.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    match Options::parse(args) {
        Ok(options) => end(match (options.page_reads, options.load) {
            (Some(reads), _) => page_reads::run(&options, reads),
            (None, Some(load)) => scattered::run(&options, load),
            (None, None) => run(&options),
        }),
        Err(Refusal::Help(text)) => end(report::print(&text).map_err(Failure::from)),
        Err(Refusal::Usage(line)) => {
            say!("usemem: {line}");
            ExitCode::from(EXIT_USAGE)
        }
    }
}

fn end(result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => ExitCode::from(failure.told()),
    }
}

/// Starts all tasks, leads them through their barriers and waits for them.
fn run(options: &Options) -> Result<(), Failure> {
    let started = Instant::now();
    let shared = if options.prealloc { Some(task::allocate_shared(options)?) } else { None };
    let tasks = options.processes * options.threads;
    let content = Content::new(options.data)?;
    let team = Team {
        options,
        content: &content,
        started,
        shared: shared.as_ref(),
        start: barrier_for(tasks)?,
        free: match options.freeing {
            Freeing::Together => barrier_for(tasks)?,
            Freeing::Apart => None,
        },
    };
    if options.processes > 1 { run_processes(&team) } else { run_threads(&team, 0, Lead::Here) }
}

/// None for a single task, which would wait for itself alone.
fn barrier_for(tasks: usize) -> Result<Option<Barrier>, Failure> {
    Ok(if tasks > 1 { Some(Barrier::new()?) } else { None })
}

fn run_processes(team: &Team<'_>) -> Result<(), Failure> {
    let mut children = Vec::with_capacity(team.options.processes);
    for number in 0..team.options.processes {
        match process::fork() {
            Ok(Fork::Child) => run_child(team, number),
            Ok(Fork::Parent { child }) => children.push(child),
            Err(error) => {
                kill(&children);
                return Err(Failure::Start(error));
            }
        }
    }
    team.barriers().for_each(Barrier::only_lead);
    std::thread::scope(|scope| {
        // Apart: a process that dies before a barrier is waited for there by the others until they are killed.
        let tasks = team.options.processes * team.options.threads;
        let leading = std::thread::Builder::new().spawn_scoped(scope, move || lead(team, tasks));
        let leading = leading.map_err(Failure::Start).inspect_err(|_| kill(&children))?;
        wait_for_all(children)?;
        leading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn run_child(team: &Team<'_>, number: usize) -> ! {
    // Without this, killing the parent would leave the children filling memory.
    drop(process::die_with_parent());
    team.barriers().for_each(Barrier::only_follow);
    let code = match run_threads(team, number * team.options.threads, Lead::Elsewhere) {
        Ok(()) => 0,
        Err(failure) => failure.told(),
    };
    std::process::exit(code.into())
}

/// Waits for the processes, and ends all of them with the first one that fails: they might wait for a signal that comes
/// only when all do.
fn wait_for_all(mut children: Vec<Pid>) -> Result<(), Failure> {
    while !children.is_empty() {
        let (pid, waited) = process::wait_any()?;
        let Some(index) = children.iter().position(|&child| child == pid) else { continue };
        children.swap_remove(index);
        if !waited.status.success() {
            kill(&children);
            return Err(Failure::Child { pid, status: waited.status });
        }
    }
    Ok(())
}

fn kill(children: &[Pid]) {
    children.iter().for_each(|&child| drop(process::send(child, libc::SIGKILL)));
}

/// Where the tasks of a process are led through their barriers: in that process, or in its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lead {
    Here,
    Elsewhere,
}

/// Runs the tasks of one process, the first of which has the index `first`.
fn run_threads(team: &Team<'_>, first: usize, leader: Lead) -> Result<(), Failure> {
    let options = team.options;
    let notice = if options.wait_for_signal { Some(Notice::new()?) } else { None };
    let notice = notice.as_ref();
    if options.threads == 1 {
        return Task { team, number: first, notice }.run();
    }
    std::thread::scope(|scope| {
        let spawn = |number| {
            let task = Task { team, number: first + number, notice };
            std::thread::Builder::new().spawn_scoped(scope, move || or_exit(task.run()))
        };
        // A thread that cannot be started would leave the others waiting for it.
        let spawned: io::Result<Vec<_>> = (0..options.threads).map(spawn).collect();
        or_exit(spawned.map_err(Failure::Start));
        if leader == Lead::Here {
            or_exit(lead(team, options.threads));
        }
    });
    Ok(())
}

/// Runs `work` with the number of each thread of one process, all at once; ends the process at the first failure.
fn in_threads(threads: usize, work: impl Fn(usize) -> Result<(), Failure> + Sync) {
    let together = std::sync::Barrier::new(threads);
    std::thread::scope(|scope| {
        let spawn = |number| {
            let (together, work) = (&together, &work);
            std::thread::Builder::new().spawn_scoped(scope, move || {
                together.wait();
                or_exit(work(number));
            })
        };
        let spawned: io::Result<Vec<_>> = (0..threads).map(spawn).collect();
        // A thread that cannot be started would leave the others waiting for it.
        or_exit(spawned.map_err(Failure::Start));
    });
}

/// Ends the process at the first failure, as usemem does: the other tasks' figures are worthless.
fn or_exit<T>(result: Result<T, Failure>) -> T {
    result.unwrap_or_else(|failure| std::process::exit(failure.told().into()))
}

fn lead(team: &Team<'_>, tasks: usize) -> Result<(), Failure> {
    team.barriers().try_for_each(|barrier| barrier.lead(tasks)).map_err(Failure::System)
}
