//! What stands on the warm level: every image of every container goes to its event, from directories and, in containers
//! that were being filled, from the images themselves. Payloads are not read.
//!
//! *Invariants*: decisions dominate images as they do records, but a superseded version lives where only the hot level had
//! the one after it, and that is lost; of several copies of one version the hot one is used, else the one that was written
//! last; the others count as copies or as dead.

use super::Version;
use super::records::{Records, supersede, version_in};
use crate::RunState;
use crate::decisions::mark_parts;
use crate::events::{Flag, State, Word};
use crate::placement::at;
use crate::placement::place_of;
use crate::placement::{At, WarmRecord};
use forebay_core::{Key, Result, Tally};
use forebay_media::bytes::{EntryFlags, Image, ImageMarks, ImageState, Mark, StateWord};
use forebay_media::hot::Location;
use forebay_media::warm::{Found, ImagePlace, Warm};
use std::cmp::Ordering;

impl Records<'_> {
    /// Adopts the images of all containers. `figures_kept`: the figures of sources have those fragments already.
    pub(super) fn images(&mut self, warm: &Warm, found: &mut Found, figures_kept: bool) -> Result<()> {
        warm.images(found, &mut |place, image| self.image(warm, place, image, figures_kept))
    }

    fn image(&mut self, warm: &Warm, place: ImagePlace, image: &Image<'_>, figures_kept: bool) -> Result<()> {
        let engine = self.engine;
        let schema = &engine.keyspace.schema;
        let primary = image.primary;
        let number = schema.run_of(primary);
        let index = engine.shards.shard_of(primary);
        let shard = &mut *self.shards[index];
        let Some(run) = shard.events.run_index(number) else {
            return self.lost(format!(
                "container {} position {}: run {number} was never opened",
                place.container, place.position
            ));
        };
        let of_run = &shard.events.runs[run as usize];
        let kept = image.head.marks.state != ImageState::Undecided
            || self.decided.accepted.contains(primary)
            || self.decided.debug.contains(primary);
        let over = of_run.state == RunState::Closed && !kept;
        if over || of_run.decided.contains(engine.shards.decided_form, primary) {
            return Ok(());
        }
        let known = shard.events.find(primary);
        let (mut live, mut copies, mut for_later) = (0, 0, 0);
        // Whether anything of the event is to be found here and nowhere else.
        let mut brings = known.is_none();
        // Versions whose updates were cut off before their records.
        let mut lower: Vec<(Version, Key, u16)> = Vec::new();
        let named = |rest: &[u8]| Key::from_packed(&[primary, rest].concat());
        let ended = |location: Location| _ = warm.ended(place_of(location), 1);
        let lacks_devices = engine.lacks_devices();
        let mut event = known;
        for (number, (entry, _)) in image.table().enumerate() {
            let removed = || self.decided.removed.contains_key(&[primary, entry.rest].concat());
            if !self.decided.removed.is_empty() && removed() {
                continue;
            }
            if !self.decided.superseded.is_empty() || !shard.places.superseded.is_empty() {
                let key = named(entry.rest);
                let ended = [self.decided.superseded.get(key.as_bytes()), shard.places.superseded.get(&key)];
                if ended.iter().flatten().any(|ended| ended.version >= entry.version) {
                    let kept_back = ended.iter().flatten().any(|ended| ended.on_hot_only);
                    let standing = event.and_then(|event| shard.events.slot(event, entry.rest).ok());
                    match standing {
                        Some((_, word)) if !word.is_warm() => {
                            // With the hot level lost it is the only one.
                            copies += u32::from(kept_back);
                            continue;
                        }
                        Some(_) if version_in(&self.versions, &key) >= entry.version => continue,
                        _ if !kept_back => continue,
                        // The version that replaced it is lost, or a later image has it, or a device that is not there.
                        _ if lacks_devices => {
                            for_later += 1;
                            continue;
                        }
                        _ => {}
                    }
                }
            }
            let event = *event.get_or_insert_with(|| {
                let event = shard.events.create(primary, run, self.now_ns);
                shard.events.slab.set_at(event, At::Warm);
                shard.events[event].set(Flag::Far);
                event
            });
            if !entry.flags.is_fragment() {
                continue;
            }
            let late = entry.flags.0 & EntryFlags::LATE.0 != 0;
            let result = entry.flags.0 & EntryFlags::RESULT.0 != 0;
            let here = Word::of(at(place, number as u32)).of_fragment(late, entry.length);
            let here = if result { here.of_result() } else { here };
            match shard.events.slot(event, entry.rest) {
                Err(_) if !shard.events.has_room(event) => {}
                Err(slot) => {
                    shard.insert_slot(event, slot, entry.rest, here);
                    brings = true;
                    if entry.version > 0 {
                        self.versions.insert(named(entry.rest), entry.version);
                    }
                    shard.events.runs[run as usize].ledger.offered += Tally::fragment(u64::from(entry.length));
                    if result {
                        shard.events.add_result(event, (primary, entry.rest), entry.length);
                    } else {
                        shard.events.arrived(event, (primary, entry.rest), entry.length);
                    }
                    if figures_kept {
                        shard.events.runs[run as usize].sources.take_back(entry.rest, entry.length);
                    }
                    live += 1;
                }
                Ok((slot, word)) if word.is_warm() => {
                    // Written again since: by a move, or by a demotion after it was persisted.
                    let before = word.location();
                    let version = version_in(&self.versions, &named(entry.rest));
                    // A container that was begun later may have the copy that was written earlier: the image that says
                    // what was decided must stay.
                    let weaker =
                        shard.events.slab.at(event, At::SettledThere) && image.head.marks.state != ImageState::Accepted;
                    match version.cmp(&entry.version) {
                        Ordering::Greater => {
                            let cut = Version { location: here.location(), length: entry.length, on_hot_only: false };
                            lower.push((cut, named(entry.rest), entry.version));
                            live += 1;
                            continue;
                        }
                        Ordering::Equal if weaker => continue,
                        Ordering::Equal => ended(before),
                        Ordering::Less => {
                            self.versions.insert(named(entry.rest), entry.version);
                            match engine.level_entry(before) {
                                Ok(standing) => {
                                    shard.events.change_length(event, standing.length, entry.length);
                                    let said = self.decided.superseded.get(&[primary, entry.rest].concat());
                                    if said.is_some_and(|ended| ended.version >= version) {
                                        // It was taken for the last one until this one was found.
                                        ended(before);
                                    } else {
                                        let length = standing.length;
                                        let cut = Version { location: before, length, on_hot_only: false };
                                        lower.push((cut, named(entry.rest), version));
                                    }
                                }
                                Err(_) => ended(before),
                            }
                        }
                    }
                    shard.events.set_word(event, slot, here);
                    brings = true;
                    live += 1;
                }
                Ok((slot, word)) => {
                    let Some(standing) = engine.placement.hot.read_entry(word.location()) else { continue };
                    if standing.version == entry.version {
                        shard.events.set_word(event, slot, word.persisted());
                        copies += 1;
                    } else if standing.version > entry.version {
                        let cut = Version { location: here.location(), length: entry.length, on_hot_only: true };
                        lower.push((cut, named(entry.rest), entry.version));
                        copies += 1;
                    }
                }
            }
        }
        if for_later > 0 {
            warm.adopt(place, for_later);
        }
        let Some(event) = event else { return Ok(()) };
        for (cut, key, version) in lower {
            // Another copy of it is found to be superseded from now on.
            shard.note_superseded(event, key, version);
            if cut.on_hot_only {
                shard.places.keep_superseded_back(&key);
            }
            supersede(&mut self.replaced, &mut shard.events.runs[run as usize].ledger, cut);
        }
        if copies > 0 {
            shard.places.copies.entry(event).or_default().push((at(place, 0), copies));
        }
        let weaker = shard.events.slab.at(event, At::SettledThere) && image.head.marks.state != ImageState::Accepted;
        let record = image.record.as_ref().filter(|record| {
            let older = |standing: &WarmRecord| {
                standing.version < record.version || !weaker && standing.version == record.version
            };
            shard.events.attribute_word(event).is_none_or(Word::is_warm)
                && shard.places.warm_records.get(&event).is_none_or(older)
        });
        if live + copies == 0 && record.is_none() {
            return Ok(());
        }
        warm.adopt(place, live + copies + u32::from(record.is_some()));
        if known.is_some() {
            engine.becomes_warm(shard, event);
        }
        let marks = image.head.marks;
        match marks.state {
            // Final: it says more than any other image of the event.
            ImageState::Accepted => {
                shard.events.lists.reasons.remove(&event);
                let elsewhere = |location: Location| !location.is_warm() || place_of(location) != place;
                let partly = shard.fragments(event, |_| true).any(|(_, location)| elsewhere(location));
                if partly && !shard.events.slab.at(event, At::SettledThere) {
                    self.mixed.insert((index, event));
                }
                shard.events.slab.set_at(event, At::SettledThere);
                let leaf = &mut shard.events[event];
                leaf.set_output(marks.detail);
                leaf.set_progress(0, 0);
                leaf.clear(Flag::Complete);
                leaf.clear(Flag::LacksMasked);
                leaf.adopt_marks(word_of(marks));
            }
            _ if shard.events.slab.at(event, At::SettledThere) && !shard.events.lists.reasons.contains_key(&event) => {
                if brings {
                    self.mixed.insert((index, event));
                }
            }
            ImageState::Debug => {
                // Whether it stands there now the logs say; without the hot level's log the image is believed, unless
                // something later is known.
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
            // Its fragments stand on the hot level, and with them what was marked since; or it was never swapped in.
            ImageState::Undecided if !brings => self.doubted.push((index, event, marks)),
            ImageState::Undecided => shard.events[event].adopt_marks(word_of(marks)),
        }
        if let Some(record) = record {
            if let Some(before) = shard.events.attribute_word(event) {
                ended(before.location());
            }
            let bytes = record.bytes.into();
            shard
                .places
                .warm_records
                .insert(event, WarmRecord { status: record.status, version: record.version, bytes });
            shard.events.set_attribute_word(event, Word::of(at(place, 0)));
        }
        Ok(())
    }

    /// Marks that were logged are later than those of images; versions that ended stay so. Before lists are made.
    pub(super) fn settle_images(&mut self) {
        let engine = self.engine;
        let schema = &engine.keyspace.schema;
        let (shards, decided) = (&mut self.shards, self.decided);
        decided.marks.each(|primary, mark| {
            let (stage, detail) = mark_parts(mark);
            let shard = &mut *shards[engine.shards.shard_of(primary)];
            // Also of one that nothing on the warm level belongs to any more: its records on the hot one do not have them.
            let Some(event) = shard.events.find(primary) else { return };
            if shard.events.slab.at(event, At::Warm) {
                shard.events.slab.set_at(event, At::MarksLogged);
            }
            let leaf = &mut shard.events[event];
            leaf.set_progress(stage, detail as u8);
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

    /// Where an event's image says that it stands, once it is counted: decisions that came later have their turn after.
    pub(super) fn adopt_image_state(&mut self, at: usize, event: u32) {
        let shard = &mut *self.shards[at];
        let leaf = &shard.events[event];
        if !shard.events.slab.at(event, At::Warm) || !matches!(leaf.state, State::Live(_)) {
            return;
        }
        if let Some(&reason) = shard.events.lists.reasons.get(&event) {
            shard.events.move_to(event, forebay_core::LiveState::Debug);
            shard.events.lists.reasons.insert(event, reason);
            self.engine.queue_again(shard, event);
        } else if shard.events.slab.at(event, At::SettledThere) {
            let detail = leaf.output();
            shard.events.move_to(event, forebay_core::LiveState::Accepted);
            shard.events[event].set_output(detail);
            if self.mixed.contains(&(at, event)) {
                // Images of the rest say less: the log keeps the decision until the event has gone there whole.
                shard.events.slab.clear_at(event, At::SettledThere);
            }
            self.engine.queue_again(shard, event);
        }
    }
}

/// What an image says of its event, as it would stand beside a fragment.
fn word_of(marks: ImageMarks) -> StateWord {
    let ImageMarks { stage, deliveries, ready, masked, .. } = marks;
    StateWord { mark: Mark::Live, stage, deliveries, ready, masked }
}
