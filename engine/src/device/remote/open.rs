//! Opens a remote store, or says in one line why not. Nothing is left there that was not there before.
use super::address::Scheme;
use super::cluster::Cluster;
use super::seconds::{Seconds, masters};
use super::server::Purpose;
use super::survey::survey;
use super::talk::Act;
use super::tls::Tls;
use super::tls::files::OF_REDIS;
use super::tls::trust::{Remedies, Trust};
use super::wire::{Reply, nonsense};
use super::{Address, Config, Copies, Copy, Part, Reach, Remote};
use crate::base::open_error::OpenError;
use crate::base::size::ByteSize;
use crate::device::spec::SwapSpec;
use crate::device::{DEVICE_SLOTS, spec::SwapPath};
use crate::sys::PAGE_BYTES;
use crate::sys::mapping::{Access, Mapping};
use crate::sys::request::{Direction, Pieces};
use ring::rand::{SecureRandom, SystemRandom};
use std::fs;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use userswap_policy::slots::SlotRun;

/// The variable with the password.
const PASSWORD: &str = "USERSWAP_REDIS_PASSWORD";

/// The variable that names a file with it.
const PASSWORD_FILE: &str = "USERSWAP_REDIS_PASSWORD_FILE";

/// What to write where TLS cannot be spoken.
const REMEDIES: Remedies = Remedies {
    name: "write NAME=ADDRESS with the name that it is for",
    version: "have it do so (tls-protocols)",
    plain: "correct its port, or write redis:// if it speaks none",
};

/// What `run` has found in its environment: the program's may be another by now.
static GIVEN: OnceLock<Password> = OnceLock::new();

/// Where a password comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Password {
    /// The password.
    pub text: Option<String>,
    /// A file with it.
    pub file: Option<PathBuf>,
}

impl Password {
    /// What the environment says.
    pub fn of_environment() -> Self {
        Self {
            text: std::env::var(PASSWORD).ok(),
            file: std::env::var_os(PASSWORD_FILE).map(PathBuf::from),
        }
    }

    /// Whoever opens a store in this process from now on uses it, if it says something.
    pub fn keep(&self) {
        if *self != Self::default() {
            let _ = GIVEN.set(self.clone());
        }
    }

    fn read(&self) -> Result<Option<Secret>, String> {
        let (text, source) = match (&self.text, &self.file) {
            (None, None) => return Ok(None),
            (Some(text), _) => (text.clone(), PASSWORD.to_owned()),
            (None, Some(file)) => {
                let named = format!("{PASSWORD_FILE}={}", file.display());
                if !file.is_absolute() {
                    return Err(format!("{named} depends on a working directory: write it from /"));
                }
                let text = fs::read_to_string(file);
                let text = text.map_err(|error| format!("{named} cannot be read: {error}"))?;
                (text.trim_end_matches('\n').to_owned(), named)
            }
        };
        match text.contains(char::is_control) || text.is_empty() {
            true => Err(format!("{source} is empty or has a control character: correct it")),
            false => Ok(Some(Secret { text, source })),
        }
    }
}

/// A password, and where it was found.
#[derive(Clone)]
pub(super) struct Secret {
    /// The password.
    pub(super) text: String,
    /// The variable that has it, or that names its file, for messages.
    source: String,
}

/// A store that answers and takes pages.
pub struct Opened {
    /// The device.
    pub remote: Remote,
    /// Something the user should know, in one line.
    pub warning: Option<String>,
}

/// What a server says of itself.
#[derive(Default)]
struct Information {
    is_cluster: bool,
    is_replica: bool,
    /// The most memory that it takes, in bytes; 0 for what there is.
    memory_max: u64,
    /// What it does then.
    policy: String,
}

