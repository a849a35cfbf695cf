//! Whether idle CPUs may halt: the kernel keeps them from it while a process holds `/dev/cpu_dma_latency` open and has written
//! there that no wake-up may take longer than nothing (Documentation/power/pm_qos_interface).
use super::kept_file::KeptFile;
use super::process;
use std::io;
use thiserror::Error;
use userswap_policy::awake::Idle;

/// The kernel's file for it, which only root may open unless the administrator says otherwise.
const PATH: &str = "/dev/cpu_dma_latency";

/// What the kernel takes for no wish at all: PM_QOS_CPU_LATENCY_DEFAULT_VALUE, in microseconds.
const NO_WISH_US: i32 = 2_000_000_000;

/// Why nothing can be wished.
#[derive(Debug, Error)]
#[error(
    "{PATH} cannot be opened ({0}): idle CPUs halt as they are set up to; run as root, or use --poll auto"
)]
pub struct NoWish(io::Error);

/// Whether this process may wish anything.
///
/// # Errors
/// Why not.
pub fn check() -> Result<(), NoWish> {
    CpuLatency::open().map(|_| ())
}

/// Whether this machine is a guest: then a CPU that halts leaves it, and it is the host that has to wake it.
pub fn is_guest() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        // The hypervisor's bit: CPUID leaf 1, bit 31 of ECX.
        std::arch::x86_64::__cpuid(1).ecx >> 31 == 1
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        false
    }
}

/// The wish of this process, which ends with it.
#[derive(Debug)]
pub struct CpuLatency(KeptFile);

impl CpuLatency {
    /// Opens the file, and wishes nothing yet.
    ///
    /// # Errors
    /// The process has no right to it, or there is no such file.
    pub fn open() -> Result<Self, NoWish> {
        KeptFile::open_to_write(PATH).map(Self).map_err(NoWish)
    }

    /// In place of the last wish.
    ///
    /// # Errors
    /// EBADF when the program has closed the file, ENOENT in a child that could not open it.
    pub fn wish(&self, idle: Idle) -> Result<(), i32> {
        let latency_us = match idle {
            Idle::Awake => 0,
            Idle::AsSetUp => NO_WISH_US,
        };
        process::write_word(self.0.descriptor()?, latency_us)
    }

    /// After fork, in the child: a wish of its own, and no part of the parent's, which would outlast it.
    pub fn renew(&self) {
        self.0.renew_or_let_go();
    }

    /// Whether there still is a file to wish by.
    ///
    /// # Errors
    /// As [`CpuLatency::wish`].
    pub fn check(&self) -> Result<(), NoWish> {
        let lost = |error| NoWish(io::Error::from_raw_os_error(error));
        self.0.descriptor().map(|_| ()).map_err(lost)
    }
}
