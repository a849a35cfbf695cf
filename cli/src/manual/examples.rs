//! Examples for every command, at the end of its `--help` and in its man page.

use clap::Command;

/// What to type, and what it does.
pub struct Example {
    pub line: &'static str,
    pub does: &'static str,
}

const fn example(line: &'static str, does: &'static str) -> Example {
    Example { line, does }
}

/// By the words below `userswap`.
const EXAMPLES: &[(&str, &[Example])] = &[
    (
        "run",
        &[
            example(
                "userswap run --ram 512M -- sort -S 2G big.txt -o sorted.txt",
                "512 MiB of RAM for a sort of 2 GiB",
            ),
            example(
                "userswap run --ram 2G --swap /mnt/nvme:64G --stats stats.json -- python3 job.py",
                "swap on a chosen disk, counters at the end",
            ),
            example("userswap run --ram 4G -- make -j8", "one budget for all that make starts"),
            example(
                "userswap run --ram 512M --fault signal -- redis-server",
                "less latency for each fault",
            ),
        ],
    ),
    (
        "doctor",
        &[
            example("userswap doctor", "everything, with five seconds for the disk"),
            example("userswap doctor --no-disk --json", "for scripts: status 0 where run works"),
        ],
    ),
    ("list", &[example("userswap list", "your programs that have outgrown their budget")]),
    (
        "top",
        &[
            example("userswap top", "all of yours, live"),
            example("userswap top --pid 4711 --interval 0.5", "one of them, twice a second"),
        ],
    ),
    (
        "status",
        &[
            example("userswap status 4711", "one program"),
            example("userswap status --json", "all of yours, for scripts"),
        ],
    ),
    (
        "set",
        &[
            example("userswap set 4711", "what can be set, and what it is"),
            example("userswap set 4711 ram 1G", "another budget"),
            example(
                "userswap set 4711 hibernate 1",
                "everything to swap, its memory back to the kernel",
            ),
        ],
    ),
    (
        "swapon",
        &[example(
            "userswap swapon 4711 /mnt/nvme:64G,pri=10",
            "one more device, used before all others",
        )],
    ),
    ("swapoff", &[example("userswap swapoff 4711 /var/tmp", "empty the device and let go of it")]),
    ("metrics", &[example("userswap metrics", "the figures of all your programs, once")]),
    (
        "demo",
        &[
            example("userswap demo", "512 MiB of data in 128 MiB of RAM"),
            example(
                "userswap demo --ram 1G --no-kernel --svg demo.svg",
                "larger, with its picture in a file",
            ),
        ],
    ),
    (
        "stress",
        &[example(
            "userswap stress --minutes 10 --seed 7",
            "ten minutes of what was done with seed 7",
        )],
    ),
    (
        "sim",
        &[
            example("userswap sim list", "what there is to simulate"),
            example("userswap sim all --json", "all of it, for scripts"),
        ],
    ),
    (
        "record",
        &[
            example(
                "userswap record -o job.record --ram 512M -- python3 job.py",
                "the same as userswap run --record job.record",
            ),
            example(
                "userswap record --perfetto job.json job.record",
                "for https://ui.perfetto.dev",
            ),
        ],
    ),
    (
        "report",
        &[
            example("userswap report job.record", "what held a recorded run back, in words"),
            example("userswap report job.record -o job.html", "in pictures, for a browser"),
            example("userswap report --compare a.record b.record", "two runs beside each other"),
        ],
    ),
    (
        "advise",
        &[example(
            "userswap advise -- python3 job.py",
            "runs it once, and says how much RAM it needs",
        )],
    ),
    (
        "usemem",
        &[example("userswap usemem -n 2 -r 3 1G", "two processes go through 1 GiB three times")],
    ),
    (
        "bench",
        &[
            example(
                "userswap bench swapin --runs 3 --vs kernel",
                "reading swapped data in order, and on the kernel's swap",
            ),
            example(
                "userswap bench page-rand-read --tasks 16 --fault signal",
                "random reads by 16 threads",
            ),
        ],
    ),
    (
        "bench all",
        &[example("userswap bench all --vs kernel", "every case, the worst ratio first")],
    ),
    ("bench fork", &[example("userswap bench fork --size 4G", "what a fork costs, and natively")]),
    ("bench jobs", &[example("userswap bench jobs", "what numpy, sqlite, java and others do")]),
    (
        "bench slot-alloc",
        &[example("userswap bench slot-alloc --runs 5", "the ways to give out slots")],
    ),
    (
        "bench slot-free",
        &[example("userswap bench slot-free --devices 1", "the orders to free slots in")],
    ),
    (
        "bench list-lru",
        &[example("userswap bench list-lru --threads 4", "lists of reclaimable items")],
    ),
    (
        "bench list-count",
        &[example("userswap bench list-count --nodes 64", "counting items of 64 nodes")],
    ),
    (
        "bench store",
        &[example("userswap bench store --data heap json", "what a core compresses of these")],
    ),
    (
        "bench device-choice",
        &[example("userswap bench device-choice --nodes 64", "choosing among 64 devices")],
    ),
    (
        "bench placement",
        &[example("userswap bench placement --tasks 16", "devices that are near and far")],
    ),
    ("bench swapoff", &[example("userswap bench swapoff --vs kernel", "emptying a device")]),
    ("bench contention", &[example("userswap bench contention --tasks 3", "reclaimers that meet")]),
    (
        "bench readahead",
        &[example(
            "userswap bench readahead --pattern strided",
            "policies and one order of reading",
        )],
    ),
    (
        "completions",
        &[
            example(
                "userswap completions bash > ~/.local/share/bash-completion/completions/userswap",
                "for bash",
            ),
            example(
                "userswap completions zsh > ~/.zfunc/_userswap",
                "for zsh, with ~/.zfunc in fpath",
            ),
            example(
                "userswap completions fish > ~/.config/fish/completions/userswap.fish",
                "for fish",
            ),
        ],
    ),
    ("man", &[example("userswap man ~/.local/share/man/man1", "then: man userswap-run")]),
];

