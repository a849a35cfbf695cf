//! `userswap stress`: whether a program ever reads a wrong byte, hangs or ends because of us.
//!
//! Rounds of every kind (both ways in which faults arrive, both in which pages travel, devices that are well, in trouble, or
//! lose pages, tiers) run a load that verifies all of its memory, each as any program would under `userswap run`, while an
//! operator changes budget, devices and settings. The first finding ends it.
mod operator;
mod round;

use crate::failure::Failure;
use crate::said;
use clap::Args;
use round::{Devices, Kind, Round, Tally};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use userswap::{FaultMode, Transfer};
use userswap_bench::stress::{self, Load, Losses, OwnRing};

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
    let kinds = kinds()?;
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
                said::say_plainly(format_args!(
                    "stress: FOUND in a round of {kind} with seed {seed}: {finding}\n"
                ));
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

/// Every kind of round that this machine can run.
fn kinds() -> Result<Vec<Kind>, Failure> {
    let support = userswap::probe().map_err(Failure::unavailable)?;
    let transfers = [Transfer::Move, Transfer::Copy];
    let mut kinds = Vec::new();
    for devices in Devices::ALL {
        // Without poison a lost page stops its program.
        if devices == Devices::Losing && !support.poison {
            continue;
        }
        for fault in [FaultMode::Thread, FaultMode::Signal] {
            for transfer in transfers {
                if transfer == Transfer::Move && !support.moving {
                    continue;
                }
                kinds.push(Kind { fault, transfer, devices });
            }
        }
    }
    Ok(kinds)
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
    };
    let is_right = stress::run(load, &args.directory).map_err(Failure::unavailable)?;
    Ok(if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
