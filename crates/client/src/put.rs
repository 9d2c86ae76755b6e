//! Putting fragments: one, or many in few frames.

use crate::client::Client;
use crate::connection::Connection;
use crate::retry::Failure;
use forebay_core::{
    AttributeSchema, Attributes, Call, Error, Key, Level, PutOptions, PutOutcome, Report, Result, check_sent, crc32c,
};
use forebay_wire::{WireOutcome, WirePut, WireReader};
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// Payload bytes of one frame.
const FRAME_BYTES: usize = 512 << 10;
/// Fragments of one frame: the server works on one while the next is made.
const FRAME_FRAGMENTS: usize = 512;
/// Most bytes that a frame says of a fragment, without attributes; room for some.
const META_BYTES: usize = 256;
/// Payloads below this many bytes are copied together: cheaper than a piece of their own in the system call.
const COPIED_BYTES: usize = 1024;

impl Client {
    /// Puts a fragment. When this returns, the server's store has it, as [`PutOptions`] asks.
    ///
    /// # Errors
    /// As `Store::put`; `OutcomeUnknown` where the server went away and did not come back in time: the same put may be
    /// made again. Where an answer was lost and the repeat is refused, [`Error::earlier_try_unknown`]; where it is late,
    /// the outcome is [`PutOutcome::LateUnknown`].
    pub fn put(&self, key: &Key, value: &[u8], options: &PutOptions<'_>) -> Result<PutOutcome> {
        let wire = [wire_put(key, value, options)?];
        let meta = WirePut::encode_all(&wire, &self.keyspace().attributes)?;
        let mut outcomes =
            self.calls().call(Call::Put.repeat(), options.deadline.unwrap_or_default(), |connection, is_repeat| {
                let request = connection.send(Call::Put, &meta, &[value])?;
                let answer = connection.answer(request, |meta| Ok((read_outcomes(meta)?, 0)))?;
                Ok(answer.said.into_iter().map(|outcome| of_try(outcome, is_repeat)).collect::<Vec<_>>())
            })?;
        outcomes.pop().ok_or_else(too_few)?
    }

