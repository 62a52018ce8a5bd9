//! The answer in pictures: one self-contained page, the same bytes for the same plan.

use super::report::rows;
use super::ticks::{self, Scale};
use super::{Planned, Sample, Waits};
use svg::Document;
use svg::node::element::{Line, Polyline, Rectangle, Text};

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 64.0;
const TOP: f64 = 30.0;
const FONT: &str = "DejaVu Sans, Verdana, sans-serif";
/// Told apart also by those who see few colours.
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#000000"];
/// Parts of the time of which waits are shown.
const PARTS: usize = 24;

/// A picture: title, what its axis shows, and the points of each variant.
struct Chart {
    title: &'static str,
    scale: Scale,
    lines: Vec<Vec<(f64, f64)>>,
}

fn charts(planned: &[Planned]) -> Vec<Chart> {
    let waits = |of: fn(&Planned) -> &Waits, percent| {
        planned.iter().map(|p| of(p).over(p.spec.days, PARTS, percent)).collect()
    };
    let samples = |of: fn(&Sample) -> f64| {
        planned.iter().map(|p| p.figures.samples.iter().map(|s| (s.day, of(s))).collect()).collect()
    };
    let chart = |title, scale, lines| Chart { title, scale, lines };
    vec![
        chart("Recalls: half are there after", Scale::Waits, waits(|p| &p.figures.recalls, 50.0)),
        chart("Recalls: nine of ten are there after", Scale::Waits, waits(|p| &p.figures.recalls, 90.0)),
        chart("Recalls: 99 of 100 are there after", Scale::Waits, waits(|p| &p.figures.recalls, 99.0)),
        chart("Migration: nine of ten are safe after", Scale::Waits, waits(|p| &p.figures.migrations, 90.0)),
        chart("Waits to be written to tape", Scale::Bytes, samples(|s| s.backlog as f64)),
        chart("Disk tier", Scale::Share, samples(|s| s.disk)),
        chart("Cartridges with data", Scale::Count, samples(|s| s.cartridges as f64)),
        chart("Reads that wait", Scale::Count, samples(|s| s.waiting as f64)),
    ]
}

fn at(n: f64) -> String {
    format!("{n:.1}")
}

fn words(x: f64, y: f64, size: f64, anchor: &str, what: impl Into<String>) -> Text {
    Text::new(what.into())
        .set("x", at(x))
        .set("y", at(y))
        .set("font-size", at(size))
        .set("text-anchor", anchor)
        .set("fill", "#263238")
}

impl Chart {
    fn draw(&self, days: f64) -> Document {
        let values = || self.lines.iter().flatten().map(|(_, y)| *y);
        let most = values().fold(0.0, f64::max).max(1e-9);
        let logarithmic = self.scale == Scale::Waits;
        let height = |y: f64| {
            let share = match logarithmic {
                true => y.max(1.0).ln() / most.max(10.0).ln(),
                false => y / most,
            };
            TOP + (HEIGHT - TOP - 30.0) * (1.0 - share.clamp(0.0, 1.0))
        };
        let across = |x: f64| LEFT + (WIDTH - LEFT - 12.0) * (x / days).clamp(0.0, 1.0);
        let mut sheet = Document::new()
            .set("viewBox", format!("0 0 {} {}", at(WIDTH), at(HEIGHT)))
            .set("width", at(WIDTH))
            .set("height", at(HEIGHT))
            .set("font-family", FONT)
            .add(Rectangle::new().set("width", at(WIDTH)).set("height", at(HEIGHT)).set("fill", "#fff"))
            .add(words(10.0, 18.0, 13.0, "start", self.title).set("font-weight", "bold"));
        for (mark, text) in self.scale.marks(most) {
            let y = height(mark);
            let line =
                Line::new().set("x1", at(LEFT)).set("x2", at(WIDTH - 12.0)).set("y1", at(y)).set("y2", at(y));
            sheet =
                sheet.add(line.set("stroke", "#cfd8dc")).add(words(LEFT - 5.0, y + 4.0, 10.0, "end", text));
        }
        for (day, text) in ticks::days(days) {
            let anchor = if day > 0.99 * days { "end" } else { "middle" };
            sheet = sheet.add(words(across(day), HEIGHT - 12.0, 10.0, anchor, text));
        }
        for (n, line) in self.lines.iter().enumerate() {
            let points: Vec<String> =
                line.iter().map(|(x, y)| format!("{},{}", at(across(*x)), at(height(*y)))).collect();
            let drawn = Polyline::new().set("points", points.join(" ")).set("fill", "none");
            sheet = sheet.add(drawn.set("stroke", COLOURS[n % COLOURS.len()]).set("stroke-width", "1.8"));
        }
        sheet
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The whole page.
pub fn html(title: &str, planned: &[Planned]) -> String {
    let days = planned.iter().map(|p| p.spec.days).fold(0.0, f64::max).max(1e-6);
    let legend: String = planned
        .iter()
        .enumerate()
        .filter(|(_, p)| !p.name.is_empty())
        .map(|(n, p)| {
            let colour = COLOURS[n % COLOURS.len()];
            format!("<span style=\"color:{colour}\">&#9644;</span> {} &nbsp; ", escaped(&p.name))
        })
        .collect();
    let mut table = String::from("<tr><th></th>");
    planned.iter().for_each(|p| table.push_str(&format!("<th>{}</th>", escaped(&p.name))));
    table.push_str("</tr>\n");
    for row in rows(planned) {
        let cells: String = row.values.iter().map(|v| format!("<td>{}</td>", escaped(v))).collect();
        table.push_str(&format!("<tr><td>{}</td>{cells}</tr>\n", escaped(row.what)));
    }
    let pictures: String = charts(planned).iter().map(|c| format!("{}\n", c.draw(days))).collect();
    let title = escaped(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\n<style>body{{font-family:{FONT};\
         margin:2em;color:#263238}}td,th{{padding:.2em .8em;text-align:left;border-bottom:1px solid #cfd8dc;font-size:90%}}\
         table{{border-collapse:collapse}}svg{{margin:.5em}}</style></head>\n<body><h1>{title}</h1>\n<p>{} simulated days. \
         {legend}</p>\n<table>\n{table}</table>\n{pictures}</body></html>\n",
        (days * 100.0).round() / 100.0
    )
}

/// One picture with four of the charts, for documents.
pub fn picture(planned: &[Planned]) -> String {
    let days = planned.iter().map(|p| p.spec.days).fold(0.0, f64::max).max(1e-6);
    let mut sheet = Document::new()
        .set("viewBox", format!("0 0 {} {}", at(2.0 * WIDTH), at(2.0 * HEIGHT + 30.0)))
        .set("font-family", FONT)
        .add(
            Rectangle::new()
                .set("width", at(2.0 * WIDTH))
                .set("height", at(2.0 * HEIGHT + 30.0))
                .set("fill", "#fff"),
        );
    let all = charts(planned);
    for (n, chart) in [0, 1, 4, 5].into_iter().filter_map(|n| all.get(n)).enumerate() {
        let (x, y) = ((n % 2) as f64 * WIDTH, (n / 2) as f64 * HEIGHT);
        sheet = sheet.add(chart.draw(days).set("x", at(x)).set("y", at(y)));
    }
    for (n, p) in planned.iter().enumerate() {
        let colour = COLOURS[n % COLOURS.len()];
        let label = words(20.0 + 150.0 * n as f64, 2.0 * HEIGHT + 18.0, 13.0, "start", &p.name);
        sheet = sheet.add(label.set("fill", colour).set("font-weight", "bold"));
    }
    format!("{sheet}\n")
}
