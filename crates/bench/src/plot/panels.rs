//! Absolute values: a panel per figure, a bar per side up to the median, a whisker from minimum to maximum, the target as a line.

use super::{Anchor, INK, TARGET, WIDTH, bar, bold, fitting, kind_colour, line, sheet, text, whisker};
use crate::compare::{Better, Comparison, Kind, Side};
use crate::figure::{Spread, number};
use crate::report::{base_name, title};
use crate::results::Measured;
use crate::{Figure, Target};
use svg::Document;

const MARGIN: f64 = 20.0;
const COLUMN: f64 = (WIDTH - 3.0 * MARGIN) / 2.0;
const HEAD: f64 = 30.0;
const ROW: f64 = 19.0;
const BAR: f64 = 12.0;
/// Between rows of different bases.
const GAP: f64 = 5.0;
/// Places within a panel: the side's names, the bars, their values.
const KIND_AT: f64 = 95.0;
const BARS_AT: f64 = 180.0;
const BARS: f64 = 160.0;
const VALUE_AT: f64 = BARS_AT + BARS + 8.0;
const LEGEND: f64 = 34.0;

struct Panel {
    title: String,
    rows: Vec<Row>,
}

struct Row {
    base: String,
    kind: Kind,
    spread: Spread,
    /// The value that is wanted.
    target: Option<f64>,
    /// Said after the median.
    remark: String,
}

/// All figures of a group; None if there are none.
pub fn draw(measured: &Measured, below: &str) -> Option<Document> {
    let of_figures = measured.figures.iter().filter_map(of_figure);
    let panels: Vec<Panel> =
        measured.comparisons.iter().map(|c| of_comparison(c, below)).chain(of_figures).collect();
    if panels.is_empty() {
        return None;
    }
    let height = |pair: &[Panel]| pair.iter().map(Panel::height).fold(0.0, f64::max);
    let total: f64 = panels.chunks(2).map(height).sum();
    let name = format!("Measured: {}", measured.group.name());
    let mut drawn = sheet(&name, LEGEND + total + MARGIN);
    drawn = legend(drawn, !measured.comparisons.is_empty());
    let mut y = LEGEND;
    for pair in panels.chunks(2) {
        for (n, panel) in pair.iter().enumerate() {
            drawn = panel.draw(drawn, MARGIN + n as f64 * (COLUMN + MARGIN), y);
        }
        y += height(pair);
    }
    Some(drawn)
}

fn of_comparison(c: &Comparison, below: &str) -> Panel {
    let mut sides: Vec<Side> = c.series.iter().map(|s| s.side).collect();
    sides.sort_unstable_by_key(|&side| (side == Side::FLOOR, side)); // what has no base below it comes last
    let row = |side: Side| {
        let spread = c.spread(side)?;
        let native = c.spread(Side { kind: Kind::Native, ..side });
        let ours = side.kind == Kind::Thermocline;
        let ratio = crate::figure::spread(&c.ratios(side.base)).filter(|_| ours);
        let wanted = native.and_then(|[_, native, _]| Some(c.target.bound()? * native)).filter(|_| ours);
        let target = match (wanted, c.or_value) {
            (Some(wanted), Some(or)) if c.better == Better::More => Some(wanted.min(or)),
            (wanted, _) => wanted,
        };
        let remark = ratio.map_or_else(String::new, |[_, ratio, _]| format!("{ratio:.2}×"));
        let base = if side == Side::FLOOR { String::new() } else { base_name(side.base, below) };
        Some(Row { base, kind: side.kind, spread, target, remark })
    };
    Panel { title: format!("{} ({})", c.name, c.unit), rows: sides.into_iter().filter_map(row).collect() }
}

/// Only what has a target.
fn of_figure(figure: &Figure) -> Option<Panel> {
    if figure.target == Target::None {
        return None;
    }
    let unit = if figure.unit.is_empty() { String::new() } else { format!(" ({})", figure.unit) };
    let remark = format!("({})", figure.target.text(""));
    let (spread, target) = (figure.spread()?, figure.target.bound());
    let row = Row { base: String::new(), kind: Kind::Thermocline, spread, target, remark };
    Some(Panel { title: format!("{}{unit}", title(&figure.name)), rows: vec![row] })
}

