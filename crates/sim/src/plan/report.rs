//! The answer in numbers: a table with a column for each variant, and the same as JSON.

use super::Planned;
use super::arrivals::DAY;
use serde_json::{Value, json};

/// A line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// What.
    pub what: &'static str,
    /// Of each variant.
    pub values: Vec<String>,
}

/// A time as people say it.
pub fn time(seconds: f64) -> String {
    match seconds {
        s if s < 0.5 => "0 s".into(),
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s if s < 48.0 * 3600.0 => format!("{:.1} h", s / 3600.0),
        s => format!("{:.1} d", s / DAY),
    }
}

/// Bytes as people say them.
pub fn bytes(n: u64) -> String {
    let units = [("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6)];
    let n = n as f64;
    match units.into_iter().find(|(_, unit)| n >= *unit) {
        Some((name, unit)) => format!("{:.1} {name}", n / unit),
        None => format!("{n} B"),
    }
}

/// The figures that the table shows, by name and as numbers, in one place for table, JSON and tests.
pub fn summary(p: &Planned) -> Value {
    let (f, days) = (&p.figures, p.spec.days);
    let all_s = f64::from(p.spec.library.drives) * days * DAY;
    let round = |n: f64, digits: i32| (n * 10f64.powi(digits)).round() / 10f64.powi(digits);
    let percent = |n: f64| round(100.0 * n, 1);
    let waits = |w: &super::Waits| {
        json!({ "count": w.count(), "p50_s": w.percentile(50.0).round(), "p90_s": w.percentile(90.0).round(),
                "p99_s": w.percentile(99.0).round() })
    };
    let reads = f.hits + f.recalls.count() as u64 + f.unfinished.0;
    let highest = |of: fn(&super::Sample) -> f64| f.samples.iter().map(of).fold(0.0, f64::max);
    json!({
        "variant": p.name,
        "days": days,
        "recall": waits(&f.recalls),
        "migration": waits(&f.migrations),
        "reads_unfinished": f.unfinished.0,
        "longest_unfinished_s": f.unfinished.1.round(),
        "reads_from_disk_percent": percent(if reads > 0 { f.hits as f64 / reads as f64 } else { 0.0 }),
        "mounts_per_day": round(f.mounts as f64 / days, 1),
        "drive_use_percent": percent(f.drive_s / all_s),
        "drive_reading_writing_percent": percent(f.moving_s / all_s),
        "robot_use_percent": percent(f.robot_s / (f64::from(p.spec.library.count) * days * DAY)),
        "bytes_written": f.written,
        "bytes_to_tape": f.migrated,
        "bytes_from_tape": f.recalled,
        "cartridges_with_data": f.samples.last().map_or(0, |s| s.cartridges),
        "cartridges_labelled": f.labelled,
        "cartridges_bought": f.bought,
        "backlog_highest": highest(|s| s.backlog as f64) as u64,
        "backlog_at_end": f.samples.last().map_or(0, |s| s.backlog),
        "disk_highest_percent": percent(highest(|s| s.disk)),
        "failures": f.broken,
    })
}

/// What the table shows.
pub fn rows(planned: &[Planned]) -> Vec<Row> {
    let all: Vec<Value> = planned.iter().map(summary).collect();
    let row = |what: &'static str, value: &dyn Fn(&Value) -> String| Row {
        what,
        values: all.iter().map(value).collect(),
    };
    let number = |v: &Value| v.as_f64().unwrap_or(0.0);
    let waits = |v: &Value| {
        let p = |name: &str| time(number(&v[name]));
        format!("{} / {} / {}", p("p50_s"), p("p90_s"), p("p99_s"))
    };
    let plain = |v: &Value| v.to_string();
    vec![
        row("recall: wait p50 / p90 / p99", &|v| waits(&v["recall"])),
        row("migration: wait p50 / p90 / p99", &|v| waits(&v["migration"])),
        row("recalls", &|v| plain(&v["recall"]["count"])),
        row("reads that still wait at the end", &|v| match number(&v["reads_unfinished"]) {
            0.0 => "0".into(),
            n => format!("{n}, the longest {}", time(number(&v["longest_unfinished_s"]))),
        }),
        row("reads found on disk", &|v| format!("{} %", v["reads_from_disk_percent"])),
        row("mounts per day", &|v| plain(&v["mounts_per_day"])),
        row("drives busy (of it reading or writing)", &|v| {
            format!("{} % ({} %)", v["drive_use_percent"], v["drive_reading_writing_percent"])
        }),
        row("robot busy", &|v| format!("{} %", v["robot_use_percent"])),
        row("written by users", &|v| bytes(number(&v["bytes_written"]) as u64)),
        row("to tape, from tape", &|v| {
            let n = |name: &str| bytes(number(&v[name]) as u64);
            format!("{}, {}", n("bytes_to_tape"), n("bytes_from_tape"))
        }),
        row("cartridges with data at the end", &|v| plain(&v["cartridges_with_data"])),
        row("cartridges bought", &|v| plain(&v["cartridges_bought"])),
        row("backlog: highest, at the end", &|v| {
            let n = |name: &str| bytes(number(&v[name]) as u64);
            format!("{}, {}", n("backlog_highest"), n("backlog_at_end"))
        }),
        row("disk tier: fullest", &|v| format!("{} %", v["disk_highest_percent"])),
        row("failures of drives and robot", &|v| plain(&v["failures"])),
    ]
}

/// The table as text.
pub fn table(planned: &[Planned]) -> String {
    let rows = rows(planned);
    let mut columns = vec![vec![String::new()]];
    columns[0].extend(rows.iter().map(|r| r.what.to_owned()));
    for (n, p) in planned.iter().enumerate() {
        let mut column = vec![p.name.clone()];
        column.extend(rows.iter().map(|r| r.values[n].clone()));
        columns.push(column);
    }
    let widths: Vec<usize> =
        columns.iter().map(|c| c.iter().map(|t| t.chars().count()).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for line in 0..=rows.len() {
        if line == 0 && planned.iter().all(|p| p.name.is_empty()) {
            continue;
        }
        let cells = columns.iter().zip(&widths).map(|(c, width)| format!("{:<width$}", c[line]));
        text.push_str(cells.collect::<Vec<_>>().join("   ").trim_end());
        text.push('\n');
    }
    text
}
