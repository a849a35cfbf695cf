//! Whether devices can be used together: asked before any is opened, and before a program runs that counts on them.
use super::open::{self, Checked};
use super::record::slots_of;
use super::{SwapSpec, named_node};
use crate::base::error::Error;
use crate::base::topology::Topology;
use userswap_policy::banks::Banks;
use userswap_policy::devices::DEVICES_MAX;

/// Finds out whether devices could all be opened and taken into use, and changes nothing; returns the warnings.
///
/// # Errors
/// The first device that cannot, and why.
pub fn check(
    specs: &[SwapSpec],
    default_bytes: u64,
    topology: &Topology,
) -> Result<Vec<String>, String> {
    if specs.len() > DEVICES_MAX {
        return Err(format!("{} swap devices: use at most {DEVICES_MAX}", specs.len()));
    }
    let mut banks = Banks::default();
    let mut warnings = Vec::new();
    for spec in specs {
        let Checked { bytes, warning } =
            open::checked(spec, default_bytes).map_err(|error| error.to_string())?;
        spec.node
            .map_or(Ok(None), |number| named_node(number, topology))
            .and_then(|_| banks.take(slots_of(bytes)).ok_or(Error::NoSlotNumbers(bytes)))
            .map_err(|error| format!("{spec}: {error}"))?;
        warnings.extend(warning);
    }
    Ok(warnings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(specs: &[&str]) -> Result<Vec<String>, String> {
        let specs: Vec<_> = specs.iter().map(|spec| spec.parse().unwrap()).collect();
        check(&specs, 1 << 30, &Topology::fake(2))
    }

    #[test]
    fn devices_that_cannot_be_used_together_are_refused_by_name() {
        assert_eq!(checked(&["mem:64M"; 64]), Ok(Vec::new()));
        assert_eq!(checked(&["mem:512G"; 32]), Ok(Vec::new()));
        assert_eq!(checked(&["mem:64M,node=1"]), Ok(Vec::new()));
        for (specs, said) in [
            (&["mem:64M"; 65][..], "65 swap devices: use at most 64"),
            (&["mem:512G"; 33], "mem:512G: no room for a device of 512G"),
            (&["mem:64M", "mem:64M,node=5"], "mem:64M,node=5: this machine has no node 5"),
        ] {
            let refusal = checked(specs).unwrap_err();
            assert!(refusal.starts_with(said), "{refusal}");
        }
    }
}
