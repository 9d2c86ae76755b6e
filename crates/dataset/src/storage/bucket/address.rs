//! Addresses: `s3://bucket/prefix`, and the server that the environment or the profile names.

use super::profile::Profile;
use crate::storage::Options;
use forebay_core::{Error, Result};
use hyper::Uri;
use std::net::IpAddr;

/// A bucket and the names in it that are ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) bucket: String,
    /// Empty, or with `/` at its end.
    pub(super) prefix: String,
}

impl Address {
    pub(super) fn parse(url: &str) -> Result<Address> {
        let wrong = |why: &str| Err(Error::invalid(format!("{url:?} is no address of a bucket: {why}")));
        let Some(rest) = url.strip_prefix("s3://") else { return wrong("it does not begin with s3://") };
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
        if bucket.is_empty() || !bucket.bytes().all(is_plain) {
            return wrong(
                "after s3:// comes a bucket, of letters, digits, '-', '.' and '_'; keys and servers are not part of it",
            );
        }
        let prefix = prefix.trim_end_matches('/');
        let is_in_prefix = |byte: u8| is_plain(byte) || matches!(byte, b'/' | b'=' | b'+' | b'@' | b',');
        let is_part = |part: &str| !part.is_empty() && part != "." && part != "..";
        let is_clean = prefix.bytes().all(is_in_prefix) && prefix.split('/').all(is_part);
        if !prefix.is_empty() && !is_clean {
            return wrong("a prefix takes letters, digits and -._=+@, between single '/'");
        }
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        Ok(Address { bucket: bucket.to_owned(), prefix })
    }
}

/// A server: where it is, and the region that signatures name.
#[derive(Clone, Debug)]
pub(super) struct Server {
    /// With scheme and host, without a path's end.
    pub(super) endpoint: String,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) is_tls: bool,
    pub(super) region: String,
}

impl Server {
    /// The server that the environment names, or else the profile, or else AWS.
    pub(super) fn find(options: &Options, profile: &Profile) -> Result<Server> {
        let first = |names: &[&str]| names.iter().find_map(|name| Some((options.variable(name)?, (*name).to_owned())));
        let of_profile =
            |setting: &str| Some((profile.get(setting)?, format!("{setting} of profile {:?}", profile.name)));
        let region = first(&["AWS_REGION", "AWS_DEFAULT_REGION"]).or_else(|| of_profile("region"));
        let region = region.map_or_else(|| "us-east-1".to_owned(), |(region, _)| region);
        let endpoint =
            first(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"]).or_else(|| of_profile("endpoint_url"));
        let aws = || (format!("https://s3.{region}.amazonaws.com"), "the region".to_owned());
        let (endpoint, said_by) = endpoint.unwrap_or_else(aws);
        let allows_http = options.variable("AWS_ALLOW_HTTP").is_some_and(|value| value.eq_ignore_ascii_case("true"));
        Server::parse(&endpoint, &said_by, region, allows_http)
    }

    fn parse(endpoint: &str, said_by: &str, region: String, allows_http: bool) -> Result<Server> {
        // Userinfo would be a secret: the address itself is not repeated then.
        let shown = if endpoint.contains('@') { "an address with '@'" } else { endpoint };
        let wrong = |why: &str| Err(Error::invalid(format!("{said_by} gives {shown} as the S3 server: {why}")));
        if endpoint.contains(['@', '?', '#']) {
            return wrong("it takes a scheme, a host and a port alone");
        }
        let Ok(uri) = endpoint.trim_end_matches('/').parse::<Uri>() else { return wrong("it is no address") };
        let is_tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return wrong("it begins with neither https:// nor http://"),
        };
        let Some(host) = uri.host().filter(|host| !host.is_empty()) else { return wrong("it has no host") };
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let is_loopback = bare == "localhost" || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        if !is_tls && !is_loopback && !allows_http {
            return wrong("http is readable for everybody on the way; use https, or set AWS_ALLOW_HTTP=true");
        }
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let endpoint = endpoint.trim_end_matches('/').to_owned();
        Ok(Server { endpoint, host: bare.to_owned(), port, is_tls, region })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_and_prefixes() {
        let parse = |url| Address::parse(url).map(|address| (address.bucket, address.prefix));
        let pair = |bucket: &str, prefix: &str| (bucket.to_owned(), prefix.to_owned());
        assert_eq!(parse("s3://b").unwrap(), pair("b", ""));
        assert_eq!(parse("s3://b/").unwrap(), pair("b", ""));
        assert_eq!(parse("s3://b/p/era=2024/").unwrap(), pair("b", "p/era=2024/"));
        for url in ["s3://", "s3:///p", "s3://b/a//b", "s3://b/../c", "s3://key:secret@b/p", "s3://b/p?x", "s3://b/a b"]
        {
            assert!(parse(url).is_err(), "{url}");
        }
    }

    #[test]
    fn http_is_for_this_machine() {
        let parse = |endpoint, allows| Server::parse(endpoint, "a test", "r".into(), allows);
        for endpoint in ["http://127.0.0.1:9000", "http://[::1]:9000/", "http://localhost", "https://s3.cern.ch:8443"] {
            parse(endpoint, false).unwrap();
        }
        assert_eq!(parse("https://s3.cern.ch", false).unwrap().port, 443);
        assert_eq!(parse("http://[::1]:9000/", false).unwrap().host, "::1");
        let error = parse("http://s3.cern.ch", false).unwrap_err();
        assert!(error.message().contains("AWS_ALLOW_HTTP"), "{error}");
        parse("http://s3.cern.ch", true).unwrap();
        let error = parse("https://user:hunter2@s3.cern.ch", true).unwrap_err();
        assert!(!error.to_string().contains("hunter2"), "{error}");
        for endpoint in ["s3.cern.ch", "ftp://s3.cern.ch", "https://", ""] {
            assert!(parse(endpoint, true).is_err(), "{endpoint:?}");
        }
    }
}
