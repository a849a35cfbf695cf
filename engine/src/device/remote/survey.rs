//! Asks a cluster who has which hash slots.
//!
//! The answer is read to its end whatever is in it: a server that says something of no use is none that says nothing. Nothing
//! is allocated.
use super::Config;
use super::cluster::Cluster;
use super::server::Purpose;
use super::wire::{Reply, Wire, nonsense};
use std::io;
use std::net::SocketAddr;

/// Asks one of the servers.
///
/// # Errors
/// It does not answer, refuses to, or names one that cannot be asked (EADDRNOTAVAIL).
pub fn survey(cluster: &Cluster, server: usize, config: &Config) -> io::Result<()> {
    let mut said = Ok(());
    cluster.server(server).converse(config, Purpose::Look, &mut |wire| {
        wire.say(&[b"CLUSTER", b"SLOTS"])?;
        wire.flush()?;
        match wire.reply()? {
            Reply::Array(ranges) => said = read_ranges(wire, ranges, cluster)?,
            Reply::Refused => said = Err(wire.refusal().error()),
            _ => return Err(nonsense()),
        }
        Ok(())
    })?;
    said
}

/// The outer error is one of the connection.
fn read_ranges(wire: &mut Wire, ranges: usize, cluster: &Cluster) -> io::Result<io::Result<()>> {
    cluster.begin_survey();
    let mut is_whole = true;
    for _ in 0..ranges {
        let Reply::Array(parts) = wire.reply()? else { return Err(nonsense()) };
        let (Reply::Number(first), Reply::Number(last)) = (wire.reply()?, wire.reply()?) else {
            return Err(nonsense());
        };
        let owner = read_owner(wire)?;
        (3..parts).try_for_each(|_| pass_over(wire))?;
        let known = owner.and_then(|owner| cluster.survey(first as usize..=last as usize, owner));
        is_whole &= known.is_some();
    }
    Ok(match is_whole {
        true => Ok(()),
        false => Err(io::Error::from_raw_os_error(libc::EADDRNOTAVAIL)),
    })
}

/// A server's address, if it is one, and whatever else is said of it passed over.
fn read_owner(wire: &mut Wire) -> io::Result<Option<SocketAddr>> {
    let Reply::Array(parts) = wire.reply()? else { return Err(nonsense()) };
    let ip = match wire.reply()? {
        Reply::Bulk(bytes) => {
            std::str::from_utf8(wire.bulk(bytes)?).ok().and_then(|ip| ip.parse().ok())
        }
        Reply::Nothing => None,
        _ => return Err(nonsense()),
    };
    let Reply::Number(port) = wire.reply()? else { return Err(nonsense()) };
    (2..parts).try_for_each(|_| pass_over(wire))?;
    Ok(ip.map(|ip| SocketAddr::new(ip, port as u16)))
}

/// A reply that says nothing to us.
fn pass_over(wire: &mut Wire) -> io::Result<()> {
    match wire.reply()? {
        Reply::Bulk(bytes) => wire.skip(bytes + 2),
        Reply::Array(parts) => (0..parts).try_for_each(|_| pass_over(wire)),
        _ => Ok(()),
    }
}
