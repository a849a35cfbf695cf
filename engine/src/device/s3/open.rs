//! Opens a bucket, or says in one line why not. Nothing is left there that was not there before.
use super::address::Address;
use super::credentials::Credentials;
use super::server::Part;
use super::store::{Config, Name, S3};
use crate::base::open_error::OpenError;
use crate::device::DEVICE_SLOTS;
use crate::device::far::Far;
use crate::device::remote::tls::Tls;
use crate::device::remote::tls::files::OF_STORE;
use crate::device::remote::tls::trust::{Remedies, Trust};
use crate::device::remote::{self, Scheme};
use crate::device::spec::{SwapPath, SwapSpec};
use crate::sys::PAGE_BYTES;
use crate::sys::mapping::{Access, Mapping};
use crate::sys::pages;
use crate::sys::request::Pieces;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;

/// What to write where TLS cannot be spoken.
const REMEDIES: Remedies = Remedies {
    name: "write the name that it is for in endpoint=, and where it is in at=ADDRESS",
    version: "have it do so",
    plain: "correct its port, or write http:// if it speaks none",
};

/// Opens a bucket with room for `bytes` bytes.
///
/// # Errors
/// It cannot be reached or used, or what is written there could be read by others on the way.
pub fn open(spec: &SwapSpec, address: &Address, bytes: u64) -> Result<Box<dyn Far>, OpenError> {
    let refuse = |reason: String| OpenError::Remote { path: path_of(address), reason };
    let at = resolve(address).map_err(refuse)?;
    let is_sealed = spec.encrypt || address.endpoint().scheme == Scheme::Tls;
    if !is_sealed && !at.ip().is_loopback() {
        return Err(refuse(format!(
            "pages would be readable on the way to {}: add encrypt after it, run with --encrypt, or write https://",
            at.ip()
        )));
    }
    let config = Config {
        address: address.clone(),
        at,
        credentials: Credentials::find().map_err(refuse)?,
        tls: tls(address, at).map_err(refuse)?,
        slots: (bytes / PAGE_BYTES as u64).min(u64::from(DEVICE_SLOTS)) as u32,
        engine: remote::open::number()
            .map_err(|error| refuse(format!("no random numbers: {error}")))?,
    };
    let s3 = S3::new(config).map_err(|error| refuse(format!("no memory for tables: {error}")))?;
    try_out(&s3).map_err(|error| refuse(explain(&s3.config, &error)))?;
    Ok(Box::new(s3))
}

fn tls(address: &Address, at: SocketAddr) -> Result<Option<Arc<Tls>>, String> {
    let endpoint = address.endpoint();
    if endpoint.scheme == Scheme::Plain {
        return Ok(None);
    }
    let mut files = address.options.files.clone();
    files.look_in_environment(&OF_STORE)?;
    let trust = Trust::new(&[(endpoint.name(), at)], &files, &REMEDIES)?;
    Ok(Some(Arc::new(Tls::new(Arc::new(trust)))))
}

/// The text by which the device is named.
pub fn path_of(address: &Address) -> PathBuf {
    PathBuf::from(address.to_string())
}

/// The same with where the endpoint is, for a program in which nobody may look names up, and with what the environment
/// says, which may be another there.
///
/// # Errors
/// There is no such host.
pub fn resolved(mut spec: SwapSpec) -> Result<SwapSpec, OpenError> {
    if let SwapPath::S3(address) = &mut spec.path {
        let looked = match address.endpoint().scheme {
            Scheme::Plain => Ok(()),
            Scheme::Tls => address.options.files.look_in_environment(&OF_STORE),
        };
        let found = looked.and_then(|()| resolve(address));
        let found = found.map_err(|reason| OpenError::Remote { path: path_of(address), reason })?;
        // What is a number already is named as it was.
        if !address.is_numeric() {
            address.options.found_at(found.ip());
        }
    }
    Ok(spec)
}

fn resolve(address: &Address) -> Result<SocketAddr, String> {
    let endpoint = address.endpoint();
    if let Some(at) = address.options.at() {
        return Ok(SocketAddr::new(at, endpoint.port));
    }
    let found = (endpoint.name(), endpoint.port).to_socket_addrs();
    let found =
        found.map_err(|error| format!("{endpoint}: no such host ({error}): correct endpoint="))?;
    // Of localhost the one that a server listens on by default.
    found
        .min_by_key(SocketAddr::is_ipv6)
        .ok_or_else(|| format!("{endpoint}: no such host: correct endpoint="))
}

/// Writes an object, reads a page of it, and deletes it.
fn try_out(s3: &S3) -> io::Result<()> {
    let page = Mapping::new(PAGE_BYTES, Access::ReadWrite)?;
    let pieces = Pieces::one(page.address(), PAGE_BYTES);
    let (probe, content) =
        (s3.config.object(Name::Probe), [vec![0; PAGE_BYTES], vec![7; PAGE_BYTES]].concat());
    s3.server.write(&probe, &content)?;
    let read = s3.server.read(&probe, 1, Part { pieces: &pieces, skip: 0, count: 1 });
    s3.server.delete(&probe)?;
    read?;
    match pages::bytes(page.address(), 1) == &content[PAGE_BYTES..] {
        true => Ok(()),
        false => Err(io::Error::from_raw_os_error(libc::EREMOTEIO)),
    }
}

/// A line for what went wrong, with the way out.
fn explain(config: &Config, error: &io::Error) -> String {
    let address = &config.address;
    let (bucket, endpoint) = (&address.bucket, address.endpoint());
    let refusal = config.tls.as_ref().and_then(|tls| tls.refusal());
    match (error.raw_os_error(), refusal) {
        (Some(libc::EPROTO), Some(refusal)) => refusal,
        (Some(libc::ENOKEY | libc::EKEYREJECTED), _) => format!(
            "{endpoint} asks for a certificate of ours: have it know us by the signature alone"
        ),
        (Some(libc::ENOENT), _) => {
            format!("{endpoint} has no bucket {bucket}: create it, or correct its name")
        }
        (Some(libc::EACCES), _) => {
            "refuses the key, or allows it too little: correct AWS_ACCESS_KEY_ID and \
             AWS_SECRET_ACCESS_KEY, and allow it to get, put, list and delete objects"
                .to_owned()
        }
        (Some(libc::EREMCHG), _) => "is elsewhere: correct region= and endpoint=".to_owned(),
        (Some(libc::EREMOTEIO), _) => format!(
            "{endpoint} does not answer as S3 does: correct endpoint=, with https:// for TLS, or region="
        ),
        (Some(libc::EAGAIN), _) => format!("{endpoint} is not ready: try again"),
        // As many do with what they cannot take for TLS.
        (Some(libc::EPROTO | libc::ECONNRESET | libc::EPIPE), _) if config.tls.is_none() => {
            format!(
                "{endpoint} ends the connection ({error}): write https:// if it speaks TLS, or correct endpoint="
            )
        }
        _ => format!(
            "{endpoint} cannot be reached ({error}): start the server, or correct endpoint="
        ),
    }
}
