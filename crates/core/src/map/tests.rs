//! Maps that are refused, and random histories of maps.

use super::*;
use crate::Kind;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn node(id: u16) -> Node {
    Node {
        id,
        name: format!("ru-{id:02}"),
        at: vec![format!("tcp://10.0.0.{id}:7000")],
        domain: format!("rack{}", id % 3),
        holds: (Hex128(u128::from(id) + 1), 0),
        state: NodeState::Active,
    }
}

fn cluster(nodes: u16, copies: u8) -> ClusterMap {
    let map = ClusterMap::new(Hex128(0x9f), (0..nodes).map(node).collect()).unwrap();
    map.next_map(&Change::Keyspace { name: "physics".into(), copies, copies_min: 1, block: 6 }).unwrap()
}

fn physics(map: &ClusterMap) -> &KeyspaceMap {
    map.keyspace("physics").unwrap()
}

/// Slots of each active node in the last layout.
fn shares(map: &ClusterMap) -> Vec<usize> {
    let last = physics(map).layouts().last().unwrap();
    let active = map.nodes().iter().filter(|node| node.state == NodeState::Active);
    active.map(|node| last.slots().filter(|group| group.has(node.id)).count()).collect()
}

fn even(map: &ClusterMap) -> bool {
    let shares = shares(map);
    shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 1
}

#[test]
fn text_reads_back_and_has_one_form() {
    let sources = vec![("0..49".to_owned(), vec![0]), ("50".to_owned(), vec![1, 2])];
    let map = cluster(3, 2);
    let map = map.next_map(&Change::Table { keyspace: "physics".into(), from_run: 900, sources }).unwrap();
    let text = map.to_json();
    let read = ClusterMap::from_json(&text).unwrap();
    assert_eq!(read, map);
    assert_eq!(read.to_json(), text);
    let other = text.replace("rack1", "rack9");
    assert!(ClusterMap::from_json(&other).unwrap_err().message().contains("its hash is"));
    // FNV's own vectors.
    assert_eq!(format!("{:?}", text::fnv(b"")), "6c62272e07bb014262b821756295c58d");
    assert_eq!(format!("{:?}", text::fnv(b"a")), "d228cb696f1a8caf78912b704e4a8964");
}

#[test]
fn lookups_follow_runs() {
    let sources = vec![("0..49".to_owned(), vec![0]), ("50..99".to_owned(), vec![1, 2])];
    let map = cluster(3, 1).next_map(&Change::TakeOut { node: 1, from_run: 500 }).unwrap();
    let map = map.next_map(&Change::Table { keyspace: "physics".into(), from_run: 900, sources }).unwrap();
    let keyspace = physics(&map);
    let runs: Vec<u64> = [0, 499, 500, 900].map(|run| keyspace.layout_for(run).from_run()).into();
    assert_eq!(runs, [0, 0, 500, 500]);
    let primary = (0..=u8::MAX).map(|at| [1, at, 0]).find(|key| keyspace.home(499, key) == 1).unwrap();
    assert_ne!(keyspace.home(500, &primary), 1);
    assert_eq!(keyspace.members(499, &primary).members[0].node, 1);
    let holders = |run, source| keyspace.holders(run, &primary, &[source]).collect::<Vec<_>>();
    assert_eq!(holders(499, 7), [1]);
    assert_eq!((holders(900, 49), holders(900, 50), holders(900, 100)), (vec![0], vec![1, 2], vec![]));
}

