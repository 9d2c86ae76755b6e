//! TLS of connections that go out: whose server certificates count, and the client's own.

use crate::options::Tls;
use forebay_core::{Error, Result};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
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
