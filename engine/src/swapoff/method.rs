//! The ways to empty a device: ours, and the kernel's for comparison.
use crate::base::error::Error;
use crate::state::core::Core;
use crate::swapoff::Proceed;
use crate::swapoff::kernel::walk::{Bump, Windows};
use crate::swapoff::task::Task;
use userswap_policy::named_choice;

named_choice! {
    /// The ways to empty a device.
    #[derive(Default)]
    pub enum SwapoffMethod, "way to empty a device" {
        /// In the order of the device, with large requests by several threads at once.
        #[default]
        Device = "device",
        /// In the order of addresses, one window of the kernel's heuristic at a time, and none for a page that is
        /// cached: Linux since 5.8.
        Scaling = "scaling",
        /// The same with windows of `2^page_cluster` slots throughout: the proposal of April 2020.
        Fixed = "fixed",
        /// A window for every page, also for those that are cached, so that no hit is ever counted: Linux 5.1 to 5.7.
        Scaling56 = "scaling-5.6",
        /// The same with one hit added before each window, tried in the discussion of the proposal.
        Bumped56 = "bumped-5.6",
        /// The same with as many hits as the window before was large, tried there as well.
        Forced56 = "forced-5.6",
    }
}

impl Core {
    /// Makes one pass over a device by a method.
    ///
    /// # Errors
    /// As for [`Self::sweep`].
    pub(crate) fn pass(
        &self,
        task: Task<'_>,
        method: SwapoffMethod,
        between: &mut dyn FnMut() -> Proceed,
    ) -> Result<(), Error> {
        match method {
            SwapoffMethod::Device => self.sweep(task, between),
            SwapoffMethod::Scaling => self.walk(task, Windows::Scaling, between),
            SwapoffMethod::Fixed => self.walk(task, Windows::Fixed, between),
            SwapoffMethod::Scaling56 => self.walk(task, Windows::Blind(Bump::None), between),
            SwapoffMethod::Bumped56 => self.walk(task, Windows::Blind(Bump::One), between),
            SwapoffMethod::Forced56 => self.walk(task, Windows::Blind(Bump::LastWindow), between),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_read_by_their_names_only() {
        for method in SwapoffMethod::ALL {
            assert_eq!(method.to_string().parse(), Ok(method));
        }
        for text in ["", "Device", "0", "fixed "] {
            let refusal = text.parse::<SwapoffMethod>().unwrap_err().to_string();
            assert!(
                refusal
                    .contains("use device, scaling, fixed, scaling-5.6, bumped-5.6 or forced-5.6"),
                "{refusal}"
            );
        }
    }
}
