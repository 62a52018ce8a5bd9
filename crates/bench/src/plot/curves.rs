//! Values by length of a call, both on logarithmic scales: a panel per curve, a line per way through the medians.

use super::{Anchor, GREY, INK, PALE, WIDTH, at, bold, line, sheet, text};
use crate::curve::{Curve, length};
use crate::figure::number;
use svg::Document;
use svg::node::element::{Circle, Polyline};

const COLOURS: [&str; 6] = ["#90a4ae", "#1565c0", "#00897b", "#ef6c00", "#8e24aa", "#c62828"];
const LEFT: f64 = 80.0;
const TOP: f64 = 46.0;
const HIGH: f64 = 300.0;
const LEGEND: f64 = 250.0;
const PANEL: f64 = TOP + HIGH + 50.0;
const SIZE: f64 = 11.5;

/// All curves of a group; None if there are none.
pub fn draw(curves: &[Curve]) -> Option<Document> {
    let first = curves.first()?;
    let title = format!("Measured: {}", first.name);
    let sheet = sheet(&title, curves.len() as f64 * PANEL);
    Some(curves.iter().enumerate().fold(sheet, |drawn, (n, curve)| panel(drawn, curve, n as f64 * PANEL)))
}

fn panel(mut drawn: Document, curve: &Curve, top: f64) -> Document {
    let wide = WIDTH - LEFT - LEGEND;
    let values: Vec<Vec<f64>> = curve.ways.iter().map(|way| curve.medians(way)).collect();
    let positive = || values.iter().flatten().copied().filter(|value| *value > 0.0);
    let low = positive().fold(f64::MAX, f64::min).log10().floor();
    let high = positive().fold(f64::MIN_POSITIVE, f64::max).log10().ceil().max(low + 1.0);
    let last = (curve.lengths.len().max(2) - 1) as f64;
    let x = |n: usize| LEFT + n as f64 / last * wide;
    let y = |value: f64| top + TOP + HIGH * (high - value.max(f64::MIN_POSITIVE).log10()) / (high - low);
    drawn = drawn.add(bold(text(20.0, top + 24.0, 12.5, Anchor::Start, INK, &curve.title())));
    for decade in low as i32..=high as i32 {
        let value = 10_f64.powi(decade);
        drawn = drawn.add(line((LEFT, y(value)), (LEFT + wide, y(value)), PALE, 1.0));
        drawn = drawn.add(text(LEFT - 8.0, y(value) + 4.0, SIZE, Anchor::End, GREY, &number(value)));
    }
    for (n, &bytes) in curve.lengths.iter().enumerate() {
        let below = top + TOP + HIGH + 18.0;
        drawn = drawn.add(text(x(n), below, 10.0, Anchor::Middle, GREY, &length(bytes)));
    }
    for (n, (way, values)) in curve.ways.iter().zip(&values).enumerate() {
        let colour = COLOURS[n % COLOURS.len()];
        let points: Vec<String> =
            values.iter().enumerate().map(|(n, value)| format!("{},{}", at(x(n)), at(y(*value)))).collect();
        let drawn_line = Polyline::new().set("points", points.join(" ")).set("fill", "none");
        drawn = drawn.add(drawn_line.set("stroke", colour).set("stroke-width", "2"));
        for (n, value) in values.iter().enumerate() {
            let place = Circle::new().set("cx", at(x(n))).set("cy", at(y(*value))).set("r", "3");
            drawn = drawn.add(place.set("fill", colour));
        }
        let (left, height) = (LEFT + wide + 24.0, top + TOP + 14.0 + n as f64 * 20.0);
        drawn = drawn.add(line((left, height - 4.0), (left + 22.0, height - 4.0), colour, 3.0));
        drawn = drawn.add(text(left + 30.0, height, SIZE, Anchor::Start, INK, &way.name));
    }
    drawn
}
