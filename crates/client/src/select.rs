//! Leasing events, reading more of them, and deciding.

use crate::client::Client;
use crate::connection::Connection;
use crate::elsewhere::Early;
use crate::fragment::{Cutter, Fragment, bytes_of};
use crate::options::FAR;
use crate::put::NO_WAIT;
use crate::retry::Failure;
use crate::retry::unknown;
use forebay_core::{
    Accept, Call, Error, GetAny, Held, HeldTogether, Keyspace, Kind, LeaseHolder, Primary, Result, ResultFragment,
    Source, Sources, Token, crc32c,
};
use forebay_wire::{WireExtend, WireJudgement, WireLease, WireReader, WireVerdict, WireWriter};
use std::time::Duration;

/// An event under lease. While it is held the client extends it; dropped without a verdict it is left to its time-out, which
/// counts as a worker's failure. While its thread unwinds, or with the rest of a batch after an error, it is given back.
pub type Lease = forebay_core::Lease<Fragment, Held<Kept>>;

/// An event under lease without a heartbeat, as async programs get it. Dropped without a verdict it is always left to its
/// time-out: a drop cannot wait for the server there.
pub type PlainLease = forebay_core::Lease<Fragment, ()>;

/// A lease that a client keeps alive, until this is dropped.
#[derive(Debug)]
pub struct Kept {
    client: Client,
    token: Token,
}

impl Kept {
    fn new(client: &Client, primary: Primary, token: Token, time: Duration) -> Kept {
        if let Some(heartbeat) = client.heartbeat() {
            heartbeat.hold(primary, token, time);
        }
        Kept { client: client.clone(), token }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(heartbeat) = self.client.heartbeat() {
            heartbeat.let_go(&self.token);
        }
    }
}

forebay_core::implement_lease_holder!(Kept, Fragment, |held| held.client);

/// Why a server gave no lease.
pub(crate) enum NoLease {
    /// It refused, or did not answer.
    Away(Error),
    /// What it gave could not be read: of other nodes.
    Unread(Error),
}

impl NoLease {
    pub(crate) fn error(self) -> Error {
        let (NoLease::Away(error) | NoLease::Unread(error)) = self;
        error
    }
}

/// How often others are asked for in place of events whose bytes cannot be read.
const ROUNDS: usize = 8;

/// Leases that are given back.
#[derive(Default)]
struct Blocked(Vec<Lease>);

impl Drop for Blocked {
    fn drop(&mut self) {
        for lease in self.0.drain(..) {
            // Their time-outs do the same, and count. A server that did not answer once is not waited for again. Past the batch: that
            // one of these has ended already is no fault of those who get the others.
            if lease.holder.by().requeue(&lease.primary, &lease.token).is_err_and(|error| error.kind() != Kind::Fenced)
            {
                return;
            }
        }
    }
}

/// A lease with its fragments.
pub(crate) fn cut_lease<H>(
    holder: H,
    lease: WireLease,
    cutter: &mut Cutter,
) -> Result<forebay_core::Lease<Fragment, H>> {
    Ok(forebay_core::Lease {
        holder,
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
    })
}

/// A verdict among several that go with one request.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The event.
    pub primary: Primary,
    /// The fence of its lease.
    pub token: Token,
    /// The decision.
    pub judgement: WireJudgement,
    /// Fragments that the worker adds, with their sources.
    pub results: Vec<(Source, Vec<u8>)>,
}

impl Verdict {
    /// A verdict without results about an event under lease.
    pub fn about<F, H>(lease: &forebay_core::Lease<F, H>, judgement: WireJudgement) -> Verdict {
        Verdict { primary: lease.primary, token: lease.token, judgement, results: Vec::new() }
    }
}

impl Client {
    /// Leases up to `n` ready events of a stage, and reads the chosen sources in the same answer. Waits for a first one as
    /// long as asked; an empty answer says that there was none. Events whose bytes cannot be read now are given back, and others
    /// are taken.
    ///
    /// # Errors
    /// As `Store::get_any`, and `Unavailable` where the server does not answer in time. Leases of a lost answer come back
    /// by their time. Of bytes that other nodes have also `Corrupt`, where no other event was ready.
    pub fn get_any(&self, request: &GetAny) -> Result<Vec<Lease>> {
        self.get_any_of(request, &HeldTogether::default()).map_err(NoLease::error)
    }

