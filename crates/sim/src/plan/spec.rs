//! What is to be planned, as TOML: the system, the pools and classes, who writes and reads how much, how it grows, and
//! what breaks how often. Every key has a default but the workload.

use node::Size;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use types::Generation;

/// Copies of a class, as in the node.
pub const MOST_COPIES: usize = 4;
/// Cartridges that a library begins with, keeps blank or gets at once.
const MOST_CARTRIDGES: u32 = 10_000_000;
/// Longest data set (bytes): sums of many are still numbers.
pub const LARGEST_SET: u64 = 1 << 50;
/// Data sets that are written, read or there before.
const MOST_SETS: f64 = 1e8;

/// See the module.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Spec {
    /// Title of the report.
    pub title: String,
    /// Of all chance.
    pub seed: u64,
    /// Simulated time.
    pub days: f64,
    /// Robot, drives, cartridges.
    pub library: Library,
    /// Disk tier.
    pub disk: Disk,
    /// Classes of service.
    pub classes: Vec<Class>,
    /// Who writes and reads.
    pub users: Vec<User>,
    /// What breaks.
    pub faults: Faults,
    /// Bounds of the scheduler.
    pub scheduler: Scheduler,
}

/// Robot, drives, cartridges.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Library {
    /// Libraries, all alike, each with its own robot. Drives and cartridges are those of all together.
    pub count: u16,
    /// Libraries (from 1) that pools are bound to, as with `thermo pool set --library`; other pools take volumes of any.
    pub pools: BTreeMap<String, u16>,
    /// Drives; they are shared out one by one.
    pub drives: u16,
    /// Medium and drives: `lto5` to `lto10`.
    pub generation: String,
    /// Blank cartridges at the beginning, besides those that hold what users have archived before.
    pub cartridges: u32,
    /// When fewer than this many are blank, `buy` more are bought.
    pub spare: u32,
    /// Bought at once.
    pub buy: u32,
    /// Robot: one move (seconds).
    pub robot_move_s: f64,
    /// Record size on tape.
    pub block_size: Size,
    /// A file system's share of a drive's rate that is really reached when streaming (0 to 1).
    pub efficiency: f64,
}

/// Disk tier.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Disk {
    /// What it may hold.
    pub capacity: Size,
    /// Purge begins at this per cent of it ...
    pub high_watermark: u8,
    /// ... and ends at this.
    pub low_watermark: u8,
}

/// A class of service.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Class {
    /// Name.
    pub name: String,
    /// Pool of each copy.
    pub copies: Vec<String>,
    /// Unchanged for so long before migration (seconds).
    #[serde(default = "an_hour")]
    pub migrate_after_s: u32,
    /// Waiting bytes that start migration at once; 0: only age counts.
    #[serde(default)]
    pub migrate_bytes: Size,
}

fn an_hour() -> u32 {
    3600
}

/// Who writes and reads data sets: groups of files that are written together and read together.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct User {
    /// Name.
    pub name: String,
    /// Class of what he writes.
    #[serde(default = "default_class")]
    pub class: String,
    /// Data sets written in a day, on average.
    #[serde(default)]
    pub writes_per_day: f64,
    /// Median of their sizes ...
    pub size: Size,
    /// ... and how far the logarithm of a size scatters (standard deviation; 0: all alike).
    #[serde(default)]
    pub scatter: f64,
    /// Files of a data set.
    #[serde(default = "one")]
    pub files: u32,
    /// Data sets read in a day, on average.
    #[serde(default)]
    pub reads_per_day: f64,
    /// Share of those that are of the last `recent_days` (0 to 1); the others are any of his.
    #[serde(default)]
    pub recent: f64,
    /// See `recent`.
    #[serde(default = "a_month")]
    pub recent_days: f64,
    /// Share of a data set's files that one read wants (0 to 1).
    #[serde(default = "all")]
    pub part: f64,
    /// On tape already at the beginning.
    #[serde(default)]
    pub archived: Size,
    /// Growth of writes and reads (0.3: 30 % more after a year).
    #[serde(default)]
    pub growth_per_year: f64,
    /// Greater goes first.
    #[serde(default = "priority")]
    pub priority: u8,
    /// Only between 8 and 18 o'clock on five days of seven; the same number in all.
    #[serde(default)]
    pub office_hours: bool,
}

