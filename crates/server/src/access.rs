//! Access control: tokens and their rights in each keyspace.
//!
//! *Invariants*: a secret is compared with that of every token, in the same time whether and where it matches; it has no
//! text form (test `a_secret_is_never_shown`).

use forebay_core::{Error, Result, Right};
use std::collections::BTreeMap;
use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

/// Shortest secret: 128 bits, where its bytes are random.
pub(crate) const SECRET_BYTES_MIN: usize = 16;
/// Longest secret.
pub(crate) const SECRET_BYTES_MAX: usize = 256;
/// Bytes that are read of a file with a secret: enough to notice a line that is too long.
pub(crate) const SECRET_FILE_BYTES_MAX: u64 = SECRET_BYTES_MAX as u64 + 2;
/// Most tokens: each login compares with all of them.
const TOKENS_MAX: usize = 1024;

const _: () = assert!(SECRET_BYTES_MIN < SECRET_BYTES_MAX);

/// Rights in one keyspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rights(u8);

impl Rights {
    /// Every right.
    pub(crate) const ALL: Rights = Rights((1 << Right::ALL.len()) - 1);

    /// These and one more.
    #[must_use]
    pub(crate) fn with(self, right: Right) -> Rights {
        // What an expert may do by hand, a mover may do as well.
        let implied = if right == Right::Admin { 1 << Right::Archive as u8 } else { 0 };
        Rights(self.0 | 1 << right as u8 | implied)
    }

    /// Whether this right is among them.
    pub(crate) fn allow(self, right: Right) -> bool {
        self.0 & 1 << right as u8 != 0
    }
}

/// A secret, padded to one length in memory.
#[derive(Clone)]
pub struct Secret {
    bytes: [u8; SECRET_BYTES_MAX],
    length: u64,
}

impl Secret {
    /// A secret of these bytes.
    ///
    /// # Errors
    /// `Invalid` for one that is too short to be a secret, or too long, or has bytes that no line of text has.
    pub fn new(bytes: &[u8]) -> Result<Secret> {
        if !(SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&bytes.len()) {
            return Err(Error::invalid(format!(
                "its secret has {} bytes: {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} are needed; `openssl rand -hex 32` \
                 makes a good one",
                bytes.len()
            )));
        }
        if bytes.iter().any(u8::is_ascii_control) {
            return Err(Error::invalid("its secret has control characters: one line of text is needed"));
        }
        Ok(Secret::padded(bytes))
    }

    /// What fits of these bytes, with the length of all of them.
    fn padded(bytes: &[u8]) -> Secret {
        let mut secret = Secret { bytes: [0; SECRET_BYTES_MAX], length: bytes.len() as u64 };
        let fits = bytes.len().min(SECRET_BYTES_MAX);
        secret.bytes[..fits].copy_from_slice(&bytes[..fits]);
        secret
    }

    fn equals(&self, other: &Secret) -> Choice {
        // In constant time, over the whole padded length: the time of a refusal must not tell how much of a secret was
        // right.
        self.bytes.ct_eq(&other.bytes) & self.length.ct_eq(&other.length)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Secret(not shown)")
    }
}

/// A token: a name for logs, a secret, and what its holder may do.
#[derive(Clone, Debug)]
pub struct AccessToken {
    /// Name, for logs.
    pub name: String,
    /// What its holder knows.
    pub secret: Secret,
    /// What its holder may do, by keyspace; `*` is any that is not named.
    pub rights: BTreeMap<String, Vec<Right>>,
}

/// The rights of a token.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    /// Name of the token, for logs: never the secret.
    pub(crate) name: String,
    /// By keyspace; `*` is any that is not named.
    pub(crate) rights: BTreeMap<String, Rights>,
    /// Set once the server knows this token no more, or with other rights: its connections end with their next call.
    pub(crate) revoked: Arc<AtomicBool>,
}

impl Grant {
    /// The rights in a keyspace.
    pub(crate) fn rights(&self, keyspace: &str) -> Rights {
        self.rights.get(keyspace).or_else(|| self.rights.get("*")).copied().unwrap_or_default()
    }

    /// Whether the token was taken back.
    ///
    /// # Errors
    /// `Invalid` if it was.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        // Relaxed: nothing else is read by it, and one call more or less under the old rights does not matter.
        if self.revoked.load(Ordering::Relaxed) { Err(self.taken_back()) } else { Ok(()) }
    }

    #[cold]
    fn taken_back(&self) -> Error {
        Error::invalid(format!("token `{}` was taken back, or has other rights now: connect again", self.name))
    }
}

