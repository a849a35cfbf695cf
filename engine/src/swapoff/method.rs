//! The ways to empty a device: ours, and the kernel's for comparison.
use crate::base::error::Error;
use crate::state::core::Core;
use crate::swapoff::Proceed;
use crate::swapoff::kernel::walk::Windows;
use crate::swapoff::task::Task;
use userswap_policy::named_choice;

named_choice! {
    /// The ways to empty a device.
    #[derive(Default)]
    pub enum SwapoffMethod, "way to empty a device" {
        /// In the order of the device, with large requests by several threads at once.
        #[default]
        Device = "device",
        /// In the order of addresses, one window of the kernel's heuristic at a time: Linux since 5.8.
        Scaling = "scaling",
        /// The same with windows of `2^page_cluster` slots throughout: the proposal of April 2020.
        Fixed = "fixed",
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
            assert!(refusal.contains("use device, scaling or fixed"), "{refusal}");
        }
    }
}
