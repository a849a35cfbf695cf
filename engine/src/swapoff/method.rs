//! How a device is emptied.
use crate::base::error::Error;
use crate::state::core::Core;
use crate::swapoff::Proceed;
use crate::swapoff::kernel::walk::Windows;
use crate::swapoff::task::Task;
use std::fmt;
use std::str::FromStr;

/// The ways to empty a device.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum SwapoffMethod {
    /// In the order of the device, with large requests by several threads at once.
    #[default]
    Device,
    /// In the order of addresses, one window of the kernel's heuristic at a time: Linux since 5.8.
    Scaling,
    /// The same with windows of `2^page_cluster` slots throughout: the proposal of April 2020.
    Fixed,
}

/// A text that names no way to empty a device.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?} is no way to empty a device: use device, scaling or fixed")]
pub struct NoSuchMethod(String);

impl SwapoffMethod {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Device, Self::Scaling, Self::Fixed];

    /// The name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Scaling => "scaling",
            Self::Fixed => "fixed",
        }
    }
}

impl fmt::Display for SwapoffMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for SwapoffMethod {
    type Err = NoSuchMethod;

    fn from_str(text: &str) -> Result<Self, NoSuchMethod> {
        let named = Self::ALL.into_iter().find(|method| method.name() == text);
        named.ok_or_else(|| NoSuchMethod(text.to_owned()))
    }
}

impl Core {
    /// One pass over a device, by the method asked for.
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
