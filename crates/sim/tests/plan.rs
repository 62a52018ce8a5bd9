//! What a plan says, and that it says it again.

use sim::plan::{self, Planned, Spec};

const SMALL: &str = r#"
title = "small"
days = 10
[library]
drives = 2
cartridges = 20
[disk]
capacity = "20 TB"
[[users]]
name = "a"
writes_per_day = 30
size = "30 GB"
scatter = 0.5
files = 10
reads_per_day = 60
recent = 0.3
archived = "200 TB"
"#;

fn planned(spec: &Spec) -> Planned {
    plan::run("", spec, &[]).unwrap()
}

fn number(planned: &Planned, names: &[&str]) -> f64 {
    let mut value = plan::summary(planned);
    for name in names {
        value = value[*name].take();
    }
    value.as_f64().unwrap_or_else(|| panic!("{names:?}"))
}

#[test]
fn the_same_plan_gives_the_same_report() {
    let spec = Spec::parse(SMALL).unwrap();
    let [a, b] = [&spec, &spec].map(planned);
    assert_eq!(plan::html("t", std::slice::from_ref(&a)), plan::html("t", &[b]));
    let other = planned(&spec.vary("seed", "2").unwrap());
    assert_ne!(plan::table(&[a]), plan::table(&[other]));
}

#[test]
fn what_is_written_gets_two_copies_and_what_is_read_comes_back() {
    let p = planned(&Spec::parse(SMALL).unwrap());
    let written = p.figures.written as f64;
    assert!((8e12..13e12).contains(&written), "300 sets of about 34 GB: {written}");
    let to_tape = p.figures.migrated as f64 / written;
    assert!((1.9..=2.0).contains(&to_tape), "both copies of nearly all: {to_tape}");
    let recalls = number(&p, &["recall", "count"]);
    assert!(recalls > 250.0 && number(&p, &["reads_unfinished"]) < 20.0, "{recalls}");
    let p50 = number(&p, &["recall", "p50_s"]);
    assert!((60.0..3600.0).contains(&p50), "a mount, a locate, 30 GB: {p50}");
    assert!(p.figures.samples.iter().all(|s| s.disk <= 1.05));
}

#[test]
fn more_drives_shorten_waits_and_more_load_lengthens_them() {
    let spec = Spec::parse(SMALL).unwrap();
    let p90 =
        |key: &str, value: &str| number(&planned(&spec.vary(key, value).unwrap()), &["recall", "p90_s"]);
    let (one, two, four) = (p90("drives", "1"), p90("drives", "2"), p90("drives", "4"));
    assert!(one > two && two > four, "{one} {two} {four}");
    assert!(p90("load", "3") > two);
    let slower = p90("generation", "lto5");
    assert!(slower > two, "an older drive takes longer: {slower} {two}");
}

#[test]
fn broken_drives_and_a_growing_archive_are_seen() {
    let spec = Spec::parse(&format!("{SMALL}\n[faults]\ndrive_mtbf_h = 100\ndrive_repair_h = 24\n")).unwrap();
    let p = planned(&spec);
    assert!(p.figures.broken > 1, "{}", p.figures.broken);
    let grown = spec.vary("growth", "20").unwrap();
    assert!(planned(&grown).figures.written > p.figures.written);
    let few = Spec { library: plan_library(&spec, 3), ..spec.clone() };
    assert!(planned(&few).figures.bought > 0);
}

fn plan_library(spec: &Spec, cartridges: u32) -> sim::plan::Library {
    sim::plan::Library { cartridges, ..spec.library.clone() }
}

