//! What users do and when: by chance from a specification, or as a trace says.

use super::spec::{LARGEST_SET, Spec, User};
use crate::dice::Dice;
use serde::Deserialize;

/// Seconds of a day.
pub const DAY: f64 = 86_400.0;

/// A line of a trace. Times are seconds from its beginning.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// When.
    pub t: f64,
    /// `write`, `read` or `delete`.
    pub op: Op,
    /// Name of the data set.
    pub set: String,
    /// Its size, for a write; what a read wants of a set that the trace does not write.
    #[serde(default)]
    pub bytes: u64,
    /// Its files.
    #[serde(default = "one")]
    pub files: u32,
    /// Class of service, for a write.
    #[serde(default)]
    pub class: Option<String>,
}

fn one() -> u32 {
    1
}

/// What happens.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    /// A new data set.
    Write,
    /// Some of it is wanted.
    Read,
    /// It goes.
    Delete,
}

/// Whether a text is a trace and no specification: its first line that is neither empty nor a comment begins an object.
pub fn is_trace(text: &str) -> bool {
    let first = text.lines().map(str::trim_start).find(|line| !line.is_empty() && !line.starts_with('#'));
    first.is_some_and(|line| line.starts_with('{'))
}

/// Days that a trace takes, with one more for what it asks for last.
pub fn length_days(trace: &[Line]) -> f64 {
    trace.last().map_or(0.0, |line| line.t / DAY).ceil() + 1.0
}

/// Reads a trace: one JSON object a line, empty lines and those that begin with `#` aside.
///
/// # Errors
/// The first line that is wrong, with its number.
pub fn parse(text: &str) -> Result<Vec<Line>, String> {
    let mut lines = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let line: Line = serde_json::from_str(line).map_err(|e| format!("line {number}: {e}"))?;
        if !(line.t.is_finite() && line.t >= 0.0) {
            return Err(format!("line {number}: `t` is seconds from the beginning"));
        }
        if line.bytes > LARGEST_SET {
            return Err(format!("line {number}: a data set has at most 1 PiB"));
        }
        lines.push(line);
    }
    lines.sort_by(|a, b| a.t.total_cmp(&b.t));
    Ok(lines)
}

/// One stream of events that come by chance.
pub struct Stream {
    /// Which user.
    pub user: usize,
    /// Writes; otherwise reads.
    pub writes: bool,
    dice: Dice,
    at: f64,
}

impl Stream {
    /// Those of a specification.
    pub fn all(spec: &Spec, dice: &mut Dice) -> Vec<Self> {
        let users = 0..spec.users.len();
        let both = users.flat_map(|user| [(user, true), (user, false)]);
        let mut streams: Vec<Self> =
            both.map(|(user, writes)| Self { user, writes, dice: dice.fork(), at: 0.0 }).collect();
        streams.iter_mut().for_each(|s| s.go_on(&spec.users));
        streams
    }

    /// When its next event comes (seconds from the beginning); infinity: never.
    pub fn at(&self) -> f64 {
        self.at
    }

    /// It has happened: the next one.
    pub fn go_on(&mut self, users: &[User]) {
        let user = &users[self.user];
        let per_day = if self.writes { user.writes_per_day } else { user.reads_per_day };
        if per_day <= 0.0 {
            self.at = f64::INFINITY;
            return;
        }
        // Thinning: candidates at the highest rate there may be, taken with the share of the rate there is.
        let busy = if user.office_hours { 24.0 * 7.0 / 50.0 } else { 1.0 };
        loop {
            let grown = (1.0 + user.growth_per_year).powf(self.at / (365.25 * DAY)).max(0.01);
            let ahead = (1.0 + user.growth_per_year.max(0.0)).powf(7.0 / 365.25);
            let most = per_day * grown * ahead * busy / DAY;
            let step = self.dice.wait(1.0 / most);
            self.at += step;
            let (day, hour) = ((self.at / DAY) as u64 % 7, (self.at % DAY) / 3600.0);
            let open = !user.office_hours || (day < 5 && (8.0..18.0).contains(&hour));
            let now = (1.0 + user.growth_per_year).powf(self.at / (365.25 * DAY)) * per_day * busy / DAY;
            if self.at > 1e10 {
                self.at = f64::INFINITY;
                return;
            }
            if open && self.dice.share() < now / most {
                return;
            }
        }
    }

    /// Chance for what the event is about.
    pub fn dice(&mut self) -> &mut Dice {
        &mut self.dice
    }
}

/// A size by chance: the logarithm is spread normally.
pub fn size(user: &User, dice: &mut Dice) -> u64 {
    let (a, b) = (1.0 - dice.share(), dice.share());
    let normal = (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos();
    (user.size.0 as f64 * (normal * user.scatter).exp()).clamp(1.0, LARGEST_SET as f64) as u64
}
