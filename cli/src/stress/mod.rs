//! `userswap stress`: whether a program ever reads a wrong byte, hangs or ends because of us.
//!
//! Rounds of every kind (both ways in which faults arrive, both in which pages travel, devices that are well, in trouble, full, or
//! lose pages, tiers) run a load that verifies all of its memory, each as any program would under `userswap run`, while an
//! operator changes budget, devices and settings. The first finding ends it.
mod kind;
mod operator;
mod round;

use crate::failure::Failure;
use crate::said;
use clap::Args;
use kind::Kind;
use round::{Round, Tally};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use userswap_bench::stress::{self, Load, Losses, OwnRing, Part};

/// The longest round: a program that starts anew is a test as well.
const ROUND_MAX: Duration = Duration::from_secs(20);

/// Without `--seconds` and `--minutes`: all kinds of rounds, a few seconds each.
const TIME_DEFAULT: Duration = Duration::from_secs(60);

/// More than a year is a mistake.
const MINUTES_MAX: u64 = 366 * 24 * 60;

/// Options of `stress`.
#[derive(Args)]
pub struct StressArgs {
    /// How long, all rounds together [default: 1]
    #[arg(long, value_name = "N", conflicts_with = "seconds",
          value_parser = clap::value_parser!(u64).range(1..=MINUTES_MAX))]
    minutes: Option<u64>,
    /// How long, in seconds
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// Of what is done; printed, so that it can be given again [default: new each time]
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Only rounds with this in their names, which are printed, such as thread-move-tiers or tiers [default: all]
    #[arg(long, value_name = "KIND", default_value = "", hide_default_value = true)]
    kind: String,
}

/// Options of a round's load.
#[derive(Args)]
pub struct LoadArgs {
    seed: u64,
    milliseconds: u64,
    directory: PathBuf,
    /// Lost pages are expected
    #[arg(long)]
    losses: bool,
    /// io_uring into memory that may be swapped
    #[arg(long)]
    ring: bool,
    /// It is a small one that another has started
    #[arg(long)]
    member: bool,
}

/// Runs rounds until the time is over.
///
/// # Errors
/// A round cannot be run here.
pub fn stress(args: &StressArgs) -> Result<ExitCode, Failure> {
    let minutes = args.minutes.map(|minutes| Duration::from_secs(60 * minutes));
    let time = args.seconds.map(Duration::from_secs).or(minutes).unwrap_or(TIME_DEFAULT);
    if time.is_zero() {
        return Err(Failure::usage("--seconds 0 tests nothing: use at least 1"));
    }
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seed = args.seed.unwrap_or(since_epoch.as_nanos() as u64 % 1_000_000_007);
    let kinds = Kind::all(&args.kind)?;
    let each = (time / kinds.len() as u32).clamp(Duration::from_secs(1), ROUND_MAX);
    said::print(format_args!(
        "stress: {} s, seed {seed}, rounds of {:.1} s\n",
        time.as_secs(),
        each.as_secs_f64()
    ))?;
    let (begun, mut tally) = (Instant::now(), Tally::default());
    for (number, kind) in (0u64..).zip(kinds.iter().cycle()) {
        let seed = seed.wrapping_add(number);
        let round = Round { kind: *kind, seed, time: each };
        match round.run()? {
            Ok(more) => tally.add(&more),
            Err(finding) => {
                tell(&round, &finding);
                return Ok(ExitCode::FAILURE);
            }
        }
        // Every kind has its turn, however long the machine takes for it.
        if begun.elapsed() >= time && number + 1 >= kinds.len() as u64 {
            break;
        }
    }
    let seconds = begun.elapsed().as_secs();
    said::print(format_args!("stress: nothing found in {seconds} s: {tally}\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// With what runs the round again, as the first of the only kind.
fn tell(round: &Round, finding: &str) {
    let Round { kind, seed, time } = round;
    let seconds = time.as_millis().div_ceil(1000);
    said::say_plainly(format_args!(
        "stress: FOUND by what userswap stress --kind {kind} --seed {seed} --seconds {seconds} repeats: {finding}\n"
    ));
}

/// The load of a round.
///
/// # Errors
/// No memory, no file in the directory.
pub fn load(args: &LoadArgs) -> Result<ExitCode, Failure> {
    let load = Load {
        time: Duration::from_millis(args.milliseconds),
        seed: args.seed,
        own_ring: if args.ring { OwnRing::Used } else { OwnRing::Unsafe },
        losses: if args.losses { Losses::Allowed } else { Losses::None },
        part: if args.member { Part::Member } else { Part::First(command_of) },
    };
    let is_right = stress::run(load, &args.directory).map_err(Failure::unavailable)?;
    Ok(if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The command of a load.
///
/// # Errors
/// This program has gone.
fn command_of(load: &Load, directory: &Path) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["stress-load", &load.seed.to_string(), &load.time.as_millis().to_string()]);
    command.arg(directory);
    let options = [
        ("--losses", load.losses == Losses::Allowed),
        ("--ring", load.own_ring == OwnRing::Used),
        ("--member", matches!(load.part, Part::Member)),
    ];
    command.args(options.into_iter().filter(|(_, is_given)| *is_given).map(|(option, _)| option));
    Ok(command)
}
