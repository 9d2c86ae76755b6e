//! What the warm level has: every image of every container goes to its event, from directories and, in containers
//! that were being filled, from the images themselves. Payloads are not read.
//!
//! ```text
//! image ─▶ may it count? ─▶ each entry: ended | first find | warm copy is there | hot record is there
//!       ─▶ versions that were cut off ─▶ what it says of its event ─▶ its event record
//! ```
//!
//! *Invariants*: decisions dominate images as they do records, but a superseded version lives where only the hot level had
//! the one after it, and that is lost; of several copies of one version the hot one is used, else the one that was written
//! last; the others count as copies or as dead. No entry of an image counts twice in its container (`Arriving::check`).

use super::Version;
use super::records::{Records, supersede, version_in};
use crate::RunState;
use crate::decisions::mark_parts;
use crate::events::{Flag, State, Word};
use crate::placement::at;
use crate::placement::place_of;
use crate::placement::{At, WarmRecord};
use crate::shards::Shard;
use forebay_core::{Key, LiveState, Result, Tally};
use forebay_media::bytes::{EntryFlags, EntryMeta, Image, ImageMarks, ImageRecord, ImageState, Mark, StateWord};
use forebay_media::hot::Location;
use forebay_media::warm::{Found, ImagePlace, Warm};
use std::cmp::Ordering;

/// An image on its way to its event.
struct Arriving<'i> {
    warm: &'i Warm,
    place: ImagePlace,
    image: &'i Image<'i>,
    /// The figures of sources have its fragments already.
    figures_kept: bool,
    /// Its shard, and its run in there.
    shard: usize,
    run: u16,
    /// Its event, once anything of it is known.
    event: Option<u32>,
    /// The event was known before this image.
    known: bool,
    /// Whether anything of the event is to be found here and nowhere else.
    brings: bool,
    /// Entries that the index names from now on.
    live: u32,
    /// Entries that stay beside a record of the hot level.
    copies: u32,
    /// Entries that may be needed once a missing device is back.
    for_later: u32,
    /// Versions whose updates were cut off before their records.
    lower: Vec<(Version, Key, u16)>,
}

/// The record of an image of which nothing else counts, while its event is not known.
pub(super) struct Alone {
    place: ImagePlace,
    primary: Vec<u8>,
    marks: ImageMarks,
    record: WarmRecord,
}

impl Arriving<'_> {
    fn key_of(&self, rest: &[u8]) -> Key {
        Key::from_packed(&[self.image.primary, rest].concat())
    }

    /// A fragment of some image does not count any more.
    fn ended(&self, location: Location) {
        _ = self.warm.ended(place_of(location), 1);
    }

    /// Another image says what was decided about the event, and this one does not.
    fn is_weaker(&self, shard: &Shard, event: u32) -> bool {
        shard.events.slab.at(event, At::SettledThere) && self.image.head.marks.state != ImageState::Accepted
    }

    /// What holds once all its entries were looked at, regardless of what the medium said.
    fn check(&self) {
        let counted = (self.live + self.copies + self.for_later) as usize;
        debug_assert!(counted <= self.image.table().len(), "an entry keeps its container at most once");
        debug_assert!(
            self.lower.len() <= (self.live + self.copies) as usize,
            "a lower version is live until it is ended"
        );
        debug_assert!(self.known || self.copies == 0, "a copy has a record, which was there before");
        debug_assert!(self.event.is_some() || self.live + self.copies == 0, "what counts has an event");
    }
}

/// A fragment of an arriving image.
#[derive(Clone, Copy)]
struct Fragment<'i> {
    event: u32,
    entry: EntryMeta<'i>,
    /// The word of a slot that names it.
    here: Word,
}

impl<'i> Fragment<'i> {
    fn new(event: u32, entry: EntryMeta<'i>, location: Location) -> Fragment<'i> {
        let late = entry.flags.0 & EntryFlags::LATE.0 != 0;
        let here = Word::of(location).of_fragment(late, entry.length);
        let result = entry.flags.0 & EntryFlags::RESULT.0 != 0;
        Fragment { event, entry, here: if result { here.of_result() } else { here } }
    }
}

impl Records<'_> {
    /// Adopts the images of all containers. `figures_kept`: the figures of sources have those fragments already.
    pub(super) fn images(&mut self, warm: &Warm, found: &mut Found, figures_kept: bool) -> Result<()> {
        warm.images(found, &mut |place, image| self.image(warm, place, image, figures_kept))?;
        self.adopt_alone(warm);
        Ok(())
    }

