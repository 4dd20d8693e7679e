//! Three nodes as processes, a server of NATS, and all that may befall them: nobody serves a response that was purged.

mod homes;
mod stage;

use stage::{Nats, Node, Origin, all_met, wait_for};
use std::fs;

#[test]
fn a_purge_on_one_node_is_made_on_all() {
    let Some(nats) = Nats::start() else { return };
    let nodes = ["a", "b", "c"].map(|name| Node::start(&nats, name, "zone = \"east\""));
    let origin = Origin::start();
    all_met(&nodes.each_ref());
    let url = origin.url("/dir/x?q=1");
    let prefix = origin.url("/dir/");
    let host = origin.address.ip().to_string();
    let ways: [&[&str]; 5] = [&[&url], &["--prefix", &prefix], &["--tag", "all-of-it"], &["--host", &host], &["--all"]];
    for (turn, words) in ways.iter().flat_map(|words| [(*words, ""), (*words, "--soft")]).enumerate() {
        let before = nodes[0].get(&url);
        nodes.iter().for_each(|node| assert_eq!(node.get(&url), before, "{words:?}"));
        let after = origin.change();
        let all: Vec<&str> = words.0.iter().copied().chain([words.1]).filter(|word| !word.is_empty()).collect();
        let (status, said) = nodes[turn % 3].purge(&all);
        assert!(status == 0 && said.contains("applied on 3 of 3 nodes"), "{all:?}: {said}");
        nodes.iter().for_each(|node| assert_eq!(node.get(&url), after, "{all:?}"));
    }
    let after = origin.change();
    assert_eq!(nodes[1].purge_by_method(&url), "HTTP/1.1 200 OK");
    nodes.iter().for_each(|node| assert_eq!(node.get(&url), after));
    let status = nodes[2].status();
    assert_eq!((&status["gate"], &status["outbox"]), (&"open".into(), &0.into()), "{status}");
    assert!(status["members"].as_array().unwrap().iter().all(|member| member["zone"] == "east"), "{status}");
}

#[test]
fn a_stopped_node_serves_nothing_that_was_purged_meanwhile() {
    let Some(nats) = Nats::start() else { return };
    let nodes = ["a", "b"].map(|name| Node::start(&nats, name, ""));
    let origin = Origin::start();
    all_met(&nodes.each_ref());
    let url = origin.url("/x");
    nodes.iter().for_each(|node| assert_eq!(node.get(&url), "edition 1"));
    nodes[1].signal("STOP");
    let after = origin.change();
    let (status, said) = nodes[0].purge(&[&url]);
    assert!(status == 0 && said.contains("applied on 1 of 2 nodes") && said.contains("apart: b"), "{said}");
    assert_eq!(nodes[0].get(&url), after);
    nodes[1].signal("CONT");
    assert_eq!(nodes[1].get(&url), after, "{}", nodes[1].log());
}

#[test]
fn purges_wait_in_the_outbox_while_nats_is_away() {
    let Some(mut nats) = Nats::start() else { return };
    let mut nodes = ["a", "b"].map(|name| Node::start(&nats, name, ""));
    let origin = Origin::start();
    all_met(&nodes.each_ref());
    let url = origin.url("/x");
    nodes.iter().for_each(|node| assert_eq!(node.get(&url), "edition 1"));
    nats.kill();
    let after = origin.change();
    let (status, said) = nodes[0].purge(&[&url]);
    assert!(status == 0 && said.contains("queued"), "{said}");
    assert_eq!(nodes[0].get(&url), after);
    wait_for("the gate", || nodes[1].status()["gate"] == "shut");
    assert_eq!(nodes[1].get(&url), after, "it asks its origin");
    assert!(nodes[1].purge_by_method(&origin.url("/y")).contains(" 202 "));
    // The outbox survives, and its purge comes to the other node, whose copy is as old as the purge.
    let old = origin.url("/old");
    nodes.iter().for_each(|node| _ = node.get(&old));
    let newer = origin.change();
    nodes[0].purge(&[&old]);
    nodes[0].kill();
    nats.go_on();
    wait_for("the gate", || nodes[1].status()["gate"] == "open");
    assert_eq!(nodes[1].get(&old), after, "nobody could tell it of the purge yet");
    nodes[0].go_on();
    nodes[0].is_ready();
    wait_for("the outbox", || nodes[0].status()["outbox"] == 0 && nodes[1].status()["outbox"] == 0);
    wait_for("the purge", || nodes[1].get(&old) == newer);
    let (_, said) = nodes[1].purge(&[&url]);
    assert!(said.contains("applied on 2 of 2 nodes"), "{said}");
}