#[test]
fn a_trace_is_done_as_it_says() {
    let spec = Spec::parse("days = 2").unwrap();
    let trace = plan::parse_trace(
        "# comment\n\
         {\"t\": 0, \"op\": \"write\", \"set\": \"a\", \"bytes\": 1000000000, \"files\": 3}\n\
         {\"t\": 7200, \"op\": \"read\", \"set\": \"a\"}\n\
         {\"t\": 7300, \"op\": \"read\", \"set\": \"old\", \"bytes\": 4000000000}\n\
         {\"t\": 9000, \"op\": \"delete\", \"set\": \"a\"}\n",
    );
    let p = plan::run("", &spec, &trace.unwrap()).unwrap();
    assert_eq!((p.figures.written, p.figures.migrated, p.figures.hits), (1_000_000_000, 2_000_000_000, 1));
    assert_eq!((p.figures.recalls.count(), p.figures.recalled), (1, 4_000_000_000));
    let wrong = plan::parse_trace("{\"t\": 0, \"op\": \"burn\", \"set\": \"a\"}").unwrap_err();
    assert!(wrong.contains("line 1") && wrong.contains("burn"), "{wrong}");
    let much = format!("{{\"t\": 0, \"op\": \"write\", \"set\": \"a\", \"bytes\": {}}}", u64::MAX);
    assert!(plan::parse_trace(&much).unwrap_err().contains("1 PiB"));
}

#[test]
fn a_wrong_specification_is_refused_with_its_key() {
    for (text, says) in [
        ("days = 0", "days"),
        ("[library]\ndrives = 0", "library.drives"),
        ("[library]\ngeneration = \"dlt\"", "dlt"),
        ("[library]\ncount = 0", "library.count"),
        ("[library]\ncount = 5\ndrives = 4", "library.count"),
        ("[library]\npools = { second = 2 }", "second = 2: there are libraries 1 to 1"),
        ("[disk]\nlow_watermark = 90", "disk.low_watermark"),
        ("colour = 1", "colour"),
        ("[[users]]\nname = \"a\"\nsize = \"1 GB\"\nclass = \"no\"", "no class `no`"),
        ("[[users]]\nname = \"a\"\nsize = \"1 GB\"\nrecent = 2.0", "shares"),
        ("[[users]]\nname = \"a\"\nsize = \"1 GB\"\ngrowth_per_year = -2.0", "growth"),
        ("[[classes]]\nname = \"x\"\ncopies = []", "at least one copy"),
        // What has no end, or numbers for which there is no room.
        ("[library]\nrobot_move_s = 1e300", "robot_move_s"),
        ("[library]\nspare = 4000000000\nbuy = 4000000000", "library.cartridges"),
        ("[faults]\ndrive_mtbf_h = 1e-300\ndrive_repair_h = 0.0", "an hour"),
        ("[[users]]\nname = \"a\"\nsize = \"1 GB\"\nwrites_per_day = 1e300", "come together"),
        (
            "[[users]]\nname = \"a\"\nsize = \"1 GB\"\nreads_per_day = 1\ngrowth_per_year = 1e300",
            "come together",
        ),
        ("[[users]]\nname = \"a\"\nsize = \"1 B\"\narchived = \"1000000 TB\"", "come together"),
        ("[[users]]\nname = \"a\"\nsize = \"2000 TB\"", "1 PiB"),
    ] {
        let said = Spec::parse(text).unwrap_err();
        assert!(said.contains(says), "{text}: {said}");
    }
    let spec = Spec::parse(SMALL).unwrap();
    assert!(spec.vary("colour", "1").unwrap_err().contains("drives, libraries"));
    assert!(spec.vary("drives", "0").is_err());
}

/// A library apart keeps its copies when the other robot stands still: reads go on, and find the other copy.
#[test]
fn copies_in_two_libraries_are_read_while_one_robot_is_broken() {
    let broken = "[faults]\nrobot_mtbf_h = 30\nrobot_repair_h = 12\n";
    let one = Spec::parse(&format!("{SMALL}\n{broken}").replace("drives = 2", "drives = 4")).unwrap();
    let apart = "drives = 4\ncount = 2\npools = { primary = 1, second = 2 }";
    let two = Spec::parse(&format!("{SMALL}\n{broken}").replace("drives = 2", apart)).unwrap();
    let [one, two] = [&one, &two].map(planned);
    assert!(one.figures.broken > 2 && two.figures.broken > one.figures.broken, "each robot breaks by itself");
    let [waits_one, waits_two] = [&one, &two].map(|p| number(p, &["recall", "p90_s"]));
    assert!(waits_two < waits_one / 10.0, "{waits_two} {waits_one}");
    // A copy of everything in each: as much is written, and both robots move.
    assert!((one.figures.migrated as f64 / two.figures.migrated as f64 - 1.0).abs() < 0.1);
    let [use_one, use_two] = [&one, &two].map(|p| number(p, &["robot_use_percent"]));
    assert!(use_two > 0.0 && use_two < use_one, "of two robots each moves less: {use_two} {use_one}");
}

