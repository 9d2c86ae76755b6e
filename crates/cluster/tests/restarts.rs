//! Nodes go and come back while events are put, selected and decided: what was answered is there, and the account is exact.

use crate::common::{Cluster, NODES, eventually, keyspace};
use forebay_client::{ClusterClient, Options};
use forebay_core::{GetAny, Kind, PutOptions};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const RUN: u64 = 5;

fn connect(cluster: &Cluster) -> ClusterClient {
    let options = Options { deadline: Duration::from_millis(400), ..Options::default() };
    ClusterClient::connect(&cluster.addresses(), options).unwrap()
}

#[test]
fn every_answer_holds_while_nodes_go_and_come_back() {
    let mut cluster = Cluster::new();
    let client = connect(&cluster);
    client.run_open(RUN, &keyspace().run).unwrap();
    let (ends, stored, accepted) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let clients: Vec<ClusterClient> = (0..4).map(|_| connect(&cluster)).collect();
    std::thread::scope(|scope| {
        for (lane, client) in clients[..2].iter().enumerate() {
            let (ends, stored) = (&ends, &stored);
            scope.spawn(move || {
                let schema = client.schema();
                for event in (0..).map(|at| (at * 2 + lane as u64) * 64) {
                    for source in [0, 1] {
                        let key = schema.key(&[RUN, event, source]).unwrap();
                        // Until it is stored: its home comes back.
                        while let Err(error) = client.put(&key, key.as_bytes(), &PutOptions::default()) {
                            assert!(matches!(error.kind(), Kind::Unavailable | Kind::OutcomeUnknown), "{error}");
                        }
                        stored.fetch_add(1, Ordering::Relaxed);
                    }
                    if ends.load(Ordering::Relaxed) {
                        return;
                    }
                    std::thread::sleep(Duration::from_micros(300));
                }
            });
        }
        for client in &clients[2..] {
            let (ends, accepted) = (&ends, &accepted);
            scope.spawn(move || {
                while !ends.load(Ordering::Relaxed) {
                    let request = GetAny { n: 8, wait: Duration::from_millis(50), ..GetAny::default() };
                    for lease in client.get_any(&request).unwrap_or_default() {
                        // A verdict without an answer is given again, to the node that is back: it is told the same.
                        let verdict = || client.accept(&lease.primary, &lease.token, &["main"]);
                        let mut answer = verdict();
                        while answer
                            .as_ref()
                            .is_err_and(|error| matches!(error.kind(), Kind::Unavailable | Kind::OutcomeUnknown))
                        {
                            answer = verdict();
                        }
                        match answer {
                            Ok(()) => drop(accepted.fetch_add(1, Ordering::Relaxed)),
                            // Its node was opened again before the verdict came: the event is given out again.
                            Err(error) => assert_eq!(error.kind(), Kind::Fenced, "{error}"),
                        }
                    }
                }
            });
        }
        for round in 0..6 {
            std::thread::sleep(Duration::from_millis(150));
            let id = round % NODES + 1;
            cluster.stop(id);
            std::thread::sleep(Duration::from_millis(100));
            cluster.start(id);
        }
        std::thread::sleep(Duration::from_millis(200));
        ends.store(true, Ordering::Relaxed);
    });
    client.run_stop(RUN).unwrap();
    let mut late = 0;
    while client.ledger(RUN).unwrap().live.accepted.events + late < stored.load(Ordering::Relaxed) / 2 {
        for lease in client.get_any(&GetAny { n: 64, wait: Duration::from_millis(50), ..GetAny::default() }).unwrap() {
            lease.reject().unwrap();
            late += 1;
        }
    }
    eventually("the run closes", || client.run_close(RUN).is_ok());
    let ledger = client.ledger(RUN).unwrap();
    let (stored, accepted) = (stored.into_inner(), accepted.into_inner());
    assert!(stored > 200 && accepted > 50, "{stored} fragments, {accepted} verdicts: nothing went on");
    assert_eq!((ledger.stored.fragments, ledger.imbalance()), (stored, None), "each fragment once");
    assert_eq!(ledger.live.accepted.events, accepted, "each verdict once");
    assert_eq!(ledger.rejected.events, late);
    for id in 1..=NODES {
        assert_eq!(cluster.store(id).ledger(RUN).unwrap().imbalance(), None, "node {id}");
    }
}
