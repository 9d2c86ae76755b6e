//! TLS of connections that come in: certificate and key, whose client certificates count, and the handshake.
//!
//! *Invariants*: a handshake ends within its deadline, on the event loop of its connection; nothing is resumed, so every
//! connection shows its certificate again.
//!
//! *On failure*: the connection ends, refused as `certificate` or `handshake`, with the reason in the log.

use crate::access::private;
use crate::locate::Problem;
use crate::transport::{SOCKET_DIRECT_BYTES, Transport};
use forebay_core::{Error, Result};
use parking_lot::RwLock;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{AlertDescription, RootCertStore};
use serde::{Deserialize, Serialize};
use std::io::{self, IoSliceMut};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Files of certificates and keys, in PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TlsFiles {
    /// The server's certificate, followed by those between it and its CA.
    pub certificate: PathBuf,
    /// The key of the certificate.
    pub key: PathBuf,
    /// CA whose client certificates are accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_ca: Option<PathBuf>,
    /// Refuse clients without a certificate of that CA.
    pub require_client_certificate: bool,
}

impl TlsFiles {
    pub(crate) fn problem(&self) -> Option<Problem> {
        let needed = "needed: a file in PEM form; `forebay cert` makes certificates for a first start";
        if self.certificate.as_os_str().is_empty() {
            return Some(Problem::new("certificate", needed));
        }
        if self.key.as_os_str().is_empty() {
            return Some(Problem::new("key", needed));
        }
        let baseless = self.require_client_certificate && self.client_ca.is_none();
        baseless.then(|| Problem::new("require_client_certificate", "of which CA? `client_ca` names its certificate"))
    }

    /// Paths that are not absolute are meant from here.
    pub(crate) fn resolve(&mut self, base: &Path) {
        self.certificate = base.join(&self.certificate);
        self.key = base.join(&self.key);
        self.client_ca = self.client_ca.take().map(|file| base.join(file));
    }

    /// Reads the files.
    ///
    /// # Errors
    /// `Invalid` for a file that cannot be read or holds nothing of the kind, a key that every user can read or that is
    /// not the certificate's.
    pub(crate) fn load(&self) -> Result<TlsAcceptor> {
        let key = private_key(&self.key)?;
        let chain = certificates(&self.certificate)?;
        let provider = Arc::new(default_provider());
        let failed = |what: &str, error| Error::invalid(format!("tls: {what}: {error}")).with_source(error);
        let builder = rustls::ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| failed("no protocol version", error))?;
        let builder =
            match &self.client_ca {
                None => builder.with_no_client_auth(),
                Some(file) => {
                    let mut roots = RootCertStore::empty();
                    for certificate in certificates(file)? {
                        roots.add(certificate).map_err(|error| failed(&format!("{}", file.display()), error))?;
                    }
                    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                    let verifier =
                        if self.require_client_certificate { verifier } else { verifier.allow_unauthenticated() };
                    builder.with_client_cert_verifier(verifier.build().map_err(|error| {
                        Error::invalid(format!("tls: {}: {error}", file.display())).with_source(error)
                    })?)
                }
            };
        let pair = format!("{} with {}", self.certificate.display(), self.key.display());
        let mut config = builder.with_single_cert(chain, key).map_err(|error| failed(&pair, error))?;
        // No resumption: a certificate that was taken out of service must not be good for a resumed session.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

impl TlsFiles {
    /// When the first certificate of the chain expires, in seconds since 1970: after that no client believes the server.
    fn expires(&self) -> Result<i64> {
        let file = self.certificate.display();
        let mut first = i64::MAX;
        for certificate in certificates(&self.certificate)? {
            let (_, parsed) = x509_parser::parse_x509_certificate(&certificate).map_err(|error| {
                Error::invalid(format!("tls: {file}: holds no certificate that can be understood: {error}"))
            })?;
            first = first.min(parsed.validity().not_after.timestamp());
        }
        Ok(first)
    }
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let wrong = |why: &dyn std::fmt::Display| Error::invalid(format!("tls: {}: {why}", file.display()));
    let found = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>);
    let found = found.map_err(|error| wrong(&format!("cannot be read as PEM: {error}")))?;
    if found.is_empty() { Err(wrong(&"holds no certificate in PEM form")) } else { Ok(found) }
}

fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>> {
    let wrong = |error: &dyn std::fmt::Display| {
        Error::invalid(format!("tls: {}: cannot be read as a private key in PEM form: {error}", file.display()))
    };
    // Checked before it is read: a key that every user can read is refused, not used with a warning.
    private(file, &std::fs::File::open(file).map_err(|error| wrong(&error))?)?;
    PrivateKeyDer::from_pem_file(file).map_err(|error| wrong(&error))
}

/// The certificate in force, which may be replaced while the server runs.
pub(crate) struct Certificates {
    acceptor: RwLock<TlsAcceptor>,
    /// When the first certificate of the chain expires, in seconds since 1970.
    expires: AtomicI64,
}

impl Certificates {
    /// Reads the files.
    ///
    /// # Errors
    /// As [`TlsFiles::load`].
    pub(crate) fn load(files: &TlsFiles) -> Result<Certificates> {
        Ok(Certificates { acceptor: RwLock::new(files.load()?), expires: AtomicI64::new(files.expires()?) })
    }

