//! Calls about events and fragments: at their homes.

use super::ClusterClient;
use super::nodes::{BESIDE_BYTES, Placed, may_be_elsewhere};
use crate::client::Client;
use crate::elsewhere::{Asked, AtHolder};
use crate::fragment::{Event, Fragment};
use crate::put::{NO_WAIT, Reservation, too_few};
use crate::retry::Limit;
use forebay_core::mutants::is_planted;
use forebay_core::{
    Attributes, Bounds, Elsewhere, Error, EventInfo, Key, Kind, Level, OpenEvent, Primary, PutOptions, PutOutcome,
    Released, Report, Result, Source, Sources, Token, Why, crc32c,
};
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Fragments from which on their homes are told beside each other.
const BESIDE_FRAGMENTS: usize = 128;

/// Most sources of an event that are asked for before its home has said that they are there.
const LIKELY_MAX: usize = 256;
/// Events that are read without asking ahead after one of which most was not there.
const NOT_AHEAD: usize = 64;

/// What is read from one holder.
struct Part {
    holder: u16,
    /// Where there is one already.
    client: Option<Client>,
    keys: Vec<Key>,
    places: Vec<usize>,
}

macro_rules! at_home {
    ($($(#[$doc:meta])* $name:ident($first:ident: $of:ty $(, $argument:ident: $type:ty)*) -> $answer:ty;)*) => {
        /// Calls about one event.
        impl ClusterClient {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// As the client's method of the same name; `Unavailable` where the event's home does not answer.
                pub fn $name(&self, $first: $of $(, $argument: $type)*) -> Result<$answer> {
                    self.at_home(self.name_of($first), |client| client.$name($first $(, $argument)*))
                }
            )*
        }
    };
}

/// What names an event.
trait Names {
    fn primary_bytes(&self, bytes: usize) -> &[u8];
}

impl Names for Key {
    fn primary_bytes(&self, bytes: usize) -> &[u8] {
        &self.as_bytes()[..bytes.min(self.as_bytes().len())]
    }
}

impl Names for Primary {
    fn primary_bytes(&self, _: usize) -> &[u8] {
        self.as_bytes()
    }
}

at_home! {
    /// The fragment of a key; `None` if there is none.
    get(key: &Key) -> Option<Fragment>;
    /// A new version of a fragment.
    update(key: &Key, value: &[u8], token: Option<&Token>) -> u16;
    /// Removes a fragment.
    remove(key: &Key) -> bool;
    /// Why the fragment of a key is, or is not, there.
    why(key: &Key) -> Why;
    /// A live event with the fragments of the given sources.
    get_event(primary: &Primary, sources: &Sources) -> Option<Event>;
    /// Sets attributes of an event.
    update_attributes(primary: &Primary, attributes: &Attributes, token: Option<&Token>) -> ();
    /// Removes an event.
    remove_event(primary: &Primary) -> bool;
    /// Announces an event.
    open_event(primary: &Primary, how: &OpenEvent<'_>) -> PutOutcome;
    /// An event waits for no more fragments.
    seal(primary: &Primary) -> bool;
    /// The archive has an event.
    release(primary: &Primary) -> bool;
    /// An event of the debug stream is given out again.
    replay(primary: &Primary) -> bool;
    /// Where an accepted event goes, stream by stream.
    outputs(primary: &Primary) -> Option<Vec<(String, Sources)>>;
}

/// A put as it went by the map that the client had.
struct Tried<'a> {
    put: (Key, &'a [u8], PutOptions<'a>),
    /// The node that got the bytes, and the home.
    route: (u16, u16),
    /// The first of them took the bytes.
    was_taken: bool,
    /// Of the map by which that node answered, or the home that refused it, or of a later one.
    epoch: u32,
    answer: Result<PutOutcome>,
}

/// A holder has the bytes of a put, and the home does not take its word for it.
fn held_only((holder, home): (u16, u16), error: Error) -> Error {
    // Not what the home does not take now, such as while it closes: the holder tells it again.
    let kind = if is_final(&error) { error.kind() } else { Kind::OutcomeUnknown };
    let what =
        format!("node {holder} has the bytes, and their home, node {home}, does not take them: {}", error.message());
    Error::new(kind, what).with_source(error)
}

/// Whether this ends a put, wherever its bytes are.
fn is_final(error: &Error) -> bool {
    matches!(error.kind(), Kind::Conflict | Kind::Invalid)
}

impl ClusterClient {
    fn name_of<'a>(&self, name: &'a impl Names) -> &'a [u8] {
        name.primary_bytes(self.schema().primary_bytes())
    }

    /// Puts a fragment. Where a look-up table gives its bytes to another node than its home, they go there first, and then its home
    /// is told: the answer is the home's.
    ///
    /// # Errors
    /// As [`crate::Client::put`]; `Unavailable` where the fragment's node does not answer; `OutcomeUnknown` where the home of
    /// bytes that another node has taken does not: that node tells it.
    pub fn put(&self, key: &Key, value: &[u8], options: &PutOptions<'_>) -> Result<PutOutcome> {
        let placed = self.placed();
        if !placed.keyspace.tables().is_empty() {
            return self.put_many(&[(*key, value, *options)])?.pop().ok_or_else(too_few)?;
        }
        let time = self.time_of_put(options.deadline.unwrap_or_default());
        let (home, limit) = (placed.home(self.schema(), self.name_of(key)), self.inner.nodes.half_from(time.0, time.1));
        let mut epoch = 0;
        let answer = self.inner.nodes.node_within(home, limit).and_then(|client| {
            let before = client.pool().epoch();
            let answer = client.put(key, value, options);
            epoch = if answer.is_err() { before } else { client.pool().epoch() };
            answer
        });
        if answer.as_ref().is_ok_and(|outcome| epoch <= placed.map.epoch() || outcome.is_late()) {
            return answer;
        }
        let tried =
            Tried { put: (*key, value, *options), route: (home, home), was_taken: answer.is_ok(), epoch, answer };
        self.by_later_map(time, limit, &placed, vec![tried]).pop().ok_or_else(too_few)?
    }

    /// Memory of the client for a fragment.
    ///
    /// # Errors
    /// As [`crate::Client::reserve`].
    pub fn reserve(&self, key: &Key, length: usize, options: &PutOptions<'_>) -> Result<Reservation> {
        let cluster = self.clone();
        let put = move |key: &Key, value: &[u8], options: &PutOptions<'_>| cluster.put(key, value, options);
        Ok(self.node(self.placed().route(self.schema(), key).0)?.reserve(key, length, options)?.by(Box::new(put)))
    }

    /// Puts many fragments, with one request to each of their nodes; outcomes in the same order.
    ///
    /// # Errors
    /// None for the call: those of single fragments are in their outcomes, as of [`ClusterClient::put`].
    pub fn put_many(&self, puts: &[(Key, &[u8], PutOptions<'_>)]) -> Result<Vec<Result<PutOutcome>>> {
        let wait = puts.iter().filter_map(|(_, _, options)| options.deadline).max().unwrap_or_default();
        Ok(self.put_many_in(self.time_of_put(wait), puts))
    }

    /// When a put began that begins now, and when it must be over.
    fn time_of_put(&self, wait: Duration) -> (Instant, Instant) {
        let now = self.inner.nodes.now();
        (now, self.begin_at(now, wait))
    }

    fn put_many_in(&self, time: (Instant, Instant), puts: &[(Key, &[u8], PutOptions<'_>)]) -> Vec<Result<PutOutcome>> {
        let took = || self.inner.nodes.now().saturating_duration_since(time.0);
        let (placed, limit) = (self.placed(), self.inner.nodes.half(time.1));
        let routes = placed.routes(self.schema(), puts.iter().map(|put| &put.0));
        let bytes: usize = puts.iter().map(|put| put.1.len()).sum();
        let to_holder = |at: usize| -> (Key, &[u8], PutOptions<'_>) {
            let (key, value, options) = puts[at];
            let report = if routes[at].0 != routes[at].1 { Report::Later } else { options.report };
            (key, value, PutOptions { report, ..options })
        };
        // Of what goes to a holder its home is told the checksum as well; reckoned frame by frame, as it is sent.
        let apart = |at: usize| routes[at].0 != routes[at].1;
        let checksums: Vec<OnceLock<u32>> = puts.iter().map(|_| OnceLock::new()).collect();
        let mut outcomes: Vec<Option<Result<PutOutcome>>> = puts.iter().map(|_| None).collect();
        let mut epochs = vec![0; puts.len()];
        let all = (0..puts.len()).map(|at| (at, routes[at].0));
        let checksum = |at: usize| apart(at).then(|| *checksums[at].get_or_init(|| crc32c(puts[at].1)));
        self.put_parts(time.1, all, bytes >= BESIDE_BYTES, to_holder, checksum, |at, outcome, epoch| {
            (outcomes[at], epochs[at]) = (Some(outcome), epoch);
        });
        let was_taken: Vec<bool> =
            outcomes.iter().map(|outcome| matches!(outcome, Some(Ok(outcome)) if !outcome.is_late())).collect();
        // What a holder has, its home is told: eight bytes of each.
        let told: Vec<(usize, [u8; Elsewhere::BYTES])> = (0..puts.len())
            .filter(|&at| was_taken[at])
            // A holder takes no longer ones.
            .filter_map(|at| {
                Some((at, Elsewhere { length: puts[at].1.len() as u32, checksum: *checksums[at].get()? }.to_bytes()))
            })
            .collect();
        if !told.is_empty() {
            let to_home = |place: usize| -> (Key, &[u8], PutOptions<'_>) {
                let (at, ref away) = told[place];
                let options = PutOptions { level: Some(Level::Elsewhere), ..puts[at].2 };
                (puts[at].0, away, options)
            };
            let homes = told.iter().enumerate().map(|(place, (at, _))| (place, routes[*at].1));
            self.put_parts(
                time.1,
                homes,
                told.len() >= BESIDE_FRAGMENTS,
                to_home,
                |_| None,
                |place, of_home, epoch| {
                    let (at, _) = told[place];
                    epochs[at] = if of_home.is_err() { epoch } else { epochs[at] };
                    outcomes[at] = Some(match (&outcomes[at], of_home) {
                        (Some(Ok(held)), Ok(of_home)) => Ok(held.with_home(of_home, took())),
                        (_, of_home) => of_home,
                    });
                },
            );
        }
        let outcomes = outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(|| Err(too_few())));
        let outcomes: Vec<_> = outcomes.collect();
        let tried = |(at, answer)| Tried {
            put: puts[at],
            route: routes[at],
            was_taken: was_taken[at],
            epoch: epochs[at],
            answer,
        };
        let is_over = |(answer, epoch): (&Result<PutOutcome>, &u32)| answer.is_ok() && *epoch <= placed.map.epoch();
        match outcomes.iter().zip(&epochs).all(is_over) {
            true => outcomes,
            false => self.by_later_map(time, limit, &placed, outcomes.into_iter().enumerate().map(tried).collect()),
        }
    }

    /// What was put by a map, and may have another place by a later one, goes there: what a node has refused or not answered, and what
    /// one took as the home of its event that goes by a later map, by which it may be no more than the holder. What was not taken goes to
    /// the same node again while there is time.
    fn by_later_map(
        &self,
        time: (Instant, Instant),
        limit: Limit,
        placed: &Placed,
        tried: Vec<Tried<'_>>,
    ) -> Vec<Result<PutOutcome>> {
        let since = placed.map.epoch();
        let is_doubtful = |one: &Tried<'_>| {
            one.answer.is_ok()
                && one.was_taken
                && one.route.0 == one.route.1
                && one.epoch > since
                && !is_planted("holder-is-home")
        };
        let is_left = |one: &Tried<'_>| one.answer.as_ref().is_err_and(may_be_elsewhere);
        let epoch = tried.iter().filter(|one| is_doubtful(one)).map(|one| one.epoch).max();
        let knows = epoch.is_none_or(|epoch| self.inner.nodes.learn(epoch - 1, time.1));
        let has_later =
            tried.iter().any(is_left) && self.inner.nodes.learn(since, time.1) || self.inner.nodes.epoch() > since;
        let later = self.placed();
        // The node that refuses it goes by an earlier map than this client.
        let is_behind = |one: &Tried<'_>| {
            one.answer.as_ref().is_err_and(|error| error.kind() == Kind::Fenced) && one.epoch < later.map.epoch()
        };
        let waits = tried.iter().any(is_behind) && self.inner.nodes.let_catch_up(time.0, time.1);
        let now = self.inner.nodes.now();
        let goes_again = |one: &Tried<'_>| {
            let may_have_moved = has_later && (is_doubtful(one) || is_left(one));
            may_have_moved && later.route(self.schema(), &one.put.0) != one.route
                || one.answer.as_ref().is_err_and(|error| limit.leaves_time(now, error))
                || waits && is_behind(one)
        };
        let again: Vec<_> = tried.iter().filter(|one| goes_again(one)).map(|one| one.put).collect();
        let mut by_later = if again.is_empty() { Vec::new() } else { self.put_many_in(time, &again) }.into_iter();
        let outcome = |one: Tried<'_>| {
            if let Err(error) = &one.answer {
                self.inner.nodes.ended_with(error);
            }
            let (is_again, is_doubtful) = (goes_again(&one), is_doubtful(&one));
            let Tried { route, was_taken, epoch, answer, .. } = one;
            let answer = if is_again {
                let was_lost = was_taken || answer.is_err_and(|error| error.earlier_try_unknown());
                let again = by_later.next().unwrap_or_else(|| Err(too_few()));
                if was_lost { again.map(PutOutcome::of_repeat).map_err(Error::of_repeat) } else { again }
            } else if !knows && is_doubtful {
                Err(Error::unknown(format!(
                    "node {} has the bytes, and goes by a map of epoch {epoch}, which no node gives: whether it is the home of their \
                     event is not known; repeat the put",
                    route.0
                )))
            } else {
                answer
            };
            match answer {
                // What was put again says so itself.
                Err(error) if is_again && (is_final(&error) || error.kind() == Kind::OutcomeUnknown) => Err(error),
                Err(error) if was_taken && route.0 != route.1 => Err(held_only(route, error)),
                answer => answer,
            }
        };
        tried.into_iter().map(outcome).collect()
    }

    /// Puts to several nodes, given by place and node.
    fn put_parts<'a>(
        &self,
        end: Instant,
        places: impl Iterator<Item = (usize, u16)>,
        is_worth_it: bool,
        put: impl Fn(usize) -> (Key, &'a [u8], PutOptions<'a>) + Sync,
        checksum: impl Fn(usize) -> Option<u32> + Sync,
        mut seen: impl FnMut(usize, Result<PutOutcome>, u32),
    ) {
        let mut parts: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        places.for_each(|(at, node)| parts.entry(node).or_default().push(at));
        let put = |node: u16, places: &[usize]| {
            let part: Vec<_> = places.iter().map(|&at| put(at)).collect();
            // One after another, each leaves time for the others.
            let client = self.inner.nodes.node_within(node, self.inner.nodes.half(end))?;
            // Another thread's answer may bring a later one than that of this call: one that refuses went by that before it.
            let before = client.pool().epoch();
            let answer = client.put_many_of(&part, |place| checksum(places[place]));
            answer.map(|part| (part, before, client.pool().epoch()))
        };
        for (places, answer) in self.inner.nodes.parts(parts, is_worth_it, put) {
            match answer {
                Ok((part, before, epoch)) => places.into_iter().zip(part).for_each(|(at, outcome)| {
                    let epoch = if outcome.is_err() { before } else { epoch };
                    seen(at, outcome, epoch);
                }),
                Err(error) => places.into_iter().for_each(|at| seen(at, Err(error.again()), 0)),
            }
        }
    }

    /// The fragments of several keys, with one request to each of their homes; in the order of the keys. Each part of several frames
    /// has a deadline of its own.
    ///
    /// # Errors
    /// As [`crate::Client::get_many`]; `Unavailable` where a home does not answer.
    pub fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Fragment>>> {
        let mut found: Vec<Option<Fragment>> = keys.iter().map(|_| None).collect();
        let parts = self.by_home(keys, |key| self.name_of(key));
        let get = |home: u16, places: &[usize]| {
            let part: Vec<Key> = places.iter().map(|&at| keys[at]).collect();
            self.node(home)?.get_many(&part)
        };
        for (places, answer) in self.inner.nodes.parts(parts, true, get) {
            match answer {
                Ok(part) => places.into_iter().zip(part).for_each(|(at, one)| found[at] = one),
                Err(error) if error.kind() == Kind::Fenced => {
                    for at in places {
                        found[at] = self.get(&keys[at])?;
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// Asks the holders of the sources that an event may have by its look-up table, if they are few, and unless few of them were there
    /// lately: over connections that are free, so that nobody waits for what may not be needed.
    pub(super) fn ask(&self, limit: Option<Limit>, primary: &Primary, sources: &Sources) -> Asked {
        let mut parts: BTreeMap<u16, Vec<Key>> = BTreeMap::new();
        for (key, holder) in self.likely(primary, sources) {
            parts.entry(holder).or_default().push(key);
        }
        let one_less = |left: usize| left.checked_sub(1);
        let not_ahead = &self.inner.not_ahead;
        if parts.is_empty() || not_ahead.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
            return Asked::default();
        }
        let ask = |(holder, keys): (u16, Vec<Key>)| {
            let client = self.inner.nodes.known(holder)?;
            self.inner.nodes.in_contact(holder).ok()?;
            let client = client.in_time_of(limit);
            let ahead = client.get_ahead(&keys, true)?;
            Some((client, keys, ahead))
        };
        Asked { parts: parts.into_iter().filter_map(ask).collect() }
    }

    /// Fragments that the home of an event may count without having them, and their holders; none where they are many.
    fn likely(&self, primary: &Primary, sources: &Sources) -> Vec<(Key, u16)> {
        let (placed, schema) = (self.placed(), self.schema());
        if placed.keyspace.tables().is_empty() || primary.as_bytes().len() != schema.primary_bytes() {
            return Vec::new();
        }
        let Some(table) = placed.keyspace.table_for(schema.run_of(primary.as_bytes())) else { return Vec::new() };
        let keys: Vec<Key> = match sources {
            Sources::None => Vec::new(),
            Sources::Only(sources) => {
                let whole = |source: &&Source| source.as_bytes().len() == schema.key_bytes() - schema.primary_bytes();
                let sources = sources.iter().filter(whole).take(LIKELY_MAX + 1);
                sources.map(|source| schema.join(primary, source.as_bytes())).collect()
            }
            Sources::All => {
                let event = schema.values(primary.as_bytes());
                let sources = table.sources().take(LIKELY_MAX + 1);
                sources.filter_map(|(source, _)| schema.key(&[&event[..], &source].concat()).ok()).collect()
            }
        };
        if keys.len() > LIKELY_MAX {
            return Vec::new();
        }
        let routes = placed.routes(schema, &keys);
        let likely = keys.iter().zip(routes).filter(|(_, (holder, home))| holder != home);
        likely.map(|(key, (holder, _))| (*key, holder)).collect()
    }

    /// Of the fragments that holders were asked for, the home counts this number: below a half, the next events are read without
    /// asking ahead.
    pub(super) fn counted(&self, counted: usize, asked: usize) {
        let is_sparse = 2 * counted < asked;
        self.inner.not_ahead.store(if is_sparse { NOT_AHEAD } else { 0 }, Ordering::Relaxed);
    }

    /// Fragments as the nodes have them that hold them, by the look-up tables; each node is asked once, beside the others, in the time
    /// of the call that needs them. Without one, each part of several frames has a deadline of its own.
    pub(super) fn held(&self, limit: Option<Limit>, keys: &[Key]) -> Vec<AtHolder> {
        // Nobody else can be asked.
        let (nodes, limit) = (&self.inner.nodes, limit.map(|limit| Limit::new(limit.end)));
        if keys.iter().any(|key| self.holder(key).is_none()) {
            nodes.learn(nodes.epoch(), limit.map_or_else(|| self.begin(NO_WAIT), |limit| limit.end));
        }
        let reach = |holder| limit.map_or_else(|| nodes.node(holder), |limit| nodes.node_within(holder, limit));
        let no_table = |key: &Key| {
            let name = self.schema().text(key.as_bytes());
            Err(Error::unavailable(format!("{name}: another node has its bytes, and no look-up table says which")))
        };
        let mut all: Vec<AtHolder> = keys.iter().map(|key| (0, no_table(key))).collect();
        let mut parts: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        for (at, key) in keys.iter().enumerate() {
            if let Some(holder) = self.holder(key) {
                parts.entry(holder).or_default().push(at);
            }
        }
        let parts: Vec<Part> = parts
            .into_iter()
            .map(|(holder, places)| Part {
                client: nodes.known(holder).map(|client| client.in_time_of(limit)),
                keys: places.iter().map(|&at| keys[at]).collect(),
                places,
                holder,
            })
            .collect();
        // All are asked before one of them is read; where that cannot be, they are read beside each other.
        let asked: Vec<_> = parts
            .iter()
            .map(|part| part.client.as_ref().and_then(|client| client.get_ahead(&part.keys, false)))
            .collect();
        let all_asked = asked.iter().all(Option::is_some);
        let read = |(part, ahead): (&Part, _)| -> Vec<Result<Option<Fragment>>> {
            let one = |key: &Key| {
                let found = reach(part.holder)?.get_many_here(std::slice::from_ref(key));
                found.map(|mut found| found.pop().flatten())
            };
            match reach(part.holder).and_then(|client| client.get_asked(&part.keys, ahead)) {
                Ok(found) => found.into_iter().map(Ok).collect(),
                // One of them it has not, or not whole.
                Err(error) if !matches!(error.kind(), Kind::Unavailable | Kind::Closed) => {
                    let mut is_gone = None;
                    let each = part.keys.iter().map(|key| {
                        let found = is_gone.as_ref().map_or_else(|| one(key), |error: &Error| Err(error.again()));
                        if let Err(error) = &found
                            && error.kind() == Kind::Unavailable
                        {
                            is_gone = Some(error.again());
                        }
                        found
                    });
                    each.collect()
                }
                Err(error) => part.keys.iter().map(|_| Err(error.again())).collect(),
            }
        };
        for (part, found) in parts.iter().zip(self.inner.nodes.beside(parts.iter().zip(asked), !all_asked, read)) {
            let holder = part.holder;
            for (&at, one) in part.places.iter().zip(found) {
                let one = match one {
                    Err(error) if error.kind() == Kind::Fenced => Ok(None),
                    Err(error) if error.message().starts_with(&format!("node {holder} (")) => Err(error),
                    one => one.map_err(|error| {
                        let what = format!("node {holder}, which has the bytes: {}", error.message());
                        Error::new(error.kind(), what).with_source(error)
                    }),
                };
                all[at] = (holder, one);
            }
        }
        all
    }

    /// Places of things by the homes of their events.
    fn by_home<'a, T>(&self, things: &'a [T], name: impl Fn(&'a T) -> &'a [u8]) -> BTreeMap<u16, Vec<usize>> {
        let placed = self.placed();
        let mut parts: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        for (at, thing) in things.iter().enumerate() {
            let name = name(thing);
            parts.entry(placed.home(self.schema(), name)).or_default().push(at);
        }
        parts
    }

    /// Removes what lies inside bounds, on every node.
    ///
    /// # Errors
    /// As [`crate::Client::remove_range`]: the same call removes what a failed one left.
    pub fn remove_range(&self, bounds: &Bounds) -> Result<u64> {
        Ok(self.all_within(bounds, |client| client.remove_range(bounds))?.into_iter().sum())
    }

    /// Live events inside bounds, in key order, without their payloads.
    ///
    /// # Errors
    /// As [`crate::Client::events`].
    pub fn events(&self, bounds: &Bounds) -> Result<Vec<EventInfo>> {
        let mut events: Vec<EventInfo> =
            self.all_within(bounds, |client| client.events(bounds))?.into_iter().flatten().collect();
        events.sort_unstable_by(|one, other| one.primary.as_bytes().cmp(other.primary.as_bytes()));
        Ok(events)
    }

    /// Releases accepted and debug events inside bounds, a bounded number on each node at a time.
    ///
    /// # Errors
    /// As [`crate::Client::release_range`].
    pub fn release_range(&self, bounds: &Bounds, stream: Option<&str>, after: Option<&Primary>) -> Result<Released> {
        let parts = self.all_within(bounds, |client| match client.release_range(bounds, stream, after) {
            // No event of this node went into the stream. One that no node knows is none.
            Err(error) if stream.is_some() && error.kind() == Kind::Invalid => Ok(Err(error)),
            answer => answer.map(Ok),
        })?;
        let (known, unknown): (Vec<_>, Vec<_>) = parts.into_iter().partition(Result::is_ok);
        if let Some(error) = unknown.into_iter().find_map(Result::err).filter(|_| known.is_empty()) {
            return Err(error);
        }
        let mut all = Released::default();
        for part in known.into_iter().flatten() {
            all.events += part.events;
            // On from the first node that has more: what others have released is not found again.
            all.after = match (all.after, part.after) {
                (Some(one), Some(other)) => Some(if one.as_bytes() <= other.as_bytes() { one } else { other }),
                (one, other) => one.or(other),
            };
        }
        Ok(all)
    }
}
