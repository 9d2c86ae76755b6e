//! One client: who it is, which keyspace it has selected, what it may do there.

use super::failure::Failure;
use crate::access::{Grant, Rights};
use crate::audit::Actor;
use crate::keyspaces::Keyspaces;
use crate::peer::PEER;
use crate::served::Served;
use crate::shared::Shared;
use forebay_core::{Call, ServedStore};
use forebay_ring::Ring;
use std::sync::Arc;

/// Wrong secrets after which a connection ends.
const REFUSALS_MAX: u32 = 8;

/// What is known of a client.
pub(super) struct Client<S> {
    /// Its number, for people.
    pub(super) id: u64,
    /// Where it is.
    peer: String,
    /// What it calls itself.
    pub(super) name: Vec<u8>,
    grant: Option<Grant>,
    refusals: u32,
    keyspaces: Arc<Keyspaces<S>>,
    /// The keyspace that it has selected, by its place among those of the server.
    keyspace: usize,
    store: Option<S>,
    ring: Option<Ring>,
    rights: Rights,
    /// Data may be on a device: a thread that reads it may wait.
    may_be_slow: bool,
}

impl<S: ServedStore> Client<S> {
    /// A client that has said nothing yet: in the first keyspace by name, as in Redis's database 0.
    pub(super) fn new(shared: &Shared, keyspaces: &Arc<Keyspaces<S>>) -> Client<S> {
        let mut client = Client {
            id: shared.next_client(),
            peer: PEER.try_with(ToString::to_string).unwrap_or_default(),
            name: Vec::new(),
            grant: shared.access().anonymous(),
            refusals: 0,
            keyspaces: keyspaces.clone(),
            keyspace: 0,
            store: None,
            ring: None,
            rights: Rights::default(),
            may_be_slow: false,
        };
        client.select_at(0);
        client
    }

    /// Whether it must say who it is first.
    #[inline]
    pub(super) fn is_stranger(&self) -> bool {
        self.grant.is_none()
    }

    /// Name of its token.
    pub(super) fn user(&self) -> &str {
        self.grant.as_ref().map_or("", |grant| &grant.name)
    }

    /// Takes a secret for what it allows. The name is `default` or that of the token.
    ///
    /// # Errors
    /// `WRONGPASS` for a secret that nobody has, or not under this name.
    pub(super) fn log_in(&mut self, shared: &Shared, user: Option<&[u8]>, secret: &[u8]) -> Result<(), Failure> {
        let own = |grant: &Grant| user.is_none_or(|user| user == b"default" || user == grant.name.as_bytes());
        if let Some(grant) = shared.access().grant(secret).filter(own) {
            // Rights follow from token and keyspace: the keyspace that is selected stays, its rights are looked up
            // again.
            self.grant = Some(grant);
            self.select_at(self.keyspace);
            return Ok(());
        }
        // Never reset: a client could try many secrets between logins that succeed.
        self.refusals += 1;
        shared.refuse("resp", "token", "a secret that no token has, or not under this name");
        Err(Failure::coded("WRONGPASS", "invalid username-password pair or user is disabled."))
    }

    /// Whether it has tried too many secrets.
    pub(super) fn guesses(&self) -> bool {
        self.refusals >= REFUSALS_MAX
    }

    /// Selects a keyspace by its place in the order of names, or by its name.
    ///
    /// # Errors
    /// `ERR` for one that is not served.
    pub(super) fn select(&mut self, which: &[u8]) -> Result<(), Failure> {
        let by_name = || self.keyspaces.names().position(|name| name.as_bytes() == which);
        let number = || std::str::from_utf8(which).ok()?.parse().ok();
        match by_name().or_else(number) {
            Some(at) if at < self.keyspaces.names().len() => {
                self.select_at(at);
                Ok(())
            }
            Some(_) => Err(Failure::err("DB index is out of range")),
            None => {
                let names = self.keyspaces.names().collect::<Vec<_>>().join(", ");
                Err(Failure::err(format!("no such keyspace; this server has: {names}, or by number from 0 on")))
            }
        }
    }

    fn select_at(&mut self, at: usize) {
        let Some((name, served)) = self.keyspaces.at(at) else { return };
        self.keyspace = at;
        (self.store, self.ring) = match served.clone() {
            Served::Events(store) => (Some(store), None),
            Served::Ring(ring) => (None, Some(ring)),
        };
        self.rights = self.grant.as_ref().map_or_else(Rights::default, |grant| grant.rights(name));
        self.may_be_slow = self.store.as_ref().is_some_and(S::has_warm);
    }

    /// The store of its keyspace, if there is one.
    #[inline]
    pub(super) fn store_at_hand(&self) -> Option<&S> {
        self.store.as_ref()
    }

    /// The store of its keyspace.
    ///
    /// # Errors
    /// `ERR` where that is a ring, or the server has none.
    #[inline]
    pub(super) fn store(&self) -> Result<&S, Failure> {
        self.store.as_ref().ok_or_else(|| self.no_store())
    }

    /// The same under the name of the token, which signs changes of runs.
    ///
    /// # Errors
    /// As [`Client::store`].
    pub(super) fn signed_store(&self) -> Result<S, Failure> {
        Ok(self.store()?.named(self.user()))
    }

    #[cold]
    fn no_store(&self) -> Failure {
        match &self.ring {
            Some(ring) => Failure::err(format!(
                "keyspace '{}' is a ring: it has FB.PUT and FB.WINDOW; SELECT another one for events",
                ring.keyspace().name
            )),
            None => Failure::err("this server has no keyspace"),
        }
    }

    /// The ring of its keyspace.
    ///
    /// # Errors
    /// `ERR` where that has events, or the server has none.
    pub(super) fn ring(&self, command: &str) -> Result<&Ring, Failure> {
        self.ring.as_ref().ok_or_else(|| {
            Failure::err(format!("this keyspace has no windows: it holds events, and '{command}' is for a ring"))
        })
    }

    /// Whether reading or writing data may wait for a device.
    #[inline]
    pub(super) fn may_be_slow(&self) -> bool {
        self.may_be_slow
    }

    /// Whether it may make this call.
    ///
    /// # Errors
    /// `NOAUTH` before it said who it is, `NOPERM` without the right.
    #[inline]
    pub(super) fn check(&self, shared: &Shared, call: Call, command: &str) -> Result<(), Failure> {
        debug_assert!(!self.is_stranger() || self.rights == Rights::default(), "a stranger has no rights");
        if let Some(grant) = &self.grant {
            grant.check()?;
        }
        if !self.rights.allow(call.right()) {
            return Err(self.refused(shared, call, command));
        }
        Ok(())
    }

    /// Who it is, for the audit log.
    pub(super) fn actor(&self) -> Actor {
        let keyspace = self.keyspaces.at(self.keyspace).map_or("", |(name, _)| name);
        let (token, keyspace) = (self.user().to_owned(), keyspace.to_owned());
        Actor { token, peer: self.peer.clone(), protocol: "resp", keyspace }
    }

    #[cold]
    fn refused(&self, shared: &Shared, call: Call, command: &str) -> Failure {
        if self.is_stranger() {
            return Failure::coded("NOAUTH", "Authentication required.");
        }
        let keyspace = self.keyspaces.at(self.keyspace).map_or("", |(name, _)| name);
        let right = call.right().name();
        let why =
            format!("token '{}' has no right '{right}' in keyspace '{keyspace}', which '{command}' needs", self.user());
        shared.refuse("resp", "right", &why);
        Failure::coded("NOPERM", why)
    }
}
