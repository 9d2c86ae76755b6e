//! Who may do what: tokens and their rights in each keyspace.

use crate::call::Right;
use std::collections::BTreeMap;

/// Rights in one keyspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rights(u8);

impl Rights {
    /// Every right.
    pub(crate) const ALL: Rights = Rights(0b1111);

    /// These and one more.
    #[must_use]
    pub(crate) fn with(self, right: Right) -> Rights {
        Rights(self.0 | 1 << right as u8)
    }

    /// Whether this right is among them.
    pub(crate) fn allow(self, right: Right) -> bool {
        self.0 & 1 << right as u8 != 0
    }
}

/// What the holder of a token may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// Name of the token, for logs: never the secret.
    pub(crate) name: String,
    /// By keyspace; `*` is any that is not named.
    pub(crate) rights: BTreeMap<String, Rights>,
}

impl Grant {
    /// The rights in a keyspace.
    pub(crate) fn rights(&self, keyspace: &str) -> Rights {
        self.rights.get(keyspace).or_else(|| self.rights.get("*")).copied().unwrap_or_default()
    }
}

/// All tokens of a server.
#[derive(Debug, Default)]
pub(crate) struct Access {}

impl Access {
    /// What a client without a token may do: everything where no token is configured, else nothing.
    pub(crate) fn anonymous(&self) -> Option<Grant> {
        Some(Grant { name: "anonymous".to_owned(), rights: [("*".to_owned(), Rights::ALL)].into() })
    }

    /// What the holder of this secret may do; `None` for a secret that nobody has.
    pub(crate) fn grant(&self, _secret: &[u8]) -> Option<Grant> {
        self.anonymous()
    }
}
