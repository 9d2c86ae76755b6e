//! The control path, for tests that are other programs: settings, faults and the log over HTTP.
//!
//! ```text
//! POST /_control/delay?ms=5              POST /_control/clock?seconds=-3600     POST /_control/conditions?ignore=true
//! POST /_control/bodies?trust=true       (the hash of a signed body is not checked)
//! POST /_control/expire?token=TOKEN      POST /_control/reset                   (faults, log, settings; objects stay)
//! POST /_control/fault?kind=status&status=503&code=SlowDown&method=GET&name=root&skip=1&times=2
//!      kinds: status stall reset cut stall-body flip flip-sent short whole lose-answer
//! GET  /_control/log                     one line of JSON for each request      GET /_control/in-flight   the most at once
//! ```

use super::fault::{Fault, Kind};
use super::serve::decoded;
use super::state::State;
use hyper::{Method, StatusCode};
use std::fmt::Write;
use std::time::Duration;

pub(super) fn answer(state: &mut State, method: &Method, what: &str, query: &str) -> (StatusCode, String) {
    let text = |name: &str| {
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.filter(|(key, _)| *key == name).map(|(_, value)| decoded(value)).next()
    };
    let number = |name: &str| text(name).and_then(|value| value.parse::<i64>().ok());
    let done = match (method, what) {
        (&Method::POST, "delay") => number("ms").map(|ms| state.delay = Duration::from_millis(ms.unsigned_abs())),
        (&Method::POST, "clock") => number("seconds").map(|seconds| state.clock_seconds = seconds),
        (&Method::POST, "conditions") => text("ignore").map(|ignore| state.ignores_conditions = ignore == "true"),
        (&Method::POST, "bodies") => text("trust").map(|trust| state.trusts_bodies = trust == "true"),
        (&Method::POST, "expire") => text("token").map(|token| state.expired.extend([token])),
        (&Method::POST, "reset") => {
            let objects = std::mem::take(&mut state.objects);
            let (buckets, in_flight) = (std::mem::take(&mut state.buckets), state.in_flight);
            *state = State { objects, buckets, in_flight, puts: state.puts, ..State::default() };
            Some(())
        }
        (&Method::POST, "fault") => {
            let status = number("status").and_then(|status| status.try_into().ok()).unwrap_or(500);
            let count = |name: &str, usual: u32| number(name).and_then(|n| n.try_into().ok()).unwrap_or(usual);
            let kind = text("kind").and_then(|kind| Kind::named(&kind, status, &text("code").unwrap_or_default()));
            kind.map(|kind| {
                let (method, name) = (text("method").unwrap_or_default(), text("name").unwrap_or_default());
                state.faults.push(Fault { method, name, skip: count("skip", 0), times: count("times", 1), kind });
            })
        }
        (&Method::GET, "in-flight") => return (StatusCode::OK, state.in_flight_max.to_string()),
        (&Method::GET, "log") => return (StatusCode::OK, log(state)),
        _ => None,
    };
    match done {
        Some(()) => (StatusCode::OK, String::new()),
        None => (StatusCode::BAD_REQUEST, format!("{method} {what}?{query}: no such control\n")),
    }
}

fn log(state: &State) -> String {
    let mut lines = String::new();
    for request in &state.log {
        let (method, name) = (&request.method, &request.name);
        let (status, bytes_in, bytes_out) = (request.status, request.bytes_in, request.bytes_out);
        // Names have no character that JSON escapes.
        writeln!(
            lines,
            r#"{{"method": "{method}", "name": "{name}", "status": {status}, "bytes_in": {bytes_in}, "bytes_out": {bytes_out}}}"#
        )
        .ok();
    }
    lines
}
