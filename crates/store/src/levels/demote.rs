//! Down: events are written to containers, and once that is durable their slots say so and their hot space is free.
//!
//! ```text
//! plan (pinned) ─▶ append ─▶ commit asked for ─▶ … next batch … ─▶ durable ─▶ swap under the event's lock ─▶ end, unpin
//! ```
//!
//! *Invariants*: a slot is swapped only where it says what was planned; what changed meanwhile stays, and the written copy
//! counts as dead. Nothing waits for a device under a lock.
//!
//! *On failure*: everything that is not durable stays where it was, and is planned again; the device's container is given
//! up by its writer.

use super::plan::KIND;
use crate::engine::Engine;
use crate::events::{Flag, State, Word};
use crate::placement::{At, Demoter, Level, Moving, Open, Written, at};
use crate::shards::Shard;
use forebay_core::mutants::is_planted;
use forebay_core::{Kind, LiveState, Order, Primary, Result};
use forebay_media::bytes::{Entry, ExtentKind, ImageRecord, ImageState};
use forebay_media::hot::Location;
use forebay_media::warm::{EntryDraft, ImageDraft, Placed, Target};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;

/// Payload bytes of one batch, and of all that are not durable yet.
pub(super) const BATCH_BYTES: u64 = 16 << 20;
const IN_FLIGHT_BYTES_MAX: u64 = 64 << 20;
/// Writers that a demoter keeps open for targets that it met last.
const WRITERS_MAX: usize = 4;

impl Engine {
    /// Moves what has to go down; with `finish` until all of it is durable. Answers whether there was anything.
    pub(crate) fn demote(&self, demoter: &mut Demoter, finish: bool) -> bool {
        let Some(level) = &self.placement.level else { return false };
        // What became durable first: it frees what the next batch may need.
        self.settle_durable(level, demoter, IN_FLIGHT_BYTES_MAX);
        if level.is_refused(self.timer().now()) {
            return demoter.in_flight > 0;
        }
        let batch = self.next_to_demote(level, BATCH_BYTES);
        let any = !batch.is_empty() || demoter.in_flight > 0;
        self.write_batch(level, demoter, batch, ExtentKind::Demoted, false);
        self.settle_durable(level, demoter, if finish || !any { 0 } else { IN_FLIGHT_BYTES_MAX });
        any
    }

    /// Writes planned events, target by target; those that are `rescued` also into the last free container. `false` where some
    /// found no place, or a device refused them: they stay where they are.
    pub(crate) fn write_batch(
        &self,
        level: &Level,
        demoter: &mut Demoter,
        batch: Vec<Moving>,
        kind: ExtentKind,
        rescued: bool,
    ) -> bool {
        let mut by_target: Vec<(Target, Vec<Moving>)> = Vec::new();
        for mut moving in batch {
            if let Err(error) = self.read_parts(&mut moving) {
                level.note(format!(
                    "{}: stays where it is: {error}",
                    self.keyspace.schema.text(moving.primary.as_bytes())
                ));
                self.stay(moving, false, &[]);
                continue;
            }
            let (run, stream) = (moving.run, moving.stream);
            let target = Target { run, stream, kind: KIND, device: None, moving: rescued };
            // A container has one run and stream, so that it can be drained and reclaimed as a whole.
            match by_target.iter_mut().find(|known| known.0 == target) {
                Some(known) => known.1.push(moving),
                None => by_target.push((target, vec![moving])),
            }
        }
        let mut taken = true;
        for (target, moving) in by_target {
            taken &= self.write_to(level, demoter, target, moving, kind);
        }
        taken
    }