#[test]
fn policies_are_varied_and_change_what_comes_of_them() {
    let spec = Spec::parse(SMALL).unwrap();
    let of = |key: &str, value: &str| planned(&spec.vary(key, value).unwrap());
    let written = |p: &Planned| p.figures.migrated as f64 / p.figures.written as f64;
    for copies in [1, 2, 3] {
        let share = written(&of("copies", &copies.to_string()));
        assert!((share / f64::from(copies) - 1.0).abs() < 0.06, "{copies} copies: {share}");
    }
    // Data that stays on disk longer before it goes to tape, and a disk tier that is emptied early.
    let late = of("migrate_after", "864000");
    assert_eq!(late.figures.migrated, 0, "due after the end");
    let at_once = planned(&spec.vary("migrate_after", "864000").unwrap().vary("migrate_bytes", "1").unwrap());
    assert!(written(&at_once) > 1.5, "so much waits that age does not count: {}", written(&at_once));
    let highest = |p: &Planned| p.figures.samples.iter().map(|s| s.disk).fold(0.0, f64::max);
    let emptied = planned(&spec.vary("low", "10").unwrap().vary("high", "20").unwrap());
    assert!(highest(&emptied) < 0.3 && highest(&of("high", "90")) > 0.4, "{}", highest(&emptied));
    let two = of("libraries", "2");
    assert_eq!(two.spec.library.count, 2);
    for (key, value, says) in [
        ("libraries", "3", "library.count"),
        ("copies", "0", "1 to 4"),
        ("copies", "5", "1 to 4"),
        ("low", "95", "below the high one"),
        ("migrate_after", "soon", "invalid digit"),
    ] {
        let said = spec.vary(key, value).unwrap_err();
        assert!(said.contains(says) && said.contains(key), "{said}");
    }
    let nobody = Spec::parse("days = 1").unwrap();
    assert!(nobody.vary("load", "2").unwrap_err().contains("no [[users]]"));
}

/// The example of the documentation: `THERMO_REWRITE=1 cargo test -p sim --test plan` writes table and picture anew.
#[test]
fn the_example_gives_what_its_document_says() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/plan/archive.toml");
    let spec = Spec::parse(&std::fs::read_to_string(example).unwrap()).unwrap();
    let weeks = Spec { days: 14.0, ..spec };
    let planned: Vec<Planned> = ["2", "4", "8"]
        .map(|n| plan::run(&format!("drives={n}"), &weeks.vary("drives", n).unwrap(), &[]).unwrap())
        .into();
    let table = plan::table(&planned);
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/PLANNING.md");
    let picture = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/pictures/plan.svg");
    let drawn = plan::picture(&planned);
    if std::env::var_os("THERMO_REWRITE").is_some() {
        let text = std::fs::read_to_string(document).unwrap();
        let (before, rest) = text.split_once("<!-- plan -->\n").unwrap();
        let (_, after) = rest.split_once("<!-- /plan -->").unwrap();
        let new = format!("{before}<!-- plan -->\n```\n{table}```\n<!-- /plan -->{after}");
        std::fs::write(document, new).unwrap();
        std::fs::write(picture, drawn).unwrap();
        return;
    }
    // Whatever changes the scheduler changes waits a little; what it does not decide must be as the document says.
    let text = std::fs::read_to_string(document).unwrap();
    for line in table.lines().skip(1) {
        let label: String = line.chars().take(38).collect();
        let wanted = if line.starts_with("written by users") { line } else { label.trim_end() };
        assert!(
            text.contains(wanted),
            "docs/PLANNING.md lacks {wanted:?}; THERMO_REWRITE=1 rewrites it:\n{table}"
        );
    }
    let shown = std::fs::read_to_string(picture).unwrap();
    assert_eq!(
        shown.matches("<polyline").count(),
        drawn.matches("<polyline").count(),
        "docs/pictures/plan.svg"
    );
}