#[test]
fn a_late_joiner_and_one_that_lost_its_purges_serve_nothing_of_before() {
    let Some(nats) = Nats::start() else { return };
    let mut late = Node::start(&nats, "late", "");
    let origin = Origin::start();
    let url = origin.url("/x");
    assert_eq!(late.get(&url), "edition 1");
    late.stop();
    let first = Node::start(&nats, "first", "");
    let after = origin.change();
    let (_, said) = first.purge(&[&url]);
    assert!(said.contains("applied on 1 of 1 nodes"), "{said}");
    late.go_on();
    late.is_ready();
    assert_eq!(late.get(&url), after);
    late.stop();
    let after = origin.change();
    first.purge(&["--tag", "all-of-it"]);
    // Its own log and its place in the stream are lost.
    fs::remove_file(late.store().join("disk").join("purges.log")).unwrap();
    fs::remove_file(late.store().join("cluster.position")).unwrap();
    late.go_on();
    late.is_ready();
    assert_eq!(late.get(&url), after);
    // A purge without a server waits in the outbox.
    assert_eq!(first.get(&url), after);
    late.stop();
    let after = origin.change();
    let (status, said) = late.purge(&[&url]);
    assert!(status == 0 && said.contains("queued"), "{said}");
    assert_ne!(first.get(&url), after);
    late.go_on();
    wait_for("the purge", || first.get(&url) == after);
}

#[test]
fn a_stream_that_is_deleted_by_hand_purges_everything() {
    let Some(nats) = Nats::start() else { return };
    let nodes = ["a", "b"].map(|name| Node::start(&nats, name, ""));
    let origin = Origin::start();
    all_met(&nodes.each_ref());
    let url = origin.url("/x");
    nodes[0].purge(&["--tag", "other"]);
    nodes.iter().for_each(|node| assert_eq!(node.get(&url), "edition 1"));
    let incarnation = nodes[0].status()["stream"]["incarnation"].clone();
    let after = origin.change();
    let deleted = nats.publish("$JS.API.STREAM.DELETE.larder-purges", "", true).unwrap();
    assert!(deleted.contains("\"success\":true"), "{deleted}");
    for node in &nodes {
        wait_for("another stream", || {
            let status = node.status();
            status["stream"]["incarnation"] != incarnation && status["gate"] == "open"
        });
        assert_eq!(node.get(&url), after);
    }
    let (_, said) = nodes[1].purge(&[&url]);
    assert!(said.contains("applied on 2 of 2 nodes"), "{said}");
}

#[test]
fn a_full_stream_refuses_until_everything_is_purged() {
    let Some(nats) = Nats::start() else { return };
    let nodes = ["a", "b"].map(|name| Node::start(&nats, name, "purges_max = 1000"));
    let origin = Origin::start();
    all_met(&nodes.each_ref());
    let said = nodes[0].purge_tags(1_000);
    assert!(said.contains("\"state\":\"applied\""), "{said}");
    let (status, said) = nodes[1].purge(&["--tag", "one-more"]);
    assert!(status == 1 && said.contains("refused"), "{said}");
    let (_, said) = nodes[1].purge(&["--tag", "tag-7"]);
    assert!(said.contains("applied on 2 of 2 nodes"), "the stream has its scope already: {said}");
    let url = origin.url("/x");
    nodes.iter().for_each(|node| assert_eq!(node.get(&url), "edition 1"));
    let after = origin.change();
    let (status, said) = nodes[1].purge(&["--all"]);
    assert!(status == 0 && said.contains("applied on 2 of 2 nodes"), "{said}");
    nodes.iter().for_each(|node| assert_eq!(node.get(&url), after));
    let (_, said) = nodes[1].purge(&["--tag", "one-more"]);
    assert!(said.contains("applied on 2 of 2 nodes"), "{said}");
}

#[test]
fn messages_of_nobody_are_refused_and_counted() {
    let Some(nats) = Nats::start() else { return };
    let nodes = ["a", "b"].map(|name| Node::start(&nats, name, ""));
    let origin = Origin::start();
    all_met(&nodes.each_ref());
    let beat = |name: &str, instance: &str, sent_millis: u128| {
        format!(
            "{{\"v\":1,\"name\":\"{name}\",\"instance\":\"{instance}\",\"address\":\"\",\"zone\":\"\",\"requests_per_second\":0,\
             \"stream\":\"\",\"applied\":18446744073709551615,\"digest\":1,\"apart\":\"validate\",\"settings\":1,\"version\":\"1\",\
             \"sent_millis\":{sent_millis},\"leaves\":true}}"
        )
    };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    nats.publish("larder.members.x", "larder", false);
    nats.publish("larder.members.x", &beat("a", "1", now), false);
    nats.publish("larder.members.x", &beat("x", "1", 0), false);
    nats.publish("larder.members.b", &beat("b", "1", now), false);
    nats.publish("larder.members.x", &"x".repeat(100_000), false);
    nats.publish("larder.purge.tag.00", "{\"v\":1}", false);
    nats.publish("larder.purge.all.x.y.z", "", false);
    wait_for("refusals", || {
        let refused = nodes[0].status()["refused"].clone();
        let count = |why: &str| refused[why].as_u64().unwrap_or(0);
        count("unread") >= 3
            && count("subject") >= 1
            && count("clock") >= 1
            && count("name-taken") >= 1
            && count("too-long") >= 1
    });
    all_met(&nodes.each_ref());
    let url = origin.url("/x");
    wait_for("the refused ones, of whose purges nobody knows", || {
        nodes[0].purge(&[&url]).1.contains("applied on 2 of 2 nodes")
    });
    nodes.iter().for_each(|node| assert_eq!(node.get(&url), "edition 1"));
    let after = origin.change();
    let (_, said) = nodes[0].purge(&[&url]);
    assert!(said.contains("applied on 2 of 2 nodes"), "{said}");
    nodes.iter().for_each(|node| assert_eq!(node.get(&url), after));
}

