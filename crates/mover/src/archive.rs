//! An archive: a place with a manifest for each run, and the objects that these name.
//!
//! ```text
//! PLACE/archive                which archive it is
//! PLACE/run-7/manifest         what counts
//! PLACE/run-7/STREAM-….fba     objects; one that no manifest names counts for nothing, and `gc` removes it when it is old
//! ```
//!
//! *On failure* of a write to a manifest whose answer is lost: the manifest is read again, and says what happened.

use crate::manifest::{MANIFEST_BYTES_MAX, Manifest, ManifestObject, folder_of, manifest_of};
use crate::object::{ArchivedEvent, EventPlace, Object, piece_of};
use bytes::Bytes;
use forebay_core::{Attributes, Error, Kind, Primary, Result, Source};
use forebay_dataset::storage::{self, Condition, Options, Part, Put, Storage, Tag};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// How often a manifest that others write too is tried again.
const EXTENDS_MAX: u32 = 64;
/// Longest object that is read whole.
const OBJECT_BYTES_MAX: u64 = 8 << 30;

/// An archive at a place.
#[derive(Clone, Debug)]
pub struct Archive {
    place: Arc<dyn Storage>,
}

/// What is wrong with an object, in words.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Fault {
    /// Its name.
    pub name: String,
    /// What is wrong.
    pub what: String,
}

impl Fault {
    /// A manifest that is damaged or missing; other errors are passed on.
    ///
    /// # Errors
    /// This one, where it says nothing of the manifest's bytes.
    pub fn of_manifest(run: u64, error: Error) -> Result<Fault> {
        match error.kind() {
            Kind::Corrupt | Kind::Invalid => Ok(Fault { name: manifest_of(run), what: error.message().to_owned() }),
            _ => Err(error),
        }
    }
}

/// An event as the archive has it, put together from its parts.
#[derive(Clone, Debug)]
pub struct WholeEvent {
    /// What its newest part says of it, with all fragments: of several versions of one the highest.
    pub event: ArchivedEvent,
    /// Its attributes.
    pub attributes: Attributes,
    /// Payloads, one for each fragment.
    pub payloads: Vec<Bytes>,
}

/// Distinct fragments of a run that the archive has.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Inventory {
    /// Events with anything.
    pub events: u64,
    /// Events of which parts are missing.
    pub partial: u64,
    /// Fragments, each once.
    pub fragments: u64,
    /// Their payload bytes.
    pub payload_bytes: u64,
    /// Fragments that are there more than once.
    pub repeated: u64,
    /// Objects that cannot be read.
    pub faults: Vec<Fault>,
    /// Of each event how many fragments, and their payload bytes.
    #[serde(skip)]
    pub by_event: BTreeMap<Primary, (u64, u64)>,
}

impl Archive {
    /// The archive at this address: `s3://bucket/prefix`, `dir:/path` or a path. Nothing is asked of it yet.
    ///
    /// # Errors
    /// `Invalid` for an address, or credentials, that cannot work.
    pub fn open(url: &str, options: &Options) -> Result<Archive> {
        storage::open(url, options).map(|place| Archive { place })
    }

    /// An archive at a place that is open.
    #[must_use]
    pub fn at(place: Arc<dyn Storage>) -> Archive {
        Archive { place }
    }

    /// Its place.
    #[must_use]
    pub fn place(&self) -> &Arc<dyn Storage> {
        &self.place
    }

    /// Runs of which anything is there, in order.
    ///
    /// # Errors
    /// Those of the place.
    pub fn runs(&self) -> Result<Vec<u64>> {
        let runs: BTreeSet<u64> = self.place.list("")?.iter().filter_map(|name| run_of(name)).collect();
        Ok(runs.into_iter().collect())
    }

    /// The manifest of a run; `None` where the archive has nothing of it.
    ///
    /// # Errors
    /// `Invalid` and `Corrupt` as [`Manifest::decode`], `Corrupt` where objects of the run are there and no manifest, and those of the
    /// place.
    pub fn manifest(&self, run: u64) -> Result<Option<Manifest>> {
        if let Some((manifest, _)) = self.read_manifest(run)? {
            return Ok(Some(manifest));
        }
        match listed(self.objects_of(run))?.len() {
            0 => Ok(None),
            objects => Err(Error::corrupt(format!(
                "run {run} has {objects} objects and no manifest, which movers write first: `forebay archive rebuild {} {run}` makes one \
                 from them",
                self.place.url()
            ))),
        }
    }

