//! Leasing events, reading more of them, and deciding.

use crate::client::{Client, Repeat, unknown};
use crate::connection::{Connection, Failure};
use crate::fragment::{Cutter, Fragment, bytes_of};
use crate::put::NO_WAIT;
use forebay_core::{
    Accept, Attributes, Error, FrameKind, GetAny, Key, Keyspace, Kind, Primary, Result, ResultFragment, SourceStates,
    Sources, Token, WireExtend, WireJudgement, WireLease, WireReader, WireVerdict, WireWriter, crc32c,
};
use std::time::Duration;

/// An event under lease. While it is held the client extends it; dropped without a verdict it is left to its time-out, which
/// counts as a worker's failure.
#[derive(Debug)]
pub struct Lease {
    client: Client,
    /// The event's name.
    pub primary: Primary,
    /// The fence: no other grant, in this life of the server or another, has the same.
    pub token: Token,
    /// Attributes set so far.
    pub attributes: Attributes,
    /// Fragments of the sources that were asked for, in key order.
    pub fragments: Vec<Fragment>,
    /// Expected sources that are not there, masked ones not among them.
    pub missing: Vec<Key>,
    /// How each of its sources stands.
    pub sources: SourceStates,
    /// Stage of the selection that it is in.
    pub stage: u8,
    /// 1 for the first worker; counts failures of earlier ones.
    pub delivery: u8,
    /// Fragments of the whole event.
    pub event_fragments: u32,
    /// Payload bytes of the whole event.
    pub event_bytes: u64,
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(heartbeat) = self.client.heartbeat() {
            heartbeat.let_go(&self.token);
        }
    }
}

impl Lease {
    /// Reads more sources of the event.
    ///
    /// # Errors
    /// `Fenced` where the lease is no longer in force, `Corrupt`, `Closed`, `Unavailable`.
    pub fn get(&self, sources: &Sources) -> Result<Vec<Fragment>> {
        let mut out = WireWriter::new();
        out.short(self.primary.as_bytes())?;
        out.token(&self.token);
        out.sources(sources)?;
        let meta = out.finish();
        let schema = self.client.schema();
        let answer = self.client.call(Repeat::Safe, NO_WAIT, |connection, _| {
            let request = connection.send(FrameKind::LeaseGet, &meta, &[])?;
            connection.answer(request, |meta| {
                let list = WireReader::whole(meta, |read| read.fragments(schema))?;
                let bytes = bytes_of(&list);
                Ok((list, bytes))
            })
        })?;
        Cutter::new(answer.payload).all(answer.said)
    }

    /// Extends the lease, beyond what the client does by itself.
    ///
    /// # Errors
    /// As [`Client::extend`].
    pub fn extend(&self, duration: Duration) -> Result<()> {
        self.client.extend(&self.primary, &self.token, duration)
    }

    /// Keeps the event, in these streams.
    ///
    /// # Errors
    /// As [`Client::accept`].
    pub fn accept(&self, streams: &[&str]) -> Result<()> {
        self.client.accept(&self.primary, &self.token, streams)
    }

    /// Keeps the event in streams with chosen sources, and adds results to it.
    ///
    /// # Errors
    /// As [`Client::accept_into`].
    pub fn accept_into(&self, accept: &Accept<'_>) -> Result<()> {
        self.client.accept_into(&self.primary, &self.token, accept)
    }

