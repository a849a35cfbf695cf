//! Everything that `userswap run` tells the library that it injects, as lines of `key=value`.
//!
//! The two sides are different binaries of one build, with only the environment between them; the
//! text form is therefore strict: what one side does not know, it refuses. Whether values make sense is
//! checked by the command line, before the program starts, where a user reads the message.
use crate::base::choice::{
    Allowed, FaultMode, IoBackend, OnFull, PAGE_CLUSTERS, RA_POLICIES, RawCalls, Transfer, VMA_RA,
};
use crate::base::topology::SYSFS;
use crate::device::compress::{Compress, CompressError};
use crate::device::remote::open::Password;
use crate::device::s3::credentials::Credentials;
use crate::device::spec::{SpecError, SwapSpec};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::str::FromStr;
use userswap_policy::choice::Unknown;
use userswap_policy::devices::Placement;
use userswap_policy::polling::Poll;
use userswap_policy::readahead::{
    AddressOrder, PAGE_CLUSTER_DEFAULT, ReadaheadPolicy, page_cluster_of,
};

/// The environment variable that carries [`Options::to_text`] to the injected library.
pub const OPTIONS_VARIABLE: &str = "USERSWAP_OPTIONS";

/// Mappings below this stay the kernel's unless asked otherwise: glibc's own limit for giving an
/// allocation a mapping of its own.
pub const MIN_REGION_DEFAULT_BYTES: u64 = 128 << 10;

