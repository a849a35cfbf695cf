//! Whom we trust, and as whom we are known: certificates, and what is said of those that will not do.
use super::files::Files;
use crate::sys::lock::Lock;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore,
    SignatureScheme, version,
};
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

/// What a user can write, in the words of what they have written.
pub struct Remedies {
    /// Where a certificate is for another name.
    pub name: &'static str,
    /// Where the newest version is not offered.
    pub version: &'static str,
    /// Where it seems to be spoken not at all.
    pub plain: &'static str,
}

/// What hands are shaken with.
pub struct Trust {
    /// For the library.
    pub config: Arc<ClientConfig>,
    /// Servers that the user has named, and what their certificates are for.
    named: Vec<(SocketAddr, ServerName<'static>)>,
    /// The authorities, for messages.
    authorities: String,
    remedies: &'static Remedies,
    /// Why the last server was refused.
    refusal: Lock<Option<String>>,
}

impl Trust {
    /// Reads the files, and the system's where they do not say whom to trust.
    ///
    /// # Errors
    /// In one line, what is wrong with them.
    pub fn new(
        servers: &[(&str, SocketAddr)],
        files: &Files,
        remedies: &'static Remedies,
    ) -> Result<Self, String> {
        let mut named = Vec::new();
        for (host, found) in servers {
            let name = ServerName::try_from((*host).to_owned())
                .map_err(|_| format!("{host}: no certificate is for such a name: correct it"))?;
            named.push((*found, name));
        }
        let provider = Arc::new(ring::default_provider());
        let authorities = authorities(files)?;
        let names = named.iter().map(|(_, name)| name.clone()).collect();
        let verifier = Arc::new(Verifier::new(authorities, &provider, names)?);
        Ok(Self {
            config: Arc::new(config(files, provider, verifier)?),
            named,
            authorities: match &files.cacert {
                Some(file) => format!("cacert={}", file.display()),
                None => "the system's certificates".to_owned(),
            },
            remedies,
            refusal: Lock::new(None),
        })
    }

    /// What the certificate of a server must be for.
    pub fn name_of(&self, server: SocketAddr) -> ServerName<'static> {
        let named = self.named.iter().find(|(address, _)| *address == server);
        named.map_or_else(|| ServerName::IpAddress(server.ip().into()), |(_, name)| name.clone())
    }

    /// A server has been refused, or has refused us.
    pub fn note(&self, server: SocketAddr, error: &Error) {
        // A lock that another thread had as the process was forked is never free: then nothing is said.
        if let Some(mut refusal) = self.refusal.try_lock() {
            *refusal = Some(format!("{server}: {}", self.explain(error)));
        }
    }

    /// Why the last server was refused.
    pub fn refusal(&self) -> Option<String> {
        self.refusal.try_lock().and_then(|refusal| refusal.clone())
    }

    fn explain(&self, error: &Error) -> String {
        let (authorities, remedies) = (&self.authorities, self.remedies);
        match error {
            Error::InvalidCertificate(wrong) => match wrong {
                // The latter of one with the same name.
                CertificateError::UnknownIssuer | CertificateError::BadSignature => format!(
                    "its certificate is of no authority in {authorities}: name its authority's by cacert=FILE"
                ),
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                    "its certificate has expired: renew it on the server".to_owned()
                }
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                    "its certificate is not valid yet: set the clocks right".to_owned()
                }
                CertificateError::NotValidForNameContext { expected, presented } => format!(
                    "its certificate is for {}, not for {}: {}",
                    names(presented),
                    expected.to_str(),
                    remedies.name
                ),
                other => format!("its certificate will not do ({other}): correct it on the server"),
            },
            Error::AlertReceived(AlertDescription::ProtocolVersion)
            | Error::PeerIncompatible(_) => {
                format!("offers no TLS 1.3 ({error}): {}", remedies.version)
            }
            Error::AlertReceived(_) => {
                format!("does not shake hands ({error}): look at its log")
            }
            _ => format!("does not answer in TLS ({error}): {}", remedies.plain),
        }
    }
}

/// The names of a certificate, which the library shows with their kinds around them.
fn names(presented: &[String]) -> String {
    let plain = |name: &String| name.split('"').nth(1).unwrap_or(name).to_owned();
    match presented {
        [] => "no name".to_owned(),
        _ => presented.iter().map(plain).collect::<Vec<_>>().join(" and "),
    }
}

/// Certificates of a file.
fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let all = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match all {
        Ok(all) if all.is_empty() => {
            Err(format!("{} has no certificate in PEM: name one that has", file.display()))
        }
        Ok(all) => Ok(all),
        Err(error) => Err(unreadable(file, &error)),
    }
}

fn unreadable(file: &Path, error: &dyn fmt::Display) -> String {
    format!("{} cannot be used ({error}): name a file in PEM that can be read", file.display())
}

fn authorities(files: &Files) -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    let (certificates, named) = match &files.cacert {
        Some(file) => (certificates(file)?, file.display().to_string()),
        None => (rustls_native_certs::load_native_certs().certs, "the system".to_owned()),
    };
    let (added, _) = store.add_parsable_certificates(certificates);
    match added {
        0 => Err(format!(
            "no certificate of an authority in {named}: install ca-certificates, or name one by cacert=FILE"
        )),
        _ => Ok(store),
    }
}

fn config(
    files: &Files,
    provider: Arc<CryptoProvider>,
    verifier: Arc<Verifier>,
) -> Result<ClientConfig, String> {
    // Only the newer version: what comes after the handshake is spoken by `records`.
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS13])
        .expect("the provider has its cipher suites")
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match (&files.cert, &files.key) {
        (Some(cert), Some(key)) => {
            let chain = certificates(cert)?;
            let secret = PrivateKeyDer::from_pem_file(key);
            let secret = secret.map_err(|error| unreadable(key, &error))?;
            let config = config.with_client_auth_cert(chain, secret);
            config.map_err(|error| {
                let (cert, key) = (cert.display(), key.display());
                format!("cert={cert} and key={key} do not go together ({error}): correct one")
            })?
        }
        _ => config.with_no_client_auth(),
    };
    config.enable_secret_extraction = true;
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// Checks certificates as the library does. One of a server that a cluster has told us of, by address, may be for any
/// name that the user has given: who says so has been checked.
#[derive(Debug)]
struct Verifier {
    inner: Arc<WebPkiServerVerifier>,
    named: Vec<ServerName<'static>>,
}

impl Verifier {
    fn new(
        authorities: RootCertStore,
        provider: &Arc<CryptoProvider>,
        named: Vec<ServerName<'static>>,
    ) -> Result<Self, String> {
        let authorities = Arc::new(authorities);
        let inner = WebPkiServerVerifier::builder_with_provider(authorities, provider.clone());
        let inner =
            inner.build().map_err(|error| format!("certificates: {error}: correct them"))?;
        Ok(Self { inner, named })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let is_for = |name: &ServerName<'_>| {
            self.inner.verify_server_cert(end_entity, intermediates, name, ocsp_response, now)
        };
        let outcome = is_for(server_name);
        match &outcome {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.named.contains(&server_name.to_owned()) => {
                self.named.iter().find_map(|name| is_for(name).ok()).map_or(outcome, Ok)
            }
            _ => outcome,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}