impl Panel {
    fn height(&self) -> f64 {
        HEAD + self.rows.len() as f64 * ROW + self.bases() as f64 * GAP + MARGIN
    }

    fn bases(&self) -> usize {
        self.rows.windows(2).filter(|pair| pair[0].base != pair[1].base).count()
    }

    fn draw(&self, mut drawn: Document, x: f64, top: f64) -> Document {
        const TITLE: f64 = 12.5;
        let name = fitting(&self.title, COLUMN, TITLE);
        drawn = drawn.add(bold(text(x, top + 16.0, TITLE, Anchor::Start, INK, &name)));
        let values = self.rows.iter().flat_map(|row| row.spread.into_iter().chain(row.target));
        let largest = values.fold(f64::MIN_POSITIVE, f64::max);
        let mut y = top + HEAD;
        for (n, row) in self.rows.iter().enumerate() {
            let first = n == 0 || self.rows[n - 1].base != row.base;
            y += if first && n > 0 { GAP } else { 0.0 };
            drawn = row.draw(drawn, (x, y), BARS / largest, first);
            y += ROW;
        }
        drawn
    }
}

impl Row {
    fn draw(&self, mut drawn: Document, (x, y): (f64, f64), scale: f64, first: bool) -> Document {
        const SIZE: f64 = 11.5;
        let (middle, baseline) = (y + ROW / 2.0 - 2.0, y + ROW / 2.0 + 2.0);
        let kind = match self.kind {
            Kind::Native => "native",
            Kind::Floor => "FUSE floor",
            Kind::Thermocline => "Thermocline",
        };
        if first && !self.base.is_empty() {
            drawn = drawn.add(text(x, baseline, SIZE, Anchor::Start, INK, &self.base));
        }
        drawn = drawn.add(text(x + KIND_AT, baseline, SIZE, Anchor::Start, INK, kind));
        let [min, median, max] = self.spread.map(|value| value * scale);
        let start = x + BARS_AT;
        drawn = drawn.add(bar(start, middle - BAR / 2.0, median, BAR, kind_colour(self.kind)));
        drawn = whisker(drawn, start + min, start + max, middle);
        if let Some(target) = self.target {
            let place = start + target * scale;
            drawn = drawn.add(line((place, y - 2.0), (place, y + ROW - 2.0), TARGET, 2.0));
        }
        let value = format!("{} {}", number(self.spread[1]), self.remark);
        drawn.add(text(x + VALUE_AT, baseline, SIZE, Anchor::Start, INK, value.trim()))
    }
}

/// What bars, whiskers and lines mean.
fn legend(mut drawn: Document, compared: bool) -> Document {
    const Y: f64 = 20.0;
    const SIZE: f64 = 11.5;
    let mut x = MARGIN;
    if compared {
        for (kind, name, width) in [
            (Kind::Native, "native", 70.0),
            (Kind::Floor, "empty file system on the same FUSE", 235.0),
            (Kind::Thermocline, "Thermocline (ratio to native)", 205.0),
        ] {
            drawn = drawn.add(bar(x, Y - 10.0, 14.0, BAR, kind_colour(kind)));
            drawn = drawn.add(text(x + 20.0, Y, SIZE, Anchor::Start, INK, name));
            x += width + 22.0;
        }
    }
    drawn = drawn.add(line((x + 7.0, Y - 12.0), (x + 7.0, Y + 4.0), TARGET, 2.0));
    drawn = drawn.add(text(x + 16.0, Y, SIZE, Anchor::Start, INK, "target"));
    x += 76.0;
    drawn = whisker(drawn, x, x + 26.0, Y - 4.0);
    drawn.add(text(x + 34.0, Y, SIZE, Anchor::Start, INK, "minimum to maximum; bar: median"))
}
