//! One event as a person wants to know it: sources and their states, sizes, attributes, and what its payloads show.
//!
//! ```text
//! Sample ─▶ EventDisplay          frames that are known: kind, link, ADC histogram; others: first bytes
//! ```
//!
//! *Invariants*: nothing here panics, for any bytes of payloads (test `an_event_of_unknown_bytes_is_shown`).
//!
//! *Not here*: texts.

mod histogram;

pub use histogram::Histogram;

use crate::frames::{FrameKind, recognise};
use forebay_core::{Keyspace, ReadFragment, Sample};
use forebay_store::SourceState;
use serde::Serialize;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// First bytes that are shown of a payload that nobody knows.
const FIRST_BYTES: usize = 16;

/// One fragment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FragmentDisplay {
    /// Its source, as text.
    pub source: String,
    /// Payload bytes.
    pub bytes: usize,
    /// The producer's status bits.
    pub status: u32,
    /// `WIB1`, `WIBEth`, or `None` for other bytes.
    pub frames: Option<&'static str>,
    /// Link of the frames, or the first bytes in hexadecimal.
    pub shows: String,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EventDisplay {
    /// Its name, such as `1/42`.
    pub event: String,
    /// Its state.
    pub state: Cow<'static, str>,
    /// Stage of the selection.
    pub stage: String,
    /// Attributes by name.
    pub attributes: BTreeMap<String, String>,
    /// Fragments of the whole event.
    pub event_fragments: u32,
    /// Payload bytes of the whole event.
    pub event_bytes: u64,
    /// How many sources are in each state.
    pub sources: BTreeMap<&'static str, usize>,
    /// Sources that are not simply there, with their states.
    pub remarkable: Vec<(String, &'static str)>,
    /// Fragments that were read.
    pub fragments: Vec<FragmentDisplay>,
    /// Fragments that were not read, because they are too many bytes.
    pub left_out: u32,
    /// ADC values of known frames; `None` where there are none.
    pub adc: Option<Histogram>,
}

impl EventDisplay {
    /// From what a sampler gave.
    pub fn of_sample<F: ReadFragment>(sample: &Sample<F>, keyspace: &Keyspace) -> EventDisplay {
        let schema = &keyspace.schema;
        let mut sources = BTreeMap::new();
        let mut remarkable = Vec::new();
        for (source, state) in sample.sources.iter() {
            *sources.entry(state.name()).or_default() += 1;
            if state != SourceState::Present {
                remarkable.push((schema.source_text(source), state.name()));
            }
        }
        let mut adc = Histogram::default();
        let mut fragments = Vec::new();
        for fragment in &sample.fragments {
            let kind = recognise(fragment);
            if let Some(kind) = kind {
                adc.add(kind, fragment);
            }
            fragments.push(FragmentDisplay {
                source: schema.source_text(schema.rest_of(&fragment.key())),
                bytes: fragment.len(),
                status: fragment.status(),
                frames: kind.map(FrameKind::name),
                shows: kind.map_or_else(|| first_bytes(fragment), |kind| kind.link(fragment).to_string()),
            });
        }
        EventDisplay {
            event: schema.text(sample.primary.as_bytes()),
            state: sample.state.clone(),
            stage: sample.stage.clone(),
            attributes: sample.attributes.text(&keyspace.attributes).into_iter().collect(),
            event_fragments: sample.event_fragments,
            event_bytes: sample.event_bytes,
            sources,
            remarkable,
            fragments,
            left_out: sample.left_out,
            adc: adc.finished(),
        }
    }
}

fn first_bytes(bytes: &[u8]) -> String {
    let hex: Vec<String> = bytes.iter().take(FIRST_BYTES).map(|byte| format!("{byte:02x}")).collect();
    let rest = if bytes.len() > FIRST_BYTES { " …" } else { "" };
    format!("{}{rest}", hex.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_store::{Config, PutOptions, Sampling, Store};
    use std::time::Duration;

    fn shown(payloads: &[&[u8]]) -> EventDisplay {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("forebay-display-{}-{number}", std::process::id()));
        let keyspace = Keyspace::events("shown", payloads.len() as u32 + 1).opening_runs();
        let store = Store::create(&dir, &keyspace, Config { hot_bytes: 16 << 20, ..Config::default() }).unwrap();
        for (source, payload) in payloads.iter().enumerate() {
            let key = store.schema().key(&[1, 42, source as u64]).unwrap();
            let _ = store.put(&key, payload, &PutOptions::default()).unwrap();
        }
        let sample = store.sampler(&Sampling::default()).unwrap().next(Duration::from_secs(5)).unwrap().unwrap();
        let display = EventDisplay::of_sample(&sample, store.keyspace());
        store.close().unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        display
    }

    #[test]
    fn an_event_of_unknown_bytes_is_shown() {
        let many: Vec<&[u8]> = vec![&[0xAB; 20]; 9];
        let display = shown(&[&many[..], &[b""]].concat());
        assert_eq!((display.event.as_str(), &*display.state, display.event_bytes), ("1/42", "open", 180));
        assert_eq!(display.sources, [("empty", 1), ("present", 9)].into());
        assert_eq!(display.remarkable, [("9".to_owned(), "empty")]);
        assert_eq!(display.fragments[0].shows, "ab ab ab ab ab ab ab ab ab ab ab ab ab ab ab ab …");
        assert_eq!((display.adc, display.fragments.len()), (None, 10));
    }

    #[test]
    fn known_frames_show_their_link_and_values() {
        let mut fragment = vec![0; 7200];
        crate::emulator::frames(3).fill(1, 7, &mut fragment);
        let display = shown(&[&fragment]);
        let shown = &display.fragments[0];
        assert_eq!((shown.frames, &*shown.shows), (Some("WIBEth"), "detector 3, crate 0, slot 0, stream or fiber 7"));
        let adc = display.adc.unwrap();
        assert_eq!((adc.frames, adc.values), (1, 64 * 64));
        assert!((adc.min..adc.max).contains(&930), "{adc:?}");
    }
}
