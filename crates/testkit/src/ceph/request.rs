//! The one request that the test's Ceph needs before any client: a bucket with a placement of its own.

use super::{ACCESS_KEY, Result, SECRET_KEY};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, SystemTime};

/// Makes a bucket, with S3's older signature: two lines instead of forty.
pub(super) fn make_bucket(port: u16, bucket: &str, placement: &str, patience: Duration) -> Result<()> {
    let failed = |error: std::io::Error| format!("bucket {bucket}: {error}");
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let expires = now.as_secs() + 3600;
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, SECRET_KEY.as_bytes());
    let signature = ring::hmac::sign(&key, format!("PUT\n\n\n{expires}\n/{bucket}").as_bytes());
    let signature = base64(signature.as_ref()).replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
    let body = format!(
        "<CreateBucketConfiguration><LocationConstraint>default:{placement}</LocationConstraint></CreateBucketConfiguration>"
    );
    let request = format!(
        "PUT /{bucket}?AWSAccessKeyId={ACCESS_KEY}&Expires={expires}&Signature={signature} HTTP/1.1\r\n\
         Host: 127.0.0.1:{port}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(("127.0.0.1", port)).map_err(failed)?;
    stream.set_read_timeout(Some(patience)).map_err(failed)?;
    stream.write_all(request.as_bytes()).map_err(failed)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(failed)?;
    match answer.starts_with("HTTP/1.1 200") {
        true => Ok(()),
        false => Err(format!("bucket {bucket}: {answer}")),
    }
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let chunk = |chunk: &[u8]| {
        let bits = chunk.iter().enumerate().fold(0, |bits, (at, byte)| bits | u32::from(*byte) << (16 - 8 * at));
        let digit = |at: usize| match at <= chunk.len() {
            true => char::from(DIGITS[(bits >> (18 - 6 * at)) as usize & 63]),
            false => '=',
        };
        [digit(0), digit(1), digit(2), digit(3)]
    };
    bytes.chunks(3).flat_map(chunk).collect()
}