/// All tokens of a server.
#[derive(Debug, Default)]
pub(crate) struct Access {
    tokens: Vec<(Secret, Grant)>,
}

impl Access {
    /// The tokens of a server that serves these keyspaces.
    ///
    /// # Errors
    /// `Invalid` for two tokens of one name or one secret, and for rights in a keyspace that is not served.
    pub(crate) fn new<'a>(
        tokens: Vec<AccessToken>,
        keyspaces: impl Iterator<Item = &'a str> + Clone,
    ) -> Result<Access> {
        if tokens.len() > TOKENS_MAX {
            return Err(Error::invalid(format!("{} tokens: at most {TOKENS_MAX}", tokens.len())));
        }
        let mut access = Access::default();
        for AccessToken { name, secret, rights } in tokens {
            for (known, grant) in &access.tokens {
                if grant.name == name {
                    return Err(Error::invalid(format!("two tokens have the name `{name}`: logs tell them by name")));
                }
                if bool::from(known.equals(&secret)) {
                    let message =
                        format!("tokens `{}` and `{name}` have the same secret: give each its own", grant.name);
                    return Err(Error::invalid(message));
                }
            }
            if let Some(unknown) = rights.keys().find(|name| *name != "*" && !keyspaces.clone().any(|k| k == *name)) {
                let served = keyspaces.clone().collect::<Vec<_>>().join(", ");
                return Err(Error::invalid(format!(
                    "token `{name}` has rights in keyspace `{unknown}`, which this server does not have: it has {served}"
                )));
            }
            let rights = rights.into_iter().map(|(keyspace, list)| {
                (keyspace, list.into_iter().fold(Rights::default(), |rights, right| rights.with(right)))
            });
            access.tokens.push((secret, Grant { name, rights: rights.collect(), revoked: Arc::default() }));
        }
        Ok(access)
    }

    /// Whether everybody may do everything.
    pub(crate) fn is_open(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Takes the place of other tokens: connections of a token that is the same go on, those of others end.
    pub(crate) fn succeed(&mut self, old: &Access) {
        for (secret, grant) in &old.tokens {
            let same = self.tokens.iter_mut().find(|(known, new)| {
                new.name == grant.name && new.rights == grant.rights && bool::from(known.equals(secret))
            });
            match same {
                Some((_, new)) => new.revoked = grant.revoked.clone(),
                None => grant.revoked.store(true, Ordering::Relaxed),
            }
        }
    }

    /// What a client without a token may do: everything where no token is configured, else nothing.
    pub(crate) fn anonymous(&self) -> Option<Grant> {
        self.tokens.is_empty().then(|| Grant {
            name: "anonymous".to_owned(),
            rights: [("*".to_owned(), Rights::ALL)].into(),
            revoked: Arc::default(),
        })
    }

    /// What the holder of this secret may do; `None` for a secret that nobody has. Where no token is configured a secret
    /// changes nothing.
    pub(crate) fn grant(&self, secret: &[u8]) -> Option<Grant> {
        if self.tokens.is_empty() {
            return self.anonymous();
        }
        let shown = Secret::padded(secret);
        // The position of the match, without a branch on it.
        let mut found = u32::MAX;
        for (at, (known, _)) in self.tokens.iter().enumerate() {
            found = u32::conditional_select(&found, &(at as u32), known.equals(&shown));
        }
        self.tokens.get(found as usize).map(|(_, grant)| grant.clone())
    }
}

