//! The names of choices, as the command line has them and as reports show them.

use clap::ValueEnum;

/// The name of a choice on the command line.
pub(crate) fn name<C: ValueEnum>(choice: &C) -> String {
    let value = choice.to_possible_value().expect("no choice is hidden");
    value.get_name().to_owned()
}
