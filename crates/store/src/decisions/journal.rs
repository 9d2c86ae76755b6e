//! The bytes of what the log says in words of its own: runs, masks, holds, producers. `docs/format-hot.md` has them.

use crate::runs::{Hold, KnownRun, MaskChange, PrescaleChange, RunTime};
use forebay_core::{
    AttributeSchema, DeadTimeRow, Error, Filter, InhibitClass, KeySchema, PrescaleFactor, Primary, ProducerStatus,
    Result, RunConfig, RunState, Signature,
};

pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    pub(super) fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.u32(bytes.len() as u32);
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn time(&mut self, time: &RunTime) {
        self.u64(time.ran_ns);
        self.u32(time.dead.len() as u32);
        for row in &time.dead {
            self.u32(InhibitClass::ALL.iter().position(|class| *class == row.cause).unwrap_or_default() as u32);
            self.bytes(row.level.as_bytes());
            self.bytes(row.owner.as_bytes());
            self.u64(row.ns);
        }
    }

    /// An empty name and a time of 0 say that they are not known.
    pub(super) fn signature(&mut self, signature: &Signature) {
        self.bytes(signature.by.as_deref().unwrap_or_default().as_bytes());
        self.u64(signature.at_ms.unwrap_or_default());
    }
}

pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        // By what is there, never by what a length says: the bytes may be damaged.
        let (head, rest) = self.0.split_at_checked(n).ok_or_else(|| Error::corrupt("a log entry ends early"))?;
        self.0 = rest;
        Ok(head)
    }

    pub(super) fn u32(&mut self) -> Result<u32> {
        let bytes = self.take(4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    pub(super) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from(self.u32()?) | u64::from(self.u32()?) << 32)
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8]> {
        let length = self.u32()?;
        self.take(length as usize)
    }

    /// A key of this length.
    pub(super) fn exactly(&mut self, length: usize) -> Result<Vec<u8>> {
        let bytes = self.bytes()?;
        if bytes.len() != length {
            return Err(Error::corrupt(format!("a log entry has a key of {} bytes, not {length}", bytes.len())));
        }
        Ok(bytes.to_vec())
    }

    pub(super) fn text(&mut self) -> Result<String> {
        String::from_utf8(self.bytes()?.to_vec())
            .map_err(|error| Error::corrupt("a name is not UTF-8").with_source(error))
    }

    pub(super) fn signature(&mut self) -> Result<Signature> {
        let (by, at_ms) = (self.text()?, self.u64()?);
        Ok(Signature { by: Some(by).filter(|by| !by.is_empty()), at_ms: Some(at_ms).filter(|at| *at > 0) })
    }

    pub(super) fn time(&mut self) -> Result<RunTime> {
        let ran_ns = self.u64()?;
        let mut dead = Vec::new();
        for _ in 0..self.u32()? {
            let class = self.u32()?;
            let cause = InhibitClass::ALL.get(class as usize).copied();
            let cause = cause.ok_or_else(|| Error::corrupt(format!("dead time of class {class}")))?;
            dead.push(DeadTimeRow { level: self.text()?, owner: self.text()?, cause, ns: self.u64()? });
        }
        Ok(RunTime::recovered(ran_ns, dead))
    }

    pub(super) fn factor(&mut self) -> Result<PrescaleFactor> {
        PrescaleFactor::new(f64::from_bits(self.u64()?))
            .map_err(|error| Error::corrupt("a prescale that cannot be").with_source(error))
    }

    /// The signature at the end of an entry; region format 4 had none.
    fn last_signature(&mut self) -> Result<Signature> {
        if self.0.is_empty() { Ok(Signature::default()) } else { self.signature() }
    }
}

/// A run's state and configuration.
pub(crate) fn encode_run(known: &KnownRun, schema: &KeySchema) -> Result<Vec<u8>> {
    let mut out = Writer(Vec::new());
    out.u64(known.run);
    out.u32(known.state as u32);
    // As text, not as fields: a later build reads what it knows of it, and a person can read the log.
    out.bytes(known.config.to_toml(schema)?.as_bytes());
    out.signature(&known.opened);
    out.time(&known.time);
    Ok(out.0)
}

pub(crate) fn decode_run(bytes: &[u8], schema: &KeySchema) -> Result<KnownRun> {
    let mut reader = Reader(bytes);
    let mut known = read_run(&mut reader, schema)?;
    if !reader.0.is_empty() {
        read_run_rest(&mut reader, &mut known)?;
    }
    Ok(known)
}