    /// Hands the event to a later stage, with results for it.
    ///
    /// # Errors
    /// As [`Client::pass`].
    pub fn pass(&self, next_stage: &str, results: &[ResultFragment<'_>]) -> Result<()> {
        self.client.pass(&self.primary, &self.token, next_stage, results)
    }

    /// Drops the event.
    ///
    /// # Errors
    /// As [`Client::reject`].
    pub fn reject(&self) -> Result<()> {
        self.client.reject(&self.primary, &self.token)
    }

    /// Gives the event back unharmed.
    ///
    /// # Errors
    /// As [`Client::requeue`].
    pub fn requeue(&self) -> Result<()> {
        self.client.requeue(&self.primary, &self.token)
    }
}

/// A verdict among several that go with one request.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The event.
    pub primary: Primary,
    /// The fence of its lease.
    pub token: Token,
    /// What was decided.
    pub judgement: WireJudgement,
    /// Fragments that the worker adds: packed source and bytes.
    pub results: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Client {
    /// Leases up to `n` ready events of a stage, and reads the chosen sources in the same answer. Waits for a first one as
    /// long as asked; an empty answer says that there was none.
    ///
    /// # Errors
    /// As `Store::get_any`, and `Unavailable` where the server does not answer in time. Leases of a lost answer come back
    /// by their time.
    pub fn get_any(&self, request: &GetAny) -> Result<Vec<Lease>> {
        let mut out = WireWriter::new();
        out.get_any(request)?;
        let meta = out.finish();
        self.leases(FrameKind::GetAny, &meta, request.wait, request.lease)
    }

    /// Leases a named event in whatever stage; `None` where it is not there, not ready, held back, or leased.
    ///
    /// # Errors
    /// As `Store::lease`, and `Unavailable`.
    pub fn lease(&self, primary: &Primary, duration: Option<Duration>) -> Result<Option<Lease>> {
        let mut out = WireWriter::new();
        out.short(primary.as_bytes())?;
        out.milliseconds(duration.unwrap_or_default())?;
        let meta = out.finish();
        Ok(self.leases(FrameKind::Lease, &meta, NO_WAIT, duration)?.pop())
    }

    fn leases(&self, kind: FrameKind, meta: &[u8], wait: Duration, time: Option<Duration>) -> Result<Vec<Lease>> {
        let keyspace = self.keyspace();
        let answer = self
            .call(Repeat::Safe, wait, |connection: &mut Connection, _| -> std::result::Result<_, Failure> {
                let request = connection.send(kind, meta, &[])?;
                connection.answer(request, |meta| read_leases(meta, keyspace))
            })
            // A lease is no harm that a repeat would do: it comes back by its time.
            .map_err(|error| match error.kind() {
                Kind::OutcomeUnknown => Error::unavailable(error.message().to_owned()),
                _ => error,
            })?;
        let time = time.unwrap_or(Duration::from_millis(u64::from(self.inner.known.welcome.lease_ms)));
        let mut cutter = Cutter::new(answer.payload);
        let mut leases = Vec::with_capacity(answer.said.len());
        for lease in answer.said {
            if let Some(heartbeat) = self.heartbeat() {
                heartbeat.hold(lease.event.primary, lease.token, time);
            }
            leases.push(Lease {
                client: self.clone(),
                primary: lease.event.primary,
                token: lease.token,
                attributes: lease.event.attributes,
                fragments: cutter.all(lease.event.fragments)?,
                missing: lease.event.missing,
                sources: lease.event.sources,
                stage: lease.event.stage,
                delivery: lease.delivery,
                event_fragments: lease.event_fragments,
                event_bytes: lease.event_bytes,
            });
        }
        Ok(leases)
    }

    /// Extends a lease by `duration` from now.
    ///
    /// # Errors
    /// As `Store::extend`, and `Unavailable`.
    pub fn extend(&self, primary: &Primary, token: &Token, duration: Duration) -> Result<()> {
        let meta = WireExtend::encode_all(&[WireExtend { primary: *primary, token: *token, duration }])?;
        let read = |read: &mut WireReader<'_>| read.list(1, |read| read.outcome(|_| Ok(())));
        let (mut outcomes, _) = self.ask(FrameKind::Extend, Repeat::Safe, NO_WAIT, &meta, read)?;
        outcomes.pop().ok_or_else(|| Error::corrupt("an answer without an outcome"))?
    }

    /// Keeps a leased event, in these streams.
    ///
    /// # Errors
    /// As `Store::accept`, and `OutcomeUnknown`: the same verdict with the same token may be repeated.
    pub fn accept(&self, primary: &Primary, token: &Token, streams: &[&str]) -> Result<()> {
        let streams = streams.iter().map(|name| ((*name).to_owned(), Sources::All)).collect();
        self.judge(primary, token, WireJudgement::Accept(streams), &[])
    }

    /// Keeps a leased event in streams with chosen sources, and adds results to it.
    ///
    /// # Errors
    /// As `Store::accept_into`, and `OutcomeUnknown`.
    pub fn accept_into(&self, primary: &Primary, token: &Token, accept: &Accept<'_>) -> Result<()> {
        let streams = accept.streams.iter().map(|(name, sources)| ((*name).to_owned(), sources.clone())).collect();
        self.judge(primary, token, WireJudgement::Accept(streams), accept.results)
    }

    /// Drops a leased event.
    ///
    /// # Errors
    /// As `Store::reject`, and `OutcomeUnknown`.
    pub fn reject(&self, primary: &Primary, token: &Token) -> Result<()> {
        self.judge(primary, token, WireJudgement::Reject, &[])
    }

    /// Hands a leased event to a later stage, with results for it.
    ///
    /// # Errors
    /// As `Store::pass`, and `OutcomeUnknown`.
    pub fn pass(
        &self,
        primary: &Primary,
        token: &Token,
        next_stage: &str,
        results: &[ResultFragment<'_>],
    ) -> Result<()> {
        self.judge(primary, token, WireJudgement::Pass(next_stage.to_owned()), results)
    }

    /// Gives a leased event back unharmed.
    ///
    /// # Errors
    /// As `Store::requeue`, and `OutcomeUnknown`.
    pub fn requeue(&self, primary: &Primary, token: &Token) -> Result<()> {
        self.judge(primary, token, WireJudgement::Requeue, &[])
    }

    fn judge(
        &self,
        primary: &Primary,
        token: &Token,
        judgement: WireJudgement,
        results: &[ResultFragment<'_>],
    ) -> Result<()> {
        let results = results.iter().map(|(source, bytes)| (source.to_vec(), bytes.to_vec())).collect();
        let verdict = Verdict { primary: *primary, token: *token, judgement, results };
        self.decide(&[verdict])?.pop().ok_or_else(|| Error::corrupt("an answer without an outcome"))?
    }

    /// Decides about many events with one request; outcomes in the same order.
    ///
    /// # Errors
    /// Those of single verdicts stand in their outcomes; `OutcomeUnknown` for the call: it may be repeated, except for what
    /// was given back.
    pub fn decide(&self, verdicts: &[Verdict]) -> Result<Vec<Result<()>>> {
        let (meta, payload) = encode_verdicts(verdicts)?;
        let (mut outcomes, attempt) = self.call(Repeat::Safe, NO_WAIT, |connection, attempt| {
            let request = connection.send(FrameKind::Verdict, &meta, &payload)?;
            let answer = connection.answer(request, |meta| Ok((read_units(meta)?, 0)))?;
            Ok((answer.said, attempt))
        })?;
        for (verdict, outcome) in verdicts.iter().zip(&mut outcomes) {
            // Giving back is not remembered: the repeat of one that went through is fenced.
            if attempt > 0 && verdict.judgement == WireJudgement::Requeue && is_fenced(outcome) {
                *outcome = Err(unknown(&Error::unavailable("an answer was lost, and the lease is over")));
            } else if outcome.is_ok()
                && let Some(heartbeat) = self.heartbeat()
            {
                heartbeat.let_go(&verdict.token);
            }
        }
        Ok(outcomes)
    }
}

/// Leases of an answer, and how many bytes their fragments are.
pub(crate) fn read_leases(meta: &[u8], keyspace: &Keyspace) -> Result<(Vec<WireLease>, u64)> {
    let leases = WireReader::whole(meta, |read| read.list(50, |read| WireLease::decode(read, keyspace)))?;
    let bytes = leases.iter().map(|lease| lease.event.payload_bytes()).sum();
    Ok((leases, bytes))
}

/// Outcomes that say nothing more.
pub(crate) fn read_units(meta: &[u8]) -> Result<Vec<Result<()>>> {
    WireReader::whole(meta, |read| read.list(1, |read| read.outcome(|_| Ok(()))))
}

/// The meta of verdicts, and the bytes of their results.
pub(crate) fn encode_verdicts(verdicts: &[Verdict]) -> Result<(Vec<u8>, Vec<&[u8]>)> {
    let about = |(source, bytes): &(Vec<u8>, Vec<u8>)| (source.clone(), bytes.len() as u32, crc32c(bytes));
    let wire: Vec<WireVerdict> = verdicts
        .iter()
        .map(|verdict| WireVerdict {
            primary: verdict.primary,
            token: verdict.token,
            judgement: verdict.judgement.clone(),
            results: verdict.results.iter().map(about).collect(),
        })
        .collect();
    let payload = verdicts.iter().flat_map(|verdict| &verdict.results).map(|(_, bytes)| bytes.as_slice()).collect();
    Ok((WireVerdict::encode_all(&wire)?, payload))
}

/// An event under lease, without a client that extends it: what async programs get.
#[derive(Debug)]
pub struct LeaseParts {
    /// The event's name.
    pub primary: Primary,
    /// The fence.
    pub token: Token,
    /// Attributes set so far.
    pub attributes: Attributes,
    /// Fragments of the sources that were asked for, in key order.
    pub fragments: Vec<Fragment>,
    /// Expected sources that are not there, masked ones not among them.
    pub missing: Vec<Key>,
    /// How each of its sources stands.
    pub sources: SourceStates,
    /// Stage of the selection that it is in.
    pub stage: u8,
    /// 1 for the first worker; counts failures of earlier ones.
    pub delivery: u8,
}

impl LeaseParts {
    pub(crate) fn cut(lease: WireLease, cutter: &mut Cutter) -> Result<LeaseParts> {
        Ok(LeaseParts {
            primary: lease.event.primary,
            token: lease.token,
            attributes: lease.event.attributes,
            fragments: cutter.all(lease.event.fragments)?,
            missing: lease.event.missing,
            sources: lease.event.sources,
            stage: lease.event.stage,
            delivery: lease.delivery,
        })
    }

    /// A verdict about it, for [`crate::AsyncClient::decide`].
    pub fn verdict(&self, judgement: WireJudgement) -> Verdict {
        Verdict { primary: self.primary, token: self.token, judgement, results: Vec::new() }
    }
}

fn is_fenced(outcome: &Result<()>) -> bool {
    outcome.as_ref().is_err_and(|error| error.kind() == Kind::Fenced)
}