    fn write_to(
        &self,
        level: &Level,
        demoter: &mut Demoter,
        target: Target,
        mut batch: Vec<Moving>,
        kind: ExtentKind,
    ) -> bool {
        if level.is_refused(self.timer().now()) && !target.moving {
            batch.into_iter().for_each(|moving| self.stay(moving, true, &[]));
            return false;
        }
        let at = match self.open_writer(level, demoter, &target) {
            Ok(at) => at,
            Err(error) => {
                if error.kind() != Kind::Full {
                    level.note(error.to_string());
                }
                // Asked again after a pause: planning events costs their locks, and a full level stays full for a while.
                level.refuse(self.timer().now());
                batch.into_iter().for_each(|moving| self.stay(moving, true, &[]));
                return false;
            }
        };
        let most = level.image_bytes_max;
        let mut plans = Vec::new();
        // Which event and which of its parts each image has.
        let mut of: Vec<(usize, usize, usize)> = Vec::new();
        for (number, moving) in batch.iter().enumerate() {
            // One image where it fits: then the event comes back with one read.
            let mut begin = 0;
            while begin < moving.parts.len() {
                let (mut end, mut bytes) = (begin, 0);
                while end < moving.parts.len() && (end == begin || bytes < most) {
                    bytes += u64::from(moving.parts[end].entry.length) + level.entry_bytes_max;
                    if end > begin && bytes > most {
                        break;
                    }
                    end += 1;
                }
                plans.push(self.image_plan(moving, begin, end));
                of.push((number, begin, end));
                begin = end;
            }
        }
        let bytes: u64 = batch.iter().map(|moving| moving.bytes).sum();
        let open = &mut demoter.open[at];
        let mut placed = Vec::new();
        // A commit for all of them: one sync covers a batch, and the next batch is read meanwhile.
        let ticket = open.writer.append(&plans, kind).and_then(|all| {
            placed = all;
            open.writer.commit()
        });
        drop(plans);
        match ticket {
            Ok(ticket) => {
                debug_assert_eq!(placed.len(), of.len(), "each planned image has a place, or a reason why not");
                debug_assert!(
                    open.pending.back().is_none_or(|last| last.0 <= ticket),
                    "commits become durable in the order in which they are asked for"
                );
                let mut written: Vec<Written> =
                    batch.into_iter().map(|moving| Written { moving, places: Vec::new() }).collect();
                // What was read from elsewhere is in the writer's buffers.
                written.iter_mut().flat_map(|written| &mut written.moving.parts).for_each(|part| part.image = None);
                for ((number, begin, end), placed) in of.into_iter().zip(placed) {
                    written[number].places.push((begin, end, placed));
                }
                open.pending.push_back((ticket, bytes, written));
                demoter.in_flight += bytes;
                true
            }
            // Nothing of it was written. What fits goes, and what it was in becomes free: as a whole it might never fit.
            Err(error) if error.kind() == Kind::Full => {
                if batch.len() == 1 {
                    level.refuse(self.timer().now());
                    batch.into_iter().for_each(|moving| self.stay(moving, true, &[]));
                    return false;
                }
                let rest = batch.split_off(batch.len() / 2);
                let taken = self.write_to(level, demoter, target, batch, kind);
                self.write_to(level, demoter, target, rest, kind) && taken
            }
            Err(error) => {
                level.note(error.to_string());
                for ((_, begin, end), placed) in of.into_iter().zip(placed) {
                    if let Placed::At(place) = placed {
                        level.warm.ended(place, (end - begin) as u32);
                    }
                }
                // Some of it may have been written before.
                let doubted: Vec<u32> = level.present().collect();
                for moving in batch {
                    self.doubt_marks(&moving.primary);
                    self.stay(moving, true, &doubted);
                }
                self.give_up_writer(level, demoter, at);
                false
            }
        }
    }

    fn image_plan<'a>(&'a self, moving: &'a Moving, begin: usize, end: usize) -> ImageDraft<'a> {
        let schema = &self.keyspace.schema;
        let entries = moving.parts[begin..end].iter().map(|part| {
            let entry = &part.entry;
            let payload = match &part.image {
                Some(image) => image.payload_at(part.from.index()).unwrap_or_default(),
                None => {
                    let offset = self.placement.hot.payload_offset(part.from.segment, entry.offset);
                    self.placement.hot.region.bytes(offset, entry.length as usize)
                }
            };
            EntryDraft {
                rest: &entry.key.as_bytes()[schema.primary_bytes()..],
                payload,
                crc: entry.payload_crc,
                status: entry.status,
                version: entry.version,
                flags: entry.flags,
            }
        });
        let record = moving.record.as_ref().filter(|_| begin == 0);
        let record =
            record.map(|record| ImageRecord { status: record.status, version: record.version, bytes: &record.bytes });
        ImageDraft { primary: moving.primary.as_bytes(), marks: moving.marks, entries: entries.collect(), record }
    }

    fn open_writer(&self, level: &Level, demoter: &mut Demoter, target: &Target) -> Result<usize> {
        if let Some(at) = demoter.open.iter().position(|open| open.target == *target) {
            return Ok(at);
        }
        if demoter.open.len() >= WRITERS_MAX {
            // The one that was opened first makes room, once all of it is durable.
            self.settle_writer(level, demoter, 0, true);
            if demoter.open.len() >= WRITERS_MAX {
                // With a writer go its tickets: what they were for would stay pinned until the store closes.
                debug_assert!(
                    demoter.open[0].pending.is_empty(),
                    "a writer is given back when nothing of it is under way"
                );
                demoter.open.remove(0);
            }
        }
        let writer = level.warm.writer(target)?;
        demoter.open.push(Open { target: *target, writer, pending: VecDeque::new() });
        Ok(demoter.open.len() - 1)
    }

