//! Files of AWS profiles, `~/.aws/config` and `~/.aws/credentials`: what one profile says.
//!
//! *Invariant*: a setting that would change how or where one connects, and that is not carried out here, is refused by its
//! name: to go on without it would use other credentials, or another server, than the user meant.

use crate::storage::Options;
use forebay_core::{Error, Result};
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Settings that are used.
const USED: [&str; 6] =
    ["aws_access_key_id", "aws_secret_access_key", "aws_session_token", "region", "endpoint_url", "ca_bundle"];
/// Settings of AWS programs that change nothing about a connection: how they print, how often they repeat.
const HARMLESS: [&str; 9] = [
    "output",
    "max_attempts",
    "retry_mode",
    "defaults_mode",
    "parameter_validation",
    "tcp_keepalive",
    "duration_seconds",
    "aws_expiration",
    "aws_account_id",
];
/// Beginnings of names that AWS programs do not use, or only for what they print.
const HARMLESS_BEGINNINGS: [&str; 2] = ["cli_", "x_"];
/// Settings that matter only to who has no keys.
const CREDENTIALS: [&str; 12] = [
    "role_arn",
    "source_profile",
    "credential_source",
    "credential_process",
    "external_id",
    "mfa_serial",
    "role_session_name",
    "web_identity_token_file",
    "aws_security_token",
    "login_session",
    "sso_",
    "ec2_",
];

/// What a profile says, and where.
#[derive(Default)]
pub(super) struct Profile {
    /// Its name, for messages.
    pub(super) name: String,
    settings: BTreeMap<String, String>,
}

/// Where the two files are.
pub(super) fn files(options: &Options) -> Vec<PathBuf> {
    let home = options.variable("HOME").map(PathBuf::from);
    let file = |variable: &str, name: &str| {
        options.variable(variable).map(PathBuf::from).or_else(|| Some(home.as_ref()?.join(".aws").join(name)))
    };
    // The later one wins, as in AWS programs.
    let files = [file("AWS_CONFIG_FILE", "config"), file("AWS_SHARED_CREDENTIALS_FILE", "credentials")];
    files.into_iter().flatten().collect()
}

impl Profile {
    /// What the profile in force says. `has_keys`: the environment gives keys, so that those of the profile do not matter.
    pub(super) fn read(options: &Options, has_keys: bool) -> Result<Profile> {
        let asked = options.variable("AWS_PROFILE").or_else(|| options.variable("AWS_DEFAULT_PROFILE"));
        let name = asked.clone().unwrap_or_else(|| "default".to_owned());
        let mut settings = BTreeMap::new();
        let mut is_there = false;
        for file in files(options) {
            if let Some(text) = text_of(&file)? {
                is_there |= collect(&text, &name, &mut settings);
            }
        }
        if asked.is_some() && !is_there {
            let files: Vec<String> = files(options).iter().map(|file| file.display().to_string()).collect();
            return Err(Error::invalid(format!("no profile {name:?} (AWS_PROFILE) in {}", files.join(" or "))));
        }
        for setting in settings.keys() {
            let begins = |with: &[&str]| with.iter().any(|with| setting.starts_with(with));
            let is_harmless = USED.contains(&setting.as_str())
                || HARMLESS.contains(&setting.as_str())
                || begins(&HARMLESS_BEGINNINGS)
                || (has_keys && begins(&CREDENTIALS));
            if !is_harmless {
                return Err(Error::invalid(format!(
                    "profile {name:?}: the setting `{setting}` is not supported, and the connection could not be what it \
                     asks for; use a profile with keys, region and endpoint_url, or set AWS_ACCESS_KEY_ID, \
                     AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN (`aws configure export-credentials --format env` \
                     prints them) with AWS_PROFILE unset"
                )));
            }
        }
        Ok(Profile { name, settings })
    }

    /// A setting; an empty one is none.
    pub(super) fn get(&self, setting: &str) -> Option<String> {
        self.settings.get(setting).filter(|value| !value.is_empty()).cloned()
    }
}

fn text_of(file: &Path) -> Result<Option<String>> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(Error::invalid(format!("cannot read {}", file.display())).with_source(error)),
    }
}

/// Adds what the text says about a profile; answers whether the profile is in it.
fn collect(text: &str, name: &str, settings: &mut BTreeMap<String, String>) -> bool {
    let mut is_there = false;
    let mut is_ours = false;
    for line in text.lines() {
        let is_nested = line.starts_with([' ', '\t']);
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(section) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            let section = section.trim();
            let named = section.strip_prefix("profile ").unwrap_or(section).trim();
            is_ours = named.trim_matches(['"', '\'']) == name;
            is_there |= is_ours;
            continue;
        }
        // Nested settings belong to the one above, which is refused if it is not harmless.
        if let Some((setting, value)) = line.split_once('=').filter(|_| is_ours && !is_nested) {
            // A comment needs a space before it: secrets may have the character.
            let value = [" #", "\t#"].into_iter().fold(value, |value, mark| value.split(mark).next().unwrap_or(value));
            settings.insert(setting.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    is_there
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collected(text: &str, name: &str) -> BTreeMap<String, String> {
        let mut settings = BTreeMap::new();
        collect(text, name, &mut settings);
        settings
    }

    #[test]
    fn sections_comments_and_nested_lines() {
        let text = "[default]\nregion=eu\n# region = us\n[profile cms] # ours\nREGION = default # of Ceph\n\
                    endpoint_url = https://s3.cern.ch:8443\ns3 =\n  addressing_style = virtual\n[other]\nregion = x\n";
        assert_eq!(collected(text, "default"), [("region".into(), "eu".into())].into());
        let cms = collected(text, "cms");
        assert_eq!(cms["region"], "default");
        assert_eq!(cms["endpoint_url"], "https://s3.cern.ch:8443");
        assert_eq!(cms["s3"], "");
        assert!(!cms.contains_key("addressing_style"));
        assert!(!collect(text, "none", &mut BTreeMap::new()));
    }
}
