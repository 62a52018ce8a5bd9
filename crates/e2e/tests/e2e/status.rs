//! `thermo status` of a cluster: one place to see everything, asked at whichever host.

use e2e::Bed;
use e2e::cluster::{cluster, directory, lies_on, targets};
use serde_json::Value;
use std::fs;

/// The line of a member.
fn line_of(bed: &Bed, name: &str) -> String {
    let text = bed.ok(["status"]);
    let of = |line: &&str| line.starts_with("node ") && line.split_whitespace().nth(2) == Some(name);
    text.lines().find(of).unwrap_or_else(|| panic!("no line for {name} in\n{text}")).to_owned()
}

fn member(bed: &Bed, name: &str) -> Value {
    let status = bed.json(["status"]);
    let all = status["cluster"]["members"].as_array().expect("members");
    all.iter().find(|one| one["member"]["name"] == name).expect("the member").clone()
}

fn warns(status: &Value, of: &str) -> bool {
    status.as_array().expect("warnings").iter().any(|one| one.as_str().is_some_and(|one| one.contains(of)))
}

#[test]
fn a_node_without_a_cluster_shows_itself_alone() {
    let bed = Bed::new("");
    bed.up();
    let (text, json) = (bed.ok(["status"]), bed.json(["status"]));
    assert!(!text.contains("cluster") && json.get("cluster").is_none(), "{text}\n{json:#}");
}

#[test]
fn every_host_shows_all_members_and_targets_who_is_away_and_what_is_drained() {
    let beds = cluster();
    let [first, second, third] = &beds;
    for bed in [first, second] {
        bed.wait("all to answer", || {
            ["first", "second", "third"].iter().all(|name| line_of(bed, name).contains("answers"))
        });
        let text = bed.ok(["status"]);
        assert!(text.contains(&format!("state in {}", bed.state().display())), "what is its own: {text}");
        assert!(line_of(bed, "first").contains("names, 1 target"), "{text}");
        let section = text.split_once("\ncluster ").expect("a section").1;
        let section = section.split("\nwarning: ").next().unwrap_or_default();
        assert!(section.lines().all(|line| line.chars().count() <= 100), "{section}");
        assert!(
            section.contains("\ntargets    3 up; ") && section.contains("\ntape       at node 1: "),
            "{section}"
        );
        let json = bed.json(["status"]);
        assert_eq!(json["cluster"]["answers"]["Node"], 1, "{json:#}");
        assert_eq!(json["cluster"]["targets"].as_array().map(Vec::len), Some(3), "{json:#}");
        assert_eq!(member(bed, "third")["report"]["version"], json["version"]);
    }
    let drained = targets(first).iter().find(|view| view["target"]["node"] == 2).expect("its target").clone();
    let drained = drained["target"]["id"].as_u64().expect("a number");
    first.ok(["target", "drain", &drained.to_string(), "--wait"]);
    for bed in [first, second] {
        let text = bed.ok(["status"]);
        assert!(text.contains("\ntargets    1 draining, 2 up; "), "{text}");
        assert!(text.contains(&format!("\ntarget {drained:<3} draining, at node 2, ")), "{text}");
        let json = bed.json(["status"]);
        let state = |view: &&Value| view["target"]["id"] == drained;
        let view =
            json["cluster"]["targets"].as_array().expect("targets").iter().find(state).unwrap().clone();
        assert_eq!(view["state"], "Draining");
    }
    third.kill();
    for bed in [first, second] {
        bed.wait("the third to be away", || line_of(bed, "third").contains("away since "));
        let (away, json) = (member(bed, "third"), bed.json(["status"]));
        assert!(away["state"]["Away"].is_string() && away["heard"]["secs"].is_i64(), "{away:#}");
        assert!(warns(&json["cluster"]["warnings"], "node 3 (third) does not answer"), "{json:#}");
        bed.wait("its target to be down", || bed.ok(["status"]).contains("1 down, 1 draining, 1 up; "));
        assert!(warns(&bed.json(["status"])["cluster"]["warnings"], "is down: node 3 does not report it"));
    }
    third.up();
    second.wait("the third to be back", || member(second, "third")["state"] == "Answers");
    // Without the first node a host still shows itself, and says what it cannot.
    first.kill();
    let text = second.ok(["status"]);
    assert!(text.contains("warning: how the cluster is cannot be told now: "), "{text}");
    assert!(warns(&second.json(["status"])["warnings"], "how the cluster is cannot be told now"));
}

#[test]
fn what_a_target_lacks_that_was_away_is_shown_until_it_has_it() {
    if !e2e::can_mount("what targets lack") {
        return;
    }
    let beds = cluster();
    let first = &beds[0];
    let dir = directory(&beds, "--stripes 1 --copies 2");
    let on_third = |path: &std::path::PathBuf| {
        fs::write(path, vec![7; 100_000]).unwrap();
        let third =
            targets(first).iter().find(|view| view["target"]["node"] == 3).unwrap()["target"]["id"].as_u64();
        lies_on(first, path).contains(&third.unwrap())
    };
    let path = (0..60).map(|n| dir.join(format!("f{n}"))).find(on_third).expect("a file there");
    assert_eq!(first.json(["status"])["cluster"]["out_of_date"].as_array().map(Vec::len), Some(0));
    beds[2].kill();
    first.wait("its target to be down", || first.ok(["status"]).contains("1 down, 2 up; "));
    fs::write(&path, vec![8; 100_000]).unwrap();
    first.wait("it to lack the file", || {
        let text = first.ok(["status"]);
        text.contains(" lacks 1 file, 97.7 KiB, ") && text.contains("1 down, 2 up; ")
    });
    let lacks = first.json(["status"])["cluster"]["out_of_date"].clone();
    assert_eq!(
        (lacks[0]["files"].as_u64(), lacks[0]["bytes"].as_u64()),
        (Some(1), Some(100_000)),
        "{lacks:#}"
    );
    beds[2].up();
    first.wait("it to have the file", || {
        first.json(["status"])["cluster"]["out_of_date"].as_array().is_some_and(Vec::is_empty)
    });
    assert!(!first.ok(["status"]).contains(" lacks "));
}
