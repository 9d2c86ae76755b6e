//! Calls about events and fragments: at their homes.

use super::{ClusterClient, may_be_elsewhere};
use crate::fragment::{Event, Fragment};
use crate::put::Reservation;
use forebay_core::{
    Attributes, Bounds, Error, EventInfo, Key, Kind, OpenEvent, Primary, PutOptions, PutOutcome, Released, Result,
    Sources, Token, Why,
};
use std::collections::BTreeMap;

/// Bytes from which on the parts of a put go to their nodes beside each other.
const BESIDE_BYTES: usize = 64 << 10;

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
    /// Puts a fragment.
    put(key: &Key, value: &[u8], options: &PutOptions<'_>) -> PutOutcome;
    /// Memory of the client for a fragment.
    reserve(key: &Key, length: usize, options: &PutOptions<'_>) -> Reservation;
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

impl ClusterClient {
    fn name_of<'a>(&self, name: &'a impl Names) -> &'a [u8] {
        name.primary_bytes(self.schema().primary_bytes())
    }

    /// Puts many fragments, with one request to each of their homes; outcomes in the same order.
    ///
    /// # Errors
    /// None for the call: those of single fragments are in their outcomes, also where a home does not answer.
    pub fn put_many(&self, puts: &[(Key, &[u8], PutOptions<'_>)]) -> Result<Vec<Result<PutOutcome>>> {
        let mut outcomes: Vec<Option<Result<PutOutcome>>> = puts.iter().map(|_| None).collect();
        let parts = self.by_home(puts, |put| self.name_of(&put.0));
        let put = |(home, places): (u16, Vec<usize>)| {
            let part: Vec<_> = places.iter().map(|&at| puts[at]).collect();
            let answer = self.node(home).and_then(|client| client.put_many(&part));
            (places, answer)
        };
        let bytes: usize = puts.iter().map(|put| put.1.len()).sum();
        for (places, answer) in beside(parts, bytes >= BESIDE_BYTES, put) {
            match answer {
                Ok(part) => places.into_iter().zip(part).for_each(|(at, outcome)| outcomes[at] = Some(outcome)),
                Err(error) => {
                    places.into_iter().for_each(|at| outcomes[at] = Some(Err(error.again())));
                }
            }
        }
        let fewer = || Err(Error::corrupt("an answer has fewer outcomes than there were puts"));
        let mut outcomes: Vec<_> = outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(fewer)).collect();
        let elsewhere = |outcome: &Result<PutOutcome>| outcome.as_ref().is_err_and(may_be_elsewhere);
        let left: Vec<usize> = (0..puts.len()).filter(|&at| elsewhere(&outcomes[at])).collect();
        let before: Vec<u16> = left.iter().map(|&at| self.home(self.name_of(&puts[at].0))).collect();
        if !left.is_empty() && self.learn() {
            // Those that have another home by the later map go there.
            let moved = left.into_iter().zip(before);
            let moved: Vec<usize> =
                moved.filter(|&(at, home)| self.home(self.name_of(&puts[at].0)) != home).map(|(at, _)| at).collect();
            let again: Vec<_> = moved.iter().map(|&at| puts[at]).collect();
            moved.into_iter().zip(self.put_many(&again)?).for_each(|(at, outcome)| outcomes[at] = outcome);
        }
        Ok(outcomes)
    }

    /// The fragments of several keys, with one request to each of their homes; in the order of the keys.
    ///
    /// # Errors
    /// As [`crate::Client::get_many`]; `Unavailable` where a home does not answer.
    pub fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Fragment>>> {
        let mut found: Vec<Option<Fragment>> = keys.iter().map(|_| None).collect();
        let parts = self.by_home(keys, |key| self.name_of(key));
        let get = |(home, places): (u16, Vec<usize>)| {
            let part: Vec<Key> = places.iter().map(|&at| keys[at]).collect();
            let answer = self.node(home).and_then(|client| client.get_many(&part));
            (places, answer)
        };
        for (places, answer) in beside(parts, true, get) {
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
        Ok(self.everywhere(|client| client.remove_range(bounds))?.into_iter().sum())
    }

    /// Live events inside bounds, in key order, without their payloads.
    ///
    /// # Errors
    /// As [`crate::Client::events`].
    pub fn events(&self, bounds: &Bounds) -> Result<Vec<EventInfo>> {
        let mut events: Vec<EventInfo> =
            self.everywhere(|client| client.events(bounds))?.into_iter().flatten().collect();
        events.sort_unstable_by(|one, other| one.primary.as_bytes().cmp(other.primary.as_bytes()));
        Ok(events)
    }

    /// Releases accepted and debug events inside bounds, a bounded number on each node at a time.
    ///
    /// # Errors
    /// As [`crate::Client::release_range`].
    pub fn release_range(&self, bounds: &Bounds, stream: Option<&str>, after: Option<&Primary>) -> Result<Released> {
        let parts = self.everywhere(|client| client.release_range(bounds, stream, after))?;
        let mut all = Released::default();
        for part in parts {
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

/// Does something with each part: beside each other, if that is worth a thread.
fn beside<P: Send, T: Send>(
    parts: impl IntoIterator<Item = P>,
    is_worth_it: bool,
    each: impl Fn(P) -> T + Sync,
) -> Vec<T> {
    let mut parts: Vec<P> = parts.into_iter().collect();
    let Some(last) = parts.pop() else { return Vec::new() };
    if !is_worth_it || parts.is_empty() {
        let mut answers: Vec<T> = parts.into_iter().map(&each).collect();
        answers.push(each(last));
        return answers;
    }
    std::thread::scope(|scope| {
        let under_way: Vec<_> = parts.into_iter().map(|part| scope.spawn(|| each(part))).collect();
        let mut answers = vec![each(last)];
        answers.extend(under_way.into_iter().map(|part| match part.join() {
            Ok(answer) => answer,
            Err(panic) => std::panic::resume_unwind(panic),
        }));
        answers
    })
}