/// The part of a run that region format 4 had not.
pub(super) fn read_run_rest(reader: &mut Reader<'_>, known: &mut KnownRun) -> Result<()> {
    (known.opened, known.time) = (reader.signature()?, reader.time()?);
    Ok(())
}

pub(crate) fn encode_run_time(run: u64, time: &RunTime) -> Vec<u8> {
    let mut out = Writer(Vec::new());
    out.u64(run);
    out.time(time);
    debug_assert!(
        decode_run_time(&out.0).is_ok_and(|(_, read)| (read.ran_ns, &read.dead) == (time.ran_ns, &time.dead))
    );
    out.0
}

pub(crate) fn decode_run_time(bytes: &[u8]) -> Result<(u64, RunTime)> {
    let mut reader = Reader(bytes);
    Ok((reader.u64()?, reader.time()?))
}

/// The part of a run that region format 4 had as well.
pub(super) fn read_run(reader: &mut Reader<'_>, schema: &KeySchema) -> Result<KnownRun> {
    let run = reader.u64()?;
    let states = [RunState::Open, RunState::Stopped, RunState::Closed, RunState::Paused];
    let number = reader.u32()?;
    let state = states.into_iter().find(|state| *state as u32 == number);
    let state = state.ok_or_else(|| Error::corrupt(format!("run {run} in state {number}")))?;
    let text = reader.text()?;
    let config = RunConfig::from_toml(&text, schema)
        .map_err(|error| Error::corrupt(format!("run {run}: its configuration cannot be read")).with_source(error))?;
    Ok(KnownRun::new(run, state, config))
}

/// Its bytes, and how many of them say what changes; the others say who does it.
pub(crate) fn encode_mask(change: &MaskChange) -> (Vec<u8>, usize) {
    let mut out = Writer(Vec::new());
    out.u64(change.run);
    out.u32(u32::from(change.set) | u32::from(change.automatic) << 1);
    out.bytes(&change.source);
    // An empty key says `None`: no primary key is empty.
    out.bytes(change.from.as_ref().map_or(&[], Primary::as_bytes));
    let what = out.0.len();
    out.signature(&change.signature);
    (out.0, what)
}

pub(crate) fn decode_mask(bytes: &[u8], schema: &KeySchema) -> Result<MaskChange> {
    let mut reader = Reader(bytes);
    let (run, flags) = (reader.u64()?, reader.u32()?);
    let source = reader.exactly(schema.rest_bytes())?;
    let from = reader.bytes()?;
    let from = if from.is_empty() { None } else { Some(schema.primary_from_bytes(from)?) };
    let automatic = flags & 2 != 0;
    let mut signature = reader.last_signature()?;
    // Of an earlier format it is known at least where nobody did it.
    signature.by = signature.by.or_else(|| automatic.then(|| Signature::AUTO.to_owned()));
    Ok(MaskChange { run, source, set: flags & 1 != 0, from, automatic, signature })
}

/// Its bytes, and how many of them say what changes; the others say who does it.
pub(crate) fn encode_prescale(change: &PrescaleChange) -> (Vec<u8>, usize) {
    let mut out = Writer(Vec::new());
    out.u64(change.run);
    out.bytes(change.name.as_bytes());
    out.u64(change.factor.get().to_bits());
    // As of a mask.
    out.bytes(change.from.as_ref().map_or(&[], Primary::as_bytes));
    let what = out.0.len();
    out.signature(&change.signature);
    (out.0, what)
}

pub(crate) fn decode_prescale(bytes: &[u8], schema: &KeySchema) -> Result<PrescaleChange> {
    let mut reader = Reader(bytes);
    let (run, name, factor) = (reader.u64()?, reader.text()?, reader.factor()?);
    let from = reader.bytes()?;
    let from = if from.is_empty() { None } else { Some(schema.primary_from_bytes(from)?) };
    Ok(PrescaleChange { run, name, factor, from, signature: reader.signature()? })
}

pub(crate) fn encode_hold(hold: &Hold, set: bool) -> Vec<u8> {
    let mut out = Writer(Vec::new());
    out.u32(hold.id);
    out.u32(u32::from(set) | u32::from(hold.run.is_some()) << 1);
    out.u64(hold.run.unwrap_or_default());
    out.u32(hold.conditions.len() as u32);
    hold.conditions.iter().for_each(|condition| out.bytes(condition.as_bytes()));
    out.0
}

