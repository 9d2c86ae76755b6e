//! Every decoder under libFuzzer, in one program: `--target=NAME` says which one. `cargo xtask fuzz` builds it, with what
//! instruments Forebay's crates, and runs it.
//!
//! *Invariants*: each module with a function `target` is in the table below, and has kept inputs in `fuzz/kept` (tidy).
#![no_main]
#![expect(clippy::unwrap_used, reason = "a target that panics has found something")]

mod seal;

use libfuzzer_sys::Corpus;
use libfuzzer_sys::arbitrary::{Arbitrary, Unstructured};
use std::sync::LazyLock;

/// Makes the modules, and the table of their names.
macro_rules! targets {
    ($($name:ident),* $(,)?) => {
        $(mod $name;)*

        /// Each target, by its name.
        const TARGETS: &[(&str, fn(&[u8]) -> Corpus)] = &[$((stringify!($name), |bytes| made(bytes, $name::target))),*];
    };
}

targets! {
    archive,
    attributes,
    cluster_map,
    codec,
    container,
    dataset,
    decision_slot,
    device_log,
    dune,
    entry,
    frames,
    key_text,
    log_blob,
    resp,
    ring_key,
    ring_note,
    schema,
    segment_header,
    session,
    state_word,
    superblock,
    wire,
}

/// Gives the target what the bytes make. Bytes that make nothing of its type are not kept.
fn made<'a, T: Arbitrary<'a>>(bytes: &'a [u8], target: fn(T)) -> Corpus {
    if bytes.len() < T::size_hint(0).0 {
        return Corpus::Reject;
    }
    match T::arbitrary_take_rest(Unstructured::new(bytes)) {
        Ok(input) => {
            target(input);
            Corpus::Keep
        }
        Err(_) => Corpus::Reject,
    }
}

/// The target of this process. libFuzzer leaves alone what begins with two dashes.
static TARGET: LazyLock<fn(&[u8]) -> Corpus> = LazyLock::new(|| {
    let wanted = std::env::args().find_map(|argument| argument.strip_prefix("--target=").map(str::to_owned));
    let found = TARGETS.iter().find(|(name, _)| Some(*name) == wanted.as_deref());
    found.unwrap_or_else(|| panic!("--target={}: no such target", wanted.unwrap_or_default())).1
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| -> Corpus { TARGET(bytes) });
