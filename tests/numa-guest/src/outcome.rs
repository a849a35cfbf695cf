//! How the test ends when it does not pass.

/// Why there is no pass.
#[derive(Debug)]
pub enum Outcome {
    /// Something is missing on this machine: nothing was tested.
    Unavailable(String),
    /// What was found to be wrong.
    Failed(Vec<String>),
}

impl Outcome {
    /// A failure with one reason.
    pub fn failed(reason: impl Into<String>) -> Self {
        Self::Failed(vec![reason.into()])
    }
}