/// A file with a secret is nobody else's to read.
///
/// # Errors
/// `Invalid` where every user of the machine can.
pub(crate) fn private(path: &Path, file: &std::fs::File) -> Result<()> {
    let mode = file.metadata().map_or(0, |data| data.permissions().mode());
    // Others only: the group may be the server's own.
    if mode & 0o007 == 0 {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "{} can be read by every user of this machine (mode {:04o}): `chmod o= {}`",
        path.display(),
        mode & 0o7777,
        path.display()
    )))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A token that may do everything.
    pub(crate) fn token(name: &str, secret: &[u8]) -> AccessToken {
        let secret = Secret::new(secret).unwrap();
        AccessToken { name: name.to_owned(), secret, rights: [("*".to_owned(), Right::ALL.to_vec())].into() }
    }

    fn access(tokens: Vec<AccessToken>) -> Result<Access> {
        Access::new(tokens, ["events", "calib"].into_iter())
    }

    #[test]
    fn without_tokens_everybody_may_do_everything() {
        let access = Access::default();
        assert!(Right::ALL.iter().all(|right| access.anonymous().unwrap().rights("any").allow(*right)));
        assert_eq!(access.grant(b"whatever").unwrap().name, access.anonymous().unwrap().name);
    }

    #[test]
    fn with_tokens_only_the_whole_secret_enters() {
        let (first, second) = (b"0123456789abcdef", b"0123456789abcdeg");
        let access = access(vec![token("first", first), token("second", second)]).unwrap();
        assert!(access.anonymous().is_none());
        assert_eq!(access.grant(first).unwrap().name, "first");
        assert_eq!(access.grant(second).unwrap().name, "second");
        let padded = [first.as_slice(), &[0]].concat();
        let long = [first.as_slice(), &[0; 1 << 16]].concat();
        for wrong in [b"".as_slice(), b"0123456789abcde", b"0123456789abcdeF", &padded, &long, &[0; 16], &[0; 256]] {
            assert!(access.grant(wrong).is_none(), "{} bytes", wrong.len());
        }
    }

    #[test]
    fn rights_go_by_keyspace_and_a_named_one_goes_before_the_star() {
        let mut one = token("one", b"0123456789abcdef");
        one.rights =
            [("*".to_owned(), vec![Right::Read, Right::Admin]), ("calib".to_owned(), vec![Right::Write])].into();
        let grant = access(vec![one]).unwrap().grant(b"0123456789abcdef").unwrap();
        let may = |keyspace: &str| Right::ALL.map(|right| grant.rights(keyspace).allow(right));
        // An administrator may do what a mover may.
        assert_eq!(may("events"), [true, false, false, true, true, false]);
        assert_eq!(may("calib"), [false, true, false, false, false, false]);
        let nothing = Grant { name: "none".to_owned(), rights: BTreeMap::new(), revoked: Arc::default() };
        assert!(!Right::ALL.iter().any(|right| nothing.rights("events").allow(*right)));
    }

    #[test]
    fn tokens_that_cannot_be_told_apart_are_refused() {
        let same_name = vec![token("a", b"0123456789abcdef"), token("a", b"0123456789abcdeg")];
        assert!(access(same_name).unwrap_err().message().contains("name `a`"));
        let same_secret = vec![token("a", b"0123456789abcdef"), token("b", b"0123456789abcdef")];
        assert!(access(same_secret).unwrap_err().message().contains("same secret"));
        let mut elsewhere = token("a", b"0123456789abcdef");
        elsewhere.rights = [("clib".to_owned(), vec![Right::Read])].into();
        assert!(access(vec![elsewhere]).unwrap_err().message().contains("keyspace `clib`"));
    }

    #[test]
    fn tokens_that_go_or_change_are_taken_back_and_others_go_on() {
        let (first, second, third) = (b"0123456789abcdef", b"0123456789abcdeg", b"0123456789abcdeh");
        let old = access(vec![token("kept", first), token("gone", second), token("changed", third)]).unwrap();
        let grants = [first, second, third].map(|secret| old.grant(secret).unwrap());
        let mut changed = token("changed", third);
        changed.rights = [("*".to_owned(), vec![Right::Read])].into();
        let mut new = access(vec![token("kept", first), changed]).unwrap();
        new.succeed(&old);
        assert_eq!(grants.map(|grant| grant.check().is_err()), [false, true, true]);
        assert!(new.grant(third).unwrap().check().is_ok());
        // The next change is seen by connections of both.
        let kept = [old.grant(first).unwrap(), new.grant(first).unwrap()];
        let mut last = access(vec![token("other", second)]).unwrap();
        last.succeed(&new);
        assert!(kept.iter().all(|grant| grant.check().is_err()));
    }

    #[test]
    fn what_is_no_secret_is_refused() {
        for wrong in [b"".as_slice(), b"fifteen bytes !", &[b'x'; 257], b"0123456789abcdef\n"] {
            let error = Secret::new(wrong).unwrap_err();
            assert!(!error.message().contains("fifteen bytes !"), "{error}");
        }
        Secret::new(&[b'x'; 16]).unwrap();
        Secret::new(&[0xff; 256]).unwrap();
    }

    #[test]
    fn a_secret_is_never_shown() {
        let token = token("t", b"0123456789abcdef");
        let shown = format!("{token:?} {:?}", access(vec![token.clone()]));
        assert!(!shown.contains("0123") && !shown.contains("48, 49"), "{shown}");
        assert!(shown.contains("not shown"));
    }
}
