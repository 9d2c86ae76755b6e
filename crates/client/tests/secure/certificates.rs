//! Certificates made for a test.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A certificate authority of one test, and where its files are.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    dir: PathBuf,
    /// Its certificate.
    pub(crate) file: PathBuf,
}

/// The files of a certificate and its key.
#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// A certificate: for which side, for which name, until which year.
#[derive(Clone)]
pub(crate) struct Wanted {
    pub(crate) usage: ExtendedKeyUsagePurpose,
    pub(crate) name: &'static str,
    pub(crate) until: i32,
}

pub(crate) const SERVER: Wanted = Wanted { usage: ExtendedKeyUsagePurpose::ServerAuth, name: "localhost", until: 2120 };
pub(crate) const CLIENT: Wanted = Wanted { usage: ExtendedKeyUsagePurpose::ClientAuth, ..SERVER };
/// The end of what has expired.
pub(crate) const PAST: i32 = 2021;

impl Authority {
    pub(crate) fn new(dir: &Path, name: &str) -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let dir = dir.join(name);
        std::fs::create_dir_all(&dir).unwrap();
        let file = dir.join("ca.pem");
        std::fs::write(&file, params.self_signed(&key).unwrap().pem()).unwrap();
        Authority { issuer: Issuer::new(params, key), dir, file }
    }

    /// Makes a certificate, in files of this name.
    pub(crate) fn sign(&self, file: &str, wanted: Wanted) -> Pair {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![wanted.name.to_owned()]).unwrap();
        params.extended_key_usages = vec![wanted.usage];
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(wanted.until, 1, 1);
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        let pair =
            Pair { certificate: self.dir.join(format!("{file}.pem")), key: self.dir.join(format!("{file}.key")) };
        std::fs::write(&pair.certificate, certificate).unwrap();
        std::fs::write(&pair.key, key.serialize_pem()).unwrap();
        std::fs::set_permissions(&pair.key, std::fs::Permissions::from_mode(0o600)).unwrap();
        pair
    }
}