/// Opens a store with room for `bytes` bytes.
///
/// # Errors
/// It cannot be reached or used, or what is written there could be read by others on the way.
pub fn open(spec: &SwapSpec, address: &Address, bytes: u64) -> Result<Opened, OpenError> {
    let refuse = |reason: String| OpenError::Remote { path: path_of(address), reason };
    let addresses = resolve(address).map_err(refuse)?;
    let reach = Reach::of(spec.encrypt, address.scheme);
    check_privacy(reach, &addresses).map_err(refuse)?;
    let slots = (bytes / PAGE_BYTES as u64).min(u64::from(DEVICE_SLOTS)) as u32;
    let engine = number().map_err(|error| refuse(format!("no random numbers: {error}")))?;
    let config = Config {
        address: address.clone(),
        said: address.to_string(),
        password: GIVEN
            .get()
            .cloned()
            .unwrap_or_else(Password::of_environment)
            .read()
            .map_err(refuse)?,
        slots,
        copies: address.options.copies(),
        // Until its servers are known.
        seconds: Seconds::default(),
        lease_s: address.options.lease_s(),
        engine,
        name: name(engine),
        tls: tls(address, &addresses).map_err(refuse)?,
        reach,
    };
    connect(config, &addresses, bytes).map_err(refuse)
}

fn tls(address: &Address, found: &[SocketAddr]) -> Result<Option<Arc<Tls>>, String> {
    match address.scheme {
        Scheme::Plain => Ok(None),
        Scheme::Tls => {
            let mut files = address.options.files.clone();
            files.look_in_environment(&OF_REDIS)?;
            let names = address.hosts.iter().map(|host| host.name.as_str());
            let servers: Vec<_> = names.zip(found.iter().copied()).collect();
            let trust = Trust::new(&servers, &files, &REMEDIES)?;
            Ok(Some(Arc::new(Tls::new(Arc::new(trust)))))
        }
    }
}

/// The text by which the device is named.
pub fn path_of(address: &Address) -> PathBuf {
    PathBuf::from(address.to_string())
}

/// A new engine's number.
///
/// # Errors
/// There is no randomness.
pub fn number() -> io::Result<u64> {
    let mut bytes = [0; 8];
    SystemRandom::new().fill(&mut bytes).map_err(|_| io::Error::from(io::ErrorKind::Other))?;
    Ok(u64::from_ne_bytes(bytes))
}

/// What the connections of an engine are called.
pub fn name(engine: u64) -> String {
    format!("userswap-{engine:016x}")
}

/// The same with addresses in the place of names, for a program in which nobody may look names up, and with what the
/// environment says, which may be another there.
///
/// # Errors
/// There is no such host.
pub fn resolved(mut spec: SwapSpec) -> Result<SwapSpec, OpenError> {
    if let SwapPath::Remote(address) = &mut spec.path {
        let path = path_of(address);
        let refuse = |reason| OpenError::Remote { path, reason };
        let looked = match address.scheme {
            Scheme::Plain => Ok(()),
            Scheme::Tls => address.options.files.look_in_environment(&OF_REDIS),
        };
        let found = looked.and_then(|()| resolve(address)).map_err(refuse)?;
        for (host, found) in address.hosts.iter_mut().zip(found) {
            host.found(address.scheme, found.ip());
        }
    }
    Ok(spec)
}

fn resolve(address: &Address) -> Result<Vec<SocketAddr>, String> {
    let mut all = Vec::new();
    for host in &address.hosts {
        if let Some(ip) = host.ip() {
            all.push(SocketAddr::new(ip, host.port));
            continue;
        }
        let found = (host.name.as_str(), host.port).to_socket_addrs();
        let found = found.map_err(|error| format!("{host}: no such host ({error}): correct it"))?;
        // Of localhost the one that a server listens on by default.
        all.extend(found.min_by_key(SocketAddr::is_ipv6));
    }
    Ok(all)
}

fn check_privacy(reach: Reach, addresses: &[SocketAddr]) -> Result<(), String> {
    match addresses.iter().find(|address| !reach.includes(**address)) {
        Some(far) => Err(format!(
            "pages would be readable on the way to {}: add encrypt after it, run with --encrypt, or write rediss://",
            far.ip()
        )),
        None => Ok(()),
    }
}

