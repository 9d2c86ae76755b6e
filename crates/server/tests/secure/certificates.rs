//! Certificates made for a test, and clients that show them.

use crate::secure::Temp;
use forebay_server::TlsFiles;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// A certificate authority of one test.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) certificate: String,
}

/// A certificate and its key, in PEM.
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// The years in which a certificate counts.
pub(crate) const NOW: (i32, i32) = (2020, 2120);
pub(crate) const EXPIRED: (i32, i32) = (2020, 2021);

impl Authority {
    pub(crate) fn new(name: &str) -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let certificate = params.self_signed(&key).unwrap().pem();
        Authority { issuer: Issuer::new(params, key), certificate }
    }

    pub(crate) fn server(&self, years: (i32, i32)) -> Pair {
        self.sign(ExtendedKeyUsagePurpose::ServerAuth, years)
    }

    pub(crate) fn client(&self, years: (i32, i32)) -> Pair {
        self.sign(ExtendedKeyUsagePurpose::ClientAuth, years)
    }

    fn sign(&self, usage: ExtendedKeyUsagePurpose, years: (i32, i32)) -> Pair {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        params.extended_key_usages = vec![usage];
        params.not_before = date_time_ymd(years.0, 1, 1);
        params.not_after = date_time_ymd(years.1, 1, 1);
        Pair { certificate: params.signed_by(&key, &self.issuer).unwrap().pem(), key: key.serialize_pem() }
    }
}

impl Temp {
    /// Files for a server with this certificate, which asks for those of `client_ca`.
    pub(crate) fn tls(&self, pair: &Pair, client_ca: Option<&Authority>, required: bool) -> TlsFiles {
        TlsFiles {
            certificate: self.write("server.pem", &pair.certificate, 0o644),
            key: self.write("server.key", &pair.key, 0o600),
            client_ca: client_ca.map(|ca| self.write("client-ca.pem", &ca.certificate, 0o644)),
            require_client_certificate: required,
        }
    }
}

/// A connection over TLS that has shaken hands, as far as the client sees it.
pub(crate) fn connect(
    to: SocketAddr,
    believes: &Authority,
    shows: Option<&Pair>,
) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(believes.certificate.as_bytes()).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match shows {
        None => config.with_no_client_auth(),
        Some(pair) => {
            let chain = vec![CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap()];
            config.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap()).unwrap()
        }
    };
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TcpStream::connect(to)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut stream = StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), stream);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(stream)
}

/// Why the server refused a connection after the client's side of the handshake: its alert. `None` where it serves.
pub(crate) fn refusal(mut stream: StreamOwned<ClientConnection, TcpStream>) -> Option<String> {
    stream.sock.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    match stream.read(&mut [0; 1]) {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Some(error.to_string()),
        _ => None,
    }
}
