//! Results as Markdown, alone or between the marks of a document: text that nobody types cannot differ from what was measured.

use crate::compare::{Base, Comparison, Kind, Side, Verdict};
use crate::figure::{Spread, number, spread};
use crate::results::of_group;
use crate::{Figure, Group, Results, curve};
use anyhow::{Context, Result, ensure};

/// What a mark in a document looks like: the name of a section, then the end.
const MARK: &str = "<!-- measured: ";
const MARK_END: &str = " -->";
const END: &str = "<!-- end of what was measured -->";

/// Everything, under headings.
pub fn markdown(runs: &[Results]) -> String {
    let section = |(name, text): (&str, String)| format!("## {name}\n\n{text}");
    sections(runs).into_iter().map(section).collect::<Vec<_>>().join("\n")
}

/// `document` with every section between its marks replaced by what was measured.
///
/// # Errors
/// A section has no place in the document, or a mark has no end.
pub fn rewrite(document: &str, runs: &[Results]) -> Result<String> {
    let mut out = document.to_owned();
    for (name, text) in sections(runs) {
        let mark = format!("{MARK}{name}{MARK_END}");
        let begin =
            out.find(&mark).with_context(|| format!("the document has no line {mark:?}"))? + mark.len();
        let len = out[begin..].find(END).with_context(|| format!("no line {END:?} follows {mark:?}"))?;
        out.replace_range(begin..begin + len, &format!("\n\n{text}\n"));
    }
    let (marks, ends) = (out.matches(MARK).count(), out.matches(END).count());
    ensure!(marks == ends, "the document has {marks} marks and {ends} ends");
    Ok(out)
}

/// Sections that have something to say, by name.
fn sections(runs: &[Results]) -> Vec<(&'static str, String)> {
    let mut all = vec![("machine", machine(runs))];
    for group in Group::ALL {
        let measured = of_group(runs, group);
        let below =
            runs.first().map_or("", |run| run.machine.file_system.split(' ').next().unwrap_or_default());
        if !measured.comparisons.is_empty() {
            all.push((group.name(), comparisons(&measured.comparisons, below)));
        } else if !measured.figures.is_empty() {
            let curves = measured.curves.iter().map(|curve| format!("\n{}", lines(&curve::rows(curve))));
            all.push((group.name(), figures(&measured.figures) + &curves.collect::<String>()));
        }
    }
    all
}

/// Name of a base; `below` is the file system of the directory.
pub fn base_name(base: Base, below: &str) -> String {
    match base {
        Base::Directory => format!("{below} directory"),
        Base::Ext4 => "ext4 image".into(),
        Base::Xfs => "XFS image".into(),
    }
}

fn machine(runs: &[Results]) -> String {
    let mut rows = vec![["began (UTC)", "groups", "rounds", "revision", "load before"].map(str::to_owned)];
    for run in runs {
        let groups = run.groups.iter().map(|m| m.group.name()).collect::<Vec<_>>().join(", ");
        let figures = run.groups.iter().flat_map(|m| m.figures.iter().map(|f| f.values.len()));
        let sides = run
            .groups
            .iter()
            .flat_map(|m| &m.comparisons)
            .flat_map(|c| c.series.iter().map(|s| s.values.len()));
        let rounds = figures.chain(sides).max().unwrap_or(0);
        let revision = if run.remark.is_empty() { &run.version } else { &run.remark };
        let quick = if run.quick { " (quick)" } else { "" };
        rows.push([
            run.began.clone(),
            groups + quick,
            rounds.to_string(),
            revision.clone(),
            format!("{:.2}", run.load),
        ]);
    }
    let mut machines: Vec<String> = runs
        .iter()
        .map(|run| {
            let m = &run.machine;
            let polls = match m.halt_poll_ns {
                0 => String::new(),
                ns => format!("; idle processors look for work for {} µs before they halt", ns / 1000),
            };
            format!(
                "{}, {} processors, {} MiB of memory, Linux {}, {}{polls}.",
                m.processor, m.processors, m.memory_mib, m.kernel, m.file_system
            )
        })
        .collect();
    machines.dedup();
    format!("{}\n\n{}", machines.join("\n"), table(&rows))
}

