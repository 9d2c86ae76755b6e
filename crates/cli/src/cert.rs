//! `forebay cert`: a CA of one's own with a server's and a client's certificate, for first starts and tests.
//!
//! *Invariants*: nothing is overwritten; keys are their owner's alone to read from their first byte on.

use crate::output::{Answer, Output};
use forebay_core::{Error, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const HELP: &str = "\
Make a CA, a server's certificate and a client's certificate, for a first start and for tests. Anyone who has ca.key can make \
themselves a certificate that the server believes: a site that has a CA uses that, and a key that is no longer needed is \
deleted.

Example: certificates for a server that is called by two names, then its configuration, then a look at it:
  forebay cert --out /etc/forebay/tls --host daq-store-1 --host 10.1.2.3

  [tls]
  certificate = \"/etc/forebay/tls/server.pem\"
  key = \"/etc/forebay/tls/server.key\"
  client_ca = \"/etc/forebay/tls/ca.pem\"
  require_client_certificate = true

  openssl s_client -connect 10.1.2.3:7440 -CAfile ca.pem -cert client.pem -key client.key

Clients need ca.pem, and client.pem with client.key if the server asks for a certificate. Existing files are never \
overwritten.";

/// Names of a server that nobody named.
const HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "::1"];
/// Clocks of two machines differ: certificates count from a little earlier.
const BEFORE: Duration = Duration::from_secs(3600);
/// Longest life, ten years: a test certificate that outlives its test is a hole.
const DAYS_MAX: u32 = 3653;

/// Make certificates for a first start and for tests.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(crate) struct Cert {
    /// Directory for the files, created if it does not exist.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Name or address by which clients call the server; may be repeated. localhost, 127.0.0.1 and ::1 when not given.
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
    /// Name in the client's certificate.
    #[arg(long, value_name = "NAME", default_value = "forebay client")]
    client: String,
    /// Days until the certificates expire.
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=i64::from(DAYS_MAX)))]
    days: u32,
}

/// A certificate and its key, in PEM.
struct Pair {
    name: &'static str,
    certificate: String,
    key: String,
}

impl Cert {
    pub(crate) fn run(&self, out: &mut Output) -> Result<Answer> {
        let hosts = if self.host.is_empty() { HOSTS.map(str::to_owned).to_vec() } else { self.host.clone() };
        let pairs = self.pairs(&hosts).map_err(|error| {
            let message = format!("no certificate for {}: names and addresses are needed", hosts.join(", "));
            Error::invalid(message).with_source(error)
        })?;
        let files: Vec<PathBuf> = pairs.iter().flat_map(|pair| pair.files(&self.out)).collect();
        if let Some(there) = files.iter().find(|file| file.symlink_metadata().is_ok()) {
            let message =
                format!("{} is there already and is not overwritten: take another directory", there.display());
            return Err(Error::conflict(message));
        }
        let failed = |error| Error::invalid(format!("{}: cannot be made", self.out.display())).with_source(error);
        std::fs::create_dir_all(&self.out).map_err(failed)?;
        for pair in &pairs {
            let [certificate, key] = pair.files(&self.out);
            write_new(&key, &pair.key, 0o600)?;
            write_new(&certificate, &pair.certificate, 0o644)?;
        }
        out.line(format!(
            "certificates of a CA of their own, for first starts and tests, valid for {} days:",
            self.days
        ))?;
        let what = ["the CA", &format!("the server: {}", hosts.join(", ")), &format!("a client: {}", self.client)];
        for (pair, what) in pairs.iter().zip(what) {
            let [certificate, key] = pair.files(&self.out);
            out.line(format!("  {} and {}  {what}", certificate.display(), key.display()))?;
        }
        out.line("ca.key makes more of them: keep it away from the server, or delete it")?;
        out.json(&serde_json::json!({ "files": files, "hosts": hosts, "days": self.days }))?;
        Ok(Answer::Yes)
    }

    fn pairs(&self, hosts: &[String]) -> std::result::Result<[Pair; 3], rcgen::Error> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let from = date_time_ymd(1970, 1, 1) + now.saturating_sub(BEFORE);
        let until = date_time_ymd(1970, 1, 1) + now + Duration::from_secs(u64::from(self.days) * 86_400);
        let params = |names: Vec<String>, title: &str| {
            let mut params = CertificateParams::new(names)?;
            params.distinguished_name.push(DnType::OrganizationName, "Forebay first start");
            params.distinguished_name.push(DnType::CommonName, title);
            (params.not_before, params.not_after) = (from, until);
            params.use_authority_key_identifier_extension = true;
            Ok(params)
        };
        let ca_key = KeyPair::generate()?;
        let mut ca = params(Vec::new(), "Forebay test CA")?;
        ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        ca.use_authority_key_identifier_extension = false;
        let root = Pair { name: "ca", certificate: ca.self_signed(&ca_key)?.pem(), key: ca_key.serialize_pem() };
        let issuer = Issuer::new(ca, ca_key);
        let leaf = |name, names, title: &str, usage| {
            let mut params = params(names, title)?;
            params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
            params.extended_key_usages = vec![usage];
            let key = KeyPair::generate()?;
            Ok(Pair { name, certificate: params.signed_by(&key, &issuer)?.pem(), key: key.serialize_pem() })
        };
        let first = hosts.first().map_or("localhost", String::as_str);
        let server = leaf("server", hosts.to_vec(), first, ExtendedKeyUsagePurpose::ServerAuth)?;
        let client = leaf("client", Vec::new(), &self.client, ExtendedKeyUsagePurpose::ClientAuth)?;
        Ok([root, server, client])
    }
}

impl Pair {
    fn files(&self, dir: &Path) -> [PathBuf; 2] {
        [dir.join(format!("{}.pem", self.name)), dir.join(format!("{}.key", self.name))]
    }
}

fn write_new(path: &Path, text: &str, mode: u32) -> Result<()> {
    let failed =
        |error: std::io::Error| Error::invalid(format!("{}: cannot be written", path.display())).with_source(error);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)
}