    /// Carries out what has become durable; waits until no more than `most` bytes are under way.
    pub(crate) fn settle_durable(&self, level: &Level, demoter: &mut Demoter, most: u64) {
        let mut at = 0;
        while at < demoter.open.len() {
            let before = demoter.open.len();
            // Where nothing may be under way that includes what has no bytes: events of empty fragments.
            let wait = demoter.in_flight > most || most == 0;
            self.settle_writer(level, demoter, at, wait);
            if demoter.open.len() == before {
                at += 1;
            }
        }
    }

    fn settle_writer(&self, level: &Level, demoter: &mut Demoter, at: usize, wait: bool) {
        // No lock of a cell is held: this waits for a device.
        let open = &mut demoter.open[at];
        let Some(last) = open.pending.back().map(|pending| pending.0) else { return };
        let durable = if wait { open.writer.wait(last, level.deadline()).map(|()| last) } else { open.writer.poll() };
        // Of a writer that failed, what was durable before counts all the same.
        let (durable, failed) = match durable {
            Ok(durable) => (durable, None),
            Err(error) if is_planted("moved-undurable") => (last, Some(error)),
            Err(error) => (open.writer.durable(), Some(error)),
        };
        let mut settled = Vec::new();
        while open.pending.front().is_some_and(|pending| pending.0 <= durable) {
            let Some((_, bytes, written)) = open.pending.pop_front() else { break };
            demoter.in_flight -= bytes;
            settled.extend(written);
        }
        self.carry_out(level, settled);
        if let Some(error) = failed {
            level.note(error.to_string());
            self.give_up_writer(level, demoter, at);
        }
    }

    fn give_up_writer(&self, level: &Level, demoter: &mut Demoter, at: usize) {
        let mut open = demoter.open.remove(at);
        // What became durable all the same is carried out, the rest is written again elsewhere.
        let durable = open.writer.settle(level.deadline());
        while open.pending.front().is_some_and(|pending| pending.0 <= durable) {
            let Some((_, bytes, written)) = open.pending.pop_front() else { break };
            demoter.in_flight -= bytes;
            self.carry_out(level, written);
        }
        for (_, bytes, written) in open.pending {
            demoter.in_flight -= bytes;
            written.into_iter().for_each(|written| self.disown(level, written));
        }
    }

    /// Images are durable: they count once their devices know what was decided before.
    fn carry_out(&self, level: &Level, written: Vec<Written>) {
        self.locks.assert_free();
        // Images before their decisions would bring a rejected event back after a loss of the hot level.
        let mut needs: BTreeMap<u32, u64> = BTreeMap::new();
        for written in &written {
            for device in written.devices(level) {
                let needed = needs.entry(device).or_default();
                *needed = written.moving.needs.max(*needed);
            }
        }
        let deadline = level.deadline();
        let ignorant: Vec<u32> = needs
            .into_iter()
            .filter_map(|(device, needed)| {
                let error = level.log.wait(device, needed, deadline).err()?;
                level.note(error.to_string());
                Some(device)
            })
            .collect();
        for written in written {
            if written.devices(level).any(|device| ignorant.contains(&device)) {
                level.refuse(self.timer().now());
                self.disown(level, written);
            } else {
                self.swap(level, written);
            }
        }
    }

    /// What was written will not count: the event stays where it is.
    fn disown(&self, level: &Level, written: Written) {
        // It is whole on its device, and an opening without the hot level would take it: decisions go there as well.
        let doubted: Vec<u32> = written.devices(level).collect();
        let Written { moving, places } = written;
        for (begin, end, placed) in places {
            if let Placed::At(place) = placed {
                level.warm.ended(place, (end - begin) as u32);
            }
        }
        self.doubt_marks(&moving.primary);
        self.stay(moving, true, &doubted);
    }

    /// The event goes nowhere: its pins are let go; with `again` it is planned again later.
    /// On the `doubted` devices an image of it may be found all the same.
    fn stay(&self, moving: Moving, again: bool, doubted: &[u32]) {
        let mut shard = self.shards.cell_of(moving.primary.as_bytes()).lock();
        shard.places.arrives(moving.primary.as_bytes(), doubted);
        if let Some(event) = shard.events.find(moving.primary.as_bytes()) {
            debug_assert!(shard.events.slab.at(event, At::Moving), "an event stays that was to move");
            shard.events.slab.clear_at(event, At::Moving);
            let decided = matches!(shard.events[event].state, State::Live(LiveState::Accepted | LiveState::Debug));
            if again && decided {
                shard.places.to_demote.push_back(moving.primary);
            }
            // That it is ready was to be said by its image alone.
            self.mark_event(&mut shard, event);
        }
        drop(shard);
        moving.parts.iter().for_each(|part| self.unpin(part.from));
    }