fn connect(config: Config, addresses: &[SocketAddr], bytes: u64) -> Result<Opened, String> {
    let io = |error: io::Error| explain(&config, &error);
    let first = Cluster::single(addresses[0]).map_err(io)?;
    let information = ask(&first, &config).map_err(io)?;
    let cluster = match (information.is_cluster, addresses, config.copies) {
        (true, ..) => join(&config, addresses)?,
        (false, [_], Copies::One) => {
            check(&information)?;
            first
        }
        (false, [_], Copies::Two) => {
            return Err(
                "is one server, which cannot have two copies: leave copies=2 out, or name \
                 a cluster"
                    .to_owned(),
            );
        }
        (false, ..) => {
            return Err(
                "several servers are named, and the first is none of a cluster: name one, \
                 or start them with cluster-enabled yes"
                    .to_owned(),
            );
        }
    };
    let warning = too_small(&config, &information, bytes);
    let seconds = match config.copies {
        Copies::One => Seconds::default(),
        // Of three masters at least.
        Copies::Two => Seconds::place(|slot| cluster.surveyed(slot)),
    };
    let placed = Config { seconds, ..config.clone() };
    let remote = Remote::new(placed, Part::Owner, cluster).map_err(io)?;
    try_out(&remote).map_err(io)?;
    Ok(Opened { remote, warning })
}

/// A warning where the only server takes less than a device is to hold.
fn too_small(config: &Config, information: &Information, bytes: u64) -> Option<String> {
    let most = information.memory_max;
    if information.is_cluster || most == 0 || most >= bytes {
        return None;
    }
    let path = path_of(&config.address);
    let (path, most, asked) = (path.display(), ByteSize(most).rounded(), ByteSize(bytes));
    Some(format!(
        "{path}: the server takes {most} at most, less than {asked}: raise maxmemory, or name a SIZE"
    ))
}

/// The servers of a cluster, each of which is looked at.
fn join(config: &Config, addresses: &[SocketAddr]) -> Result<Cluster, String> {
    let io = |error: io::Error| explain(config, &error);
    let cluster = Cluster::of(addresses).map_err(io)?;
    survey(&cluster, 0, config).map_err(io)?;
    let all: Vec<SocketAddr> = cluster.addresses().collect();
    check_privacy(config.reach, &all)?;
    if config.copies == Copies::Two {
        check_masters(masters(|slot| cluster.surveyed(slot)))?;
    }
    for address in all {
        let one = Cluster::single(address).map_err(io)?;
        let said = ask(&one, config).map_err(|error| format!("{address}: {}", io(error)))?;
        check(&said).map_err(|reason| format!("{address}: {reason}"))?;
    }
    Ok(cluster)
}

/// Servers go on without a dead one only as long as most of those that own hash slots are there: of two none does, and no copy
/// can be read.
fn check_masters(masters: usize) -> Result<(), String> {
    match masters {
        3.. => Ok(()),
        1 => Err("has one master that owns slots, so that nothing has two copies: leave copies=2 out, or have at \
                  least three such masters"
            .to_owned()),
        _ => Err(format!(
            "has {masters} masters that own slots, of which none answers once another is dead: leave copies=2 out, \
             or have at least three such masters"
        )),
    }
}

/// What a server is refused for.
fn check(information: &Information) -> Result<(), String> {
    if information.is_replica {
        return Err("is a replica, which takes no writes: name its master".to_owned());
    }
    // Without a limit it would from the moment on that it is given one. Who names no policy is believed until then.
    let may_evict = information.memory_max > 0 || !information.policy.is_empty();
    if may_evict && information.policy != "noeviction" {
        return Err(format!(
            "throws data away when it is full (maxmemory-policy {}): have it run with maxmemory-policy noeviction",
            information.policy
        ));
    }
    Ok(())
}

fn ask(cluster: &Cluster, config: &Config) -> io::Result<Information> {
    cluster.server(0).converse(config, Purpose::Look, &mut |wire| {
        wire.say(&[b"INFO"])?;
        wire.flush()?;
        match wire.reply()? {
            Reply::Bulk(bytes) => Ok(read_information(wire.bulk(bytes)?)),
            Reply::Refused => Err(wire.refusal().error()),
            _ => Err(nonsense()),
        }
    })
}

fn read_information(text: &[u8]) -> Information {
    let mut information = Information::default();
    for line in String::from_utf8_lossy(text).lines() {
        match line.split_once(':') {
            Some(("cluster_enabled", value)) => information.is_cluster = value == "1",
            Some(("role", value)) => information.is_replica = value != "master",
            Some(("maxmemory", value)) => information.memory_max = value.parse().unwrap_or(0),
            Some(("maxmemory_policy", value)) => value.clone_into(&mut information.policy),
            _ => {}
        }
    }
    information
}