#[test]
fn a_node_that_refuses_while_it_is_apart_answers_503() {
    let Some(mut nats) = Nats::start() else { return };
    let node = Node::start(&nats, "a", "apart = \"refuse\"");
    let origin = Origin::start();
    let url = origin.url("/x");
    assert_eq!(node.get(&url), "edition 1");
    nats.kill();
    wait_for("the gate", || node.status()["gate"] == "shut");
    assert!(node.get(&url).contains("may not have heard of purges"), "{}", node.get(&url));
    assert!(!node.purge_by_method(&url).is_empty());
    nats.go_on();
    wait_for("the gate", || node.status()["gate"] == "open");
    assert_eq!(node.get(&url), "edition 1");
}

#[test]
fn a_url_is_purged_by_the_keys_of_each_node() {
    let Some(nats) = Nats::start() else { return };
    let nodes = ["a", "b"].map(|name| Node::start(&nats, name, ""));
    let origin = Origin::start();
    all_met(&nodes.each_ref());
    // The key has `?id=1` alone, so that no rule about the whole URL is one about it.
    let (url, other) = (origin.url("/x?id=1&utm=y"), origin.url("/x?id=1&utm=z"));
    for node in &nodes {
        assert_eq!((node.get(&url), node.get(&other)), ("edition 1".to_owned(), "edition 1".to_owned()));
    }
    let after = origin.change();
    let (_, said) = nodes[0].purge(&[&url]);
    assert!(said.contains("applied on 2 of 2 nodes"), "{said}");
    nodes.iter().for_each(|node| assert_eq!(node.get(&other), after));
}

#[test]
fn numbers_of_another_stream_acknowledge_nothing() {
    let Some(nats) = Nats::start() else { return };
    let nodes = ["a", "b"].map(|name| Node::start(&nats, name, "purges_max = 1000"));
    let origin = Origin::start();
    all_met(&nodes.each_ref());
    let url = origin.url("/x");
    for _ in 0..5 {
        nodes[0].purge_tags(5);
        let before = nodes[0].get(&url);
        assert_eq!(nodes[1].get(&url), before);
        let incarnation = nodes[0].status()["stream"]["incarnation"].clone();
        nats.publish("$JS.API.STREAM.DELETE.larder-purges", "", true);
        nats.make_stream(1);
        let after = origin.change();
        let said = nodes[0].purge_by_api(&format!("url={url}"));
        if said.contains("\"state\":\"applied\"") && said.contains("\"missing\":[]") {
            assert_eq!(nodes[1].get(&url), after, "{said}");
        }
        for node in &nodes {
            wait_for("the other stream", || {
                let status = node.status();
                status["stream"]["incarnation"] != incarnation && status["gate"] == "open" && status["outbox"] == 0
            });
            assert_eq!(node.get(&url), after);
        }
    }
}

