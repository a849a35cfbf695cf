//! Opens a bucket, or says in one line why not. Nothing is left there that was not there before.
use super::address::Address;
use super::credentials::Credentials;
use super::server::Part;
use super::store::{Config, Name, S3};
use crate::base::open_error::OpenError;
use crate::device::DEVICE_SLOTS;
use crate::device::far::Far;
use crate::device::remote;
use crate::device::spec::{SwapPath, SwapSpec};
use crate::sys::PAGE_BYTES;
use crate::sys::mapping::{Access, Mapping};
use crate::sys::pages;
use crate::sys::request::Pieces;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

/// Opens a bucket with room for `bytes` bytes.
///
/// # Errors
/// It cannot be reached or used, or what is written there could be read by others on the way.
pub fn open(spec: &SwapSpec, address: &Address, bytes: u64) -> Result<Box<dyn Far>, OpenError> {
    let refuse = |reason: String| OpenError::Remote { path: path_of(address), reason };
    let at = resolve(address).map_err(refuse)?;
    if !spec.encrypt && !at.ip().is_loopback() {
        return Err(refuse(format!(
            "pages would be readable on the way to {}: add encrypt after it, or run with --encrypt",
            at.ip()
        )));
    }
    let config = Config {
        address: address.clone(),
        at,
        credentials: Credentials::find().map_err(refuse)?,
        slots: (bytes / PAGE_BYTES as u64).min(u64::from(DEVICE_SLOTS)) as u32,
        engine: remote::open::number()
            .map_err(|error| refuse(format!("no random numbers: {error}")))?,
    };
    let s3 = S3::new(config).map_err(|error| refuse(format!("no memory for tables: {error}")))?;
    try_out(&s3).map_err(|error| refuse(explain(address, &error)))?;
    Ok(Box::new(s3))
}

/// The text by which the device is named.
pub fn path_of(address: &Address) -> PathBuf {
    PathBuf::from(address.to_string())
}

/// The same with where the endpoint is, for a program in which nobody may look names up.
///
/// # Errors
/// There is no such host.
pub fn resolved(mut spec: SwapSpec) -> Result<SwapSpec, OpenError> {
    if let SwapPath::S3(address) = &mut spec.path {
        let found = resolve(address);
        let found = found.map_err(|reason| OpenError::Remote { path: path_of(address), reason })?;
        address.options.found_at(found.ip());
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
fn explain(address: &Address, error: &io::Error) -> String {
    let (bucket, endpoint) = (&address.bucket, address.endpoint());
    match error.raw_os_error() {
        Some(libc::ENOENT) => {
            format!("{endpoint} has no bucket {bucket}: create it, or correct its name")
        }
        Some(libc::EACCES) => {
            "refuses the key, or allows it too little: correct AWS_ACCESS_KEY_ID and \
             AWS_SECRET_ACCESS_KEY, and allow it to get, put, list and delete objects"
                .to_owned()
        }
        Some(libc::EREMCHG) => "is elsewhere: correct region= and endpoint=".to_owned(),
        Some(libc::EREMOTEIO) => {
            format!("{endpoint} does not answer as S3 does: correct endpoint= or region=")
        }
        Some(libc::EAGAIN) => format!("{endpoint} is not ready: try again"),
        _ => format!(
            "{endpoint} cannot be reached ({error}): start the server, or correct endpoint="
        ),
    }
}