/// Those of a command.
pub fn of(path: &str) -> &'static [Example] {
    EXAMPLES.iter().find(|(command, _)| *command == path).map_or(&[], |(_, examples)| examples)
}

/// The command with the examples in its help and in that of those below it.
pub fn add(command: Command) -> Command {
    EXAMPLES.iter().fold(command, |command, (path, examples)| {
        let words: Vec<_> = path.split(' ').collect();
        add_to(command, &words, &text(examples))
    })
}

fn add_to(command: Command, path: &[&'static str], text: &str) -> Command {
    match path {
        [] => command.after_help(text.to_owned()),
        // A command that is not there would be made.
        [name, rest @ ..] => {
            assert!(command.find_subcommand(name).is_some(), "there is a command {name}");
            command.mut_subcommand(*name, |command| add_to(command, rest, text))
        }
    }
}

fn text(examples: &[Example]) -> String {
    let lines = examples.iter().map(|Example { line, does }| format!("  {line}\n      {does}"));
    let lines: Vec<_> = std::iter::once("Examples:".to_owned()).chain(lines).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command;

    /// The commands that are shown, with the words that lead to them.
    fn all(command: &Command, path: &str) -> Vec<String> {
        let below =
            command.get_subcommands().filter(|it| !it.is_hide_set() && it.get_name() != "help");
        below
            .flat_map(|below| {
                let path = format!("{path} {}", below.get_name()).trim().to_owned();
                let deeper = all(below, &path);
                std::iter::once(path).chain(deeper)
            })
            .collect()
    }

    #[test]
    fn every_command_has_an_example_that_is_understood() {
        for path in all(&command(), "") {
            assert!(!of(&path).is_empty(), "{path} has no example");
            for Example { line, .. } in of(&path) {
                let words = line.split(" > ").next().unwrap().split(' ');
                let understood = command().try_get_matches_from(words);
                assert!(understood.is_ok(), "{line}: {}", understood.unwrap_err());
                assert!(line.starts_with(&format!("userswap {path}")), "{line}");
            }
        }
    }

    #[test]
    fn help_ends_with_the_examples() {
        let mut command = command();
        let set = command.find_subcommand_mut("set").unwrap();
        let help = set.render_help().to_string();
        assert!(help.ends_with("its memory back to the kernel\n"), "{help}");
    }
}