#[test]
fn purges_that_others_undo_in_the_stream_hold_for_a_node_that_was_down() {
    let Some(nats) = Nats::start() else { return };
    let mut nodes = ["a", "b"].map(|name| Node::start(&nats, name, ""));
    let origin = Origin::start();
    all_met(&nodes.each_ref());
    let url = origin.url("/x");
    let garbage = |nats: &Nats| {
        let stream = nats.stream();
        let subjects = stream["state"]["subjects"].as_object().unwrap();
        let tag = subjects.keys().find(|subject| subject.starts_with("larder.purge.tag.")).unwrap();
        nats.publish(tag, "larder", true);
    };
    let single = |nats: &Nats| nats.publish_with("larder.purge.tag.00", "Nats-Rollup: all", "{}");
    let ways: [&dyn Fn(&Nats); 2] = [&garbage, &single];
    for undo in ways {
        nodes.iter().for_each(|node| _ = node.get(&url));
        nodes[1].stop();
        let after = origin.change();
        let (status, said) = nodes[0].purge(&["--tag", "all-of-it"]);
        assert!(status == 0 && said.contains("applied on 1 of 1 nodes"), "{said}");
        undo(&nats);
        nodes[1].go_on();
        nodes[1].is_ready();
        assert_eq!(nodes[1].get(&url), after);
        all_met(&nodes.each_ref());
    }
    // A living node sees that a purge is gone which it knows, and has all others purge everything.
    let (_, said) = nodes[0].purge(&["--tag", "other"]);
    assert!(said.contains("applied on 2 of 2 nodes"), "{said}");
    let all = "{\"filter\":\"larder.purge.tag.>\"}";
    nats.publish("$JS.API.STREAM.PURGE.larder-purges", all, true).unwrap();
    let is_everything = |subject: &String| subject.starts_with("larder.purge.all.");
    wait_for("a purge of everything", || {
        nats.stream()["state"]["subjects"].as_object().is_some_and(|subjects| subjects.keys().any(is_everything))
    });
}

#[test]
fn a_stream_that_lost_its_end_and_grew_again_hides_nothing_from_a_node_that_was_down() {
    let Some(mut nats) = Nats::start() else { return };
    let mut nodes = ["a", "b"].map(|name| Node::start(&nats, name, ""));
    let origin = Origin::start();
    all_met(&nodes.each_ref());
    let url = origin.url("/x");
    nodes[0].purge_tags(3);
    nats.kill();
    let earlier = nats.copy();
    nats.go_on();
    // Some may be queued until NATS is connected again.
    nodes[0].purge_tags(10);
    nodes.iter().for_each(|node| wait_for("all purges", || node.status()["applied"] == 13));
    assert_eq!(nodes[1].get(&url), "edition 1");
    // SIGTERM: its place in the stream is on disk.
    nodes.iter_mut().for_each(Node::stop);
    nats.kill();
    nats.put_back(&earlier);
    nats.go_on();
    // The stream grows to the numbers of before, and further, without a node that knows of its loss.
    let third = Node::start(&nats, "c", "");
    let after = origin.change();
    third.purge(&[&url]);
    third.purge_tags(20);
    nodes[1].go_on();
    nodes[1].is_ready();
    assert_eq!(nodes[1].get(&url), after);
}

#[test]
fn a_leader_that_hears_nobody_gives_no_contact() {
    let Some(servers) = Nats::start_three() else { return };
    wait_for("a stream of three copies", || servers[0].make_stream(3).contains("\"num_replicas\":3"));
    wait_for("a leader", || servers[0].stream()["cluster"]["leader"].is_string());
    let leader = servers[0].stream()["cluster"]["leader"].as_str().map(|name| name[1..].parse::<usize>().unwrap());
    let leader = leader.unwrap();
    let node = Node::start(&servers[leader], "a", "");
    let origin = Origin::start();
    let url = origin.url("/x");
    assert_eq!(node.get(&url), "edition 1");
    let others = || (0..3).filter(|number| *number != leader).map(|number| &servers[number]);
    others().for_each(|server| server.signal("STOP"));
    wait_for("trouble", || node.status()["trouble"].as_str().is_some_and(|it| it.contains("does not hear a majority")));
    wait_for("the gate", || node.status()["gate"] == "shut");
    let after = origin.change();
    assert_eq!(node.get(&url), after, "it asks its origin");
    others().for_each(|server| server.signal("CONT"));
    wait_for("the gate", || node.status()["gate"] == "open");
}

#[test]
fn a_node_that_cannot_begin_tries_again_and_queues() {
    let Some(nats) = Nats::start() else { return };
    let mut node = Node::prepare(&nats, "a", "credentials = \"nats.creds\"");
    let file = node.folder().join("nats.creds");
    fs::write(&file, "no credentials").unwrap();
    node.go_on();
    let origin = Origin::start();
    let url = origin.url("/x");
    assert_eq!(node.get(&url), "edition 1");
    let (status, said) = node.purge(&[&url]);
    assert!(status == 0 && said.contains("queued"), "{said}");
    // A seed of the documentation of NATS: this server asks for none.
    let seed = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";
    let (line, end) = ("-----", "------");
    let text = format!(
        "{line}BEGIN NATS USER JWT{line}\neyJ0eXAiOiJKV1QifQ.e30.e30\n{end}END NATS USER JWT{end}\n\n\
         {line}BEGIN USER NKEY SEED{line}\n{seed}\n{end}END USER NKEY SEED{end}\n"
    );
    fs::write(&file, text).unwrap();
    node.is_ready();
    wait_for("the outbox", || node.status()["outbox"] == 0);
    let (_, said) = node.purge(&[&url]);
    assert!(said.contains("applied on 1 of 1 nodes"), "{said}");
}