#[test]
fn what_is_wrong_is_named() {
    let text = |nodes: &str, keyspace: &str| {
        let cluster = "9f000000000000000000000000000000";
        format!(r#"{{"cluster":"{cluster}","epoch":5,"nodes":[{nodes}],"keyspaces":{{"k":{keyspace}}}}}"#)
    };
    let one = |id: u16, name: &str, at: &str| {
        format!(r#"{{"id":{id},"name":"{name}","at":["{at}"],"domain":"d","holds":["{id:032x}",0],"state":"active"}}"#)
    };
    let nodes = [one(1, "a", "x"), one(2, "b", "y")].join(",");
    let slots =
        |slots: &str| format!(r#"{{"copies":2,"copies_min":1,"layouts":[{{"from_run":0,"slots":[{slots}]}}]}}"#);
    let group = |members: &str| slots(&format!(r#"[0,4095,{{"since":4,"members":[{members}]}}]"#));
    let full = r#"{"since":4,"members":[[1,4,"full"]]}"#;
    let good = group(r#"[1,4,"full"],[2,3,"joining"]"#);
    ClusterMap::from_json(&text(&nodes, &good)).unwrap();
    let layout = format!(r#"{{"from_run":0,"slots":[[0,4095,{full}]]}}"#);
    let layouts = |layouts: &str| format!(r#"{{"copies":1,"copies_min":1,"layouts":[{layouts}]}}"#);
    let table = |sources: &str| {
        let table = format!(r#""tables":[{{"from_run":1,"hash":"{:032x}","sources":[{sources}]}}]"#, 0);
        format!(r#"{{"copies":1,"copies_min":1,"layouts":[{layout}],{table}}}"#)
    };
    let cases = [
        (nodes.clone(), slots(&format!("[0,9,{full}],[11,4095,{full}]")), "hole"),
        (nodes.clone(), slots(&format!("[0,9,{full}],[9,4095,{full}]")), "overlap"),
        (nodes.clone(), slots(&format!("[0,4096,{full}]")), "at most 4095"),
        (nodes.clone(), slots(&format!("[0,4094,{full}]")), "ends before slot 4095"),
        (nodes.clone(), group(r#"[3,4,"full"]"#), "no node 3"),
        (nodes.clone(), group(r#"[1,4,"full"],[1,4,"joining"]"#), "twice"),
        (nodes.clone(), group(r#"[1,4,"full"],[2,4,"full"],[3,4,"full"]"#), "at most 2"),
        (nodes.clone(), group(r#"[1,4,"joining"]"#), "not full"),
        (nodes.clone(), group(""), "not full"),
        (nodes.clone(), group(r#"[1,5,"full"]"#), "member since 5"),
        (nodes.clone(), group(r#"[1,0,"full"]"#), "member since 0"),
        (nodes.clone(), good.replace(r#""since":4"#, r#""since":6"#), "since 6"),
        (nodes.clone(), good.replace(r#""copies_min":1"#, r#""copies_min":3"#), "copies_min"),
        (nodes.clone(), good.replace(r#""copies":2"#, r#""copies":2,"block":17"#), "block"),
        (nodes.clone(), good.replace(r#""copies":2"#, r#""copies":2,"extra":17"#), "unknown field"),
        (nodes.clone(), layouts(""), "run 0"),
        (nodes.clone(), layouts(&layout.replace(r#""from_run":0"#, r#""from_run":1"#)), "run 0"),
        (nodes.clone(), layouts(&format!("{layout},{layout}")), "order them"),
        (nodes.clone(), table(r#"["0..9",[1]],["9..10",[2]]"#), "not behind"),
        (nodes.clone(), table(r#"["5",[1]],["0..3",[2]]"#), "not behind"),
        (nodes.clone(), table(r#"["5",[1,1]]"#), "two different"),
        (nodes.clone(), table(r#"["5..4",[1]]"#), "FIRST..LAST"),
        (nodes.clone(), table(r#"["5",[1]]"#), "its hash"),
        (nodes.clone(), format!(r#"{good},"k":{good}"#), "there twice"),
        (one(1, "a", "x") + "," + &one(1, "b", "y"), good.clone(), "number 1"),
        (one(1, "a", "x") + "," + &one(2, "a", "y"), good.clone(), "name `a`"),
        (one(1, "a", "x") + "," + &one(2, "b", "x"), good.clone(), "address `x`"),
        (one(1024, "a", "x"), good.clone(), "1023"),
        (nodes.replace(r#""active""#, r#""gone""#), good.clone(), "is gone"),
    ];
    for (nodes, keyspace, words) in cases {
        let error = ClusterMap::from_json(&text(&nodes, &keyspace)).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid);
        assert!(error.message().contains(words), "{words}: {error}");
    }
    assert!(ClusterMap::from_json(&" ".repeat(MAP_BYTES_MAX + 1)).unwrap_err().message().contains("at most"));
}

#[test]
fn a_map_that_breaks_a_rule_is_not_adopted() {
    let old = cluster(4, 2);
    assert_eq!(old.succeeds(&old, None).unwrap(), Succession::Same);
    let new = old.next_map(&Change::MemberLost { node: 0 }).unwrap();
    assert_eq!(old.succeeds(&new, None).unwrap(), Succession::Later);
    assert_eq!(new.succeeds(&old, None).unwrap_err().kind(), Kind::Fenced);
    let twin = old.next_map(&Change::MemberLost { node: 1 }).unwrap();
    let alarm = new.succeeds(&twin, None).unwrap_err();
    assert!(alarm.kind() == Kind::Conflict && alarm.message().contains("ALARM"), "{alarm}");

    let refused = |old: &ClusterMap, words: &str, change: &dyn Fn(&mut Vec<Node>, &mut KeyspaceMap)| {
        let (mut nodes, mut keyspaces) = (old.nodes.clone(), old.keyspaces.clone());
        change(&mut nodes, keyspaces.get_mut("physics").unwrap());
        let new = ClusterMap::build(old.cluster, old.epoch + 1, nodes, keyspaces).unwrap();
        let error = old.succeeds(&new, Some(10)).unwrap_err();
        assert!(error.message().contains(words), "{words}: {error}");
    };
    let edit = |keyspace: &mut KeyspaceMap, change: &dyn Fn(&mut Group)| {
        let mut slots: Vec<Group> = keyspace.layouts[0].slots().cloned().collect();
        change(&mut slots[0]);
        keyspace.layouts[0] = Layout::of_slots(0, slots.into_iter()).unwrap();
    };
    let (new_full, standing) = (|node| Member { node, since: 3, standing: Standing::Full }, Standing::Joining);
    refused(&old, "holding identity", &|nodes, _| nodes[0].holds.1 = 1);
    refused(&old, "not given again", &|nodes, keyspace| {
        nodes.push(node(9));
        nodes.retain(|node| node.id != 3);
        let at = |member: &mut Member| member.node = if member.node == 3 { 9 } else { member.node };
        let mut slots: Vec<Group> = keyspace.layouts[0].slots().cloned().collect();
        slots.iter_mut().flat_map(|group| &mut group.members).for_each(at);
        keyspace.layouts[0] = Layout::of_slots(0, slots.into_iter()).unwrap();
    });
    refused(&old, "since falls", &|_, keyspace| {
        edit(keyspace, &|group| {
            group.since = 1;
            group.members.iter_mut().for_each(|member| member.since = 1);
        })
    });
    refused(&old, "since stays", &|_, keyspace| edit(keyspace, &|group| group.members.reverse()));
    refused(&old, "was full", &|_, keyspace| edit(keyspace, &|group| group.members[1].standing = standing));
    refused(&old, "new and full", &|_, keyspace| {
        edit(keyspace, &|group| *group = Group { since: 3, members: vec![group.members[0], new_full(2)] })
    });
    refused(&new, "last full", &|_, keyspace| {
        edit(keyspace, &|group| {
            group.since = 4;
            group.members.remove(0);
            group.members[0].standing = Standing::Full;
        })
    });
    refused(&old, "block", &|_, keyspace| keyspace.block = 0);
    refused(&old, "run 10 has begun", &|_, keyspace| {
        let slots = keyspace.layouts[0].slots().cloned().collect::<Vec<_>>();
        keyspace.layouts.push(Layout::of_slots(10, slots.into_iter()).unwrap());
    });
    let longer = old.next_map(&Change::TakeOut { node: 0, from_run: 10 }).unwrap();
    refused(&longer, "a layout lacks", &|_, keyspace| keyspace.layouts.truncate(1));
    // A layout of which no run has begun here may give way: a node that has begun one refuses it for all.
    let unused = old.next_map(&Change::TakeOut { node: 0, from_run: 11 }).unwrap();
    let mut keyspaces = unused.keyspaces.clone();
    let slots = physics(&old).layouts()[0].slots().cloned().collect::<Vec<_>>();
    keyspaces.get_mut("physics").unwrap().layouts[1] = Layout::of_slots(20, slots.into_iter()).unwrap();
    let new = ClusterMap::build(old.cluster, unused.epoch + 1, unused.nodes.clone(), keyspaces).unwrap();
    assert_eq!(unused.succeeds(&new, Some(10)).unwrap(), Succession::Later);
    assert!(unused.succeeds(&new, Some(11)).unwrap_err().message().contains("keep it"));
    assert!(unused.succeeds(&new, None).unwrap_err().message().contains("keep it"));
}

#[test]
fn a_lost_member_is_replaced_in_another_domain_and_the_last_full_one_stays() {
    let old = cluster(6, 2);
    let new = old.next_map(&Change::MemberLost { node: 0 }).unwrap();
    let domain = |member: &Member| &new.node(member.node).unwrap().domain;
    for (before, after) in physics(&old).layouts()[0].slots().zip(physics(&new).layouts()[0].slots()) {
        if !before.has(0) {
            assert_eq!(before, after);
            continue;
        }
        let next = before.full().find(|member| member.node != 0).unwrap();
        assert_eq!((&after.members[0], after.since, after.members.len()), (next, new.epoch(), 2));
        assert_eq!((after.members[1].standing, after.members[1].since), (Standing::Joining, new.epoch()));
        assert_ne!(domain(&after.members[0]), domain(&after.members[1]));
    }
    let alone = cluster(3, 1).next_map(&Change::MemberLost { node: 0 }).unwrap_err();
    assert!(alone.message().contains("wait for it"), "{alone}");
}

#[test]
fn copies_that_lacked_come_back_with_a_node() {
    let map = cluster(2, 2).next_map(&Change::TakeOut { node: 1, from_run: 5 }).unwrap();
    assert!(physics(&map).layout_for(5).slots().all(|group| group.members.len() == 1));
    let map = map.next_map(&Change::Add { node: node(1), from_run: 9 }).unwrap();
    assert!(physics(&map).layout_for(9).slots().all(|group| group.members.len() == 2 && group.since == map.epoch()));
}

#[test]
fn five_hundred_nodes_stay_small() {
    let nodes = (0..500).map(|id| Node { at: vec![format!("tcp://n{id}:1")], ..node(id) }).collect();
    let map = ClusterMap::new(Hex128(1), nodes).unwrap();
    let map = map.next_map(&Change::Keyspace { name: "physics".into(), copies: 2, copies_min: 1, block: 6 }).unwrap();
    assert!(even(&map));
    let text = map.to_json();
    assert!(text.len() < 120_000, "{} bytes", text.len());
    assert_eq!(physics(&map).layouts()[0].groups().len(), 500);
    assert_eq!(ClusterMap::from_json(&text).unwrap(), map);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Invariants 7, 8 and 16 of maps: one home a slot, `since` never falls, no slot loses its last full member. And: slots
    /// move only from a node taken out, or to a node added.
    #[test]
    fn any_changes_keep_the_rules(copies in 1_u8..=3, steps in prop::collection::vec((0_u8..4, 0_u16..9), 1..12)) {
        let mut map = cluster(6, copies);
        let mut run = 0;
        for (what, id) in steps {
            run += 10;
            let change = match what {
                0 => Change::TakeOut { node: id, from_run: run },
                1 => Change::Add { node: node(id), from_run: run },
                2 => Change::MemberLost { node: id },
                _ => Change::Full { node: id },
            };
            let Ok(new) = map.next_map(&change) else { continue };
            prop_assert_eq!(new.epoch(), map.epoch() + 1);
            prop_assert_eq!(map.succeeds(&new, Some(run - 1)).unwrap(), Succession::Later);
            prop_assert_eq!(&ClusterMap::from_json(&new.to_json()).unwrap(), &new);
            let (old_last, new_last) = (physics(&map).layouts().last().unwrap(), physics(&new).layouts().last().unwrap());
            for (before, after) in physics(&map).layouts().iter().zip(physics(&new).layouts()) {
                for (before, after) in before.slots().zip(after.slots()) {
                    prop_assert!(after.since >= before.since && after.members[0].standing == Standing::Full);
                    let kept = before.full().any(|full| after.full().any(|now| now.node == full.node));
                    prop_assert!(kept, "{:?} became {:?}", before, after);
                }
            }
            for (before, after) in old_last.slots().zip(new_last.slots()) {
                let nodes = |group: &Group| group.members.iter().map(|member| member.node).collect::<BTreeSet<_>>();
                match what {
                    0 => prop_assert!(before.has(id) || nodes(before) == nodes(after)),
                    1 => prop_assert!(after.has(id) || nodes(before) == nodes(after)),
                    _ => {}
                }
            }
            map = new;
        }
    }

    /// With one copy, nodes that come and go leave every share within one slot of even.
    #[test]
    fn shares_stay_even(steps in prop::collection::vec((any::<bool>(), 0_u16..9), 1..16)) {
        let mut map = cluster(5, 1);
        prop_assert!(even(&map));
        for (run, (out, id)) in (1..).zip(steps) {
            let change = if out {
                Change::TakeOut { node: id, from_run: run }
            } else {
                Change::Add { node: node(id), from_run: run }
            };
            if let Ok(new) = map.next_map(&change) {
                map = new;
                prop_assert!(even(&map), "{:?} after {:?}", shares(&map), change);
            }
        }
    }
}
