//! TLS of connections that go out: whose server certificates count, the client's own, and what to do where one is refused.
//!
//! *On failure*: a certificate that is refused is `Invalid`, and not tried again: it would be refused again.

use crate::address::Address;
use crate::options::Tls;
use forebay_core::{Error, Result};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore};
use std::error::Error as Source;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The configuration that follows from the files.
///
/// # Errors
/// `Invalid` for a file that cannot be read or holds nothing of the kind, or where no CA is named.
pub(crate) fn config(files: &Tls) -> Result<Arc<ClientConfig>> {
    let ca = files.ca.as_deref().ok_or_else(|| {
        Error::invalid("TLS needs the certificate of the CA that made the server's: `ca`, a file in PEM form")
    })?;
    let mut roots = RootCertStore::empty();
    for certificate in certificates(ca)? {
        roots.add(certificate).map_err(|error| wrong(ca, "holds a certificate that is none", error))?;
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::internal("no protocol version of TLS").with_source(error))?
        .with_root_certificates(roots);
    let config = match (&files.certificate, &files.key) {
        (Some(certificate), Some(key)) => {
            let chain = certificates(certificate)?;
            let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(key, "holds no key", error))?;
            let config = builder.with_client_auth_cert(chain, secret);
            config.map_err(|error| wrong(key, "is not the key of the certificate", error))?
        }
        (None, None) => builder.with_no_client_auth(),
        _ => return Err(Error::invalid("a client certificate needs its key, and a key its certificate")),
    };
    Ok(Arc::new(config))
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>);
    let list = read.map_err(|error| wrong(file, "holds no certificate", error))?;
    if list.is_empty() {
        return Err(Error::invalid(format!("{} holds no certificate", file.display())));
    }
    Ok(list)
}

fn wrong(file: &Path, what: &str, error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::invalid(format!("{} {what}: {error}", file.display())).with_source(error)
}

/// The name by which the server's certificate is checked.
///
/// # Errors
/// `Invalid` for a host that is no name.
pub(crate) fn server_name(host: &str) -> Result<ServerName<'static>> {
    ServerName::try_from(host.to_owned()).map_err(|error| {
        Error::invalid(format!("`{host}` is no name that a certificate could have")).with_source(error)
    })
}

/// Why hands were not shaken with a server.
pub(crate) fn unshaken(address: &Address, error: io::Error) -> Error {
    match inside(&error).cloned() {
        Some(found) => refused(address, found),
        None if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
            Error::unavailable(format!("{address} does not finish the handshake of TLS in time")).with_source(error)
        }
        None => {
            Error::unavailable(format!("{address} does not finish the handshake of TLS: {error}")).with_source(error)
        }
    }
}

/// What the server says of the client's certificate, where that is why a connection failed: with TLS 1.3 it is told after
/// the client's side of the handshake, instead of the answer to its hello.
pub(crate) fn refusal(address: &Address, error: &Error) -> Option<Error> {
    // Only alerts about the certificate: others may be faults of the connection, which are worth another try.
    let found = inside(error.source()?.downcast_ref()?)?;
    match found {
        rustls::Error::AlertReceived(alert) if client_advice(*alert).is_some() => Some(refused(address, found.clone())),
        _ => None,
    }
}

fn inside(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

fn refused(address: &Address, error: rustls::Error) -> Error {
    let why = match &error {
        rustls::Error::InvalidCertificate(why) => server_advice(why),
        rustls::Error::AlertReceived(alert) => {
            client_advice(*alert).unwrap_or("the server refuses TLS as this client speaks it: its log says why")
        }
        rustls::Error::InvalidMessage(_) => "what it answers is not TLS: is it tcp:// that is spoken there?",
        _ => "TLS with the server comes to nothing",
    };
    Error::invalid(format!("{address}: {why}")).with_source(error)
}

/// What to do about a server's certificate that is not believed.
fn server_advice(why: &CertificateError) -> &'static str {
    use CertificateError as Why;
    match why {
        Why::Expired | Why::ExpiredContext { .. } => {
            "the server's certificate has expired: give the server a new one, or set the clock of this machine"
        }
        Why::NotValidYet | Why::NotValidYetContext { .. } => {
            "the server's certificate does not count yet: set the clock of this machine or of the one that made it"
        }
        Why::UnknownIssuer | Why::BadSignature => {
            "the server's certificate is not of the CA that this client believes: name the CA that made it (`ca`)"
        }
        Why::NotValidForName | Why::NotValidForNameContext { .. } => {
            "the server's certificate is made for other names: connect by one of them, or make one for this name too"
        }
        _ => {
            "the server's certificate is not believed: give the server one that is made for servers, by the CA in `ca`"
        }
    }
}

/// What to do where the server says this of the client's certificate; `None` where it says nothing of it.
fn client_advice(alert: AlertDescription) -> Option<&'static str> {
    use AlertDescription as Alert;
    Some(match alert {
        Alert::CertificateRequired => {
            "the server wants a client certificate: give this client one, and its key (`certificate`, `key`)"
        }
        Alert::CertificateExpired => "this client's certificate has expired: give it a new one (`certificate`, `key`)",
        Alert::BadCertificate
        | Alert::CertificateRevoked
        | Alert::CertificateUnknown
        | Alert::UnknownCA
        | Alert::UnsupportedCertificate
        | Alert::AccessDenied
        | Alert::DecryptError => {
            "the server does not believe this client's certificate: give it one of a CA that the server believes \
             (its `client_ca`)"
        }
        _ => return None,
    })
}
