//! A section `[[token]]`: whose secret, where it is found, and what its holder may do.

use crate::access::{AccessToken, SECRET_FILE_BYTES_MAX, Secret, private};
use crate::locate::Problem;
use forebay_core::{Error, Result, Right};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Longest name.
const NAME_BYTES_MAX: usize = 64;

/// A token, without its secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TokenSettings {
    /// Name, for logs.
    pub name: String,
    /// File with the secret in its first line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_file: Option<PathBuf>,
    /// Environment variable with the secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_env: Option<String>,
    /// What its holder may do, by keyspace; `*` is any that is not named.
    pub rights: BTreeMap<String, Vec<Right>>,
}

impl TokenSettings {
    pub(super) fn problem(&self) -> Option<Problem> {
        let plain = self.name.bytes().all(|byte| byte.is_ascii_graphic());
        if self.name.is_empty() || !plain || self.name.len() > NAME_BYTES_MAX {
            let message = format!("needed: 1 to {NAME_BYTES_MAX} letters, digits and signs, as logs will show it");
            return Some(Problem::new("name", message));
        }
        match (&self.secret_file, &self.secret_env) {
            (Some(_), None) | (None, Some(_)) => {}
            (None, None) => {
                let message = "its secret is missing: `secret_file` names a file with it, `secret_env` an environment \
                               variable";
                return Some(Problem::new("name", message));
            }
            (Some(_), Some(_)) => {
                return Some(Problem::new("secret_env", "beside `secret_file`: one of them, not both"));
            }
        }
        if self.rights.values().all(Vec::is_empty) {
            let message = "needed: what its holder may do, such as rights = { \"*\" = [\"read\", \"write\"] }";
            return Some(Problem::new("rights", message));
        }
        None
    }

    /// The token with its secret.
    ///
    /// # Errors
    /// `Invalid` for a secret that is not there, that others can read, or that is too short.
    pub fn load(&self) -> Result<AccessToken> {
        let about = |error: Error| Error::invalid(format!("token `{}`: {}", self.name, error.message()));
        let bytes = match (&self.secret_file, &self.secret_env) {
            (Some(file), None) => read_secret(file).map_err(about)?,
            (None, Some(variable)) => std::env::var_os(variable)
                .map(|value| value.into_encoded_bytes())
                .ok_or_else(|| about(Error::invalid(format!("the environment has no variable {variable}"))))?,
            _ => return Err(about(Error::invalid("one of `secret_file` and `secret_env` is needed"))),
        };
        let secret = Secret::new(&bytes).map_err(about)?;
        Ok(AccessToken { name: self.name.clone(), secret, rights: self.rights.clone() })
    }
}

/// The first line of a file that others cannot read.
fn read_secret(file: &Path) -> Result<Vec<u8>> {
    let failed = |error: std::io::Error| {
        Error::invalid(format!("{}: its secret cannot be read: {error}", file.display())).with_source(error)
    };
    let open = std::fs::File::open(file).map_err(failed)?;
    // Of the open file, not of its path: what was checked is what is read.
    private(file, &open)?;
    let mut bytes = Vec::new();
    // Bounded: a path to something endless must not hold up the start.
    open.take(SECRET_FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(failed)?;
    let end = bytes.iter().position(|byte| b"\r\n".contains(byte)).unwrap_or(bytes.len());
    bytes.truncate(end);
    Ok(bytes)
}