    /// Puts many fragments, several in a frame and several frames under way; outcomes in the same order.
    ///
    /// # Errors
    /// Those of single fragments are in their outcomes; `OutcomeUnknown` or `Unavailable` for the call, where the server
    /// went away and did not come back in time. Of each fragment that was sent before its answer came the outcome says so,
    /// as of [`Client::put`].
    pub fn put_many(&self, puts: &[(Key, &[u8], PutOptions<'_>)]) -> Result<Vec<Result<PutOutcome>>> {
        self.put_many_of(puts, |_| None)
    }

    /// The same, where a checksum is known already, by place.
    pub(crate) fn put_many_of(
        &self,
        puts: &[(Key, &[u8], PutOptions<'_>)],
        checksum: impl Fn(usize) -> Option<u32>,
    ) -> Result<Vec<Result<PutOutcome>>> {
        let mut tries = Tries::new(puts.len());
        let wait = puts.iter().filter_map(|(_, _, options)| options.deadline).max().unwrap_or_default();
        let value = |at: usize| puts[at].1;
        let wire = |at: usize| wire_put_of(&puts[at].0, puts[at].1, &puts[at].2, checksum(at));
        let puts = Puts { value: &value, wire: &wire, attributes: &self.keyspace().attributes };
        self.calls().call(Call::Put.repeat(), wait, |connection, _| send_many(connection, &puts, &mut tries))?;
        Ok(tries.finish())
    }
}

/// How a reservation is committed.
pub(crate) type PutBy = Box<dyn Fn(&Key, &[u8], &PutOptions<'_>) -> Result<PutOutcome> + Send + Sync>;

/// Memory of the client for one fragment, filled in place and then committed. Dropping it gives it up.
pub struct Reservation {
    put: PutBy,
    key: Key,
    bytes: Vec<u8>,
    status: u32,
    attributes: Option<Attributes>,
    deadline: Option<Duration>,
    persisted: bool,
    level: Option<Level>,
    report: Report,
}

impl Client {
    /// Memory for a fragment of `length` bytes. The server learns of it at the commit: then the bytes go straight
    /// into reserved memory of its store.
    ///
    /// # Errors
    /// `Invalid` for a fragment that is longer than a request can be.
    pub fn reserve(&self, key: &Key, length: usize, options: &PutOptions<'_>) -> Result<Reservation> {
        let most = self.pool().welcome.window_bytes as usize;
        if length > most {
            return Err(Error::invalid(format!("a fragment of {length} bytes; the server takes {most} at once")));
        }
        let &PutOptions { status, attributes, deadline, persisted, level, report } = options;
        let (client, attributes, bytes) = (self.clone(), attributes.cloned(), vec![0; length]);
        let put: PutBy = Box::new(move |key, value, options| client.put(key, value, options));
        Ok(Reservation { put, key: *key, bytes, status, attributes, deadline, persisted, level, report })
    }
}

impl Reservation {
    /// The same, committed in this way.
    pub(crate) fn by(self, put: PutBy) -> Reservation {
        Reservation { put, ..self }
    }

    /// Puts the fragment; the answers are those of [`Client::put`].
    ///
    /// # Errors
    /// As [`Client::put`].
    pub fn commit(self) -> Result<PutOutcome> {
        let Reservation { status, deadline, persisted, level, report, .. } = self;
        let options = PutOptions { status, attributes: self.attributes.as_ref(), deadline, persisted, level, report };
        (self.put)(&self.key, &self.bytes, &options)
    }

    /// The same for bytes that came with a CRC-32C of their own, such as from a readout board.
    ///
    /// # Errors
    /// `Corrupt` where the bytes do not have it: then nothing is sent. Else as [`Client::put`].
    pub fn commit_checked(self, checksum: u32) -> Result<PutOutcome> {
        check_sent(&self.bytes, checksum)?;
        self.commit()
    }

    /// Gives the memory up.
    pub fn abort(self) {}
}

impl Deref for Reservation {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for Reservation {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

pub(crate) fn wire_put(key: &Key, value: &[u8], options: &PutOptions<'_>) -> Result<WirePut> {
    wire_put_of(key, value, options, None)
}

fn wire_put_of(key: &Key, value: &[u8], options: &PutOptions<'_>, checksum: Option<u32>) -> Result<WirePut> {
    let length = u32::try_from(value.len())
        .map_err(|_| Error::invalid(format!("a fragment of {} bytes; 4 GiB is beyond any limit", value.len())))?;
    Ok(WirePut {
        key: *key,
        length,
        // Computed where the bytes are: the server compares it with what it stored, so a fault on the way is found.
        checksum: checksum.unwrap_or_else(|| crc32c(value)),
        status: options.status,
        attributes: options.attributes.cloned(),
        deadline: options.deadline,
        persisted: options.persisted,
        level: options.level,
        report: options.report,
    })
}

/// How puts end, of either kind of keyspace.
pub(crate) trait Outcome: WireOutcome {
    /// What this answer to a repeat says of the whole put; the answer to an earlier try was lost.
    ///
    /// # Errors
    /// `OutcomeUnknown` where this says nothing of the earlier try, and the kind of keyspace has no outcome for that.
    fn of_repeat(self) -> Result<Self>;
}

impl Outcome for PutOutcome {
    fn of_repeat(self) -> Result<PutOutcome> {
        Ok(PutOutcome::of_repeat(self))
    }
}

pub(crate) fn read_outcomes<O: Outcome>(meta: &[u8]) -> Result<Vec<Result<O>>> {
    WireReader::whole(meta, list_outcomes)
}

pub(crate) fn list_outcomes<O: Outcome>(read: &mut WireReader<'_>) -> Result<Vec<Result<O>>> {
    read.list(1, |read| read.outcome(|read| O::of_byte(read.u8()?)))
}

/// The outcome of a put by the answer to one try; `is_repeat` where an earlier one was sent and has no answer.
pub(crate) fn of_try<O: Outcome>(outcome: Result<O>, is_repeat: bool) -> Result<O> {
    match outcome {
        Ok(outcome) if is_repeat => outcome.of_repeat(),
        Err(error) if is_repeat => Err(error.of_repeat()),
        once => once,
    }
}

/// Outcomes of many puts so far, over all tries of their call.
pub(crate) struct Tries<O> {
    outcomes: Vec<Option<Result<O>>>,
    /// Those that were sent. Only what has no outcome is sent again: then it is a repeat.
    sent: Vec<bool>,
}

impl<O: Outcome> Tries<O> {
    pub(crate) fn new(length: usize) -> Tries<O> {
        let mut outcomes = Vec::new();
        outcomes.resize_with(length, || None);
        Tries { outcomes, sent: vec![false; length] }
    }

    /// The outcomes, in the order of the puts.
    pub(crate) fn finish(self) -> Vec<Result<O>> {
        self.outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(|| Err(too_few()))).collect()
    }
}

pub(crate) fn too_few() -> Error {
    Error::corrupt("an answer has fewer outcomes than there were puts")
}

/// The fragments to put, by place: their bytes and attributes.
pub(crate) struct Puts<'a, 'b> {
    pub(crate) value: &'b dyn Fn(usize) -> &'a [u8],
    pub(crate) wire: &'b dyn Fn(usize) -> Result<WirePut>,
    pub(crate) attributes: &'b AttributeSchema,
}

/// Sends what has no outcome yet, in frames, as many under way as the server takes. A refusal of one frame ends the call: of
/// what went out beside it nothing is known.
pub(crate) fn send_many<O: Outcome>(
    connection: &mut Connection,
    puts: &Puts<'_, '_>,
    tries: &mut Tries<O>,
) -> std::result::Result<(), Failure> {
    send_all(connection, puts, tries).map_err(|failure| match failure {
        Failure::Refused(error) if tries.sent.contains(&true) => Failure::Refused(error.of_repeat()),
        other => other,
    })
}

fn send_all<O: Outcome>(
    connection: &mut Connection,
    puts: &Puts<'_, '_>,
    tries: &mut Tries<O>,
) -> std::result::Result<(), Failure> {
    let mut under_way: Vec<UnderWay> = Vec::new();
    let mut next = 0;
    // No frame may be longer than the server's window, and no meta than a quarter of it.
    let window = connection.window_bytes() as usize;
    // Half of the window, so that the next frame can be sent while the answer to this one is under way.
    let (most_bytes, most_fragments) = (FRAME_BYTES.min(window / 2), FRAME_FRAGMENTS.min(window / 4 / META_BYTES));
    loop {
        // The next frame: what fits.
        let (mut chosen, mut wire, mut payload, mut bytes) = (Vec::new(), Vec::new(), Vec::new(), 0);
        let mut copied = Vec::new();
        while next < tries.outcomes.len() && chosen.len() < most_fragments {
            if tries.outcomes[next].is_some() {
                next += 1;
                continue;
            }
            let value = (puts.value)(next);
            // The first fragment always goes, even one longer than the usual frame.
            if !chosen.is_empty() && bytes + value.len() > most_bytes {
                break;
            }
            if value.len() + META_BYTES + forebay_wire::FRAME_HEAD_BYTES > window {
                let length = value.len();
                let error = Error::invalid(format!("a fragment of {length} bytes; the server takes {window} at once"));
                tries.outcomes[next] = Some(Err(error));
                next += 1;
                continue;
            }
            match (puts.wire)(next) {
                Ok(put) => {
                    bytes += value.len();
                    chosen.push(next);
                    wire.push(put);
                    // Where all before it were short as well: they go out in order.
                    if value.len() < COPIED_BYTES && payload.is_empty() {
                        copied.extend_from_slice(value);
                    } else {
                        payload.push(value);
                    }
                }
                Err(error) => tries.outcomes[next] = Some(Err(error)),
            }
            next += 1;
        }
        if !chosen.is_empty() {
            let meta = WirePut::encode_all(&wire, puts.attributes).map_err(Failure::Refused)?;
            let frame_bytes = (bytes + meta.len() + forebay_wire::FRAME_HEAD_BYTES) as u64;
            // Only answers bring credit: without a request under way nothing would come, and `send` refuses the frame
            // instead.
            while frame_bytes > connection.credit() && !under_way.is_empty() {
                receive(connection, &mut under_way, tries)?;
            }
            payload.insert(0, &copied);
            // Before it is sent: a frame of which the connection took a part may be there whole.
            let chosen = chosen.into_iter().map(|at| (at, std::mem::replace(&mut tries.sent[at], true))).collect();
            let request = connection.send(Call::Put, &meta, &payload)?;
            under_way.push(UnderWay { request, chosen });
            continue;
        }
        if under_way.is_empty() {
            return Ok(());
        }
        receive(connection, &mut under_way, tries)?;
    }
}

/// A frame without its answer: the places of its fragments, and whether each was sent before.
struct UnderWay {
    request: u64,
    chosen: Vec<(usize, bool)>,
}

fn receive<O: Outcome>(
    connection: &mut Connection,
    under_way: &mut Vec<UnderWay>,
    tries: &mut Tries<O>,
) -> std::result::Result<(), Failure> {
    let requests: Vec<u64> = under_way.iter().map(|frame| frame.request).collect();
    let answer = connection.answer_of(&requests, |meta| Ok((read_outcomes(meta)?, 0)))?;
    let Some(at) = under_way.iter().position(|frame| frame.request == answer.request) else {
        return Err(Failure::Lost(too_few()));
    };
    let UnderWay { chosen, .. } = under_way.remove(at);
    // Outcomes have no keys: with another number of them none can be matched, and the connection is not to be believed.
    if answer.said.len() != chosen.len() {
        return Err(Failure::Lost(too_few()));
    }
    for ((index, is_repeat), outcome) in chosen.into_iter().zip(answer.said) {
        debug_assert!(tries.outcomes[index].is_none(), "a fragment has one outcome");
        tries.outcomes[index] = Some(of_try(outcome, is_repeat));
    }
    // The server has answers for more than it may send.
    connection.grant()
}

/// Time that calls without a wait of their own take at most.
pub(crate) const NO_WAIT: Duration = Duration::ZERO;
