//! What changes of nodes that run: more targets, and what their configuration says.

use e2e::cluster::{configure, join, lies_on, targets, up, words};
use e2e::{Bed, can_mount, noise};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;

/// A host that served nothing before, too.
#[test]
fn targets_are_added_while_the_nodes_run() {
    if !can_mount("adding targets") {
        return;
    }
    let beds = [Bed::new(""), Bed::new("")];
    let file = |bed: &Bed| bed.state().join("config.toml");
    for (n, bed) in beds.iter().enumerate() {
        configure(bed, "");
        let config = fs::read_to_string(file(bed)).unwrap();
        let (before, _) = config.split_once("[[targets]]").expect("its target");
        fs::write(file(bed), if n == 0 { &config } else { before }).unwrap();
        bed.up();
    }
    let [first, second] = &beds;
    first.ok(["cluster", "init", "--name", "first"]);
    join(first, second, "second");
    first.wait("its own target", || up(first) == [1]);
    let disk = second.path("disk 2");
    let before = fs::read_to_string(file(second)).unwrap();
    let refused = second.run([OsStr::new("target"), OsStr::new("add"), disk.as_os_str()]);
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && told.contains("is no directory"), "{told}");
    fs::create_dir(&disk).unwrap();
    // Not by anybody.
    fs::set_permissions(second.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for words in [words("target add", &disk, ""), vec!["reload".into()]] {
        let refused = second.command(words).uid(65534).output().unwrap();
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && told.contains("for the administrator"), "{told}");
    }
    assert_eq!(fs::read_to_string(file(second)).unwrap(), before);
    second.ok(words("target add", &disk, "--domain shelf-9"));
    first.wait("the new target", || up(first) == [1, 2]);
    let again = second.run(words("target add", &second.path("state/../disk 2"), ""));
    let told = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(!again.status.success() && told.contains("is a target already"), "{told}");
    let now = fs::read_to_string(file(second)).unwrap();
    assert!(now.starts_with(before.trim_end()) && now.matches("[[targets]]").count() == 1, "{now}");
    assert!(targets(first).iter().any(|one| one["target"]["domain"] == "shelf-9"), "{:?}", targets(first));
    first.ok([OsStr::new("mount"), first.mount().as_os_str()]);
    let dir = first.mount().join("wide");
    fs::create_dir(&dir).unwrap();
    first.ok(words("layout set", &dir, "--stripes 2 --stripe-size 64KiB"));
    let path = dir.join("f");
    fs::write(&path, noise(9, 1_000_000)).unwrap();
    assert_eq!(lies_on(first, &path), [1, 2]);
    // What was added is served after a start, too.
    second.kill();
    second.up();
    assert!(fs::read(&path).unwrap() == noise(9, 1_000_000));
}

#[test]
fn a_configuration_is_read_again_while_the_node_runs() {
    let first = &e2e::cluster::node();
    let file = |bed: &Bed| bed.state().join("config.toml");
    assert_eq!(first.ok(["reload"]).trim(), "nothing has changed");
    let before = fs::read_to_string(file(first)).unwrap();
    let changed = before.replace("[[targets]]", "move_rate = \"3 MB\"\nscrub_every_days = 7\n[[targets]]");
    let changed = changed.replace(":7430\"", ":7440\"");
    fs::write(file(first), &changed).unwrap();
    let told = first.ok(["reload"]);
    assert!(told.contains("from now on: cluster.move_rate, cluster.scrub_every_days\n"), "{told}");
    assert!(told.contains("from the next start on: cluster.listen"), "{told}");
    fs::write(file(first), changed.replace("3 MB", "3 parsecs")).unwrap();
    let refused = first.run(["reload"]);
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && told.contains("move_rate") && told.contains("config.toml"),
        "{told}"
    );
    fs::write(file(first), changed).unwrap();
    let told = first.ok(["reload"]);
    assert!(
        !told.contains("from now on") && told.contains("cluster.listen"),
        "nothing of it was taken: {told}"
    );
    // At the next start the disk tier is to lie elsewhere, and its directory to be a target: until then it is the tier's.
    let tier = first.state().join("disk");
    let moved = format!(
        "{before}[[targets]]\npath = \"{}\"\n[disk]\npath = \"{}\"\n",
        tier.display(),
        first.path("tier").display()
    );
    fs::write(file(first), &moved).unwrap();
    let more = first.path("more");
    fs::create_dir(&more).unwrap();
    for words in [vec!["reload".into()], words("target add", &more, "")] {
        let refused = first.run(words);
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && told.contains("from the next start on"), "{told}");
        assert_eq!(fs::read_to_string(file(first)).unwrap(), moved, "the file is as it was");
    }
}