    /// Takes these for all handshakes from now on.
    pub(crate) fn replace(&self, new: Certificates) {
        *self.acceptor.write() = new.acceptor.into_inner();
        self.expires.store(new.expires.into_inner(), Ordering::Relaxed);
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.acceptor.read().clone()
    }

    /// When the first of them expires, in seconds since 1970.
    pub(crate) fn expires(&self) -> i64 {
        self.expires.load(Ordering::Relaxed)
    }
}

/// Why a handshake came to nothing.
pub(crate) struct Refused {
    /// `certificate` or `handshake`.
    pub(crate) reason: &'static str,
    /// In words.
    pub(crate) why: String,
}

/// Bytes that are encrypted before they go to the socket with one call of the system: seven records, which stay below the
/// 128 KiB at which glibc returns freed memory to the system; that costs page faults each time.
const SEALED_BYTES: usize = 112 << 10;

/// Makes the TLS handshake within the deadline.
pub(crate) async fn accept<S>(
    acceptor: &TlsAcceptor,
    stream: S,
    deadline: Duration,
) -> std::result::Result<TlsStream<S>, Refused>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let shaking = acceptor.accept_with(stream, |session| session.set_buffer_limit(Some(SEALED_BYTES)));
    match tokio::time::timeout(deadline, shaking).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(Refused { reason: reason(&error), why: error.to_string() }),
        Err(_) => Err(Refused { reason: "handshake", why: format!("no TLS handshake within {deadline:?}") }),
    }
}

/// Whether it was about a certificate, ours or the client's, or about anything else.
fn reason(error: &io::Error) -> &'static str {
    use AlertDescription as Alert;
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented) => "certificate",
        Some(rustls::Error::AlertReceived(
            Alert::BadCertificate
            | Alert::CertificateExpired
            | Alert::CertificateRevoked
            | Alert::CertificateUnknown
            | Alert::UnknownCA
            | Alert::UnsupportedCertificate,
        )) => "certificate",
        _ => "handshake",
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + 'static> Transport for TlsStream<S> {
    const DIRECT_BYTES: u32 = SOCKET_DIRECT_BYTES;

    fn poll_read_into(&mut self, context: &mut Context<'_>, places: &mut [IoSliceMut<'_>]) -> Poll<io::Result<usize>> {
        // One record, which may fill several places. Its bytes are in the processor's cache: what becomes of them is seen to before
        // the next one comes.
        let record = ready!(Pin::new(&mut *self).poll_fill_buf(context))?;
        let mut total = 0;
        for place in places {
            let bytes = place.len().min(record.len() - total);
            place[..bytes].copy_from_slice(&record[total..total + bytes]);
            total += bytes;
        }
        Pin::new(self).consume(total);
        Poll::Ready(Ok(total))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair};
    use rustls::pki_types::ServerName;
    use std::future::poll_fn;
    use std::sync::atomic::AtomicU32;
    use tokio::io::{AsyncWriteExt, duplex};
    use tokio_rustls::TlsConnector;

    /// Both ends of a connection in memory, after the handshake.
    async fn pair() -> (tokio_rustls::client::TlsStream<tokio::io::DuplexStream>, TlsStream<tokio::io::DuplexStream>) {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("forebay-tls-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let files = TlsFiles { certificate: dir.join("c.pem"), key: dir.join("k.pem"), ..TlsFiles::default() };
        std::fs::write(&files.certificate, certificate.pem()).unwrap();
        std::fs::write(&files.key, key.serialize_pem()).unwrap();
        std::fs::set_permissions(&files.key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let acceptor = files.load().unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.der().clone()).unwrap();
        let config = rustls::ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let (here, there) = duplex(1 << 20);
        let connector = TlsConnector::from(Arc::new(config));
        let name = ServerName::try_from("localhost").unwrap();
        let (client, server) =
            tokio::join!(connector.connect(name, here), accept(&acceptor, there, Duration::from_secs(5)));
        (client.unwrap(), server.map_err(|refused| refused.why).unwrap())
    }

    #[tokio::test]
    async fn a_record_fills_several_places_with_one_read() {
        let (mut client, mut server) = pair().await;
        let sent: Vec<u8> = (0..=255).cycle().take(5000).collect();
        client.write_all(&sent).await.unwrap();
        client.flush().await.unwrap();
        let (mut head, mut body, mut rest) = ([0; 24], [0; 4000], [0; 2000]);
        let mut places = [IoSliceMut::new(&mut head), IoSliceMut::new(&mut body), IoSliceMut::new(&mut rest)];
        let came = poll_fn(|context| server.poll_read_into(context, &mut places)).await.unwrap();
        assert_eq!(came, sent.len());
        assert_eq!([&head[..], &body[..], &rest[..976]].concat(), sent);
    }

    #[tokio::test]
    async fn the_end_is_the_end_and_a_cut_is_an_error() {
        for orderly in [true, false] {
            let (mut client, mut server) = pair().await;
            client.write_all(b"last").await.unwrap();
            if orderly {
                client.shutdown().await.unwrap();
            } else {
                client.flush().await.unwrap();
            }
            drop(client);
            let (mut first, mut second) = ([0; 4], [0; 4]);
            let mut places = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
            assert_eq!(poll_fn(|context| server.poll_read_into(context, &mut places)).await.unwrap(), 4);
            let end = poll_fn(|context| server.poll_read_into(context, &mut places)).await;
            assert_eq!(end.ok(), orderly.then_some(0));
        }
    }
}
