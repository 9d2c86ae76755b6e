//! Credentials: from the environment, or from the files of a profile, which are read again when a server says that a token
//! has expired.
//!
//! *Invariant*: keys and tokens appear in no message and in no debug output.

use super::profile::Profile;
use crate::storage::Options;
use async_trait::async_trait;
use forebay_core::{Error, Result};
use object_store::CredentialProvider;
use object_store::aws::AwsCredential;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Variables by which others get credentials that are not supported here.
const OTHERS: [&str; 5] = [
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_BEARER_TOKEN",
];

/// Where keys come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The environment: they stay what they are.
    Environment,
    /// The files of the profile: somebody may write new ones there.
    Files,
    /// Requests are not signed.
    Anonymous,
}

/// The keys in force.
pub(super) struct Keys {
    source: Source,
    options: Options,
    /// Held to read the files, so that they are read once where many requests hear of the same end.
    now: Mutex<Arc<AwsCredential>>,
}

/// Whether the environment gives keys.
pub(super) fn in_environment(options: &Options) -> bool {
    options.variable("AWS_ACCESS_KEY_ID").is_some() || options.variable("AWS_SECRET_ACCESS_KEY").is_some()
}

impl Keys {
    /// The keys that the environment or the profile gives.
    pub(super) fn find(options: &Options, profile: &Profile) -> Result<Keys> {
        let is_anonymous =
            options.variable("AWS_SKIP_SIGNATURE").is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let (source, keys) = if is_anonymous {
            (Source::Anonymous, AwsCredential { key_id: String::new(), secret_key: String::new(), token: None })
        } else if in_environment(options) {
            let variable = |name: &str| options.variable(name);
            let token = variable("AWS_SESSION_TOKEN");
            let keys = pair(variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY"), token);
            let missing =
                || Error::invalid("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are needed together; one is missing");
            (Source::Environment, keys.ok_or_else(missing)?)
        } else {
            (Source::Files, of_profile(profile).ok_or_else(|| none(options, profile))?)
        };
        Ok(Keys { source, options: options.clone(), now: Mutex::new(Arc::new(keys)) })
    }

    /// The same keys, for another process: nothing is shared.
    pub(super) fn again(&self) -> Keys {
        Keys { source: self.source, options: self.options.clone(), now: Mutex::new(self.now()) }
    }

    pub(super) fn source(&self) -> Source {
        self.source
    }

    pub(super) fn now(&self) -> Arc<AwsCredential> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Other keys than the ones that a server refused: somebody renewed them. `false` where there are none.
    pub(super) fn renew(&self, refused: &AwsCredential) -> bool {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        if is_other(&now, refused) {
            return true;
        }
        if self.source != Source::Files {
            return false;
        }
        // A file that somebody is just writing has no keys, or half of them: then there are no others yet.
        let read = Profile::read(&self.options, false).ok().and_then(|profile| of_profile(&profile));
        match read.filter(|read| is_other(read, refused)) {
            Some(read) => {
                *now = Arc::new(read);
                true
            }
            None => false,
        }
    }

    /// The text of a server without the secrets that it may repeat.
    pub(super) fn hide(&self, text: &str) -> String {
        let now = self.now();
        let secrets = [Some(&now.secret_key), now.token.as_ref()];
        secrets
            .into_iter()
            .flatten()
            .filter(|secret| !secret.is_empty())
            .fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), "***"))
    }
}

fn is_other(one: &AwsCredential, other: &AwsCredential) -> bool {
    (&one.key_id, &one.secret_key, &one.token) != (&other.key_id, &other.secret_key, &other.token)
}

fn pair(key_id: Option<String>, secret_key: Option<String>, token: Option<String>) -> Option<AwsCredential> {
    Some(AwsCredential { key_id: key_id?, secret_key: secret_key?, token })
}

fn of_profile(profile: &Profile) -> Option<AwsCredential> {
    pair(profile.get("aws_access_key_id"), profile.get("aws_secret_access_key"), profile.get("aws_session_token"))
}

fn none(options: &Options, profile: &Profile) -> Error {
    let other = OTHERS.iter().find(|name| options.variable(name).is_some());
    let other = other.map(|name| format!(" ({name} is set, but not supported)")).unwrap_or_default();
    Error::invalid(format!(
        "no credentials for S3: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or aws_access_key_id and \
         aws_secret_access_key in profile {:?} of ~/.aws/credentials, or AWS_SKIP_SIGNATURE=true for public data{other}",
        profile.name
    ))
}

#[async_trait]
impl CredentialProvider for Keys {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        Ok(self.now())
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Keys").field("source", &self.source).finish_non_exhaustive()
    }
}
