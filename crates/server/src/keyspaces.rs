//! What a server serves, by name.

use crate::served::{Served, two_of};
use forebay_core::{Error, Result, ServedStore};
use forebay_ring::Ring;
use std::collections::BTreeMap;

/// Stores and rings by the names of their keyspaces.
pub(crate) struct Keyspaces<S> {
    all: BTreeMap<String, Served<S>>,
}

impl<S: ServedStore> Keyspaces<S> {
    /// These, by their names.
    ///
    /// # Errors
    /// `Invalid` for two of one name.
    pub(crate) fn new(served: impl IntoIterator<Item = Served<S>>) -> Result<Keyspaces<S>> {
        let mut all = BTreeMap::new();
        for served in served {
            let name = served.name().to_owned();
            if all.insert(name.clone(), served).is_some() {
                return Err(two_of(&name));
            }
        }
        Ok(Keyspaces { all })
    }

    /// One alone.
    pub(crate) fn of(served: Served<S>) -> Keyspaces<S> {
        Keyspaces { all: [(served.name().to_owned(), served)].into() }
    }

    /// Their names, in order.
    pub(crate) fn names(&self) -> impl ExactSizeIterator<Item = &str> + Clone {
        self.all.keys().map(String::as_str)
    }

    /// The one at this place in the order of names.
    pub(crate) fn at(&self, at: usize) -> Option<(&str, &Served<S>)> {
        self.all.iter().nth(at).map(|(name, served)| (name.as_str(), served))
    }

    /// A keyspace; without a name the only one.
    ///
    /// # Errors
    /// `Invalid` for a name that is not served, and without a name where there are several.
    pub(crate) fn served(&self, name: &str) -> Result<&Served<S>> {
        if name.is_empty() && self.all.len() == 1 {
            return self.all.values().next().ok_or_else(|| Error::internal("no keyspace"));
        }
        self.all.get(name).ok_or_else(|| {
            let names = self.names().collect::<Vec<_>>().join(", ");
            let what = if name.is_empty() { "a name is needed".to_owned() } else { format!("no keyspace `{name}`") };
            Error::invalid(format!("{what}: this server has {names}"))
        })
    }

    /// Those that have events, with their stores.
    pub(crate) fn stores(&self) -> impl Iterator<Item = (&String, &S)> {
        self.all.iter().filter_map(|(name, served)| Some((name, served.store()?)))
    }

    /// Those that are rings.
    pub(crate) fn rings(&self) -> impl Iterator<Item = (&String, &Ring)> {
        self.all.iter().filter_map(|(name, served)| match served {
            Served::Events(_) => None,
            Served::Ring(ring) => Some((name, ring)),
        })
    }
}
