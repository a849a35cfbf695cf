//! The RFC's rule: the order in which a node asks the devices, made of the priorities that are shown.
//!
//! The kernel shows priorities and no lists. What its lists must be follows from the rule, and the devices
//! that fill say whether it does.
use crate::loads::{Devices, KernelSwap};

/// Where a device is, as a node sees it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Distance {
    Near,
    Far,
}

/// Smaller keys are asked first, equal ones in turn.
fn key(priority: i32, distance: Distance) -> i32 {
    match (priority, distance) {
        // A priority that a user has given is the same for all nodes.
        (..0, Distance::Near) => 1,
        _ => -priority,
    }
}

/// A node's list: keys and devices, those of equal key by name.
pub fn list(swaps: &[KernelSwap], devices: &Devices, node: u32) -> Vec<(i32, String)> {
    let entry = |swap: &KernelSwap| {
        let distance = match devices.get(&swap.device) {
            Some(device) if device.node == node => Distance::Near,
            _ => Distance::Far,
        };
        (key(swap.priority, distance), swap.device.clone())
    };
    let mut list: Vec<(i32, String)> = swaps.iter().map(entry).collect();
    list.sort();
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loads::Device;

    fn list_of(priorities: &[(&str, i32)], node: u32) -> String {
        let nodes = [("A", 0), ("B", 1), ("C", 2), ("D", 3), ("E", 2)];
        let device = |node: u32| Device { node, path: String::new() };
        let devices = nodes.iter().map(|(name, node)| ((*name).into(), device(*node))).collect();
        let swap = |(name, priority): &(&str, i32)| KernelSwap {
            device: (*name).into(),
            size_kb: 0,
            used_kb: 0,
            priority: *priority,
        };
        let swaps: Vec<KernelSwap> = priorities.iter().map(swap).collect();
        let entries = list(&swaps, &devices, node);
        let entries: Vec<String> =
            entries.iter().map(|(key, name)| format!("{name}:{key}")).collect();
        entries.join(" ")
    }

    #[test]
    fn a_node_asks_its_own_device_first_and_the_others_in_the_order_of_their_priorities() {
        let four = [("A", -2), ("B", -3), ("C", -4), ("D", -5)];
        assert_eq!(list_of(&four, 0), "A:1 B:3 C:4 D:5");
        assert_eq!(list_of(&four, 2), "C:1 A:2 B:3 D:5");
    }

    #[test]
    fn a_user_priority_comes_before_the_own_device() {
        let five = [("A", -2), ("C", -4), ("E", 5)];
        assert_eq!(list_of(&five, 0), "E:-5 A:1 C:4");
        assert_eq!(list_of(&five, 2), "E:-5 C:1 A:2");
    }

    #[test]
    fn devices_of_one_node_have_the_same_key_there() {
        let five = [("A", -2), ("C", -4), ("D", -5), ("E", -6)];
        assert_eq!(list_of(&five, 2), "C:1 E:1 A:2 D:5");
        assert_eq!(list_of(&five, 3), "D:1 A:2 C:4 E:6");
    }
}
