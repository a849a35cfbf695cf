//! The limits of this process (ulimit) that a program under `run` meets.

use rustix::process::{Resource, Rlimit, getrlimit};
use userswap::ByteSize;

use super::finding::Finding;

/// A forked child's engine needs this many descriptors.
const DESCRIPTORS: u64 = 1024;

/// One line for all that is as usual, or one for each that is not.
pub fn limits() -> Vec<Finding> {
    let found: Vec<_> = [
        address_space("ulimit -v", getrlimit(Resource::As)),
        address_space("ulimit -d", getrlimit(Resource::Data)),
        descriptors(getrlimit(Resource::Nofile)),
        file_size(getrlimit(Resource::Fsize)),
    ]
    .into_iter()
    .flatten()
    .collect();
    match found[..] {
        [] => {
            vec![Finding::good("limits", "of address space, data, descriptors and files are wide")]
        }
        _ => found,
    }
}

fn address_space(name: &str, limit: Rlimit) -> Option<Finding> {
    let bytes = ByteSize(limit.current?).rounded();
    let found = format!("{name} allows {bytes}: less memory is managed");
    Some(Finding::limited("limits", found, format!("{name} unlimited")))
}

fn descriptors(limit: Rlimit) -> Option<Finding> {
    let most = limit.maximum.filter(|most| *most < DESCRIPTORS)?;
    let found = format!("ulimit -Hn is {most}: forked children that outgrow the budget end");
    let fix = format!(
        "raise the hard limit on descriptors to {DESCRIPTORS} (as root: prlimit --pid $$ --nofile={DESCRIPTORS})"
    );
    Some(Finding::limited("limits", found, fix))
}

fn file_size(limit: Rlimit) -> Option<Finding> {
    let bytes = ByteSize(limit.current?).rounded();
    let found = format!("ulimit -f allows files of {bytes}: so large is the swap file at most");
    Some(Finding::limited("limits", found, "ulimit -f unlimited"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_is_named_with_the_command_that_lifts_it() {
        let at = |number| Rlimit { current: Some(number), maximum: Some(number) };
        let none = Rlimit { current: None, maximum: None };
        let found = address_space("ulimit -v", at(1 << 30)).unwrap();
        assert!(found.found.contains("1G") && found.fix.unwrap() == "ulimit -v unlimited");
        assert!(descriptors(at(1023)).unwrap().fix.unwrap().contains("1024"));
        assert!(file_size(at(1 << 20)).is_some());
        assert_eq!(
            [address_space("", none), descriptors(at(1024)), file_size(none)],
            [None, None, None]
        );
    }
}