fn default_class() -> String {
    "default".into()
}
fn one() -> u32 {
    1
}
fn a_month() -> f64 {
    30.0
}
fn all() -> f64 {
    1.0
}
fn priority() -> u8 {
    5
}

/// What breaks.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// Hours of one drive between two failures; 0: never.
    pub drive_mtbf_h: f64,
    /// Until it is replaced (hours).
    pub drive_repair_h: f64,
    /// Hours between two failures of the robot; 0: never.
    pub robot_mtbf_h: f64,
    /// Until it is mended (hours).
    pub robot_repair_h: f64,
}

/// Bounds of the scheduler.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scheduler {
    /// A mounted volume without work is put away after so long (seconds).
    pub idle_unmount_s: u32,
    /// Drives that are never used for writing.
    pub drives_for_recall: u32,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            title: "Plan".into(),
            seed: 1,
            days: 28.0,
            library: Library::default(),
            disk: Disk::default(),
            classes: vec![Class {
                name: default_class(),
                copies: vec!["primary".into(), "second".into()],
                migrate_after_s: an_hour(),
                migrate_bytes: Size(0),
            }],
            users: Vec::new(),
            faults: Faults::default(),
            scheduler: Scheduler::default(),
        }
    }
}

impl Default for Library {
    fn default() -> Self {
        Self {
            count: 1,
            pools: BTreeMap::new(),
            drives: 4,
            generation: "lto9".into(),
            cartridges: 100,
            spare: 10,
            buy: 50,
            robot_move_s: 10.0,
            block_size: Size(512 << 10),
            efficiency: 0.95,
        }
    }
}

impl Default for Disk {
    fn default() -> Self {
        Self { capacity: Size(100_000_000_000_000), high_watermark: 90, low_watermark: 80 }
    }
}

impl Default for Faults {
    fn default() -> Self {
        Self { drive_mtbf_h: 0.0, drive_repair_h: 24.0, robot_mtbf_h: 0.0, robot_repair_h: 4.0 }
    }
}

impl Default for Scheduler {
    fn default() -> Self {
        Self { idle_unmount_s: 120, drives_for_recall: 0 }
    }
}

impl Spec {
    /// Reads and checks a specification.
    ///
    /// # Errors
    /// What is wrong where, ready for the user.
    pub fn parse(text: &str) -> Result<Self, String> {
        let spec: Self = toml::from_str(text).map_err(|e| e.to_string())?;
        spec.check()?;
        Ok(spec)
    }