    /// Records whose images have nothing else any more, of events that were found after them.
    fn adopt_alone(&mut self, warm: &Warm) {
        for Alone { place, primary, marks, record } in std::mem::take(&mut self.alone) {
            let index = self.engine.shards.shard_of(&primary);
            let shard = &mut *self.shards[index];
            let Some(event) = shard.events.find(&primary) else { continue };
            let before = shard.events.attribute_word(event);
            let known = shard.places.warm_records.get(&event);
            // As everywhere: one on the hot level is the last one, and of two in images the higher version is.
            if before.is_some_and(|word| !word.is_warm()) || known.is_some_and(|known| known.version >= record.version)
            {
                continue;
            }
            if let Some(before) = before {
                _ = warm.ended(place_of(before.location()), 1);
            }
            warm.adopt(place, 1);
            shard.places.warm_records.insert(event, record);
            shard.events.set_attribute_word(event, Word::of(at(place, 0)));
            self.engine.becomes_warm(shard, event);
            // Nothing of it is there any more but this: what it says beside its record may be older than what others say.
            if marks.state == ImageState::Undecided {
                self.doubted.push((index, event, marks));
            }
        }
    }

    fn image(&mut self, warm: &Warm, place: ImagePlace, image: &Image<'_>, figures_kept: bool) -> Result<()> {
        let Some(mut arriving) = self.arriving(warm, place, image, figures_kept)? else { return Ok(()) };
        for (number, (entry, _)) in image.table().enumerate() {
            if self.has_ended(&mut arriving, &entry) {
                continue;
            }
            let event = self.event_of(&mut arriving);
            // Slots are for what completeness and readers look for: fragments.
            if !entry.flags.is_fragment() {
                continue;
            }
            let fragment = Fragment::new(event, entry, at(place, number as u32));
            let shard = &self.shards[arriving.shard];
            match shard.events.slot(event, entry.rest) {
                // No store writes that much of one event: what corrupt images claim must not take the table beyond its limit.
                Err(_) if !shard.events.has_room(event) => {}
                Err(slot) => self.first_find(&mut arriving, &fragment, slot),
                Ok((slot, word)) if word.is_warm() => self.warm_copy(&mut arriving, &fragment, slot, word.location()),
                Ok((slot, word)) => self.hot_record(&mut arriving, &fragment, slot, word),
            }
        }
        arriving.check();
        if arriving.for_later > 0 {
            // No slot names them, so nothing but this count keeps their container from being used again.
            warm.adopt(place, arriving.for_later);
        }
        let Some(event) = arriving.event else {
            // All that it had of fragments has ended, its record perhaps not: the event may be in an image that is read later.
            if let Some(&ImageRecord { status, version, bytes }) = image.record.as_ref() {
                let (primary, marks) = (image.primary.to_vec(), image.head.marks);
                self.alone.push(Alone {
                    place,
                    primary,
                    marks,
                    record: WarmRecord { status, version, bytes: bytes.into() },
                });
            }
            return Ok(());
        };
        self.cut_off(&mut arriving, event);
        let record = self.newer_record(&arriving, event);
        if arriving.live + arriving.copies == 0 && record.is_none() {
            // Nothing will name it: it is waste in its container, and what it says of its event is as old as that.
            return Ok(());
        }
        warm.adopt(place, arriving.live + arriving.copies + u32::from(record.is_some()));
        if arriving.known {
            // Its records on the hot level were found first, and do not say that decisions about it go to devices too.
            self.engine.becomes_warm(self.shards[arriving.shard], event);
        }
        self.image_marks(&arriving, event);
        if let Some(record) = record {
            self.adopt_record(&arriving, event, record);
        }
        Ok(())
    }