    /// Names of all objects of a run, whether its manifest has them or not.
    pub(crate) fn objects_of(&self, run: u64) -> Result<Vec<String>> {
        let mut names = self.place.list(&folder_of(run))?;
        names.retain(|name| name.ends_with(OBJECT_ENDING));
        Ok(names)
    }

    /// The manifest of a run, which is made where the archive has nothing of it: before its first object, so that objects without a
    /// manifest are damage.
    ///
    /// # Errors
    /// Those of [`Archive::manifest`].
    pub(crate) fn begin_run(&self, run: u64, keyspace: &str) -> Result<Manifest> {
        for _ in 0..EXTENDS_MAX {
            if let Some(manifest) = self.manifest(run)? {
                return Ok(manifest);
            }
            let manifest = Manifest { run, keyspace: keyspace.to_owned(), objects: Vec::new() };
            match self.place.put_if(&manifest_of(run), &manifest.encode()?, Condition::Absent) {
                Ok(Put::Done(_)) => return Ok(manifest),
                Ok(Put::Refused) => {}
                Err(error) if error.kind() == Kind::OutcomeUnknown => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::unavailable(format!("the manifest of run {run} comes and goes")))
    }

    /// The manifest of a run that has to be there.
    ///
    /// # Errors
    /// `Invalid` where the archive has nothing of the run, and those of [`Archive::manifest`].
    pub fn manifest_there(&self, run: u64) -> Result<Manifest> {
        let nothing = || Error::invalid(format!("{} has nothing of run {run}; `ls` lists its runs", self.place.url()));
        self.manifest(run)?.ok_or_else(nothing)
    }

    fn read_manifest(&self, run: u64) -> Result<Option<(Manifest, Tag)>> {
        let Some((bytes, tag)) = self.place.get(&manifest_of(run), MANIFEST_BYTES_MAX)? else { return Ok(None) };
        Manifest::decode(&bytes, run).map(|manifest| Some((manifest, tag)))
    }

    /// Names a proved object in the manifest of its run: from here on it counts. `false` where the manifest has its events
    /// already, from another mover.
    ///
    /// # Errors
    /// `Unavailable` where the place does not answer, or other movers extend the manifest all the time; `Corrupt`, `Full`.
    pub(crate) fn extend(&self, run: u64, object: &ManifestObject) -> Result<bool> {
        for again in 0..EXTENDS_MAX {
            let gone = || Error::corrupt(format!("the manifest of run {run} is gone"));
            let (mut manifest, tag) = self.read_manifest(run)?.ok_or_else(gone)?;
            if manifest.objects.iter().any(|known| known.name == object.name) {
                return Ok(true);
            }
            // Another mover was here with the same events: its object counts, and this one is dropped.
            if manifest.done_of(&object.store, &object.unit, &object.stream) > object.of_unit.0 {
                return Ok(false);
            }
            manifest.objects.push(object.clone());
            match self.place.put_if(&manifest_of(run), &manifest.encode()?, Condition::Unchanged(&tag)) {
                Ok(Put::Done(_)) => return Ok(true),
                Ok(Put::Refused) => {}
                // What was written is seen by reading it.
                Err(error) if error.kind() == Kind::OutcomeUnknown => {}
                Err(error) => return Err(error),
            }
            std::thread::sleep(Duration::from_millis(
                u64::from(again.min(20)) * 5 + u64::from(rand::random::<u8>()) / 8,
            ));
        }
        Err(Error::unavailable(format!("the manifest of run {run} was changed by others {EXTENDS_MAX} times")))
    }

    fn piece(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        let mut parts = self.place.parts(&[Part { name: name.to_owned(), range }])?;
        parts.pop().ok_or_else(|| Error::internal("a place that answers nothing"))
    }

    /// Head and directory of an object that a manifest names.
    ///
    /// # Errors
    /// `Corrupt` where it is not there, does not verify, or is not what the manifest says; those of the place.
    pub fn object(&self, run: u64, entry: &ManifestObject) -> Result<Object> {
        let object = Object::open(entry.bytes, &|range| self.piece(&entry.name, range))?;
        check_entry(run, entry, &object)?;
        Ok(object)
    }

    /// Reads a whole object and compares all of it with what the manifest and its own checksums say.
    ///
    /// # Errors
    /// `Corrupt` where anything differs, and those of the place.
    pub fn verify(&self, run: u64, entry: &ManifestObject) -> Result<()> {
        let bytes = self.place.read_back(&entry.name, entry.bytes.min(OBJECT_BYTES_MAX))?;
        let bytes = bytes.ok_or_else(|| Error::corrupt("it is not there"))?;
        if bytes.len() as u64 != entry.bytes || adler32(&bytes) != entry.adler32 {
            let (there, said) = (bytes.len(), entry.bytes);
            let what = format!("{there} bytes of checksum {}, not {said} of {}", adler32(&bytes), entry.adler32);
            return Err(Error::corrupt(what));
        }
        let read = |range| piece_of(&bytes, range);
        let object = Object::open(entry.bytes, &read)?;
        check_entry(run, entry, &object)?;
        object.verify(&read).map(|_| ())
    }

    /// Every object of a run's manifest whose directory has this event, newest first, with the event's place there.
    ///
    /// # Errors
    /// Those of [`Archive::object`].
    pub fn find(&self, manifest: &Manifest, primary: &Primary) -> Result<Vec<(ManifestObject, Object, EventPlace)>> {
        let mut found = Vec::new();
        for entry in manifest.objects.iter().rev().filter(|entry| (entry.first..=entry.last).contains(primary)) {
            let object = self.object(manifest.run, entry)?;
            let places: Vec<EventPlace> =
                object.events.iter().filter(|place| place.primary == *primary).cloned().collect();
            found.extend(places.into_iter().map(|place| (entry.clone(), object.clone(), place)));
        }
        Ok(found)
    }

    /// An event with all of its parts; `None` where the archive has nothing of it.
    ///
    /// # Errors
    /// `Corrupt` where any part does not verify, and those of the place.
    pub fn event(&self, manifest: &Manifest, primary: &Primary) -> Result<Option<WholeEvent>> {
        let mut whole: Option<(ArchivedEvent, Attributes)> = None;
        let mut newest: BTreeMap<Source, (crate::Fragment, Bytes)> = BTreeMap::new();
        for (entry, object, place) in self.find(manifest, primary)? {
            let read = |range| self.piece(&entry.name, range);
            let event = object.event(&place, &read)?;
            for fragment in &event.fragments {
                if newest.get(&fragment.source).is_none_or(|(known, _)| known.version < fragment.version) {
                    let payload = object.payload(&event, fragment, &read)?;
                    newest.insert(fragment.source.clone(), (fragment.clone(), payload));
                }
            }
            if whole.is_none() {
                let schema = &object.keyspace.attributes;
                let attributes = match event.attributes.is_empty() {
                    true => Attributes::default(),
                    false => Attributes::unpack(schema, &event.attributes)?,
                };
                whole = Some((event, attributes));
            }
        }
        Ok(whole.map(|(event, attributes)| {
            let (fragments, payloads) = newest.into_values().unzip();
            WholeEvent { event: ArchivedEvent { fragments, ..event }, attributes, payloads }
        }))
    }

    /// What the archive has of a run, each fragment once. Reads every directory and table, no payload.
    ///
    /// # Errors
    /// Those of the manifest; an object that cannot be read is named in the answer.
    pub fn inventory(&self, manifest: &Manifest) -> Result<Inventory> {
        let mut inventory = Inventory::default();
        // Of each fragment its version and its length.
        type Fragments = BTreeMap<Source, (u16, u64)>;
        let mut events: BTreeMap<Primary, (u32, Fragments)> = BTreeMap::new();
        for entry in &manifest.objects {
            let read = |range| self.piece(&entry.name, range);
            let list = || -> Result<Vec<ArchivedEvent>> {
                let object = self.object(manifest.run, entry)?;
                object.events.iter().map(|place| object.event(place, &read)).collect()
            };
            match list() {
                Ok(list) => {
                    for event in list {
                        let known = events.entry(event.primary).or_default();
                        known.0 = event.event_fragments;
                        for fragment in event.fragments {
                            let length = fragment.payload.end - fragment.payload.start;
                            let before = known.1.get(&fragment.source).map(|(version, _)| *version);
                            inventory.repeated += u64::from(before == Some(fragment.version));
                            // Of several versions the highest counts, in whatever order they were archived.
                            if before.is_none_or(|before| before < fragment.version) {
                                known.1.insert(fragment.source, (fragment.version, length));
                            }
                        }
                    }
                }
                Err(error) if error.kind() == Kind::Corrupt || error.kind() == Kind::Invalid => {
                    inventory.faults.push(Fault { name: entry.name.clone(), what: error.message().to_owned() });
                }
                Err(error) => return Err(error),
            }
        }
        for (primary, (expected, fragments)) in events {
            let of_event = (fragments.len() as u64, fragments.values().map(|(_, length)| length).sum());
            inventory.events += 1;
            inventory.partial += u64::from(of_event.0 < u64::from(expected));
            inventory.fragments += of_event.0;
            inventory.payload_bytes += of_event.1;
            inventory.by_event.insert(primary, of_event);
        }
        Ok(inventory)
    }

    /// Names of objects that no manifest names and that are older than this: what killed movers left. What is wrong with manifests: of a
    /// run without a whole one nothing is named here.
    ///
    /// # Errors
    /// Those of the place.
    pub fn unnamed(&self, older: Duration) -> Result<(Vec<String>, Vec<Fault>)> {
        let (mut old, mut faults) = (Vec::new(), Vec::new());
        for run in self.runs()? {
            // Listed first: what is named meanwhile is in the manifest.
            let mut names: BTreeSet<String> = self.objects_of(run)?.into_iter().collect();
            match self.manifest(run) {
                Ok(manifest) => {
                    manifest.unwrap_or_default().objects.iter().for_each(|object| _ = names.remove(&object.name))
                }
                Err(error) => {
                    faults.push(Fault::of_manifest(run, error)?);
                    continue;
                }
            }
            for name in names {
                // Young ones may be named in a moment. Ages are by the clock of the place.
                if self.place.age(&name)?.is_some_and(|age| age >= older) {
                    old.push(name);
                }
            }
        }
        Ok((old, faults))
    }

    /// Makes the manifest of a run from its objects, where there is none, or a damaged one: each that verifies is in it. `told` hears how
    /// many of how many were read. What is wrong with the others.
    ///
    /// # Errors
    /// `Conflict` where the run has a whole manifest, `Invalid` where it has no objects, those of the place.
    pub fn rebuild(&self, run: u64, told: &mut dyn FnMut(u64, u64)) -> Result<(Manifest, Vec<Fault>)> {
        let condition = match self.place.get(&manifest_of(run), MANIFEST_BYTES_MAX)? {
            None => None,
            Some((bytes, tag)) => match Manifest::decode(&bytes, run) {
                Ok(_) => return Err(Error::conflict(format!("run {run} has a manifest, and it verifies"))),
                Err(error) if error.kind() == Kind::Corrupt => Some(tag),
                Err(error) => return Err(error),
            },
        };
        let names = self.objects_of(run)?;
        let (mut manifest, mut faults) = (Manifest { run, ..Manifest::default() }, Vec::new());
        for (at, name) in (0..).zip(&names) {
            told(at, names.len() as u64);
            match self.entry_of(run, name) {
                Ok((entry, keyspace)) => {
                    manifest.keyspace = keyspace;
                    manifest.objects.push(entry);
                }
                Err(error) if matches!(error.kind(), Kind::Corrupt | Kind::Invalid) => {
                    faults.push(Fault { name: name.clone(), what: error.message().to_owned() });
                }
                Err(error) => return Err(error),
            }
        }
        if manifest.objects.is_empty() {
            return Err(Error::invalid(format!("{} has no object of run {run} that verifies", self.place.url())));
        }
        manifest.objects.sort_by_key(|object| object.written_ms);
        let condition = condition.as_ref().map_or(Condition::Absent, Condition::Unchanged);
        match self.place.put_if(&manifest_of(run), &manifest.encode()?, condition)? {
            Put::Done(_) => Ok((manifest, faults)),
            Put::Refused => Err(Error::conflict(format!("the manifest of run {run} was written meanwhile"))),
        }
    }

    /// What a manifest says of an object, and the name of its keyspace, all of it read and compared.
    fn entry_of(&self, run: u64, name: &str) -> Result<(ManifestObject, String)> {
        let bytes = self.place.read_back(name, OBJECT_BYTES_MAX)?.ok_or_else(|| Error::corrupt("it is not there"))?;
        let read = |range| piece_of(&bytes, range);
        let object = Object::open(bytes.len() as u64, &read)?;
        let _ = object.verify(&read)?;
        let (head, events) = (&object.head, &object.events);
        let (Some(first), Some(last)) =
            (events.iter().map(|place| place.primary).min(), events.iter().map(|place| place.primary).max())
        else {
            return Err(Error::corrupt("an object without events"));
        };
        if head.run != run {
            return Err(Error::corrupt(format!("an object of run {}", head.run)));
        }
        let schema = &object.keyspace.attributes;
        let mut lumi: Option<(u64, u64)> = None;
        for place in events {
            let event = object.event(place, &read)?;
            let value = match (schema.index("lumi"), event.attributes.is_empty()) {
                (Some(at), false) => Attributes::unpack(schema, &event.attributes)?.get(at),
                _ => None,
            };
            if let Some(value) = value.and_then(|value| u64::try_from(value).ok()) {
                let (low, high) = lumi.unwrap_or((value, value));
                lumi = Some((low.min(value), high.max(value)));
            }
        }
        let entry = ManifestObject {
            name: name.to_owned(),
            bytes: bytes.len() as u64,
            adler32: adler32(&bytes),
            md5: None,
            stream: head.stream.clone(),
            contents: object.contents,
            first,
            last,
            lumi,
            store: head.store.clone(),
            unit: head.unit.clone(),
            // Where it ends in its unit is not known any more: a unit that is not proved yet is archived again.
            of_unit: (head.of_unit.0, head.of_unit.0),
            written_ms: head.written_ms,
        };
        Ok((entry, object.keyspace.name))
    }

    /// The name of a new object.
    pub(crate) fn name_for(run: u64, stream: &str, what: &str) -> String {
        let plain = |byte: char| if byte.is_ascii_alphanumeric() || byte == '-' { byte } else { '_' };
        let stream: String = stream.chars().take(64).map(plain).collect();
        format!("{}{stream}-{what}-{:016x}{OBJECT_ENDING}", folder_of(run), rand::random::<u64>())
    }
}

/// The run of the object or the manifest with this name.
fn run_of(name: &str) -> Option<u64> {
    let (folder, name) = name.split_once('/')?;
    let is_ours = name == "manifest" || name.ends_with(OBJECT_ENDING);
    folder.strip_prefix("run-")?.parse().ok().filter(|_| is_ours)
}

/// What a place lists. One that may not be listed, such as a bucket without an index, says nothing; one that does not answer is an error.
pub(crate) fn listed<T: Default>(list: Result<T>) -> Result<T> {
    match list {
        Err(error) if error.kind() == Kind::Invalid => Ok(T::default()),
        list => list,
    }
}

/// How names of objects end.
const OBJECT_ENDING: &str = ".fba";

/// Adler-32 as data management systems write it.
fn adler32(bytes: &[u8]) -> String {
    format!("{:08x}", simd_adler32::adler32(&bytes))
}

fn check_entry(run: u64, entry: &ManifestObject, object: &Object) -> Result<()> {
    if object.head.run == run && object.head.stream == entry.stream && object.contents == entry.contents {
        return Ok(());
    }
    let (head, contents) = (&object.head, &object.contents);
    Err(Error::corrupt(format!(
        "it says run {}, stream `{}`, {contents:?}; the manifest says run {run}, stream `{}`, {:?}",
        head.run, head.stream, entry.stream, entry.contents
    )))
}
