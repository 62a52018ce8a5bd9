//! Pictures of results: one of all targets, one of absolute values per group. Drawn from the same figures as the tables, with
//! text in a font that is everywhere and colours that are readable on a white ground of their own.

mod curves;
mod overview;
mod panels;

use crate::compare::{Base, Kind};
use crate::results::of_group;
use crate::{Group, Results};
use svg::Document;
use svg::node::element::{Line, Rectangle, Text, Title};

/// Width of every picture.
const WIDTH: f64 = 1000.0;
const FONT: &str = "DejaVu Sans, Verdana, sans-serif";
/// Mean width of a character per point of its size, of text that is not very short; bold text is wider.
const WIDE: f64 = 0.56;
const INK: &str = "#263238";
const GREY: &str = "#607d8b";
const PALE: &str = "#cfd8dc";
const TARGET: &str = "#c62828";

/// File names and contents of all pictures that these results allow.
pub fn pictures(runs: &[Results]) -> Vec<(String, String)> {
    let mut all: Vec<(String, Document)> = Vec::new();
    all.extend(overview::draw(runs).map(|drawn| ("targets".to_owned(), drawn)));
    for group in Group::ALL {
        let measured = of_group(runs, group);
        let drawn = panels::draw(&measured, below(runs));
        all.extend(drawn.map(|drawn| (group.name().to_owned(), drawn)));
        let drawn = curves::draw(&measured.curves);
        all.extend(drawn.map(|drawn| (format!("{}-lengths", group.name()), drawn)));
    }
    all.into_iter().map(|(name, drawn)| (format!("perf-{name}.svg"), format!("{drawn}\n"))).collect()
}

/// File system of the directory that was measured in.
fn below(runs: &[Results]) -> &str {
    runs.first().map_or("", |run| run.machine.file_system.split(' ').next().unwrap_or_default())
}

/// An empty picture.
fn sheet(title: &str, height: f64) -> Document {
    Document::new()
        .set("viewBox", format!("0 0 {} {}", at(WIDTH), at(height)))
        .set("font-family", FONT)
        .add(Title::new(title))
        .add(Rectangle::new().set("width", at(WIDTH)).set("height", at(height)).set("fill", "#fff"))
}

/// A coordinate, rounded so that the same figures give the same bytes on every machine.
fn at(n: f64) -> String {
    format!("{n:.1}")
}

/// Where text stands relative to its place.
#[derive(Clone, Copy)]
enum Anchor {
    Start,
    Middle,
    End,
}

/// A line of text.
fn text(x: f64, y: f64, size: f64, anchor: Anchor, colour: &str, content: &str) -> Text {
    let anchor = match anchor {
        Anchor::Start => "start",
        Anchor::Middle => "middle",
        Anchor::End => "end",
    };
    Text::new(content)
        .set("x", at(x))
        .set("y", at(y))
        .set("font-size", at(size))
        .set("text-anchor", anchor)
        .set("fill", colour)
}

fn bold(text: Text) -> Text {
    text.set("font-weight", "bold")
}

fn line(from: (f64, f64), to: (f64, f64), colour: &str, width: f64) -> Line {
    Line::new()
        .set("x1", at(from.0))
        .set("y1", at(from.1))
        .set("x2", at(to.0))
        .set("y2", at(to.1))
        .set("stroke", colour)
        .set("stroke-width", at(width))
}

fn bar(x: f64, y: f64, width: f64, height: f64, colour: &str) -> Rectangle {
    Rectangle::new()
        .set("x", at(x))
        .set("y", at(y))
        .set("width", at(width.max(0.0)))
        .set("height", at(height))
        .set("fill", colour)
}

/// From the smallest to the largest value, with ends that can be seen.
fn whisker(document: Document, from: f64, to: f64, y: f64) -> Document {
    const END: f64 = 3.0;
    let document = document.add(line((from, y), (to, y), INK, 1.2));
    [from, to]
        .into_iter()
        .fold(document, |document, x| document.add(line((x, y - END), (x, y + END), INK, 1.2)))
}

fn kind_colour(kind: Kind) -> &'static str {
    match kind {
        Kind::Native => "#90a4ae",
        Kind::Floor => "#ffb74d",
        Kind::Thermocline => "#42a5f5",
    }
}

fn base_colour(base: Base) -> &'static str {
    match base {
        Base::Directory => "#1565c0",
        Base::Ext4 => "#2e7d32",
        Base::Xfs => "#ef6c00",
    }
}

/// `text` shortened to what fits in `width` at a size, with an ellipsis if it had to be.
fn fitting(text: &str, width: f64, size: f64) -> String {
    let most = (width / (size * WIDE)) as usize;
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}
