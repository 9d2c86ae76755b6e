//! What makes a place an archive: an object with an id, written once (`docs/format-archive.md`).
//!
//! *Invariants*: nothing is named, and so nothing is proved, in a place that does not have the id that its mover began with. A bare
//! mount point is such a place. Where that is found the claim is given back, not tried again: what was put there meanwhile is put once more.

use crate::archive::{Archive, listed};
use crate::framed;
use forebay_core::map::Hex128;
use forebay_core::{Error, Kind, Result};
use forebay_dataset::storage::{Condition, Put};
use serde::{Deserialize, Serialize};
use std::time::{SystemTime, UNIX_EPOCH};

/// The name of the object, below the archive's place.
const NAME: &str = "archive";
const WORD: &str = "forebay-archive-id";
const VERSION: u32 = 1;
const BYTES_MAX: u64 = 64 << 10;

/// Which archive it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// No other archive has it.
    pub id: Hex128,
    /// What people call it.
    pub name: String,
    /// When it was made, in milliseconds since 1970.
    pub made_ms: u64,
}

impl Archive {
    /// Makes an archive of a place that has none.
    ///
    /// # Errors
    /// `Conflict` where the place is an archive already, or has runs: these may be adopted, once they are verified. `Invalid` for a place
    /// that ignores conditions; those of the place.
    pub fn create(&self, name: &str) -> Result<Identity> {
        if let Some(run) = listed(self.runs())?.first() {
            return Err(Error::conflict(format!(
                "{} has runs already, such as {run}: `forebay archive create --adopt` verifies them and takes them",
                self.place().url()
            )));
        }
        self.identify(name)
    }

    /// The same of a place with runs, each of whose objects has to verify. `told` hears how many of how many have been.
    ///
    /// # Errors
    /// `Corrupt` for a manifest or an object that does not verify; those of [`Archive::create`].
    pub fn adopt(&self, name: &str, told: &mut dyn FnMut(u64, u64)) -> Result<Identity> {
        let mut all = Vec::new();
        for run in self.runs()? {
            all.extend(self.manifest_there(run)?.objects.into_iter().map(|object| (run, object)));
        }
        for (at, (run, object)) in (0..).zip(&all) {
            told(at, all.len() as u64);
            let named = |error: Error| Error::new(error.kind(), format!("{}: {}", object.name, error.message()));
            self.verify(*run, object).map_err(named)?;
        }
        self.identify(name)
    }

    fn identify(&self, name: &str) -> Result<Identity> {
        let place = self.place();
        place.check_conditions(&format!("check/{:016x}", rand::random::<u64>()))?;
        let made_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        let made = Identity { id: Hex128(rand::random()), name: name.to_owned(), made_ms };
        let json = serde_json::to_vec(&made).map_err(|error| Error::internal("an identity").with_source(error))?;
        let put = place.put_if(NAME, &framed::encode(WORD, VERSION, &json), Condition::Absent);
        // An answer that was lost: what is there says whose it is.
        let there = match put {
            Ok(Put::Done(_)) => return Ok(made),
            Ok(Put::Refused) => self.identity()?,
            Err(error) if error.kind() == Kind::OutcomeUnknown => self.identity()?,
            Err(error) => return Err(error),
        };
        match there {
            Some(there) if there == made => Ok(made),
            Some(there) => Err(Error::conflict(format!("{} is the archive {there} already", place.url()))),
            None => Err(Error::unknown(format!("{}: whether it is an archive now is not known", place.url()))),
        }
    }

    /// Which archive the place is; `None` where it is none.
    ///
    /// # Errors
    /// `Invalid` and `Corrupt` for an id that cannot be read, and those of the place.
    pub fn identity(&self) -> Result<Option<Identity>> {
        let Some((bytes, _)) = self.place().get(NAME, BYTES_MAX)? else { return Ok(None) };
        let what = format!("the id of the archive {}", self.place().url());
        let json = framed::decode(WORD, VERSION, &bytes, &what)?;
        let identity = serde_json::from_slice(json);
        identity.map(Some).map_err(|error| Error::corrupt(format!("{what} is not understood: {error}")))
    }

    /// Which archive the place is, where it has to be one.
    ///
    /// # Errors
    /// `Conflict` where it is none; those of [`Archive::identity`].
    pub fn identity_there(&self) -> Result<Identity> {
        let none = || {
            Error::conflict(format!(
                "{url} is no archive: is its disk mounted? `forebay archive create {url}` makes a new one, with `--adopt` of what movers \
                 wrote before archives had ids",
                url = self.place().url()
            ))
        };
        self.identity()?.ok_or_else(none)
    }

    /// Whether the place still is this archive.
    ///
    /// # Errors
    /// `Conflict` where it is another one, or none; those of [`Archive::identity`].
    pub(crate) fn still(&self, began: &Identity) -> Result<()> {
        let there = self.identity_there()?;
        if there.id == began.id {
            return Ok(());
        }
        Err(Error::conflict(format!("{} was the archive {began} and is {there} now", self.place().url())))
    }
}

impl std::fmt::Display for Identity {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name.is_empty() {
            true => write!(out, "{:?}", self.id),
            false => write!(out, "`{}` ({:?})", self.name, self.id),
        }
    }
}