/// Writes a page, reads it back and deletes it: on the header's slot, which no page has.
fn try_out(remote: &Remote) -> io::Result<()> {
    let page = Mapping::new(PAGE_BYTES, Access::ReadWrite)?;
    let pieces = Pieces::one(page.address(), PAGE_BYTES);
    remote.transfer(Direction::Write, Copy::First, 0, &pieces)?;
    let read = remote.transfer(Direction::Read, Copy::First, 0, &pieces);
    let words: Vec<_> =
        userswap_policy::lent::SlotWord::of(SlotRun { first: 0, count: 1 }).collect();
    remote.act_on_all(Act::DeleteGroups, &words)?;
    remote.held[0].store(0, std::sync::atomic::Ordering::Relaxed);
    read
}

/// A line for what went wrong, with the way out.
fn explain(config: &Config, error: &io::Error) -> String {
    if let Some(tls) = &config.tls {
        return explain_tls(config, tls, error);
    }
    match error.raw_os_error() {
        Some(libc::EPROTO) => {
            "speaks TLS: write rediss:// in the place of redis://, or correct its port".to_owned()
        }
        // As Redis does with what it cannot take for TLS.
        Some(libc::ECONNRESET | libc::EPIPE) => format!(
            "ends the connection ({error}): write rediss:// if it speaks TLS, or correct HOST:PORT"
        ),
        _ => explain_plain(config, error),
    }
}

/// The same for what TLS adds.
fn explain_tls(config: &Config, tls: &Tls, error: &io::Error) -> String {
    match (error.raw_os_error(), tls.refusal()) {
        (Some(libc::EPROTO), Some(refusal)) => refusal,
        (Some(libc::ENOKEY), _) => "wants a certificate of ours: add cert=FILE and key=FILE, or \
             have it run with tls-auth-clients no"
            .to_owned(),
        (Some(libc::EKEYREJECTED), _) => {
            "does not trust the certificate of cert=FILE: name one of an authority that it trusts"
                .to_owned()
        }
        (Some(libc::ETIMEDOUT | libc::ECONNRESET | libc::EPIPE), _) => format!(
            "does not answer in TLS ({error}): start the server, correct its port, or write \
             redis:// if it speaks none"
        ),
        _ => explain_plain(config, error),
    }
}

fn explain_plain(config: &Config, error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EACCES) => explain_access(config),
        Some(libc::EKEYREVOKED) => {
            format!("has no password, and one is given: unset {PASSWORD} and {PASSWORD_FILE}")
        }
        Some(libc::ENOSPC) => "is full: raise its maxmemory, or name another server".to_owned(),
        // The second: what was written a moment ago is not there.
        Some(libc::EREMOTEIO | libc::ENODATA) => {
            "does not answer as a Redis or Valkey server of version 6.2 or newer does: correct \
             HOST:PORT"
                .to_owned()
        }
        Some(libc::EADDRNOTAVAIL) => "names its servers by host names: set \
             cluster-preferred-endpoint-type ip, and have at most 64 servers"
            .to_owned(),
        _ => format!("cannot be reached ({error}): start the server, or correct HOST:PORT"),
    }
}

/// It does not let us in, or not do what we have to.
fn explain_access(config: &Config) -> String {
    match (&config.password, &config.address.user) {
        (None, _) => {
            format!("wants a password, or allows us too little: set {PASSWORD}, or {PASSWORD_FILE}")
        }
        (Some(Secret { source, .. }), None) => {
            format!("refuses the password in {source}, or allows its user too little: correct it")
        }
        (Some(Secret { source, .. }), Some(user)) => format!(
            "refuses user {user} with the password in {source}, or allows that user too little: correct the password, \
             or the user before HOST"
        ),
    }
}

impl SwapSpec {
    /// The remote store that it names, if it does.
    pub fn remote(&self) -> Option<&Address> {
        match &self.path {
            SwapPath::Remote(address) => Some(&**address),
            SwapPath::Path(_) | SwapPath::Memory | SwapPath::Compressed(_) | SwapPath::S3(_) => {
                None
            }
        }
    }
}