/// A hold, and whether it is set or ended.
pub(crate) fn decode_hold(bytes: &[u8], attributes: &AttributeSchema) -> Result<(Hold, bool)> {
    let mut reader = Reader(bytes);
    let (id, flags, run) = (reader.u32()?, reader.u32()?, reader.u64()?);
    let mut conditions = Vec::new();
    for _ in 0..reader.u32()? {
        conditions.push(reader.text()?);
    }
    // The words are kept and parsed again: the bytes of a filter are not part of the format.
    let filter = Filter::parse(attributes, &conditions)
        .map_err(|error| Error::corrupt("the conditions of a hold cannot be read").with_source(error))?;
    Ok((Hold { id, run: (flags & 2 != 0).then_some(run), conditions, filter }, flags & 1 != 0))
}

pub(crate) fn encode_producer(run: u64, producer: &ProducerStatus) -> Vec<u8> {
    let mut out = Writer(Vec::new());
    out.u64(run);
    out.u32(u32::from(producer.finished));
    out.bytes(producer.name.as_bytes());
    out.u64(producer.announced);
    out.u64(producer.fragments);
    out.u64(producer.bytes);
    debug_assert!(
        decode_producer(&out.0).is_ok_and(|(of, read)| of == run && read.name == producer.name),
        "a producer reads back"
    );
    out.0
}

/// A producer of a run as the log has it: one that has not finished is of an earlier life, and unknown.
pub(crate) fn decode_producer(bytes: &[u8]) -> Result<(u64, ProducerStatus)> {
    let mut reader = Reader(bytes);
    let (run, finished) = (reader.u64()?, reader.u32()? & 1 != 0);
    let name = reader.text()?;
    let (announced, fragments, bytes) = (reader.u64()?, reader.u64()?, reader.u64()?);
    Ok((run, ProducerStatus { name, finished, unknown: !finished, announced, fragments, bytes }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn masks_prescales_holds_and_producers_read_back() {
        let schema = KeySchema::run_event_source();
        let from = Some(schema.primary(&[3, 99]).unwrap());
        for from in [None, from] {
            let signature = Signature::new("shift", 1_700_000_000_000);
            let automatic = from.is_none();
            let change = MaskChange { run: 3, source: vec![0, 0, 0, 7], set: true, from, automatic, signature };
            let (bytes, what) = encode_mask(&change);
            assert_eq!(decode_mask(&bytes, &schema).unwrap(), change);
            // As region format 4 has it.
            let by = automatic.then(|| Signature::AUTO.to_owned());
            let unsigned = MaskChange { signature: Signature { by, at_ms: None }, ..change };
            assert_eq!(decode_mask(&bytes[..what], &schema).unwrap(), unsigned);
        }
        for (factor, from) in [(1.0, None), (f64::INFINITY, Some(schema.primary(&[3, 99]).unwrap()))] {
            let (name, factor) = ("jet-40".to_owned(), PrescaleFactor::new(factor).unwrap());
            let change = PrescaleChange { run: 3, name, factor, from, signature: Signature::new("shift", 9) };
            assert_eq!(decode_prescale(&encode_prescale(&change).0, &schema).unwrap(), change);
        }
        let attributes = AttributeSchema::parse(&["lumi:u32"], &[]).unwrap();
        let conditions = vec!["lumi=3..9".to_owned()];
        let filter = Filter::parse(&attributes, &conditions).unwrap();
        let hold = Hold { id: 5, run: Some(9), conditions, filter };
        assert_eq!(decode_hold(&encode_hold(&hold, true), &attributes).unwrap(), (hold, true));
        let producer = ProducerStatus {
            name: "readout-3".to_owned(),
            finished: true,
            unknown: false,
            announced: 1,
            fragments: 2,
            bytes: 3,
        };
        assert_eq!(decode_producer(&encode_producer(4, &producer)).unwrap(), (4, producer));
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            let schema = KeySchema::run_event_source();
            let attributes = AttributeSchema::parse(&["lumi:u32"], &[]).unwrap();
            let _ = decode_run(&bytes, &schema);
            let _ = decode_mask(&bytes, &schema);
            let _ = decode_prescale(&bytes, &schema);
            let _ = decode_run_time(&bytes);
            let _ = decode_hold(&bytes, &attributes);
            let _ = decode_producer(&bytes);
        }
    }
}
