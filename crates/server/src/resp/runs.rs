//! Runs and accounts: FB.RUN, FB.LEDGER, FB.WHY.

use super::failure::Failure;
use super::keys;
use super::parse::Command;
use super::replies::Replies;
use super::turn::{Answer, Flow, Turn};
use forebay_core::{Call, Error, Ledger, RunConfig, ServedStore, Tally};
use std::ops::Deref;

fn run_number(word: &[u8]) -> Result<u64, Failure> {
    let text = keys::utf8(word)?;
    text.parse().map_err(|_| Failure::from(Error::invalid(format!("`{text}` is no number of a run"))))
}

/// FB.RUN OPEN run [configuration] | PAUSE run | RESUME run | STOP run | CLOSE run | SUMMARY run | LIST
pub(super) fn run<S: ServedStore>(turn: &mut Turn<'_, S>, command: Command<'_>) -> Answer {
    let word = command.part(1).to_ascii_uppercase();
    let call = if matches!(&word[..], b"LIST" | b"SUMMARY") { Call::Look } else { Call::Run };
    // Checked here and not by the table: LIST and SUMMARY need less than the words that change a run.
    turn.client.check(turn.shared, call, "fb.run")?;
    turn.call = Some(call);
    let store = turn.client.store()?;
    let words = command.len();
    match word.as_slice() {
        b"LIST" if words == 2 => {
            let runs = store.runs()?;
            turn.replies.map(runs.len());
            for run in runs {
                turn.replies.text(&run.run.to_string());
                turn.replies.text(run.state.name());
            }
            return Ok(Flow::Done);
        }
        b"OPEN" if matches!(words, 3 | 4) => {
            let config = match words {
                4 => RunConfig::from_toml(&text(command.part(3))?, store.schema())?,
                _ => store.keyspace().run.clone(),
            };
            turn.client.signed_store()?.run_open(run_number(command.part(2))?, &config)?;
        }
        b"PAUSE" if words == 3 => store.run_pause(run_number(command.part(2))?)?,
        b"RESUME" if words == 3 => store.run_resume(run_number(command.part(2))?)?,
        b"STOP" if words == 3 => store.run_stop(run_number(command.part(2))?)?,
        b"CLOSE" | b"SUMMARY" if words == 3 => {
            let run = run_number(command.part(2))?;
            let summary = if word == b"CLOSE" { store.run_close(run)? } else { store.run_summary(run)? };
            let json = serde_json::to_string(&summary)
                .map_err(|error| Error::internal("the summary is no JSON").with_source(error))?;
            turn.replies.text(&json);
            return Ok(Flow::Done);
        }
        _ => {
            return Err(Failure::err(
                "FB.RUN: expected OPEN run [configuration], PAUSE, RESUME, STOP, CLOSE or SUMMARY run, or LIST",
            ));
        }
    }
    turn.replies.ok();
    Ok(Flow::Done)
}

/// Text of any length that a command may have.
fn text(bytes: &[u8]) -> Result<String, Failure> {
    String::from_utf8(bytes.to_vec()).map_err(|_| Failure::from(Error::invalid("a configuration is text")))
}

/// FB.LEDGER run
pub(super) fn ledger<S: ServedStore>(turn: &mut Turn<'_, S>, command: Command<'_>) -> Answer {
    let ledger = turn.client.store()?.ledger(run_number(command.part(1))?)?;
    let replies = &mut *turn.replies;
    let offered = [
        ("offered", ledger.offered),
        ("stored", ledger.stored),
        ("duplicate", ledger.duplicate),
        ("conflict", ledger.conflict),
        ("late", ledger.late),
        ("refused", ledger.refused),
    ];
    let stored = ledger.stored_terms();
    let events = events(&ledger);
    replies.map(offered.len() + stored.len() + events.len() + 1);
    offered.iter().chain(&stored).for_each(|(name, tally)| write_tally(replies, name, tally));
    for (name, count) in events {
        replies.text(name);
        replies.number(count);
    }
    replies.text("imbalance");
    match ledger.imbalance() {
        Some(imbalance) => replies.text(&imbalance.to_string()),
        // Nil, and not a missing name: a client can see that the account was checked.
        None => replies.nothing(),
    }
    Ok(Flow::Done)
}

fn events(ledger: &Ledger) -> [(&'static str, u64); 4] {
    [
        ("complete", ledger.complete),
        ("incomplete", ledger.incomplete),
        ("never_seen", ledger.never_seen),
        ("awaited", ledger.awaited),
    ]
}

/// Events, fragments and bytes, in this order.
fn write_tally<F: Deref<Target = [u8]>>(replies: &mut Replies<F>, name: &str, tally: &Tally) {
    replies.text(name);
    replies.array(3);
    [tally.events, tally.fragments, tally.bytes].into_iter().for_each(|number| replies.number(number));
}

/// FB.WHY key
pub(super) fn why<S: ServedStore>(turn: &mut Turn<'_, S>, command: Command<'_>) -> Answer {
    let store = turn.client.store()?;
    let why = store.why(&keys::key(store.schema(), command.part(1))?)?;
    turn.replies.map(3);
    turn.replies.text("answer");
    turn.replies.text(&why.answer);
    turn.replies.text("because");
    turn.replies.text(&why.because);
    turn.replies.text("incidents");
    turn.replies.texts(why.incidents.iter());
    Ok(Flow::Done)
}