    /// The same, which says whether it is the server that did not answer.
    pub(crate) fn get_any_of(
        &self,
        request: &GetAny,
        together: &HeldTogether,
    ) -> std::result::Result<Vec<Lease>, NoLease> {
        let (machine, this) = (self.pool().machine(), self.in_one_call(request.wait));
        let (wait_end, end) = (machine.now() + request.wait.min(FAR), this.calls().end(request.wait));
        let mut asked = request.clone();
        let (mut found, mut blocked, mut failed) = (Vec::new(), Blocked::default(), None);
        for _ in 0..ROUNDS {
            let mut out = WireWriter::new();
            out.get_any(&asked).map_err(NoLease::Unread)?;
            let leases = this.leases(Call::GetAny, &out.finish(), asked.wait, asked.lease, together);
            let leases = leases.map_err(NoLease::Away)?;
            if leases.is_empty() {
                break;
            }
            let failure = this.fetch_leases(leases, &mut found, &mut blocked);
            let now = machine.now();
            if failure.is_none() && !found.is_empty() || found.len() >= request.n || now >= end {
                failed = failure.or(failed);
                break;
            }
            failed = failure.or(failed);
            asked.n = request.n - found.len();
            // Held until others are found: given back now, they would be the next ones.
            asked.wait = if failed.is_some() { NO_WAIT } else { wait_end.saturating_duration_since(now) };
        }
        match failed {
            Some(error) if found.is_empty() => Err(NoLease::Unread(error)),
            _ => Ok(found),
        }
    }

    /// Leases a named event in any stage; `None` where it is not there, not ready, held back, or leased.
    ///
    /// # Errors
    /// As `Store::lease`, and `Unavailable`; of bytes that other nodes have also `Corrupt`.
    pub fn lease(&self, primary: &Primary, duration: Option<Duration>) -> Result<Option<Lease>> {
        let mut out = WireWriter::new();
        out.short(primary.as_bytes())?;
        out.milliseconds(duration.unwrap_or_default())?;
        let this = self.in_one_call(NO_WAIT);
        let leases = this.leases(Call::Lease, &out.finish(), NO_WAIT, duration, &HeldTogether::default())?;
        let mut found = Vec::new();
        match this.fetch_leases(leases, &mut found, &mut Blocked::default()) {
            Some(error) => Err(error),
            None => Ok(found.pop()),
        }
    }

    /// Reads what other nodes have of leased events. Those of which it cannot be read are given back, or left to their time where
    /// it is not there: that counts as a failed delivery.
    fn fetch_leases(&self, mut leases: Vec<Lease>, found: &mut Vec<Lease>, blocked: &mut Blocked) -> Option<Error> {
        let counted: Vec<usize> = leases.iter().map(|lease| lease.fragments.len()).collect();
        let outcomes = self.fetch_lists(leases.iter_mut().map(|lease| &mut lease.fragments), Early::new());
        let mut failed: Option<Error> = None;
        for ((lease, counted), outcome) in leases.into_iter().zip(counted).zip(outcomes) {
            let outcome = match (outcome, &failed) {
                (Ok(()), None) => match self.check_whole(&lease.primary, &lease.token, &lease.fragments, counted) {
                    // It is over, and as if it had not been there.
                    Err(error) if error.kind() == Kind::Fenced => continue,
                    checked => checked,
                },
                // Not asked again and again: the same server may have failed.
                (Ok(()), Some(error)) if lease.fragments.len() < counted => Err(error.again()),
                (outcome, _) => outcome,
            };
            match outcome {
                Ok(()) => found.push(lease),
                Err(error) => {
                    if error.kind() != Kind::Corrupt {
                        blocked.0.push(lease);
                    }
                    failed = Some(error);
                }
            }
        }
        failed
    }

    fn leases(
        &self,
        call: Call,
        meta: &[u8],
        wait: Duration,
        time: Option<Duration>,
        together: &HeldTogether,
    ) -> Result<Vec<Lease>> {
        let keyspace = self.keyspace();
        let answer = self.calls().call(
            call.repeat(),
            wait,
            |connection: &mut Connection, _| -> std::result::Result<_, Failure> {
                // A lease is no harm that a repeat would do: it comes back by its time.
                let request = connection.send(call, meta, &[])?;
                connection.answer(request, |meta| read_leases(meta, keyspace))
            },
        )?;
        // Without a wish the server's default applies, and the heartbeat must know it.
        let time = time.unwrap_or(Duration::from_millis(u64::from(self.pool().welcome.lease_ms)));
        let mut cutter = Cutter::new(answer.payload);
        let hold = |lease: WireLease| {
            let (primary, token) = (lease.event.primary, lease.token);
            let held = together.hold(Kept::new(self, primary, token, time), primary, token);
            cut_lease(held, lease, &mut cutter)
        };
        answer.said.into_iter().map(hold).collect()
    }

    /// Reads sources of an event under lease, for the holder of the token.
    ///
    /// # Errors
    /// As `Store::lease_get`, and `Unavailable`.
    pub fn lease_get(&self, primary: &Primary, token: &Token, sources: &Sources) -> Result<Vec<Fragment>> {
        let this = self.in_one_call(NO_WAIT);
        let mut fragments = this.lease_counted(primary, token, sources)?;
        let counted = fragments.len();
        this.fetch_list(&mut fragments)?;
        this.check_whole(primary, token, &fragments, counted)?;
        Ok(fragments)
    }

