//! What decides, and what each step costs: the part of a scenario file that memory reads.

use serde::Deserialize;
use userswap_policy::devices::Placement;
use userswap_policy::kernel::contention::Contention;
use userswap_policy::named_choice;

use crate::clock::{Ns, Reach};
use crate::machine::{Time, Whole};

named_choice! {
    /// How pages whose write has ended leave the index of their device.
    #[derive(Default)]
    pub enum Removal, "removal" {
        /// Each under an acquisition of its own.
        Page = "page",
        /// All of a batch that are in one index under one.
        #[default]
        Batch = "batch",
    }
}

named_choice! {
    /// Which pages leave first.
    #[derive(Default)]
    pub enum Replacement, "replacement" {
        /// Those that were mapped first.
        Queue = "queue",
        /// Those that the working set can spare.
        #[default]
        WorkingSet = "working-set",
    }
}

/// What decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// Which device is asked first.
    pub placement: Placement,
    /// What a reclaimer does about a lock that another one holds.
    pub contention: Contention,
    /// How pages leave their index.
    pub removal: Removal,
    /// Which pages leave first.
    pub replacement: Replacement,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            placement: Placement::Near,
            contention: Contention::Wait,
            removal: Removal::Batch,
            replacement: Replacement::WorkingSet,
        }
    }
}

/// What each step costs a CPU. Holds are without the lines that come from another CPU.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// A program's own work on a page.
    pub touch: Time,
    /// The same where the page is another node's, at the distance 20; without it no difference.
    pub touch_other_node: Option<Time>,
    /// A fault on a page without content.
    pub fault: Time,
    /// The same where the page that is cleared is another node's, at the distance 20; without it no difference.
    pub fault_other_node: Option<Time>,
    /// A fault on a page that is on a device, beside reading it.
    pub swap_fault: Time,
    /// Reclaim's own work on a page: looking at it, unmapping it, telling other CPUs.
    pub unmap: Time,
    /// Under the lock of the device lists, for each choice of a device.
    pub choose_hold: Time,
    /// Under a device's lock, for each slot taken or given back.
    pub slot_hold: Time,
    /// Under the lock of a device's index of pages, for each page.
    pub index_hold: Time,
    /// Lines that change under an index lock, its own among them.
    pub index_lines: u32,
    /// Acquisitions of the index lock for a page that is written, before it is removed.
    pub index_per_write: Whole<0, 1024>,
    /// Slots that are taken in one turn of the device lists.
    pub slots_per_turn: Whole<1, { 1 << 20 }>,
}

impl Costs {
    /// What a program's work on a page costs more at a distance.
    pub(super) fn touch_more(&self, distance: u32) -> Ns {
        more(self.touch, self.touch_other_node, distance)
    }

    /// What a fault costs more that gets a page at a distance.
    pub(super) fn fault_more(&self, distance: u32) -> Ns {
        more(self.fault, self.fault_other_node, distance)
    }
}

fn more(own: Time, other: Option<Time>, distance: u32) -> Ns {
    let other = other.unwrap_or(own);
    Reach { own: own.0, other: other.0 }.at(distance).saturating_sub(own.0)
}
