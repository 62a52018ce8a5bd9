//! Variants of a system: the same with one number changed.

use super::spec::{MOST_COPIES, Spec, User};
use std::fmt::Display;
use std::str::FromStr;

/// Changes a specification as a value says.
type Change = fn(&mut Spec, &str) -> Result<(), String>;

/// What can be varied.
const KEYS: [(&str, Change); 16] = [
    ("drives", |spec, v| set(&mut spec.library.drives, v)),
    ("libraries", |spec, v| set(&mut spec.library.count, v)),
    ("generation", |spec, v| set(&mut spec.library.generation, v)),
    ("disk", |spec, v| set(&mut spec.disk.capacity, v)),
    ("high", |spec, v| set(&mut spec.disk.high_watermark, v)),
    ("low", |spec, v| set(&mut spec.disk.low_watermark, v)),
    ("copies", copies),
    ("migrate_after", |spec, v| {
        let seconds = number(v)?;
        spec.classes.iter_mut().for_each(|c| c.migrate_after_s = seconds);
        Ok(())
    }),
    ("migrate_bytes", |spec, v| {
        let bytes = number(v)?;
        spec.classes.iter_mut().for_each(|c| c.migrate_bytes = bytes);
        Ok(())
    }),
    ("idle", |spec, v| set(&mut spec.scheduler.idle_unmount_s, v)),
    ("recall", |spec, v| set(&mut spec.scheduler.drives_for_recall, v)),
    ("growth", |spec, v| {
        let growth = number(v)?;
        users(spec)?.iter_mut().for_each(|u| u.growth_per_year = growth);
        Ok(())
    }),
    ("load", |spec, v| {
        let times: f64 = number(v)?;
        for user in users(spec)? {
            user.writes_per_day *= times;
            user.reads_per_day *= times;
        }
        Ok(())
    }),
    ("days", |spec, v| set(&mut spec.days, v)),
    ("seed", |spec, v| set(&mut spec.seed, v)),
    ("robot", |spec, v| set(&mut spec.library.robot_move_s, v)),
];

fn number<T: FromStr<Err: Display>>(value: &str) -> Result<T, String> {
    value.parse().map_err(|e: T::Err| e.to_string())
}

fn set<T: FromStr<Err: Display>>(what: &mut T, value: &str) -> Result<(), String> {
    *what = number(value)?;
    Ok(())
}

/// Those of whom rates can be changed; a trace says when what happens, whatever the rates.
fn users(spec: &mut Spec) -> Result<&mut [User], String> {
    if spec.users.is_empty() {
        return Err("there are no [[users]], and a trace is done as it is".into());
    }
    Ok(&mut spec.users)
}

/// So many copies of each class: its first ones, and further ones in pools of their own.
fn copies(spec: &mut Spec, value: &str) -> Result<(), String> {
    let wanted: usize = number(value)?;
    if !(1..=MOST_COPIES).contains(&wanted) {
        return Err(format!("1 to {MOST_COPIES} copies"));
    }
    for class in &mut spec.classes {
        class.copies.truncate(wanted);
        for n in class.copies.len()..wanted {
            class.copies.push(format!("copy-{}", n + 1));
        }
    }
    Ok(())
}

/// Names of what can be varied, for people.
pub fn keys() -> String {
    KEYS.map(|(key, _)| key).join(", ")
}

impl Spec {
    /// The same with one number changed: `drives=8`, `disk=200TB`, `growth=0.5`, `idle=600`, `days=90`, `recall=1`.
    ///
    /// # Errors
    /// There is no such number, or it makes no sense.
    pub fn vary(&self, key: &str, value: &str) -> Result<Self, String> {
        let Some((_, change)) = KEYS.iter().find(|(name, _)| *name == key) else {
            return Err(format!("`{key}` cannot be varied; what can: {}", keys()));
        };
        let mut spec = self.clone();
        change(&mut spec, value).and_then(|()| spec.check()).map_err(|e| format!("{key}={value}: {e}"))?;
        Ok(spec)
    }
}