    /// An image that nobody was told of may be found all the same: what the log says of marks is later.
    fn doubt_marks(&self, primary: &Primary) {
        let mut shard = self.shards.cell_of(primary.as_bytes()).lock();
        if let Some(event) = shard.events.find(primary.as_bytes()) {
            shard.events.slab.set_at(event, At::MarksLogged);
        }
    }

    /// What was written is durable: the event's slots say so, unless they changed meanwhile.
    fn swap(&self, level: &Level, written: Written) {
        let Written { moving, places } = written;
        let cell = self.shards.cell_of(moving.primary.as_bytes());
        let mut ended: Vec<(Location, u32)> = Vec::new();
        // One hold for all slots: a reader finds the event on one level or the other, never a part that ends in between.
        let mut shard = cell.lock();
        let event = shard.events.find(moving.primary.as_bytes()).filter(|_| !shard.closed);
        let event = event.filter(|&event| shard.events.slab.at(event, At::Moving));
        if let Some(event) = event
            && !self.log_marks_beyond(&mut shard, event, &moving)
        {
            drop(shard);
            // The log has no room for the marks that the image lacks: the event stays on the hot level and is planned again.
            self.disown(level, Written { moving, places });
            return;
        }
        // In the same hold as the swap: a decision that comes next finds the event on its device.
        shard.places.arrives(moving.primary.as_bytes(), &[]);
        let (mut down, mut missed) = (0, Vec::new());
        for (begin, end, placed) in &places {
            let place = match placed {
                Placed::At(place) => *place,
                Placed::Rotten(which) => {
                    for &part in which {
                        let key = moving.parts[begin + part].entry.key;
                        level.note(format!(
                            "{}: its bytes do not match their checksum; it stays where it is",
                            self.keyspace.schema.text(key.as_bytes())
                        ));
                    }
                    continue;
                }
                Placed::TooLarge => {
                    let name = self.keyspace.schema.text(moving.primary.as_bytes());
                    level.note(format!("{name}: a fragment of it is too large for a container; it stays where it is"));
                    continue;
                }
            };
            let mut lost = 0;
            for (index, part) in moving.parts[*begin..*end].iter().enumerate() {
                let rest = self.keyspace.schema.rest_of(&part.entry.key);
                let found = event.and_then(|event| shard.events.slot(event, rest).ok().map(|found| (event, found)));
                let found = found.filter(|(_, (_, word))| self.is_of_version(*word, part.from, &part.entry));
                match found {
                    Some((event, (slot, word))) => {
                        // The record at the old place is ended: it must not be the new one.
                        debug_assert_ne!(word.location(), at(place, index as u32), "an image has a place of its own");
                        shard.events.set_word(event, slot, word.carried_to(at(place, index as u32)));
                        shard.superseded_is_told(event, &part.entry.key, part.entry.version);
                        ended.push((word.location(), part.entry.length));
                        down += u64::from(part.entry.length);
                    }
                    // Removed, updated or ended on its way: this copy is dead where it was written.
                    None => lost += 1,
                }
            }
            if lost > 0 {
                missed.push(level.warm.device_of(place.container));
                level.warm.ended(place, lost);
            }
        }
        if let Some(event) = event {
            self.stands_warm(level, &mut shard, event, &moving, &places, &mut ended);
            let settled = shard.events.slab.at(event, At::SettledThere) && shard.events[event].is(Flag::Far);
            let decided = matches!(shard.events[event].state, State::Live(LiveState::Accepted | LiveState::Debug));
            if !missed.is_empty() {
                // The image of what changed during the move is on the device: an opening without the hot level may find it.
                shard.sets_out(event);
                shard.places.arrives(moving.primary.as_bytes(), &missed);
            }
            if !missed.is_empty() && decided && !settled {
                // Something of it changed on its way: it goes once more.
                self.queue_demotion(&mut shard, event);
            }
            cell.publish_ready(&shard);
        }
        drop(shard);
        // Ended after the swap, outside of the lock: until here a reader of the old place was right.
        level.demoted_bytes.fetch_add(down, Ordering::Relaxed);
        level.demoted_events.fetch_add(u64::from(event.is_some()), Ordering::Relaxed);
        for (location, length) in ended {
            self.end_record(location, length);
        }
        self.placement.hot.region.fence();
        moving.parts.iter().for_each(|part| self.unpin(part.from));
    }

