//! A connection of Redis's protocol: any client of Redis can put, get and select.
//!
//! ```text
//! connection   socket, deadlines ─▶ session   commands, one after the other ─▶ table ─▶ strings, range, select, runs, about
//! parse, inline: what comes        replies: what goes out        landing: large values, straight into the store
//! ```
//!
//! What each command does, and where it differs from Redis: `docs/resp.md`.

mod about;
mod account;
mod ahead;
mod client;
mod connection;
mod failure;
mod inline;
mod input;
mod keys;
mod landing;
mod operate;
mod parse;
mod pool;
mod range;
mod replies;
mod ring;
mod runs;
mod select;
mod session;
mod strings;
mod table;
mod turn;

use crate::keyspaces::Keyspaces;
use crate::shared::Shared;
use crate::transport::Transport;
use connection::Connection;
use forebay_core::ServedStore;
use session::Session;
use std::sync::Arc;

/// Serves one connection to its end; why it ended.
pub(crate) async fn serve<T: Transport, S: ServedStore>(
    stream: T,
    shared: &Arc<Shared>,
    keyspaces: &Arc<Keyspaces<S>>,
) -> &'static str {
    let session = Box::new(Session::new(shared, keyspaces));
    let client = session.client_id();
    let reason = Connection::new(stream, &shared.limits).serve(session, shared).await;
    match reason {
        "deadline" | "limit" | "token" => tracing::warn!(client, reason, "a connection was ended"),
        _ => tracing::debug!(client, reason, "a connection ended"),
    }
    reason
}

/// The decoder of requests over bytes that come in two pieces, for the fuzzer: how many commands it found.
pub(crate) fn decode(bytes: &[u8], split: usize) -> usize {
    let (mut parser, mut start, mut commands) = (parse::Parser::new(1 << 16), 0, 0);
    let mut end = split.min(bytes.len());
    loop {
        match parser.parse(&bytes[start..end]) {
            Ok(parse::Progress::Whole(length)) => {
                commands += usize::from(parser.command(&bytes[start..start + length]).len() > 0);
                start += length;
                parser.reset();
            }
            Ok(parse::Progress::More) if end < bytes.len() => end = bytes.len(),
            Ok(parse::Progress::More) | Err(_) => return commands,
        }
    }
}
