//! The policy of a run that masks sources (`auto_mask_after`): the run's home asks all nodes what they have counted, judges, and has
//! every node do what it decides.
//!
//! *On failure*: what a node counted before an answer was lost is not counted. While the home is away nothing is masked by itself.
//!
//! *Not here*: counting and judging (`forebay-store`).

use crate::keyspace::Keyspace;
use crate::orders::read;
use forebay_core::{Misses, Result, Signature, Source};
use forebay_store::Store;
use forebay_wire::Control;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// How often nodes are asked.
const LOOK: Duration = Duration::from_millis(100);

impl Keyspace {
    /// Judges as long as the node works.
    pub(crate) async fn go_on_judging(self: Arc<Keyspace>) {
        loop {
            tokio::time::sleep(LOOK).await;
            for (run, asked) in self.store.policy_asks() {
                if let Err(error) = self.judge(run, asked).await {
                    tracing::debug!(run, %error, "no mask by the policy of a run");
                }
            }
        }
    }

    async fn judge(self: &Arc<Keyspace>, run: u64, asked: Vec<Source>) -> Result<()> {
        let (map, own) = self.place()?;
        if self.home_of(run)? != own {
            return Ok(());
        }
        let control = Control::Misses { node: own, epoch: map.epoch(), run, sources: asked.clone() };
        let mut asking = JoinSet::new();
        for peer in self.all_peers().into_iter().filter(|peer| peer.silent().is_none()) {
            let control = control.clone();
            asking.spawn(async move {
                let answer = peer.client.control(&control).await.and_then(|json| read::<Vec<Misses>>(&json));
                (peer, answer)
            });
        }
        let mut told = vec![(own, self.here(move |store| store.take_misses(run, &asked)).await?)];
        while let Some(asked) = asking.join_next().await {
            match asked {
                Ok((peer, Ok(misses))) => told.push((peer.node, misses)),
                // It is away: nobody waits for it the next time.
                Ok((peer, Err(error))) if error.is_silence() => peer.fails(&error),
                _ => {}
            }
        }
        let changes = self.store.judge_misses(run, told);
        if changes.is_empty() {
            return Ok(());
        }
        let _one_after_another = self.in_turn().await?;
        // The others have what is in force here, also where not all of it could be done.
        let mask = move |store: &Store| Ok((store.mask_by_policy(run, &changes), store.run_words(run)?.by_policy));
        let (done, sources) = self.here(mask).await?;
        self.have_done(Signature::AUTO, &Control::MasksByPolicy { run, sources }).await;
        done
    }
}
