//! All targets in one picture: how many times each is reached, on a logarithmic scale. What is right of the line is met.

use super::{Anchor, GREY, INK, PALE, TARGET, WIDTH, base_colour, bold, fitting, line, sheet, text};
use crate::compare::{Base, Comparison};
use crate::figure::{Figure, Spread, number, spread};
use crate::report::base_name;
use crate::results::of_group;
use crate::{Group, Results, Target};
use svg::Document;
use svg::node::element::Circle;

/// Ends of the scale, as powers of two of the target.
const LEAST: f64 = -2.0;
const MOST: f64 = 4.0;
const ROW: f64 = 24.0;
const TOP: f64 = 62.0;
const BOTTOM: f64 = 20.0;
/// Where names end and the scale begins, where the scale ends and values begin.
const LEFT: f64 = 435.0;
const RIGHT: f64 = 765.0;
const SIZE: f64 = 11.5;
/// Colour of what has no file system below it to compare with.
const ALONE: &str = "#6a1b9a";

struct Row {
    name: String,
    marks: Vec<Mark>,
    /// Medians and the target in words.
    words: String,
}

struct Mark {
    colour: &'static str,
    /// Multiples of the target: smallest, median, largest.
    reached: Spread,
}

/// None without anything that has a target.
pub fn draw(runs: &[Results]) -> Option<Document> {
    let groups: Vec<(Group, Vec<Row>)> = Group::ALL
        .into_iter()
        .map(|group| (group, rows(&of_group(runs, group))))
        .filter(|(_, rows)| !rows.is_empty())
        .collect();
    if groups.is_empty() {
        return None;
    }
    let count: usize = groups.iter().map(|(_, rows)| rows.len()).sum();
    let height = TOP + count as f64 * ROW + BOTTOM;
    let drawn = sheet("Targets and what was reached", height);
    let mut drawn = scale(legend(drawn, super::below(runs)), height - BOTTOM);
    let mut y = TOP;
    for (n, row) in groups.iter().flat_map(|(_, rows)| rows.iter().enumerate()) {
        if n == 0 {
            drawn = drawn.add(line((20.0, y), (WIDTH - 20.0, y), GREY, 0.6));
        }
        drawn = row.draw(drawn, y + ROW / 2.0);
        y += ROW;
    }
    Some(drawn)
}

fn rows(measured: &crate::Measured) -> Vec<Row> {
    let alone = measured.figures.iter().filter_map(of_figure);
    measured.comparisons.iter().filter_map(of_comparison).chain(alone).collect()
}

fn of_comparison(c: &Comparison) -> Option<Row> {
    c.target.bound()?;
    let mut words = Vec::new();
    let mut marks = Vec::new();
    for base in c.bases() {
        let ratios = spread(&c.ratios(base))?;
        words.push(format!("{:.2}", ratios[1]));
        marks.push(Mark { colour: base_colour(base), reached: multiples(c.target, ratios)? });
    }
    let words = format!("{}  ({} × native)", words.join(" · "), c.target.text(""));
    Some(Row { name: c.name.replace('`', ""), marks, words })
}

fn of_figure(figure: &Figure) -> Option<Row> {
    let values = figure.spread()?;
    let reached = multiples(figure.target, values)?;
    let words = format!("{}  ({})", number(values[1]), figure.target.text(&figure.unit));
    Some(Row { name: figure.name.trim().to_owned(), marks: vec![Mark { colour: ALONE, reached }], words })
}

/// How many times a target is reached: more than 1 is better than wanted.
fn multiples(target: Target, [min, median, max]: Spread) -> Option<Spread> {
    match target {
        Target::AtLeast(least) => Some([min / least, median / least, max / least]),
        // Nothing wanted and nothing there is the target exactly.
        Target::AtMost(0.0) => Some([max, median, min].map(|value| if value > 0.0 { 0.0 } else { 1.0 })),
        Target::AtMost(most) => Some([max, median, min].map(|value| most / value.max(f64::MIN_POSITIVE))),
        Target::None => None,
    }
}

fn place(multiple: f64) -> f64 {
    let power = multiple.max(f64::MIN_POSITIVE).log2().clamp(LEAST, MOST);
    LEFT + (power - LEAST) / (MOST - LEAST) * (RIGHT - LEFT)
}

impl Row {
    fn draw(&self, mut drawn: Document, y: f64) -> Document {
        let name = fitting(&self.name, LEFT - 24.0, SIZE);
        drawn = drawn.add(text(LEFT - 12.0, y + 4.0, SIZE, Anchor::End, INK, &name));
        for (n, mark) in self.marks.iter().enumerate() {
            let y = y + (n as f64 - (self.marks.len() as f64 - 1.0) / 2.0) * 6.0;
            let [min, median, max] = mark.reached.map(place);
            drawn = drawn.add(line((min, y), (max, y), mark.colour, 1.6));
            let dot = Circle::new().set("cx", super::at(median)).set("cy", super::at(y)).set("r", "3.6");
            drawn = drawn.add(dot.set("fill", mark.colour));
        }
        drawn.add(text(RIGHT + 14.0, y + 4.0, SIZE - 1.0, Anchor::Start, INK, &self.words))
    }
}

fn scale(mut drawn: Document, bottom: f64) -> Document {
    for power in LEAST as i32..=MOST as i32 {
        let multiple = f64::from(power).exp2();
        let x = place(multiple);
        let (colour, width) = if power == 0 { (TARGET, 1.8) } else { (PALE, 1.0) };
        drawn = drawn.add(line((x, TOP - 6.0), (x, bottom), colour, width));
        let mut label = format!("{}×", number(multiple));
        if power == MOST as i32 {
            label.insert(0, '≥');
        }
        let label = if power == 0 { "target".to_owned() } else { label };
        drawn = drawn.add(text(
            x,
            TOP - 11.0,
            SIZE - 1.0,
            Anchor::Middle,
            if power == 0 { TARGET } else { GREY },
            &label,
        ));
    }
    drawn
}

fn legend(mut drawn: Document, below: &str) -> Document {
    const Y: f64 = 22.0;
    drawn = drawn.add(bold(text(20.0, Y, 14.0, Anchor::Start, INK, "Targets reached")));
    let mut x = 200.0;
    let bases =
        [Base::Directory, Base::Ext4, Base::Xfs].map(|base| (base_name(base, below), base_colour(base)));
    for (name, colour) in bases.into_iter().chain([("without the mount".to_owned(), ALONE)]) {
        drawn = drawn.add(
            Circle::new()
                .set("cx", super::at(x))
                .set("cy", super::at(Y - 4.0))
                .set("r", "4")
                .set("fill", colour),
        );
        drawn = drawn.add(text(x + 9.0, Y, SIZE, Anchor::Start, INK, &name));
        x += 30.0 + name.chars().count() as f64 * SIZE * super::WIDE;
    }
    drawn.add(text(x, Y, SIZE, Anchor::Start, GREY, "dot: median; line: minimum to maximum"))
}
