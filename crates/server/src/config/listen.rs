//! The section `[listen]`: addresses and what is needed to open them beyond this machine.

use super::{ServerConfig, UNIX_MODE};
use crate::endpoint::Endpoint;
use crate::locate::Problem;
use crate::tls::TlsFiles;
use forebay_core::{Error, Result};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::net::SocketAddr;

/// The value for a listener that is off.
const OFF: &str = "off";

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ListenSettings {
    /// Forebay's own protocol.
    #[serde(with = "endpoints")]
    pub native: Vec<Endpoint>,
    /// Redis's protocol.
    #[serde(with = "endpoints")]
    pub resp: Vec<Endpoint>,
    /// Metrics and probes; `off` for none.
    #[serde(with = "address_or_off")]
    pub http: Option<SocketAddr>,
    /// Listen beyond this machine without TLS or without tokens.
    pub insecure: bool,
    /// Answer metrics and probes beyond this machine, which is without TLS and tokens.
    pub http_insecure: bool,
    /// Permissions of Unix sockets, in octal.
    #[serde(with = "octal")]
    pub unix_mode: u32,
}

impl Default for ListenSettings {
    fn default() -> ListenSettings {
        let loopback = |port| SocketAddr::from(([127, 0, 0, 1], port));
        ListenSettings {
            native: vec![Endpoint::Tcp(loopback(7440))],
            resp: vec![Endpoint::Tcp(loopback(7441))],
            http: Some(loopback(7442)),
            insecure: false,
            http_insecure: false,
            unix_mode: UNIX_MODE,
        }
    }
}

impl ListenSettings {
    /// Why the server cannot listen at the addresses: the path of the value in `[listen]`, and what to do.
    pub(super) fn exposure(&self, tls: Option<&TlsFiles>, tokens: bool) -> Option<Problem> {
        let lists = [("native", &self.native), ("resp", &self.resp)];
        for (name, list) in lists {
            for (at, endpoint) in list.iter().enumerate() {
                if let Some(message) = self.against(endpoint, tls, tokens) {
                    return Some(Problem::new(format!("{name}.{at}"), message));
                }
            }
        }
        let open = self.http.filter(|address| !address.ip().is_loopback() && !self.http_insecure && !self.insecure)?;
        Some(Problem::new(
            "http",
            format!(
                "{open} is beyond this machine, and HTTP here has neither TLS nor tokens: listen at 127.0.0.1, or write \
                 `http_insecure = true` where the network is trusted with figures"
            ),
        ))
    }

    fn against(&self, endpoint: &Endpoint, files: Option<&TlsFiles>, tokens: bool) -> Option<String> {
        let (address, tls) = match endpoint {
            Endpoint::Tcp(address) => (address, false),
            Endpoint::Tls(address) => (address, true),
            Endpoint::Unix(_) => return None,
        };
        if tls && files.is_none() {
            return Some(format!(
                "{endpoint} needs a section [tls] with certificate and key (`forebay cert` makes some)"
            ));
        }
        // Loopback and Unix sockets are this machine: permissions of users apply, or nobody else is there.
        if address.ip().is_loopback() || self.insecure {
            return None;
        }
        // A required client certificate says who it is as well as a token does.
        let certified = tls && files.is_some_and(|files| files.require_client_certificate);
        let what = match (tls, tokens || certified) {
            (true, true) => return None,
            (true, false) => {
                "with TLS, but nobody has to say who it is: add a [[token]], or require client certificates"
            }
            (false, true) => "without TLS: write tls:// and a section [tls]",
            (false, false) => "without TLS and tokens: write tls://, a section [tls] and a [[token]]",
        };
        Some(format!("{endpoint} is beyond this machine, {what}; or say `insecure = true`"))
    }
}

impl ServerConfig {
    /// Checks limits, and that nothing is opened beyond this machine by accident.
    ///
    /// # Errors
    /// `Invalid`, naming the value.
    pub fn check(&self) -> Result<()> {
        self.limits.check()?;
        if self.threads == 0 {
            return Err(Error::invalid("threads: at least 1"));
        }
        let listen = ListenSettings {
            native: self.native.clone(),
            resp: self.resp.clone(),
            http: self.http,
            insecure: self.insecure,
            http_insecure: self.http_insecure,
            unix_mode: self.unix_mode,
        };
        match listen.exposure(self.tls.as_ref(), !self.tokens.is_empty()) {
            Some(problem) => Err(Error::invalid(problem.message)),
            None => Ok(()),
        }
    }
}

