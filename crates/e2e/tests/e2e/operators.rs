//! What an operator who mistypes, or asks for what cannot be, is told; and that nothing was changed then.

use e2e::Bed;
use std::fs;
use std::io::Write;
use std::process::Stdio;

fn bed() -> Bed {
    let bed = Bed::new(
        "[library]\ncartridge_capacity = \"64 MiB\"\n\
         [[classes]]\nname = \"default\"\ncopies = [\"primary\"]\nmigrate_after_s = 3600\n",
    );
    bed.up();
    bed
}

/// The command fails with this exit code, and what it says contains all of `words`.
fn refused(bed: &Bed, code: i32, command: &[&str], words: &[&str]) {
    let (found, said) = bed.fails(command.iter().copied());
    assert_eq!(found, code, "{command:?}: {said}");
    for word in words {
        assert!(said.contains(word), "{command:?} does not say {word:?}: {said}");
    }
}

#[test]
fn a_list_of_a_pool_or_class_that_does_not_exist_is_an_error_not_an_empty_list() {
    let bed = bed();
    refused(&bed, 5, &["volume", "ls", "--pool", "primery"], &["primery", "thermo pool ls"]);
    refused(&bed, 5, &["volume", "ls", "--class", "raw"], &["raw", "thermo class ls"]);
    assert_eq!(bed.ok(["volume", "ls", "--pool", "second", "--short"]), "");
}

#[test]
fn a_command_without_its_object_says_what_can_be_given() {
    let bed = bed();
    refused(&bed, 2, &["quota", "set", "--owner", "1"], &["--files", "--bytes", "--tape", "--volumes"]);
    refused(&bed, 2, &["pool", "set", "primary"], &["primary", "thermo pool set --help"]);
    refused(&bed, 2, &["volume", "verify"], &["barcodes", "--pool", "--all"]);
    refused(&bed, 2, &["volume", "repack"], &["barcodes", "--pool", "--all"]);
    refused(&bed, 5, &["drive", "down", "9"], &["no drive 9", "thermo drive ls"]);
}

#[test]
fn volumes_are_not_closed_for_a_manifest_that_cannot_be_written() {
    let bed = bed();
    fs::write(bed.path("file"), "content").unwrap();
    bed.ok(["put".as_ref(), bed.path("file").as_os_str(), "tc:/file".as_ref()]);
    bed.ok(["migrate", "--wait", "tc:/file"]);
    let volume = bed.ok(["volume", "ls", "--pool", "primary", "--short"]).trim().to_owned();
    let nowhere = bed.path("nowhere/set.json");
    let nowhere = nowhere.to_str().unwrap();
    refused(&bed, 5, &["volume", "export", &volume, "--to", nowhere], &[nowhere, "nothing was exported"]);
    let dir = bed.dir.path().to_str().unwrap();
    refused(&bed, 2, &["volume", "export", &volume, "--to", dir], &[dir, "directory"]);
    let shown = bed.ok(["volume", "show", &volume]);
    assert!(shown.contains("state        filling") && shown.contains("format       LTFS"), "{shown}");
}

#[test]
fn an_exported_volume_leaves_its_drive_at_once_and_a_missing_one_is_named_with_the_reason() {
    let bed = Bed::new(
        "[library]\ncartridge_capacity = \"64 MiB\"\n[tape]\nidle_unmount_s = 3600\n\
         [[classes]]\nname = \"default\"\ncopies = [\"primary\"]\nmigrate_after_s = 3600\n",
    );
    bed.up();
    fs::create_dir(bed.path("tree")).unwrap();
    fs::write(bed.path("tree/file"), "content").unwrap();
    bed.ok(["put".as_ref(), bed.path("tree").as_os_str(), "tc:/".as_ref()]);
    let (code, said) = bed.fails(["get", "tc:/nowhere", bed.path("out").to_str().unwrap()]);
    assert_eq!(code, 5, "{said}");
    let purge = bed.run(["purge", "tc:/tree/file"]);
    let said = String::from_utf8_lossy(&purge.stdout).into_owned();
    assert!(!purge.status.success() && said.contains("/tree/file: "), "the file is named: {said}");
    bed.ok(["migrate", "--wait", "-r", "tc:/tree"]);
    let volume = bed.ok(["volume", "ls", "--pool", "primary", "--short"]).trim().to_owned();
    let files = bed.ok(["volume", "files", &volume]);
    assert!(files.contains("/tree/file\n") && files.contains("/tree (directory)"), "{files}");
    bed.ok(["volume", "export", &volume, "--to", bed.path("set.json").to_str().unwrap()]);
    bed.wait("the cartridge can leave", || bed.run(["library", "export", &volume]).status.success());
    let (_, said) = bed.fails(["volume", "import", &volume, "--wait"]);
    assert!(said.contains(&format!("{volume}: TC-L057")) && said.contains("not in the library"), "{said}");
}

/// Runs a command with a list on standard input; gives exit code, output and messages.
fn listed(bed: &Bed, command: &[&str], list: &[u8]) -> (i32, String, String) {
    let mut child = bed.command(command);
    child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    child.stdin.take().unwrap().write_all(list).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

#[test]
fn of_a_list_what_can_be_done_is_done_and_the_rest_is_named() {
    let bed = bed();
    fs::create_dir(bed.path("tree")).unwrap();
    for i in 0..3 {
        fs::write(bed.path(&format!("tree/f{i}")), "content").unwrap();
    }
    bed.ok(["put".as_ref(), bed.path("tree").as_os_str(), "tc:/".as_ref()]);
    let list = b"tc:/tree/f0\ntc:/nowhere/\xff\ntc:/tree\n/not/below/a/mount\ntc:/tree/f1\n";
    let missing = [
        "'tc:/nowhere/'$'\\377': no such file",
        "tc:/tree: is a directory; add -r",
        "/not/below/a/mount: is not below",
    ];
    for command in [
        &["migrate", "--wait", "-"][..],
        &["purge", "-"],
        &["stage", "--dry-run", "--from-stdin"],
        &["stage", "--wait", "--from-stdin"],
        &["pin", "-"],
        &["unpin", "-"],
    ] {
        let (code, out, err) = listed(&bed, command, list);
        assert_eq!(code, 1, "{command:?}: {out}{err}");
        assert!(out.contains("2 files") || out.contains("2 of 2 files"), "{command:?}: {out}{err}");
        assert!(missing.iter().all(|path| err.contains(path)), "{command:?}: {err}");
        assert!(err.contains("3 of 5 paths are left out"), "{command:?}: {err}");
    }
    let json = ["--json", "stage", "--wait", "-"];
    let (_, out, _) = listed(&bed, &json, list);
    let out: serde_json::Value = serde_json::from_str(&out).unwrap();
    let left = out["left_out"].as_array().unwrap();
    assert!(
        left.len() == 3 && left.iter().any(|one| one["path_bytes"] == "74633a2f6e6f77686572652fff"),
        "{out}"
    );
    assert_eq!(out["request"]["state"], "done");
    let (code, out, err) = listed(&bed, &["stage", "-"], b"tc:/nowhere\0tc:/a\nb\0");
    assert_eq!((code, out.as_str()), (5, ""), "{err}");
    assert!(err.contains("'tc:/a'$'\\n''b': no such file"), "{err}");
}