    /// May this image count at all: `None` where a decision covers its event whole.
    fn arriving<'i>(
        &self,
        warm: &'i Warm,
        place: ImagePlace,
        image: &'i Image<'i>,
        figures_kept: bool,
    ) -> Result<Option<Arriving<'i>>> {
        let engine = self.engine;
        let primary = image.primary;
        let number = engine.keyspace.schema.run_of(primary);
        let index = engine.shards.shard_of(primary);
        let shard = &*self.shards[index];
        let Some(run) = shard.events.run_index(number) else {
            self.lost(format!(
                "container {} position {}: run {number} was never opened",
                place.container, place.position
            ))?;
            return Ok(None);
        };
        let of_run = &shard.events.runs[run as usize];
        debug_assert!(
            of_run.run == number && shard.events.recovering,
            "an image is adopted before the shard is settled"
        );
        // A closed run has no undecided events any more: that this one is kept the image says, or the log.
        let kept = image.head.marks.state != ImageState::Undecided
            || self.decided.accepted.contains(primary)
            || self.decided.debug.contains(primary);
        let over = of_run.state == RunState::Closed && !kept;
        if over || of_run.decided.contains(engine.shards.decided_form, primary) {
            return Ok(None);
        }
        let event = shard.events.find(primary);
        Ok(Some(Arriving {
            warm,
            place,
            image,
            figures_kept,
            shard: index,
            run,
            event,
            known: event.is_some(),
            brings: event.is_none(),
            live: 0,
            copies: 0,
            for_later: 0,
            lower: Vec::new(),
        }))
    }

    /// Whether an entry does not go to its event: its key was removed, or its version is superseded and not the last one
    /// that is left.
    fn has_ended(&self, arriving: &mut Arriving<'_>, entry: &EntryMeta<'_>) -> bool {
        let shard = &*self.shards[arriving.shard];
        // Asked for each fragment of the store: the key is only put together where there is something to compare it with.
        let removed = || self.decided.removed.contains_key(&[arriving.image.primary, entry.rest].concat());
        if !self.decided.removed.is_empty() && removed() {
            return true;
        }
        if self.decided.superseded.is_empty() && shard.places.superseded.is_empty() {
            return false;
        }
        let key = arriving.key_of(entry.rest);
        // What the log says, and what was seen of records and images whose updates were cut off before the log had them.
        let ended = [self.decided.superseded.get(key.as_bytes()), shard.places.superseded.get(&key)];
        if !ended.iter().flatten().any(|ended| ended.version >= entry.version) {
            return false;
        }
        let kept_back = ended.iter().flatten().any(|ended| ended.on_hot_only);
        let standing = arriving.event.and_then(|event| shard.events.slot(event, entry.rest).ok());
        match standing {
            Some((_, word)) if !word.is_warm() => {
                // With the hot level lost it is the only one.
                arriving.copies += u32::from(kept_back);
                true
            }
            Some(_) if version_in(&self.versions, &key) >= entry.version => true,
            _ if !kept_back => true,
            // The version that replaced it is lost, or a later image has it, or a device that is not there.
            _ if self.engine.lacks_devices() => {
                arriving.for_later += 1;
                true
            }
            // Fewer bytes than were acknowledged last, but the last ones that any medium has.
            _ => false,
        }
    }

    /// The event of an image of which something counts.
    fn event_of(&mut self, arriving: &mut Arriving<'_>) -> u32 {
        if let Some(event) = arriving.event {
            return event;
        }
        debug_assert!(arriving.brings, "the first that is found of an event is found nowhere else");
        let shard = &mut *self.shards[arriving.shard];
        let event = shard.events.create(arriving.image.primary, arriving.run, self.now_ns);
        shard.events.slab.set_at(event, At::Warm);
        // Nothing of it is on the hot level: it reserves no slot of the log there.
        shard.events[event].set(Flag::Far);
        arriving.event = Some(event);
        event
    }

    /// No other copy was found so far: the event has one fragment more.
    fn first_find(&mut self, arriving: &mut Arriving<'_>, fragment: &Fragment<'_>, slot: usize) {
        let shard = &mut *self.shards[arriving.shard];
        let (event, entry, primary) = (fragment.event, &fragment.entry, arriving.image.primary);
        shard.insert_slot(event, slot, entry.rest, fragment.here);
        debug_assert!(shard.events.slot(event, entry.rest) == Ok((slot, fragment.here)), "slots are sorted");
        arriving.brings = true;
        // An image that is read later may have another version, and a slot does not say which one it names.
        if entry.version > 0 {
            self.versions.insert(arriving.key_of(entry.rest), entry.version);
        }
        let run = arriving.run as usize;
        shard.events.runs[run].ledger.offered += Tally::fragment(u64::from(entry.length));
        if fragment.here.is_result() {
            shard.events.add_result(event, (primary, entry.rest), entry.length);
        } else {
            shard.events.arrived(event, (primary, entry.rest), entry.length);
        }
        if arriving.figures_kept {
            // The line above counted it a second time.
            shard.events.runs[run].sources.take_back(entry.rest, entry.length);
        }
        arriving.live += 1;
    }

    /// A warm copy is there already: one of the two was written again, by a move, or by a demotion after it was persisted.
    fn warm_copy(&mut self, arriving: &mut Arriving<'_>, fragment: &Fragment<'_>, slot: usize, before: Location) {
        let shard = &mut *self.shards[arriving.shard];
        let (event, entry) = (fragment.event, &fragment.entry);
        let version = version_in(&self.versions, &arriving.key_of(entry.rest));
        // A container that was begun later may have the copy that was written earlier: the image that says what was
        // decided must stay.
        let weaker = arriving.is_weaker(shard, event);
        match version.cmp(&entry.version) {
            Ordering::Greater => {
                // It is live until the end of recovery has logged that it is superseded: a crash before finds both again.
                let cut = Version { location: fragment.here.location(), length: entry.length, on_hot_only: false };
                arriving.lower.push((cut, arriving.key_of(entry.rest), entry.version));
                arriving.live += 1;
                return;
            }
            Ordering::Equal if weaker => return,
            Ordering::Equal => arriving.ended(before),
            Ordering::Less => self.replace_version(arriving, fragment, before, version),
        }
        self.shards[arriving.shard].events.set_word(event, slot, fragment.here);
        arriving.brings = true;
        arriving.live += 1;
    }

    /// The warm copy that is there has a lower version than this image.
    fn replace_version(
        &mut self,
        arriving: &mut Arriving<'_>,
        fragment: &Fragment<'_>,
        before: Location,
        version: u16,
    ) {
        let shard = &mut *self.shards[arriving.shard];
        let (event, entry) = (fragment.event, &fragment.entry);
        debug_assert!(version < entry.version, "the highest version wins");
        self.versions.insert(arriving.key_of(entry.rest), entry.version);
        // Its length is in its image, whose container may be on another device: read again, since updates that were cut
        // off are few.
        match self.engine.level_entry(before) {
            Ok(standing) => {
                shard.events.change_length(event, standing.length, entry.length);
                let said = self.decided.superseded.get(&[arriving.image.primary, entry.rest].concat());
                if said.is_some_and(|ended| ended.version >= version) {
                    // It was taken for the last one until this one was found.
                    arriving.ended(before);
                } else {
                    let cut = Version { location: before, length: standing.length, on_hot_only: false };
                    arriving.lower.push((cut, arriving.key_of(entry.rest), version));
                }
            }
            Err(_) => arriving.ended(before),
        }
    }

    /// A record of the hot level is there. Updates take effect there first (0016), so no image is ahead of it; and reading
    /// it asks no device, so that it stays the one that is used.
    fn hot_record(&mut self, arriving: &mut Arriving<'_>, fragment: &Fragment<'_>, slot: usize, word: Word) {
        let shard = &mut *self.shards[arriving.shard];
        let entry = &fragment.entry;
        debug_assert!(word.is_present() && !word.is_busy(), "nothing is in flight while the store is opened");
        let Some(standing) = self.engine.placement.hot.read_entry(word.location()) else { return };
        if standing.version == entry.version {
            shard.events.set_word(fragment.event, slot, word.persisted());
            arriving.copies += 1;
        } else if standing.version > entry.version {
            // The update took effect on the hot level and nowhere else: with that level lost this version is the last.
            let cut = Version { location: fragment.here.location(), length: entry.length, on_hot_only: true };
            arriving.lower.push((cut, arriving.key_of(entry.rest), entry.version));
            arriving.copies += 1;
        }
    }

    /// Versions whose updates were cut off before their records, and copies: known from now on.
    fn cut_off(&mut self, arriving: &mut Arriving<'_>, event: u32) {
        let shard = &mut *self.shards[arriving.shard];
        for (cut, key, version) in std::mem::take(&mut arriving.lower) {
            debug_assert!(cut.location.is_warm(), "an image has no versions elsewhere");
            // Another copy of it is found to be superseded from now on.
            shard.note_superseded(event, key, version);
            debug_assert!(shard.places.superseded.get(&key).is_some_and(|known| known.version >= version));
            if cut.on_hot_only {
                shard.places.keep_superseded_back(&key);
            }
            supersede(&mut self.replaced, &mut shard.events.runs[arriving.run as usize].ledger, cut);
        }
        if arriving.copies > 0 {
            shard.places.copies.entry(event).or_default().push((at(arriving.place, 0), arriving.copies));
        }
    }

    /// The image's event record, where no other is as late. One on the hot level always is: an attribute changes there.
    fn newer_record<'i>(&self, arriving: &Arriving<'i>, event: u32) -> Option<&'i ImageRecord<'i>> {
        let shard = &*self.shards[arriving.shard];
        let weaker = arriving.is_weaker(shard, event);
        arriving.image.record.as_ref().filter(|record| {
            let older = |standing: &WarmRecord| {
                standing.version < record.version || !weaker && standing.version == record.version
            };
            shard.events.attribute_word(event).is_none_or(Word::is_warm)
                && shard.places.warm_records.get(&event).is_none_or(older)
        })
    }

    /// What the image says of its event.
    fn image_marks(&mut self, arriving: &Arriving<'_>, event: u32) {
        let index = arriving.shard;
        let shard = &mut *self.shards[index];
        let marks = arriving.image.head.marks;
        debug_assert!(shard.events.slab.at(event, At::Warm), "decisions about it must reach the device of this image");
        match marks.state {
            ImageState::Accepted => self.accepted_there(arriving, event),
            _ if shard.events.slab.at(event, At::SettledThere) && !shard.events.lists.reasons.contains_key(&event) => {
                if arriving.brings {
                    self.mixed.insert((index, event));
                }
            }
            ImageState::Debug => self.debug_there(arriving, event),
            // Its fragments are on the hot level, and with them what was marked since; or it was never swapped in.
            ImageState::Undecided if !arriving.brings => self.doubted.push((index, event, marks)),
            ImageState::Undecided => shard.events[event].adopt_marks(word_of(marks)),
        }
    }

    /// An image says that its event is accepted. That is final: it says more than any other image of the event.
    fn accepted_there(&mut self, arriving: &Arriving<'_>, event: u32) {
        let shard = &mut *self.shards[arriving.shard];
        let marks = arriving.image.head.marks;
        shard.events.lists.reasons.remove(&event);
        let elsewhere = |location: Location| !location.is_warm() || place_of(location) != arriving.place;
        let partly = shard.fragments(event, |_| true).any(|(_, location)| elsewhere(location));
        // While the rest is in images that say less, only the log tells all of them what was decided. Where another image
        // said so first, that was looked at then.
        if partly && !shard.events.slab.at(event, At::SettledThere) {
            self.mixed.insert((arriving.shard, event));
        }
        shard.events.slab.set_at(event, At::SettledThere);
        let first = shard.events.first_stage(event);
        let leaf = &mut shard.events[event];
        leaf.set_output(marks.detail);
        // What earlier images or records said of stages and masks is replaced, not joined: the verdict came after it.
        leaf.set_progress(first, 0);
        leaf.clear(Flag::Complete);
        leaf.clear(Flag::LacksMasked);
        leaf.adopt_marks(word_of(marks));
    }

    /// An image says that its event is in the debug stream. That is not final: a replay takes it out again, and the image
    /// stays as it was written.
    fn debug_there(&mut self, arriving: &Arriving<'_>, event: u32) {
        let shard = &mut *self.shards[arriving.shard];
        let (primary, marks) = (arriving.image.primary, arriving.image.head.marks);
        // Whether it is there now the logs say; without the hot level's log the image is believed, unless something later
        // is known.
        let replayed = self.decided.replayed.contains(primary);
        let believed = self.hot_lost && !replayed || self.decided.debug.contains(primary);
        let unmarked = !self.decided.marks.contains(primary);
        // What it failed before its replay is forgiven.
        let forgiven = ImageMarks { deliveries: 0, ready: true, ..marks };
        shard.events[event].adopt_marks(word_of(if believed { marks } else { forgiven }));
        if believed && unmarked {
            shard.events.lists.reasons.insert(event, marks.detail as u8);
            shard.events.slab.set_at(event, At::SettledThere);
        }
    }

    /// The image's event record is the one that counts.
    fn adopt_record(&mut self, arriving: &Arriving<'_>, event: u32, record: &ImageRecord<'_>) {
        let shard = &mut *self.shards[arriving.shard];
        if let Some(before) = shard.events.attribute_word(event) {
            debug_assert!(before.is_warm(), "a record on the hot level is never replaced by one of an image");
            arriving.ended(before.location());
        }
        // Kept in memory: rules and ranks of events are asked for under their lock, which no device is waited for under.
        let bytes = record.bytes.into();
        shard.places.warm_records.insert(event, WarmRecord { status: record.status, version: record.version, bytes });
        shard.events.set_attribute_word(event, Word::of(at(arriving.place, 0)));
    }

    /// Marks that were logged are later than those of images; versions that ended stay so. Before lists are made.
    pub(super) fn settle_images(&mut self) {
        let engine = self.engine;
        let schema = &engine.keyspace.schema;
        let (shards, decided) = (&mut self.shards, self.decided);
        // While an event is warm its marks go to the log alone (`EventSlab::is_logged`): nothing that was found is later.
        decided.marks.each(|primary, mark| {
            let (stage, detail) = mark_parts(mark);
            let shard = &mut *shards[engine.shards.shard_of(primary)];
            // Also of one that nothing on the warm level belongs to any more: its records on the hot one do not have them.
            let Some(event) = shard.events.find(primary) else { return };
            if shard.events.slab.at(event, At::Warm) {
                shard.events.slab.set_at(event, At::MarksLogged);
            }
            let first = shard.events.first_stage(event);
            let leaf = &mut shard.events[event];
            leaf.set_progress(stage.max(first), detail as u8);
            if detail & 1 << 8 != 0 {
                leaf.mark_ready();
            }
            // An image or a record may say that masks complete it; since then it has another rule.
            for flag in [Flag::Complete, Flag::LacksMasked] {
                leaf.clear(flag);
                if detail & 1 << 9 != 0 {
                    leaf.set(flag);
                }
            }
        });
        for (index, event, marks) in std::mem::take(&mut self.doubted) {
            let shard = &mut *self.shards[index];
            debug_assert!(
                shard.events[event].state == State::Live(LiveState::Open),
                "no list is made before the marks"
            );
            let leaf = &mut shard.events[event];
            let more = (marks.stage, marks.deliveries) > (leaf.stage(), leaf.deliveries())
                || marks.masked && !leaf.is(Flag::LacksMasked);
            // Later it may be the only image: the log says from now on that it is wrong.
            if more && shard.events.slab.at(event, At::Warm) {
                shard.events.slab.set_at(event, At::MarksLogged);
            }
        }
        for (key, &ended) in &self.decided.superseded {
            let key = Key::from_packed(key);
            let primary = schema.primary_of(&key);
            let shard = &mut *self.shards[engine.shards.shard_of(primary.as_bytes())];
            // Also where the version after it went with the hot level: an image of this one may be found in another life.
            if let Some(event) = shard.events.find(primary.as_bytes()) {
                shard.note_superseded(event, key, ended.version);
                if ended.on_hot_only {
                    shard.places.keep_superseded_back(&key);
                }
            } else if let Some(run) = shard.events.run_index(schema.run_of(primary.as_bytes()))
                && let known = &shard.events.runs[run as usize]
                && !known.is_over()
                && !known.decided.contains(engine.shards.decided_form, primary.as_bytes())
            {
                shard.places.superseded.insert(key, ended);
            }
        }
    }

    /// Where an event's image says that it is, once it is counted: decisions that came later have their turn after.
    pub(super) fn adopt_image_state(&mut self, at: usize, event: u32) {
        let shard = &mut *self.shards[at];
        let leaf = &shard.events[event];
        if !shard.events.slab.at(event, At::Warm) || !matches!(leaf.state, State::Live(_)) {
            return;
        }
        debug_assert!(leaf.present > 0, "an event of which nothing is left goes nowhere");
        // `settle_decided` comes after this, and moves the event where the log says.
        if let Some(&reason) = shard.events.lists.reasons.get(&event) {
            debug_assert!(
                !self.mixed.contains(&(at, event)),
                "mixed events are accepted, and the debug stream has others"
            );
            shard.events.move_to(event, LiveState::Debug);
            shard.events.lists.reasons.insert(event, reason);
            self.engine.queue_again(shard, event);
        } else if shard.events.slab.at(event, At::SettledThere) {
            let detail = leaf.output();
            shard.events.move_to(event, LiveState::Accepted);
            shard.events[event].set_output(detail);
            if self.mixed.contains(&(at, event)) {
                // Images of the rest say less: the log keeps the decision until the event has gone there whole.
                shard.events.slab.clear_at(event, At::SettledThere);
            }
            self.engine.queue_again(shard, event);
        }
    }
}

/// What an image says of its event, as the word beside a fragment would say it.
fn word_of(marks: ImageMarks) -> StateWord {
    let ImageMarks { stage, deliveries, ready, masked, .. } = marks;
    StateWord { mark: Mark::Live, stage, deliveries, ready, masked }
}
