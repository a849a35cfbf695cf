//! A refusal: one line for the user and the exit status that goes with it.

use std::fmt;

/// The engine or the system cannot do it here.
pub const STATUS_UNAVAILABLE: u8 = 1;
/// The command line cannot be meant.
pub const STATUS_USAGE: u8 = 2;
/// The program exists but cannot be run, as env(1) has it.
pub const STATUS_NOT_RUNNABLE: u8 = 126;
/// There is no such program, as env(1) has it.
pub const STATUS_NOT_FOUND: u8 = 127;
/// Nobody reads what is printed, as the shell has it for a program that SIGPIPE ended.
const STATUS_UNREAD: u8 = 141;

/// Why a command ends early.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    pub status: u8,
    /// One line that names the value and the remedy; empty where there is nothing to say.
    pub message: String,
}

impl Failure {
    /// Something that works elsewhere but not here.
    pub fn unavailable(message: impl fmt::Display) -> Failure {
        Failure { status: STATUS_UNAVAILABLE, message: message.to_string() }
    }

    /// A value on the command line.
    pub fn usage(message: impl fmt::Display) -> Failure {
        Failure { status: STATUS_USAGE, message: message.to_string() }
    }

    /// The reader of what is printed has gone, on purpose as a rule.
    pub fn unread() -> Failure {
        Failure { status: STATUS_UNREAD, message: String::new() }
    }

    /// A program that cannot be run or served.
    pub fn not_runnable(message: impl fmt::Display) -> Failure {
        Failure { status: STATUS_NOT_RUNNABLE, message: message.to_string() }
    }

    /// A program that does not exist.
    pub fn not_found(message: impl fmt::Display) -> Failure {
        Failure { status: STATUS_NOT_FOUND, message: message.to_string() }
    }
}