    /// Whether it makes sense.
    ///
    /// # Errors
    /// What does not.
    pub fn check(&self) -> Result<(), String> {
        let bad = |what: &str, why: &str| Err(format!("{what}: {why}"));
        let finite = |n: f64| n.is_finite() && n >= 0.0;
        if !(self.days.is_finite() && self.days > 0.0 && self.days <= 36_525.0) {
            return bad("days", "more than 0 and at most 36525 (a hundred years)");
        }
        self.check_library()?;
        let disk = &self.disk;
        if disk.high_watermark > 100 || disk.low_watermark >= disk.high_watermark {
            return bad(
                "disk.low_watermark, .high_watermark",
                "the low one below the high one, both at most 100",
            );
        }
        let f = &self.faults;
        if ![f.drive_mtbf_h, f.drive_repair_h, f.robot_mtbf_h, f.robot_repair_h].into_iter().all(finite) {
            return bad("faults", "numbers from 0");
        }
        if [f.drive_mtbf_h, f.robot_mtbf_h].into_iter().any(|hours| hours > 0.0 && hours < 1.0) {
            return bad("faults", "at least an hour between two failures, or 0 for none");
        }
        if self.classes.iter().any(|c| !(1..=MOST_COPIES).contains(&c.copies.len())) {
            return bad("classes", &format!("each needs at least one copy and has at most {MOST_COPIES}"));
        }
        let classes: BTreeMap<&str, ()> = self.classes.iter().map(|c| (c.name.as_str(), ())).collect();
        for user in &self.users {
            let name = format!("users: {}", user.name);
            if !classes.contains_key(user.class.as_str()) {
                return bad(&name, &format!("there is no class `{}`", user.class));
            }
            let shares = [user.recent, user.part];
            if !shares.into_iter().all(|s| (0.0..=1.0).contains(&s)) {
                return bad(&name, "`recent` and `part` are shares from 0 to 1");
            }
            let numbers = [user.writes_per_day, user.reads_per_day, user.recent_days, user.scatter];
            if !numbers.into_iter().all(finite)
                || !user.growth_per_year.is_finite()
                || user.growth_per_year < -1.0
            {
                return bad(&name, "rates are numbers from 0, growth from -1");
            }
            if user.size.0 == 0 || user.size.0 > LARGEST_SET || user.files == 0 || user.scatter > 5.0 {
                return bad(&name, "`size` is 1 byte to 1 PiB, `files` at least 1, `scatter` at most 5");
            }
            self.check_amount(user).map_err(|why| format!("{name}: {why}"))?;
        }
        Ok(())
    }

    fn check_library(&self) -> Result<(), String> {
        let bad = |what: &str, why: &str| Err(format!("{what}: {why}"));
        let l = &self.library;
        if !(1..=1000).contains(&l.drives) {
            return bad("library.drives", "1 to 1000");
        }
        self.generation()?;
        if !(1..=l.drives).contains(&l.count) {
            return bad("library.count", "1 to as many as there are drives");
        }
        if let Some((pool, n)) = l.pools.iter().find(|(_, n)| !(1..=l.count).contains(n)) {
            return bad("library.pools", &format!("{pool} = {n}: there are libraries 1 to {}", l.count));
        }
        if l.block_size.0 < 4096 {
            return bad("library.block_size", "at least 4096 bytes");
        }
        if !(l.efficiency > 0.0 && l.efficiency <= 1.0) {
            return bad("library.efficiency", "more than 0, at most 1");
        }
        let bought = [l.cartridges, l.spare, l.buy];
        if l.buy == 0 || bought.into_iter().any(|n| n > MOST_CARTRIDGES) {
            let why = format!("at most {MOST_CARTRIDGES} each, `buy` at least 1");
            return bad("library.cartridges, .spare, .buy", &why);
        }
        if !(0.0..=3600.0).contains(&l.robot_move_s) {
            return bad("library.robot_move_s", "0 to 3600");
        }
        Ok(())
    }

    /// What is simulated of a user has an end.
    fn check_amount(&self, user: &User) -> Result<(), String> {
        let years = self.days / 365.25;
        let grown = (1.0 + user.growth_per_year.max(0.0)).powf(years);
        let in_all = user.writes_per_day.max(user.reads_per_day) * grown * self.days;
        let before = user.archived.0 / user.size.0;
        if in_all.max(before as f64) <= MOST_SETS {
            return Ok(());
        }
        Err(format!(
            "more than {MOST_SETS:.0} data sets come together: make them larger, or fewer (a data set stands for many files)"
        ))
    }

    /// The medium.
    ///
    /// # Errors
    /// There is no such generation.
    pub fn generation(&self) -> Result<Generation, String> {
        use Generation as G;
        Ok(match self.library.generation.to_ascii_lowercase().as_str() {
            "lto5" => G::Lto5,
            "lto6" => G::Lto6,
            "lto7" => G::Lto7,
            "lto8" => G::Lto8,
            "lto9" => G::Lto9,
            "lto10" => G::Lto10,
            other => return Err(format!("library.generation: `{other}` is none of lto5 to lto10")),
        })
    }
}