mod endpoints {
    use super::*;

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> std::result::Result<Vec<Endpoint>, D::Error> {
        let read = |text: String| text.parse().map_err(|error: Error| D::Error::custom(error.message()));
        Vec::<String>::deserialize(from)?.into_iter().map(read).collect()
    }

    pub(super) fn serialize<S: Serializer>(list: &[Endpoint], to: S) -> std::result::Result<S::Ok, S::Error> {
        to.collect_seq(list.iter().map(ToString::to_string))
    }
}

mod address_or_off {
    use super::*;

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> std::result::Result<Option<SocketAddr>, D::Error> {
        let text = String::deserialize(from)?;
        if text == OFF {
            return Ok(None);
        }
        let wrong =
            |_| D::Error::custom(format!("address `{text}`: expected IP:PORT, such as 127.0.0.1:7442, or {OFF}"));
        text.parse().map(Some).map_err(wrong)
    }

    pub(super) fn serialize<S: Serializer>(
        address: &Option<SocketAddr>,
        to: S,
    ) -> std::result::Result<S::Ok, S::Error> {
        match address {
            Some(address) => to.collect_str(address),
            None => to.serialize_str(OFF),
        }
    }
}

mod octal {
    use super::*;

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> std::result::Result<u32, D::Error> {
        let text = String::deserialize(from)?;
        let mode = u32::from_str_radix(&text, 8).ok().filter(|mode| *mode <= 0o777);
        mode.ok_or_else(|| D::Error::custom(format!("permissions `{text}`: expected octal digits, such as \"0660\"")))
    }

    pub(super) fn serialize<S: Serializer>(mode: &u32, to: S) -> std::result::Result<S::Ok, S::Error> {
        to.serialize_str(&format!("{mode:04o}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::tests::token;

    fn against(change: impl FnOnce(&mut ServerConfig)) -> Option<String> {
        let mut config = ServerConfig { native: vec!["tcp://10.0.0.1:7440".parse().unwrap()], ..Default::default() };
        change(&mut config);
        config.check().err().map(|error| error.message().to_owned())
    }

    fn tls(require_client_certificate: bool) -> Option<TlsFiles> {
        Some(TlsFiles { require_client_certificate, ..TlsFiles::default() })
    }

    #[test]
    fn nothing_is_opened_beyond_this_machine_by_accident() {
        assert!(against(|_| ()).unwrap().contains("without TLS and tokens"));
        assert!(
            against(|config| config.tokens = vec![token("t", b"0123456789abcdef")]).unwrap().contains("without TLS:")
        );
        let open_tls = |config: &mut ServerConfig| config.native = vec!["tls://0.0.0.0:7440".parse().unwrap()];
        assert!(against(open_tls).unwrap().contains("needs a section [tls]"));
        assert!(
            against(|config| {
                open_tls(config);
                config.tls = tls(false);
            })
            .unwrap()
            .contains("nobody has to say who it is")
        );
        // A certificate that is required says who it is, over TLS only.
        assert!(against(|config| config.tls = tls(true)).unwrap().contains("without TLS"));
    }

    #[test]
    fn what_is_safe_or_said_is_opened() {
        let open_tls = |config: &mut ServerConfig| config.native = vec!["tls://0.0.0.0:7440".parse().unwrap()];
        for certified in [true, false] {
            let opened = against(|config| {
                open_tls(config);
                config.tls = tls(certified);
                config.tokens = if certified { Vec::new() } else { vec![token("t", b"0123456789abcdef")] };
            });
            assert_eq!(opened, None);
        }
        assert_eq!(against(|config| config.insecure = true), None);
        for local in ["tcp://127.0.0.1:1", "tcp://[::1]:1", "unix:/run/x"] {
            assert_eq!(against(|config| config.native = vec![local.parse().unwrap()]), None);
        }
    }

    #[test]
    fn metrics_beyond_this_machine_are_a_choice_of_their_own() {
        let open = |config: &mut ServerConfig| {
            config.native = Vec::new();
            config.http = Some("0.0.0.0:7442".parse().unwrap());
        };
        assert!(against(open).unwrap().contains("http_insecure"));
        let opened = against(|config| {
            open(config);
            config.http_insecure = true;
        });
        assert_eq!(opened, None);
    }
}