fn comparisons(all: &[Comparison], below: &str) -> String {
    let head = [
        "figure",
        "on",
        "natively",
        "Thermocline",
        "ratio: min",
        "median",
        "max",
        "target",
        "of the floor",
        "",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    for c in all {
        rows.extend(c.bases().into_iter().map(|base| comparison_row(c, base, below)));
        if let Some(floor) = c.spread(Side::FLOOR) {
            let mut row = [const { String::new() }; 10];
            (row[1], row[3]) = ("floor".into(), values(floor));
            rows.push(row);
        }
    }
    let notes = all.iter().filter(|c| !c.note.is_empty()).map(|c| format!("\n{}: {}.\n", c.name, c.note));
    table(&rows) + &notes.collect::<String>()
}

fn comparison_row(c: &Comparison, base: Base, below: &str) -> [String; 10] {
    let first = c.bases().first() == Some(&base);
    let side = |kind| c.spread(Side { base, kind }).map_or_else(|| "-".into(), values);
    let ratio = spread(&c.ratios(base)).map_or_else(|| ["-"; 3].map(String::from), |r| r.map(number));
    let [min, median, max] = ratio;
    let or = c.or_value.map(|v| format!(", or {} {}", number(v), c.unit)).unwrap_or_default();
    let verdict = match c.verdict(base) {
        Verdict::Met => "met",
        Verdict::AtFloor(_) => "0.8 of the floor: met",
        Verdict::Missed(_) => "**not met**",
        Verdict::None => "",
    };
    [
        if first { format!("{} ({})", c.name, c.unit) } else { String::new() },
        base_name(base, below),
        side(Kind::Native),
        side(Kind::Thermocline),
        min,
        median,
        max,
        if first { c.target.text("") + &or } else { String::new() },
        c.of_floor(base).map(number).unwrap_or_default(),
        verdict.to_owned(),
    ]
}

/// Median, then minimum and maximum.
fn values([min, median, max]: Spread) -> String {
    format!("{} ({}–{})", number(median), number(min), number(max))
}

fn figures(all: &[Figure]) -> String {
    let mut rows = vec![["figure", "target", "min", "median", "max", ""].map(str::to_owned)];
    for figure in all {
        let [min, median, max] =
            figure.spread().map_or_else(|| ["-"; 3].map(String::from), |s| s.map(number));
        let met = match figure.met() {
            Some(true) => "met",
            Some(false) => "**not met**",
            None => "",
        };
        let target = figure.target.text(&figure.unit);
        let name = if target.is_empty() { named_with_unit(figure) } else { title(&figure.name).to_owned() };
        rows.push([name, target, min, median, max, met.to_owned()]);
    }
    let notes =
        all.iter().filter(|f| !f.note.is_empty()).map(|f| format!("\n{}: {}.\n", title(&f.name), f.note));
    table(&rows) + &notes.collect::<String>()
}

fn named_with_unit(figure: &Figure) -> String {
    let unit = if figure.unit.is_empty() { String::new() } else { format!(" ({})", figure.unit) };
    let dash = if figure.name.starts_with(' ') { "- " } else { "" };
    format!("{dash}{}{unit}", title(&figure.name))
}

/// A figure's name without that of its group.
pub fn title(name: &str) -> &str {
    name.split_once(": ").map_or(name, |(group, rest)| if group.contains(' ') { name } else { rest }).trim()
}

/// A Markdown table whose columns are aligned, so that it can be read as it is. The first row is the head.
fn table<const N: usize>(rows: &[[String; N]]) -> String {
    lines(rows)
}

fn lines<R: AsRef<[String]>>(rows: &[R]) -> String {
    let rows: Vec<&[String]> = rows.iter().map(AsRef::as_ref).collect();
    let width = |column: usize| rows.iter().map(|r| r[column].chars().count()).max().unwrap_or(0).max(3);
    let widths: Vec<usize> = (0..rows.first().map_or(0, |head| head.len())).map(width).collect();
    let mut out = String::new();
    for (n, row) in rows.iter().enumerate() {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}")).collect();
        out.push_str(&format!("| {} |\n", cells.join(" | ")));
        if n == 0 {
            let rule: Vec<String> = widths.iter().map(|&width| "-".repeat(width)).collect();
            out.push_str(&format!("| {} |\n", rule.join(" | ")));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Machine, Measured, Target};

    fn run(values: &[f64]) -> Results {
        let machine = Machine {
            processor: "some".into(),
            processors: 2,
            memory_mib: 1,
            kernel: "6".into(),
            file_system: "ext4 (rw)".into(),
            halt_poll_ns: 200_000,
        };
        let mut figure = Figure::new("tape: speed", "files/s", Target::AtLeast(10.0));
        figure.values = values.to_vec();
        let mut compared = Comparison::rate("reading", "MB/s", Target::AtLeast(0.5));
        for (kind, value) in [(Kind::Native, 100.0), (Kind::Thermocline, 40.0)] {
            compared.push(Side { base: Base::Xfs, kind }, value);
        }
        let group = |group, figures, comparisons| Measured { group, figures, comparisons, curves: vec![] };
        Results {
            format: 1,
            version: "1".into(),
            remark: String::new(),
            began: "2026-01-01T00:00:00Z".into(),
            machine,
            load: 0.5,
            quick: false,
            groups: vec![
                group(Group::Data, vec![], vec![compared]),
                group(Group::Tape, vec![figure], vec![]),
            ],
        }
    }

    #[test]
    fn rows_say_what_was_reached() {
        let text = markdown(&[run(&[9.0]), run(&[12.0, 13.0])]);
        let row = |begin: &str| text.lines().find(|l| l.starts_with(begin)).unwrap().replace("  ", "");
        let words: Vec<String> = row("| speed").split('|').map(|cell| cell.trim().to_owned()).collect();
        assert_eq!(
            words,
            ["", "speed", "≥ 10 files/s", "9", "12", "13", "met", ""],
            "pieces are put together"
        );
        assert!(row("| reading (MB/s)").contains("**not met**"), "{text}");
        assert!(
            text.contains("ext4 (rw); idle processors look for work for 200 µs before they halt."),
            "{text}"
        );
    }

    #[test]
    fn only_what_is_between_the_marks_changes() {
        let marks = |text: &str| {
            let part = |name| format!("<!-- measured: {name} -->{text}<!-- end of what was measured -->\n");
            format!("before\n{}{}{}after\n", part("machine"), part("data"), part("tape"))
        };
        let runs = [run(&[9.0])];
        let once = rewrite(&marks(" old "), &runs).unwrap();
        assert!(once.starts_with("before\n") && once.ends_with("after\n") && !once.contains("old"), "{once}");
        assert_eq!(rewrite(&once, &runs).unwrap(), once);
        assert!(rewrite("no marks", &runs).is_err());
        assert!(rewrite(&marks("").replacen("<!-- end of what was measured -->", "", 1), &runs).is_err());
    }

    #[test]
    fn pictures_show_every_target_and_are_the_same_each_time() {
        let runs = [run(&[9.0])];
        let drawn = crate::pictures(&runs);
        assert_eq!(drawn, crate::pictures(&runs));
        let names: Vec<&str> = drawn.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["perf-targets.svg", "perf-data.svg", "perf-tape.svg"]);
        assert!(
            drawn[0].1.contains("0.40 (≥ 0.5 × native)") || drawn[0].1.contains("0.40  (≥ 0.5 × native)")
        );
    }
}
