//! Put alone, get alone, get and remove alone.
//!
//! One store per repetition and size; between passes it is emptied, outside of the measurement, so that all but the
//! first pass write into recycled segments, as a store in service does.

use super::engine::{Numbering, SOURCES, Span, create, rate, try_side_by_side};
use super::options::Plan;
use super::results::Results;
use super::source::{Buffer, Warmth};
use crate::Result;

/// Measures one repetition at one size.
pub(super) fn measure(plan: &Plan, buffer: &Buffer, bytes: usize, results: &mut Results) -> Result<()> {
    let fragments = plan.fragments(bytes);
    let events = fragments / SOURCES;
    let mut bench = create(plan, SOURCES)?;

    // A first pass, not measured: from here on segments are recycled ones.
    let run = bench.new_run(SOURCES)?;
    Span::dense(run, 0..events).put(&bench.store, &mut buffer.blocks(bytes, Warmth::Cached, 0, 1))?;
    bench.end_run(run)?;

    for threads in [1, 2] {
        for warmth in Warmth::BOTH {
            let run = bench.new_run(SOURCES)?;
            let share = SOURCES / threads;
            let span = |thread: u64| Span {
                sources: thread * share..(thread + 1) * share,
                numbering: Numbering::Dense,
                run,
                events: 0..events,
            };
            let per_second = putting(&bench.store, buffer, bytes, warmth, (0..threads).map(span).collect())?;
            results.record(&format!("put.{}.{threads}", warmth.word()), bytes, per_second);
            if (threads, warmth) == (1, Warmth::Cached) {
                reading(&bench.store, &span(0), bytes, results)?;
            }
            bench.end_run(run)?;
        }
    }

    let run = bench.new_run(SOURCES)?;
    let half = events / 2;
    let spans = vec![Span::dense(run, 0..half), Span::dense(run, half..2 * half)];
    results.record("put.events.2", bytes, putting(&bench.store, buffer, bytes, Warmth::Cached, spans)?);
    bench.end_run(run)?;

    // Every event costs index memory of its own here: a quarter of the fragments is plenty.
    let run = bench.new_run(1)?;
    let spans = vec![Span::single(run, 0..fragments / 4)];
    results.record("put.single.1", bytes, putting(&bench.store, buffer, bytes, Warmth::Cached, spans)?);
    bench.end_run(run)
}

fn putting(
    store: &forebay_store::Store,
    buffer: &Buffer,
    bytes: usize,
    warmth: Warmth,
    spans: Vec<Span>,
) -> Result<f64> {
    let threads = spans.len();
    try_side_by_side(spans.into_iter().enumerate().collect(), |(thread, span)| {
        let store = store.named(&format!("put-{thread}"));
        span.put(&store, &mut buffer.blocks(bytes, warmth, thread, threads))?;
        Ok(span.fragments())
    })
}

fn reading(store: &forebay_store::Store, span: &Span, bytes: usize, results: &mut Results) -> Result<()> {
    let store = store.named("get");
    let many = span.fragments();
    results.record("get.verify", bytes, rate(many, || span.get_verified(&store))?);
    results.record("get.untouched", bytes, rate(many, || span.get_untouched(&store))?);
    results.record("getremove", bytes, rate(many, || span.get_and_remove(&store))?);
    Ok(())
}
