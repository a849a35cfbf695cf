//! Named choices: enums whose values are read and printed by name.
//!
//! Declare one with [`named_choice!`](crate::named_choice), which gives it `ALL`, `name()`, `Display` and
//! `FromStr` with the one error [`Unknown`]. Keep it in an atomic as `choice.index()`, and get it back with
//! `Choice::of_index(number)`. A value may have more names than the one that is printed: `A = "a" | "0"`.

use alloc::borrow::ToOwned;
use alloc::string::String;
use core::error::Error;
use core::fmt;

/// A text that names none of the values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unknown {
    /// The text.
    pub text: String,
    /// What it was meant to be.
    pub what: &'static str,
    /// The names that are printed, in order.
    pub allowed: &'static [&'static str],
}

impl Unknown {
    /// For a text that is none of `allowed`.
    pub fn new(text: &str, what: &'static str, allowed: &'static [&'static str]) -> Self {
        Self { text: text.to_owned(), what, allowed }
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a {}: use ", self.text, self.what)?;
        for (index, name) in self.allowed.iter().enumerate() {
            let between = match index {
                0 => "",
                _ if index + 1 == self.allowed.len() => " or ",
                _ => ", ",
            };
            write!(f, "{between}{name}")?;
        }
        Ok(())
    }
}

impl Error for Unknown {}

/// The text without the newline that writing it to a file in /sys leaves at its end: one at most.
pub fn without_newline(text: &str) -> &str {
    text.strip_suffix('\n').unwrap_or(text)
}

/// Declares an enum whose values have names: the first is printed, all are read.
///
/// After `read` may stand a function that is applied to the text first.
///
/// ```
/// userswap_policy::named_choice! {
///     /// How a page is moved.
///     #[derive(Default)]
///     pub enum Transfer, "transfer" {
///         /// Moved where the kernel can, else copied.
///         #[default]
///         Auto = "auto",
///         /// Copied only.
///         Copy = "copy" | "1",
///     }
/// }
/// assert_eq!("1".parse(), Ok(Transfer::Copy));
/// assert_eq!(Transfer::of_index(Transfer::Copy.index()).name(), "copy");
/// let refusal = "Auto".parse::<Transfer>().unwrap_err();
/// assert_eq!(refusal.to_string(), "\"Auto\" is not a transfer: use auto or copy");
/// ```
#[macro_export]
macro_rules! named_choice {
    (
        $(#[$about:meta])*
        $visible:vis enum $choice:ident, $what:literal $(, read $read:path)? {
            $($(#[$doc:meta])* $value:ident = $name:literal $(| $alias:literal)*),+ $(,)?
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        $visible enum $choice { $($(#[$doc])* $value),+ }

        impl $choice {
            /// All values, in the order in which they are shown.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$value),+];

            /// What is printed, and read again.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$value => $name),+ }
            }

            /// Its index in `ALL`, for an atomic.
            #[doc(hidden)]
            #[inline]
            pub const fn index(self) -> u8 {
                self as u8
            }

            /// The value at an index that [`Self::index`] gave.
            ///
            /// # Panics
            /// When no value has that index.
            #[doc(hidden)]
            #[inline]
            pub const fn of_index(index: u8) -> Self {
                Self::ALL[index as usize]
            }
        }

        impl ::core::fmt::Display for $choice {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.pad(self.name())
            }
        }

        impl ::core::str::FromStr for $choice {
            type Err = $crate::choice::Unknown;

            fn from_str(text: &str) -> ::core::result::Result<Self, $crate::choice::Unknown> {
                $(let text = $read(text);)?
                match text {
                    $($name $(| $alias)* => Ok(Self::$value),)+
                    _ => Err($crate::choice::Unknown::new(text, $what, &[$($name),+])),
                }
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use crate::devices::Placement;
    use crate::free_batch::FreeOrder;
    use crate::kernel::contention::Contention;
    use crate::readahead::{AddressOrder, ReadaheadPolicy};

    /// Names and indexes of a choice, which lead back to its values.
    macro_rules! names {
        ($choice:ty) => {{
            for (index, value) in (0..).zip(<$choice>::ALL) {
                assert_eq!((value.index(), <$choice>::of_index(index)), (index, value));
                assert_eq!(value.to_string().parse(), Ok(value));
            }
            <$choice>::ALL.map(|value| value.name()).join(" ")
        }};
    }

    #[test]
    fn settings_and_status_show_these_names() {
        assert_eq!(names!(ReadaheadPolicy), "scaling fixed vma stream off");
        assert_eq!(names!(AddressOrder), "true false");
        assert_eq!(names!(Placement), "near spread");
        assert_eq!(names!(Contention), "wait stall skip stall-balanced");
        assert_eq!(names!(FreeOrder), "sorted merged unsorted grouped");
    }

    #[test]
    fn a_refusal_says_what_is_allowed() {
        let refused = |text: &str| text.parse::<FreeOrder>().unwrap_err().to_string();
        assert_eq!(
            refused("Sorted"),
            "\"Sorted\" is not a free order: use sorted, merged, unsorted or grouped"
        );
        assert_eq!(
            refused("merged\n"),
            "\"merged\\n\" is not a free order: use sorted, merged, unsorted or grouped"
        );
    }
}