/// Why a text is not a set of options; the message names the value and says what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// A word that is not among the allowed ones.
    #[error(transparent)]
    Choice(#[from] Unknown),
    /// A line without `=`.
    #[error("\"{0}\" is not an option: each line is key=value")]
    NotAnOption(String),
    /// A key that this build does not know.
    #[error("unknown option \"{0}\": the command and the injected library are of different builds")]
    UnknownKey(String),
    /// A number that cannot be read.
    #[error("{key}=\"{value}\" is not a whole number")]
    Number {
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
    },
    /// A value that is not among the allowed ones.
    #[error("{key}: {value:?} is not allowed: use {allowed}")]
    Value {
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
        /// What is allowed, as in "use …".
        allowed: &'static str,
    },
    /// A swap device that cannot be read.
    #[error("swap: {0}")]
    Swap(#[from] SpecError),
    /// An amount of compressed memory that is none.
    #[error("compress: {0}")]
    Compress(#[from] CompressError),
    /// A key that must be there.
    #[error("option \"{0}\" is missing")]
    Missing(&'static str),
}

/// The options of one `userswap run`, for every process under it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The RAM budget in bytes: of the job, if it has a ledger, else of each process.
    pub ram_bytes: u64,
    /// What the budget can be raised to at least, in bytes; 0 for about four times what it is.
    pub ram_max_bytes: u64,
    /// Where the processes of the job share its budget out.
    pub ledger: Option<PathBuf>,
    /// Node and bytes of its share, by the kernel's numbers; empty, the nodes' shares are by their CPUs.
    pub ram_by_node: Vec<(u32, u64)>,
    /// So many made-up nodes instead of the machine's own.
    pub fake_numa: Option<u32>,
    /// Where the machine is described, as in `/sys`; not handed on by [`Self::to_text`].
    pub sysfs: PathBuf,
    /// Swap devices in the order given; empty means a temporary file in the default directory.
    pub swaps: Vec<SwapSpec>,
    /// Whether all of them are encrypted, those that come later, too.
    pub encrypt: bool,
    /// How much memory compressed pages may take in front of all of them, if any.
    pub compress: Option<Compress>,
    /// Which device without a priority is asked first.
    pub placement: Placement,
    /// How faults are delivered.
    pub fault: FaultMode,
    /// Private mappings of at least this size are managed.
    pub min_region_bytes: u64,
    /// What happens when the devices are full.
    pub on_full: OnFull,
    /// Where the root process writes its counters at exit.
    pub stats: Option<PathBuf>,
    /// Where each process that has an engine records what happens to its pages.
    pub trace: Option<PathBuf>,
    /// The same with samples; of the two one is given.
    pub record: Option<PathBuf>,
    /// How pages travel.
    pub transfer: Transfer,
    /// How devices are driven.
    pub io: IoBackend,
    /// How the server waits.
    pub poll: Poll,
    /// What is read ahead of its use.
    pub swap_ra_policy: ReadaheadPolicy,
    /// Binary logarithm of the largest window of the kernel's policies, in pages: 0 to 10.
    pub page_cluster: u8,
    /// Whether `scaling` reads in address order where no device seeks.
    pub vma_ra_enabled: AddressOrder,
    /// The directory of the control socket; without it there is no socket.
    pub control: Option<PathBuf>,
    /// Where the job's processes note what the user was told.
    pub told: Option<PathBuf>,
    /// What becomes of system calls in the program's own code.
    pub raw_calls: RawCalls,
    /// The password of servers, and a file that has it: programs clear their environments.
    pub password: Password,
    /// The key to a bucket; empty where none is used.
    pub credentials: Credentials,
    /// Nothing is said about what runs outside the budget.
    pub quiet: bool,
    /// Filters of system calls (seccomp) that were tried, and permit all that an engine does: those of a process that has as many.
    pub filters: u32,
    /// The process that `run` became, which alone writes `stats`; 0 is none.
    pub root_pid: u32,
}

impl Options {
    /// A budget, and the defaults of `userswap run` for everything else.
    pub fn new(ram_bytes: u64) -> Options {
        Options {
            ram_bytes,
            ram_max_bytes: 0,
            ledger: None,
            ram_by_node: Vec::new(),
            fake_numa: None,
            sysfs: SYSFS.into(),
            swaps: Vec::new(),
            encrypt: false,
            compress: None,
            placement: Placement::Near,
            fault: FaultMode::Thread,
            min_region_bytes: MIN_REGION_DEFAULT_BYTES,
            on_full: OnFull::Exceed,
            stats: None,
            trace: None,
            record: None,
            transfer: Transfer::Auto,
            io: IoBackend::Auto,
            poll: Poll::Auto,
            swap_ra_policy: ReadaheadPolicy::Stream,
            page_cluster: PAGE_CLUSTER_DEFAULT,
            vma_ra_enabled: AddressOrder::Enabled,
            control: None,
            told: None,
            raw_calls: RawCalls::Auto,
            password: Password::default(),
            credentials: Credentials::default(),
            quiet: false,
            filters: 0,
            root_pid: 0,
        }
    }

    /// The text for [`OPTIONS_VARIABLE`]. Paths must be UTF-8 without line ends.
    pub fn to_text(&self) -> String {
        let mut text = format!(
            "ram={}\nram_max={}\nplacement={}\nfault={}\nmin_region={}\non_full={}\ntransfer={}\nio={}\npoll={}\nraw_calls={}\nfilters={}\nroot_pid={}\n",
            self.ram_bytes,
            self.ram_max_bytes,
            self.placement,
            self.fault,
            self.min_region_bytes,
            self.on_full,
            self.transfer,
            self.io,
            self.poll,
            self.raw_calls,
            self.filters,
            self.root_pid,
        );
        let Self { swap_ra_policy, page_cluster, vma_ra_enabled, .. } = self;
        write!(
            text,
            "swap_ra_policy={swap_ra_policy}\npage_cluster={page_cluster}\nvma_ra_enabled={vma_ra_enabled}\n"
        )
        .expect("writing to a string cannot fail");
        for (node, bytes) in &self.ram_by_node {
            writeln!(text, "ram_of_node={node}:{bytes}").expect("writing to a string cannot fail");
        }
        if let Some(nodes) = self.fake_numa {
            writeln!(text, "fake_numa={nodes}").expect("writing to a string cannot fail");
        }
        for swap in &self.swaps {
            writeln!(text, "swap={swap}").expect("writing to a string cannot fail");
        }
        self.write_files(&mut text);
        self.write_given(&mut text);
        text
    }

    /// What is there only if it was asked for.
    fn write_given(&self, text: &mut String) {
        if self.encrypt {
            text.push_str("encrypt=true\n");
        }
        if let Some(password) = &self.password.text {
            writeln!(text, "redis_password={password}").expect("writing to a string cannot fail");
        }
        let Credentials { id, secret, token } = &self.credentials;
        if !id.is_empty() {
            writeln!(text, "s3_id={id}\ns3_secret={secret}")
                .expect("writing to a string cannot fail");
        }
        if let Some(token) = token {
            writeln!(text, "s3_token={token}").expect("writing to a string cannot fail");
        }
        if let Some(compress) = self.compress {
            writeln!(text, "compress={compress}").expect("writing to a string cannot fail");
        }
        if self.quiet {
            text.push_str("quiet=true\n");
        }
    }

    fn write_files(&self, text: &mut String) {
        let files = [
            ("ledger", &self.ledger),
            ("stats", &self.stats),
            ("trace", &self.trace),
            ("record", &self.record),
            ("control", &self.control),
            ("told", &self.told),
            ("redis_password_file", &self.password.file),
        ];
        for (key, path) in files {
            if let Some(path) = path {
                writeln!(text, "{key}={}", path.display())
                    .expect("writing to a string cannot fail");
            }
        }
    }

    /// Reads what [`to_text`](Options::to_text) wrote; keys left out keep their defaults.
    ///
    /// # Errors
    /// A missing `ram`, an unknown key, and values that cannot be read.
    pub fn from_text(text: &str) -> Result<Options, OptionsError> {
        let mut options = Options::new(0);
        for line in text.lines().filter(|line| !line.is_empty()) {
            let (key, value) =
                line.split_once('=').ok_or_else(|| OptionsError::NotAnOption(line.to_owned()))?;
            options.set(key, value)?;
        }
        if options.ram_bytes == 0 {
            return Err(OptionsError::Missing("ram"));
        }
        Ok(options)
    }

    /// Sets what one line says.
    ///
    /// # Errors
    /// An unknown key, and values that cannot be read.
    pub(super) fn set(&mut self, key: &str, value: &str) -> Result<(), OptionsError> {
        match key {
            "ram" => self.ram_bytes = number("ram", value)?,
            "ram_max" => self.ram_max_bytes = number("ram_max", value)?,
            "ram_of_node" => {
                let (node, bytes) = value.split_once(':').unwrap_or((value, ""));
                let key = "ram_of_node";
                self.ram_by_node.push((number(key, node)?, number(key, bytes)?));
            }
            "fake_numa" => self.fake_numa = Some(number("fake_numa", value)?),
            "swap" => self.swaps.push(value.parse()?),
            "placement" => self.placement = value.parse()?,
            "fault" => self.fault = value.parse()?,
            "min_region" => self.min_region_bytes = number("min_region", value)?,
            "on_full" => self.on_full = value.parse()?,
            "transfer" => self.transfer = value.parse()?,
            "io" => self.io = value.parse()?,
            "poll" => self.poll = value.parse()?,
            "swap_ra_policy" => self.swap_ra_policy = readahead(value, RA_POLICIES)?,
            "page_cluster" => {
                self.page_cluster =
                    page_cluster_of(value).map_err(|_| refused(value, PAGE_CLUSTERS))?;
            }
            "vma_ra_enabled" => self.vma_ra_enabled = readahead(value, VMA_RA)?,
            "redis_password" => self.password.text = Some(value.to_owned()),
            "s3_id" => value.clone_into(&mut self.credentials.id),
            "s3_secret" => value.clone_into(&mut self.credentials.secret),
            "s3_token" => self.credentials.token = Some(value.to_owned()),
            "raw_calls" => self.raw_calls = value.parse()?,
            "encrypt" => {
                self.encrypt = value.parse().map_err(|_| refused(value, ENCRYPT))?;
            }
            "compress" => self.compress = Some(value.parse()?),
            "quiet" => self.quiet = value == "true",
            "filters" => self.filters = number("filters", value)?,
            "root_pid" => self.root_pid = number("root_pid", value)?,
            _ => *self.file(key)? = Some(PathBuf::from(value)),
        }
        Ok(())
    }

    fn file(&mut self, key: &str) -> Result<&mut Option<PathBuf>, OptionsError> {
        Ok(match key {
            "ledger" => &mut self.ledger,
            "stats" => &mut self.stats,
            "trace" => &mut self.trace,
            "record" => &mut self.record,
            "control" => &mut self.control,
            "told" => &mut self.told,
            "redis_password_file" => &mut self.password.file,
            _ => return Err(OptionsError::UnknownKey(key.to_owned())),
        })
    }
}

/// Nobody is to believe that it is on.
const ENCRYPT: Allowed = Allowed { key: "encrypt", values: "true or false" };

fn refused(value: &str, Allowed { key, values }: Allowed) -> OptionsError {
    OptionsError::Value { key, value: value.to_owned(), allowed: values }
}

fn readahead<T: FromStr>(value: &str, allowed: Allowed) -> Result<T, OptionsError> {
    value.parse().map_err(|_| refused(value, allowed))
}

fn number<T: FromStr>(key: &'static str, value: &str) -> Result<T, OptionsError> {
    value.parse().map_err(|_| OptionsError::Number { key, value: value.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::limits::RAM_MIN_BYTES;

    #[test]
    fn options_read_back_as_they_were_written() {
        let mut options = Options::new(512 << 20);
        assert_eq!(Options::from_text(&options.to_text()), Ok(options.clone()));
        options.swaps = vec![
            "/var/tmp:1G,pri=3".parse().unwrap(),
            "mem:64M,node=1".parse().unwrap(),
            "/with=sign,and comma".parse().unwrap(),
        ];
        options.placement = Placement::Spread;
        options.fault = FaultMode::Signal;
        options.min_region_bytes = 4096;
        options.on_full = OnFull::Stop;
        options.stats = Some("/tmp/a=b stats.json".into());
        options.trace = Some("/tmp/a trace".into());
        options.record = Some("/tmp/a record".into());
        options.transfer = Transfer::Copy;
        options.io = IoBackend::Threads;
        options.poll = Poll::Micros(30);
        options.control = Some("/run/user/1000/user swap".into());
        options.told = Some("/run/userswap-0-lib/told-4711".into());
        options.raw_calls = RawCalls::Trap;
        options.encrypt = true;
        options.ram_max_bytes = 4 << 30;
        options.password.text = Some("open = sesame".to_owned());
        options.password.file = Some("/run/secrets/redis password".into());
        options.credentials.id = "AKIA".to_owned();
        options.credentials.secret = "a/b+c=d".to_owned();
        options.credentials.token = Some("e==".to_owned());
        options.compress = Some(Compress::Most(64 << 20));
        options.quiet = true;
        options.filters = 2;
        options.ledger = Some("/run/user/1000/4711.ledger".into());
        options.root_pid = 4711;
        options.swap_ra_policy = ReadaheadPolicy::Fixed;
        options.page_cluster = 7;
        options.vma_ra_enabled = AddressOrder::Disabled;
        options.ram_by_node = vec![(0, 1 << 30), (3, 16 << 20)];
        options.fake_numa = Some(4);
        assert_eq!(Options::from_text(&options.to_text()), Ok(options));
    }

    #[test]
    fn keys_left_out_keep_their_defaults() {
        assert_eq!(Options::from_text("ram=16777216\n"), Ok(Options::new(RAM_MIN_BYTES)));
    }

    #[test]
    fn what_is_not_understood_is_refused_and_named() {
        for (text, named) in [
            ("", "\"ram\" is missing"),
            ("ram=5\nspeed=9", "\"speed\""),
            ("ram", "\"ram\""),
            ("ram=many", "\"many\""),
            ("ram=5\nfault=fast", "\"fast\" is not a fault mode: use thread or signal"),
            ("ram=5\npoll=0", "\"0\" is not a way of polling: use auto, off, idle or a number"),
            ("ram=5\nswap=mem", "\"mem\""),
            ("ram=5\nswap_ra_policy=2", "\"2\" is not allowed: use scaling"),
            ("ram=5\npage_cluster=11", "\"11\" is not allowed: use a whole number from 0 to 10"),
            ("ram=5\nvma_ra_enabled=maybe", "\"maybe\" is not allowed: use true or false"),
            ("ram=5\nencrypt=yes", "\"yes\" is not allowed: use true or false"),
            ("ram=5\ncompress=1M", "\"1M\" is no amount"),
            ("ram=5\nroot_pid=-1", "\"-1\""),
            ("ram=5\nram_of_node=0-7", "\"0-7\""),
        ] {
            let refusal = Options::from_text(text).unwrap_err().to_string();
            assert!(refusal.contains(named), "{text:?}: {refusal}");
        }
    }

    #[test]
    fn every_choice_reads_back_as_it_is_printed() {
        for choice in [FaultMode::Thread, FaultMode::Signal] {
            assert_eq!(choice.to_string().parse(), Ok(choice));
        }
        for choice in [OnFull::Exceed, OnFull::Stop] {
            assert_eq!(choice.to_string().parse(), Ok(choice));
        }
        for choice in [Transfer::Auto, Transfer::Move, Transfer::Copy] {
            assert_eq!(choice.to_string().parse(), Ok(choice));
        }
        for choice in [IoBackend::Auto, IoBackend::Uring, IoBackend::Threads] {
            assert_eq!(choice.to_string().parse(), Ok(choice));
        }
    }
}
