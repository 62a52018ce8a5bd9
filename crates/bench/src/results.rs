//! Results as they are kept: every round of everything, with what it was measured on.

use crate::{Comparison, Curve, Figure, Group, Machine, Plan, machine};
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Number of this layout of results; another one is refused.
const FORMAT: u32 = 1;

/// A run of `thermo bench`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Layout of this file.
    pub format: u32,
    /// Version of the program.
    pub version: String,
    /// What was said with `--remark`.
    pub remark: String,
    /// When it began (RFC 3339, in UTC).
    pub began: String,
    /// What it was measured on.
    pub machine: Machine,
    /// Runnable threads when it began, before there was anything of ours to run (mean of a minute).
    pub load: f64,
    /// Smaller amounts than usual.
    pub quick: bool,
    /// Figures.
    pub groups: Vec<Measured>,
}

/// What was measured of a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The group.
    pub group: Group,
    /// Figures that stand alone.
    pub figures: Vec<Figure>,
    /// Figures of several sides.
    pub comparisons: Vec<Comparison>,
    /// What calls of different lengths reach.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curves: Vec<Curve>,
}

impl Results {
    /// Nothing yet.
    pub fn begin(plan: &Plan) -> Result<Self> {
        let now = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second())?;
        Ok(Self {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").into(),
            remark: plan.remark.clone(),
            began: now.to_string(),
            machine: Machine::here(&plan.dir)?,
            load: machine::load()?,
            quick: plan.quick,
            groups: Vec::new(),
        })
    }

    /// Reads a file that [`Results::save`] wrote.
    ///
    /// # Errors
    /// It cannot be read, is something else, or of another format.
    pub fn load(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        let results: Self = serde_json::from_str(&text)
            .with_context(|| format!("{} does not hold results of `thermo bench --save`", path.display()))?;
        ensure!(
            results.format == FORMAT,
            "{} has format {}, this program reads format {FORMAT}: measure again",
            path.display(),
            results.format
        );
        Ok(results)
    }

    /// Writes it as JSON.
    ///
    /// # Errors
    /// What the file system says.
    pub fn save(&self, path: &Path) -> Result<()> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        std::fs::write(path, shorter(&text)).with_context(|| format!("writing {}", path.display()))
    }
}

/// Lists of numbers on one line each: a line per side of a figure, so that differences between two runs can be read.
fn shorter(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut list = false;
    for line in text.lines() {
        let word = line.trim();
        let opens = word.ends_with("\"values\": [");
        if list {
            out.push_str(word);
            out.push_str(if word.ends_with(',') { " " } else { "" });
            list = !word.starts_with(']');
        } else {
            out.push_str(line);
            list = opens;
        }
        if !list {
            out.push('\n');
        }
    }
    out
}

/// What several runs measured of a group, in the order of the runs: what has the same name is put together.
pub fn of_group(runs: &[Results], group: Group) -> Measured {
    let mut all = Measured { group, figures: Vec::new(), comparisons: Vec::new(), curves: Vec::new() };
    for measured in runs.iter().flat_map(|run| &run.groups).filter(|m| m.group == group) {
        for figure in &measured.figures {
            match all.figures.iter_mut().find(|f| f.name == figure.name) {
                Some(known) => known.values.extend(&figure.values),
                None => all.figures.push(figure.clone()),
            }
        }
        for comparison in &measured.comparisons {
            match all.comparisons.iter_mut().find(|c| c.name == comparison.name) {
                Some(known) => {
                    comparison
                        .series
                        .iter()
                        .for_each(|s| s.values.iter().for_each(|&v| known.push(s.side, v)));
                }
                None => all.comparisons.push(comparison.clone()),
            }
        }
        // Those of another run may have other lengths.
        all.curves.extend(measured.curves.iter().cloned());
    }
    all
}
