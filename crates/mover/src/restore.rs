//! Events of an archived run are put into a store again, as another run.
//!
//! *Invariants*: the store never had the run; what is there afterwards has keys, but for the run, attributes, status and
//! checksums as archived. No worker gets a part of an event: its seal alone makes it ready.
//!
//! *On failure*: a run that was restored in part stays: remove its events, and take another number.

use crate::archive::{Archive, WholeEvent};
use crate::object::Contents;
use forebay_core::{Completeness, Error, EventStore, Primary, PutOptions, PutOutcome, Result, RunConfig};
use std::collections::BTreeSet;
use std::time::Duration;

/// How long an event may take to be put, far beyond what a store that answers needs.
const WITHIN: Duration = Duration::from_secs(3600);

/// How a run is restored.
#[derive(Clone, Debug)]
pub struct Restore {
    /// The run in the archive.
    pub run: u64,
    /// The run that its events belong to in the store.
    pub as_run: u64,
    /// Stage of the selection in which they become ready; the first where it is `None`.
    pub stage: Option<String>,
}

/// Puts all events of a run into a store; `told` hears how far it is, and answers whether to go on.
///
/// # Errors
/// `Conflict` for a run that the store knows, `Invalid` for an archive of other keys or attributes, `Corrupt` for an event of
/// which anything does not verify or is not there; those of the store's puts.
pub fn restore<S: EventStore>(
    archive: &Archive,
    store: &S,
    restore: &Restore,
    told: &mut dyn FnMut(&Contents) -> bool,
) -> Result<Contents> {
    let Restore { run, as_run, .. } = *restore;
    if store.runs()?.iter().any(|known| known.run == as_run) {
        return Err(Error::conflict(format!("the store knows run {as_run}: restore as a run that it never had")));
    }
    let manifest = archive.manifest_there(run)?;
    let mut names: BTreeSet<Primary> = BTreeSet::new();
    for entry in &manifest.objects {
        let object = archive.object(run, entry)?;
        let (theirs, ours) = (&object.keyspace, store.keyspace());
        if theirs.schema != ours.schema || theirs.attributes != ours.attributes {
            return Err(Error::invalid(format!(
                "run {run} was archived with keys {} and other attributes or keys than this store's {}",
                theirs.schema.describe().join(", "),
                ours.schema.describe().join(", ")
            )));
        }
        names.extend(object.events.iter().map(|place| place.primary));
    }
    // The run says the stage: no event of it is ever in an earlier one.
    let sealed = RunConfig {
        stop_grace: store.keyspace().run.stop_grace,
        stage: restore.stage.clone(),
        ..RunConfig::new(Completeness::Seal, WITHIN)
    };
    store.run_open(as_run, &sealed)?;
    let mut done = Contents::default();
    for name in names {
        let whole = archive.event(&manifest, &name)?.ok_or_else(|| Error::internal("an event that was listed"))?;
        put_event(store, &whole, restore)?;
        done.events += 1;
        done.fragments += whole.payloads.len() as u64;
        done.payload_bytes += whole.payloads.iter().map(|payload| payload.len() as u64).sum::<u64>();
        if !told(&done) {
            break;
        }
    }
    Ok(done)
}

fn put_event<S: EventStore>(store: &S, whole: &WholeEvent, restore: &Restore) -> Result<()> {
    let schema = store.schema();
    let mut values = schema.values(whole.event.primary.as_bytes());
    values[0] = restore.as_run;
    let primary = schema.primary(&values)?;
    let name = schema.text(primary.as_bytes());
    if whole.payloads.len() < whole.event.event_fragments as usize {
        return Err(Error::corrupt(format!(
            "event {name}: {} of its {} fragments are in the archive",
            whole.payloads.len(),
            whole.event.event_fragments
        )));
    }
    for (fragment, payload) in whole.event.fragments.iter().zip(&whole.payloads) {
        let key = schema.join(&primary, fragment.source.as_bytes());
        let attributes = Some(&whole.attributes).filter(|attributes| !attributes.is_empty());
        let options = PutOptions { status: fragment.status, attributes, ..PutOptions::default() };
        match store.put(&key, payload, &options)? {
            PutOutcome::Stored | PutOutcome::Duplicate => {}
            late => return Err(Error::conflict(format!("event {name}: a fragment of it was answered {late:?}"))),
        }
    }
    store.seal(&primary)?;
    Ok(())
}
