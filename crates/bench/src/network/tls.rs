//! The cost of TLS: the same fragments out and in, and the same round trip, over TCP with and without TLS; and its cipher
//! alone.
//!
//! *Invariants*: both are measured side by side, each first in turn; TLS is 1.3, with the suite that the report names.

use super::Measurement;
use super::latency::{self, QUANTILES};
use super::moving::{SIZES, client, count, end_run, get, put};
use super::peer::Peer;
use crate::Result;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, ProtocolVersion, RootCertStore};
use std::hint::black_box;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Without, and with.
const TRANSPORTS: [&str; 2] = ["tcp", "tls"];

/// Puts and gets of each size, and round trips of short puts.
pub(super) fn measure(on: &mut Measurement<'_>) -> Result<()> {
    for bytes in SIZES {
        let [(plain_put, plain_get), (tls_put, tls_get)] = both(on, |on, transport| pass(on, transport, bytes))?;
        on.share("tls.put", bytes, tls_put, plain_put);
        on.share("tls.get", bytes, tls_get, plain_get);
        let cipher = cipher()? / bytes as f64;
        on.results.record("tls.cipher", bytes, cipher);
        // Client and server work at the same time, so a byte is either encrypted or decrypted while it is moved.
        for (way, tls, plain) in [("put", tls_put, plain_put), ("get", tls_get, plain_get)] {
            on.results.record(&format!("tls.{way}.cipher.share"), bytes, tls * (1.0 / plain + 1.0 / cipher));
        }
    }
    let [plain, tls] = both(on, latency::forebay)?;
    for (word, quantile) in QUANTILES {
        let micros = [&tls, &plain].map(|times| times.value_at_quantile(quantile) as f64 / 1000.0);
        on.share(&format!("tls.latency.{word}"), latency::BYTES, micros[0], micros[1]);
    }
    Ok(())
}

/// Measures without TLS and with it, each first in turn.
fn both<T>(
    on: &mut Measurement<'_>,
    mut measure: impl FnMut(&mut Measurement<'_>, &str) -> Result<T>,
) -> Result<[T; 2]> {
    on.turns += 1;
    if on.turns % 2 == 1 {
        let plain = measure(on, TRANSPORTS[0])?;
        return Ok([plain, measure(on, TRANSPORTS[1])?]);
    }
    let tls = measure(on, TRANSPORTS[1])?;
    Ok([measure(on, TRANSPORTS[0])?, tls])
}

/// Bytes a second that the cipher encrypts, with nothing around it: the same one that the report names, of the same
/// library, in records of the greatest length.
fn cipher() -> Result<f64> {
    const RECORD_BYTES: usize = 16 << 10;
    const RECORDS: u64 = 32 << 10;
    let failed = |_| "AES-256-GCM fails";
    let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &[7; 32]).map_err(failed)?);
    let mut record = vec![0xA5; RECORD_BYTES];
    let from = Instant::now();
    for number in 0..RECORDS {
        let mut nonce = [0; NONCE_LEN];
        nonce[..8].copy_from_slice(&number.to_le_bytes());
        let nonce = Nonce::assume_unique_for_key(nonce);
        let _ = black_box(key.seal_in_place_separate_tag(nonce, Aad::empty(), &mut record).map_err(failed)?);
    }
    Ok((RECORDS as usize * RECORD_BYTES) as f64 / from.elapsed().as_secs_f64())
}

/// Puts and gets a second.
fn pass(on: &mut Measurement<'_>, transport: &str, bytes: usize) -> Result<(f64, f64)> {
    let client = client(on.forebay, transport)?;
    let (run, count, value) = (on.next_run(), count(on.plan, bytes), vec![0xA5; bytes]);
    let put = count as f64 / put(&client, run, count, &value)?;
    let get = count as f64 / get(&client, run, count, bytes)?;
    end_run(&client, run)?;
    Ok((put, get))
}

/// Version and cipher suite that clients and this peer agree on.
///
/// # Errors
/// Where that is another version than 1.3: the figures would be those of another protocol than the report says.
pub(super) fn suite(peer: &Peer) -> Result<String> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(peer.certificate())?)?;
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let address: SocketAddr = peer.address("native", "tls")?.trim_start_matches("tls://").parse()?;
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut session = ClientConnection::new(Arc::new(config), ServerName::IpAddress(address.ip().into()))?;
    while session.is_handshaking() {
        session.complete_io(&mut stream)?;
    }
    match (session.protocol_version(), session.negotiated_cipher_suite()) {
        (Some(ProtocolVersion::TLSv1_3), Some(suite)) => Ok(format!("1.3, {:?}, by rustls with ring", suite.suite())),
        (version, _) => Err(format!("TLS 1.3 is what is measured, and not {version:?}").into()),
    }
}
