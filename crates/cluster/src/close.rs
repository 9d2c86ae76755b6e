//! Closing a run on every node, or on none.
//!
//! ```text
//! every node of the run: homes are told what is held ─▶ nothing left? from here on it takes nothing ─▶ all said so ─▶ every other node closes it ─▶ the home closes it
//!                                     └ one did not: abandoned everywhere
//! ```
//!
//! *On failure*: a node that stops answering between the two halves is named, and the others stay closed: the close is repeated, and
//! ends there too. A node that is opened again in between takes puts until then. A home that dies in between tells the others
//! when it is back.

use crate::keyspace::{FORWARDED, Keyspace, Peer};
use forebay_core::mutants::is_planted;
use forebay_core::{Error, Kind, Result};
use forebay_wire::Control;
use std::sync::Arc;
use tokio::task::JoinSet;

impl Keyspace {
    /// Every node tells the homes of what it holds, and this one. What fails is said by the first half.
    async fn have_held_told(self: &Arc<Keyspace>, run: u64) {
        let Ok((map, node)) = self.place() else { return };
        let Ok(placement) = self.placement(&map) else { return };
        if !self.has_tables() {
            return;
        }
        let order = Control::TellHomes { node, epoch: map.epoch() };
        let reached =
            self.all_peers().into_iter().filter(|peer| peer.trouble().is_none() && placement.has_part(run, peer.node));
        let mut told: JoinSet<_> = reached
            .map(|peer| {
                let order = order.clone();
                async move {
                    let told = peer.forwards.control(&order).await;
                    if let Some(error) = told.err().filter(Error::is_silence) {
                        peer.fails(&error);
                    }
                }
            })
            .collect();
        // What is not told by then bars the close, with words.
        let _ = tokio::time::timeout(FORWARDED, self.tell_homes()).await;
        while told.join_next().await.is_some() {}
    }

    /// The home's turn is held.
    pub(crate) async fn close(self: &Arc<Keyspace>, signed: &str, run: u64) -> Result<Vec<u8>> {
        let catch_up = |peer: Arc<Peer>| {
            let keyspace = self.clone();
            async move { keyspace.catch_up(&peer).await.map(drop) }
        };
        let mut behind: JoinSet<_> = self.all_peers().into_iter().map(catch_up).collect();
        // What fails is said by the tries below.
        while behind.join_next().await.is_some() {}
        self.have_held_told(run).await;
        // By the map nothing of the run is left on the others: where they do not answer they are told later.
        let (map, own) = self.place()?;
        let placement = self.placement(&map)?;
        let stays = |node: u16, error: &Error| {
            let name = map.node(node).map(|node| node.name.as_str()).unwrap_or_default();
            format!("run {run} stays as it is: node {node} (`{name}`): {}", error.message())
        };
        let counts =
            |(peer, _): &(Arc<Peer>, Result<()>)| placement.has_part(run, peer.node) || peer.silent().is_none();
        let here = self.here_as(signed, &Control::BeginClose { run }).await;
        here.map_err(|error| Error::new(error.kind(), stays(own, &error)).with_source(error))?;
        let begun = match is_planted("close-alone") {
            true => Vec::new(),
            false => self.tell_all(signed, &Control::BeginClose { run }).await,
        };
        // One that is closed already was told so by an earlier try.
        let closed = |error: &Error| error.kind() == Kind::Closed;
        let refused = begun
            .into_iter()
            .filter(counts)
            .find_map(|(peer, told)| Some((peer, told.err().filter(|error| !closed(error))?)));
        if let Some((peer, error)) = refused {
            let error = Error::new(Kind::Unavailable, stays(peer.node, &error)).with_source(error);
            let abandon = Control::AbandonClose { run };
            self.here_as(signed, &abandon).await?;
            self.tell_all(signed, &abandon).await;
            return Err(error);
        }
        let told = self.tell_all(signed, &Control::RunClose { run }).await;
        for (peer, told) in told.into_iter().filter(counts) {
            if let Err(error) = told.or_else(|error| if closed(&error) { Ok(()) } else { Err(error) }) {
                return Err(Error::unavailable(format!(
                    "run {run} may be closed on other nodes, and not on node {} (`{}`): {}. Close it again",
                    peer.node,
                    peer.name,
                    error.message()
                ))
                .with_source(error));
            }
        }
        self.here_as(signed, &Control::RunClose { run }).await
    }
}