    /// Whether the version that was read from `from` is what a slot says, wherever it was evacuated to meanwhile.
    pub(super) fn is_of_version(&self, word: Word, from: Location, entry: &Entry) -> bool {
        if !word.is_present() || word.is_busy() {
            return false;
        }
        // Evacuation moves a record without changing it: version and checksum say that it is the same one.
        let location = word.location();
        let same = |found: Entry| (found.version, found.payload_crc) == (entry.version, entry.payload_crc);
        location == from
            || !location.is_warm() && !from.is_warm() && self.placement.hot.read_entry(location).is_some_and(same)
    }

    /// Puts marks that the event's image lacks into the log before the records that carry them are freed; `false` if there
    /// is no room for them.
    fn log_marks_beyond(&self, shard: &mut Shard, event: u32, moving: &Moving) -> bool {
        let now = self.image_marks(shard, event);
        let leaf = &shard.events[event];
        let whole = moving.parts.len() == shard.fragments(event, |_| true).count() && leaf.pending == 0;
        let said = whole && now == moving.marks && !shard.events.slab.at(event, At::MarksLogged);
        said || self.log_marks(shard, event)
    }

    /// What follows from the move for the event: its flags, its list, its marks, its copies.
    fn stands_warm(
        &self,
        level: &Level,
        shard: &mut Shard,
        event: u32,
        moving: &Moving,
        places: &[(usize, usize, Placed)],
        ended: &mut Vec<(Location, u32)>,
    ) {
        shard.events.slab.clear_at(event, At::Moving);
        // Elsewhere than where the archive found it.
        shard.leave_custody(event);
        let landed = |placed: &Placed| if let Placed::At(place) = placed { Some(*place) } else { None };
        if !places.iter().any(|(_, _, placed)| landed(placed).is_some()) {
            return;
        }
        // The event's record travels with its first image.
        let first = places.first().and_then(|(_, _, placed)| landed(placed));
        if let (Some(record), Some(place)) = (&moving.record, first)
            && let Some(word) = shard.events.attribute_word(event)
            && self.record_version(shard, event, word) == Some(record.version)
        {
            // The record keeps its container like a fragment.
            ended.push((word.location(), record.bytes.len() as u32));
            level.warm.adopt(place, 1);
            shard.events.set_attribute_word(event, Word::of(at(place, 0)));
            shard.places.warm_records.insert(event, record.clone());
        }
        self.becomes_warm(shard, event);
        let all = shard.fragments(event, |_| true).all(|(_, location)| location.is_warm());
        let all =
            all && shard.events.attribute_word(event).is_none_or(Word::is_warm) && shard.events[event].pending == 0;
        let now = self.image_marks(shard, event);
        if all {
            // Kept apart while the hot level goes first.
            let waits = shard.events[event].state == State::Live(LiveState::Ready)
                && !shard.events[event].is(Flag::Held)
                && !shard.events[event].is(Flag::ListedFar)
                && self.keyspace.delivery.order == Order::HotFirst;
            if waits {
                shard.events.unlist_ready(event);
            }
            // Nothing of it is hot: its decision uses the space of decisions, and its reserve goes to new events.
            if !shard.events[event].is(Flag::Far) {
                let before = self.placement.hot.events.fetch_sub(1, Ordering::Relaxed);
                debug_assert!(before > 0, "an event on the hot level reserves a slot");
            }
            shard.events[event].set(Flag::Far);
            if waits {
                shard.events.list_ready(event);
            }
            // Copies were for the loss of the hot level: now the images themselves are there.
            let copies = shard.places.copies.remove(&event).unwrap_or_default();
            ended.extend(
                copies.iter().flat_map(|&(location, count)| std::iter::repeat_n((location, 0), count as usize)),
            );
        }
        // Where only a part of it moved, images of the rest may say less.
        let whole = shard.events.slab.at(event, At::SettledThere)
            || moving.parts.len() == shard.fragments(event, |_| true).count();
        if now.state != ImageState::Undecided && now == moving.marks && all && whole {
            shard.events.slab.set_at(event, At::SettledThere);
        } else if now.state != moving.marks.state && now.state != ImageState::Undecided {
            // Decided on its way: it goes on to where such events go.
            self.queue_demotion(shard, event);
        }
        if !all && !shard.events.slab.at(event, At::MarksLogged) {
            self.log_marks(shard, event);
        }
    }

    /// Some of the event is on a device from now on: decisions about it are copied there.
    pub(crate) fn becomes_warm(&self, shard: &mut Shard, event: u32) {
        shard.events.slab.set_at(event, At::Warm);
    }
}