    /// What was read of an event under lease is all that its home has counted, or the lease is still in force and a part was removed.
    ///
    /// # Errors
    /// `Fenced` where the lease is over: its event ended meanwhile, and others have let its bytes go.
    fn check_whole(&self, primary: &Primary, token: &Token, read: &[Fragment], counted: usize) -> Result<()> {
        if read.len() < counted {
            self.lease_counted(primary, token, &Sources::None)?;
        }
        Ok(())
    }

    /// Sources of an event under lease, as its home counts them.
    fn lease_counted(&self, primary: &Primary, token: &Token, sources: &Sources) -> Result<Vec<Fragment>> {
        let mut out = WireWriter::new();
        out.short(primary.as_bytes())?;
        out.token(token);
        out.sources(sources)?;
        let meta = out.finish();
        let schema = self.schema();
        let answer = self.calls().call(Call::LeaseGet.repeat(), NO_WAIT, |connection, _| {
            let request = connection.send(Call::LeaseGet, &meta, &[])?;
            connection.answer(request, |meta| {
                let list = WireReader::whole(meta, |read| read.fragments(schema))?;
                let bytes = bytes_of(&list);
                Ok((list, bytes))
            })
        })?;
        Cutter::new(answer.payload).all(answer.said)
    }

    /// Extends a lease by `duration` from now.
    ///
    /// # Errors
    /// As `Store::extend`, and `Unavailable`.
    pub fn extend(&self, primary: &Primary, token: &Token, duration: Duration) -> Result<()> {
        let meta = WireExtend::encode_all(&[WireExtend { primary: *primary, token: *token, duration }])?;
        let read = |read: &mut WireReader<'_>| read.list(1, |read| read.outcome(|_| Ok(())));
        let (mut outcomes, _) = self.calls().ask(Call::Extend, NO_WAIT, &meta, read)?;
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

    /// Gives a leased event back because processing it failed.
    ///
    /// # Errors
    /// As `Store::fail`, and `OutcomeUnknown`.
    pub fn fail(&self, primary: &Primary, token: &Token, reason: &str) -> Result<()> {
        self.judge(primary, token, WireJudgement::Fail(reason.to_owned()), &[])
    }

    fn judge(
        &self,
        primary: &Primary,
        token: &Token,
        judgement: WireJudgement,
        results: &[ResultFragment<'_>],
    ) -> Result<()> {
        let results = results.iter().map(|result| (result.source.clone(), result.bytes.to_vec())).collect();
        let verdict = Verdict { primary: *primary, token: *token, judgement, results };
        self.decide(&[verdict])?.pop().ok_or_else(|| Error::corrupt("an answer without an outcome"))?
    }

    /// Decides about many events with one request; outcomes in the same order.
    ///
    /// # Errors
    /// Those of single verdicts are in their outcomes; `OutcomeUnknown` for the call: it may be repeated, except for what
    /// was given back.
    pub fn decide(&self, verdicts: &[Verdict]) -> Result<Vec<Result<()>>> {
        let (meta, payload) = encode_verdicts(verdicts)?;
        let (outcomes, is_repeat) = self.calls().call(Call::Verdict.repeat(), NO_WAIT, |connection, is_repeat| {
            let request = connection.send(Call::Verdict, &meta, &payload)?;
            let answer = connection.answer(request, |meta| Ok((read_units(meta)?, 0)))?;
            Ok((answer.said, is_repeat))
        })?;
        let mut outcomes = of_repeats(outcomes, is_repeat);
        for (verdict, outcome) in verdicts.iter().zip(&mut outcomes) {
            // Giving back is not remembered: the repeat of one that went through is fenced.
            let gives_back = matches!(verdict.judgement, WireJudgement::Requeue | WireJudgement::Fail(_));
            if is_repeat && gives_back && is_fenced(outcome) {
                *outcome = Err(unknown(&Error::unavailable("an answer was lost, and the lease is over")));
            } else if outcome.is_ok()
                && let Some(heartbeat) = self.heartbeat()
            {
                // Decided: an extension would only be `Fenced`. After an error the lease is kept, because the verdict
                // may be repeated.
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

/// Outcomes as those of a repeat, where that is what they are.
pub(crate) fn of_repeats(outcomes: Vec<Result<()>>, is_repeat: bool) -> Vec<Result<()>> {
    if !is_repeat {
        return outcomes;
    }
    outcomes.into_iter().map(|outcome| outcome.map_err(Error::of_repeat)).collect()
}

/// The meta of verdicts, and the bytes of their results.
pub(crate) fn encode_verdicts(verdicts: &[Verdict]) -> Result<(Vec<u8>, Vec<&[u8]>)> {
    let about = |(source, bytes): &(Source, Vec<u8>)| (source.clone(), bytes.len() as u32, crc32c(bytes));
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

fn is_fenced(outcome: &Result<()>) -> bool {
    outcome.as_ref().is_err_and(|error| error.kind() == Kind::Fenced)
}
