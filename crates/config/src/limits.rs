//! `[[limits]]` of the configuration: how many drives may read, and write, for somebody at once, how much of the drives is his
//! when others want them too, and how urgent his requests may be.
//!
//! Somebody is the user who asked (for files that are opened or written to tape: the file's owner), the group of the file, or
//! its class of service, which is also how a project is told: a directory gives its class to all below it.

use serde::{Deserialize, Serialize};
use types::{ClassName, Request};

/// Priorities that a request may have: the lowest is above what is brought back for nobody (`sched::BACKGROUND`).
pub const LOWEST: u8 = 1;
/// The highest.
pub const HIGHEST: u8 = 9;

/// One entry. It counts for files that everything given of `owner`, `group` and `class` is true of.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitConfig {
    /// Name, for people.
    pub name: String,
    /// Who asked, or whose file is written (uid).
    pub owner: Option<u32>,
    /// Group of the file (gid).
    pub group: Option<u32>,
    /// Class of the file.
    pub class: Option<String>,
    /// Most drives that may read at once, and write at once to one pool.
    pub drives: Option<u32>,
    /// Share of the drives in proportion to others, who have 1 each. The first entry with a weight counts.
    pub weight: Option<f64>,
    /// Priority of requests, and the highest that may be asked for, 1 to 9; others have 5. The first entry with a priority counts.
    pub priority: Option<u8>,
}

/// What a file is asked for as.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'a> {
    /// Who asks.
    pub uid: u32,
    /// Group of the file.
    pub gid: u32,
    /// Its class.
    pub class: &'a ClassName,
}

impl LimitConfig {
    /// Whether it counts for this.
    pub fn counts_for(&self, who: &Asker<'_>) -> bool {
        self.owner.is_none_or(|uid| uid == who.uid)
            && self.group.is_none_or(|gid| gid == who.gid)
            && self.class.as_ref().is_none_or(|class| *class == who.class.0)
    }
}

/// Highest priority that this asker's requests may have, which is also the one they have unless they ask for less.
pub fn priority_of(limits: &[LimitConfig], who: &Asker<'_>) -> u8 {
    let first = limits.iter().filter(|limit| limit.counts_for(who)).find_map(|limit| limit.priority);
    first.unwrap_or(Request::USUAL_PRIORITY)
}

/// Share of the drives.
pub fn weight_of(limits: &[LimitConfig], who: &Asker<'_>) -> f64 {
    limits.iter().filter(|limit| limit.counts_for(who)).find_map(|limit| limit.weight).unwrap_or(1.0)
}

/// Checks what the types cannot.
///
/// # Errors
/// Names the entry and what to write instead.
pub fn validate(limits: &[LimitConfig]) -> Result<(), String> {
    for (n, limit) in limits.iter().enumerate() {
        let name = &limit.name;
        if name.is_empty() {
            return Err(format!(
                "limits: entry {} has no name; give it one, it is shown to who waits",
                n + 1
            ));
        }
        if limits.iter().take(n).any(|other| other.name == *name) {
            return Err(format!("limits: `{name}` is there twice; give each entry a name of its own"));
        }
        if limit.drives == Some(0) {
            return Err(format!(
                "limits: `{name}` allows no drive at all: nothing would ever be recalled; allow 1 or more"
            ));
        }
        if limit.weight.is_some_and(|weight| !(0.001..=1000.0).contains(&weight)) {
            return Err(format!("limits: the weight of `{name}` must be between 0.001 and 1000"));
        }
        if limit.priority.is_some_and(|priority| !(LOWEST..=HIGHEST).contains(&priority)) {
            return Err(format!("limits: the priority of `{name}` must be between {LOWEST} and {HIGHEST}"));
        }
        if limit.drives.is_none() && limit.weight.is_none() && limit.priority.is_none() {
            return Err(format!("limits: `{name}` limits nothing; set drives, weight or priority"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    #[test]
    fn limits_are_read_and_the_first_that_counts_is_taken() {
        let text = "[[limits]]\nname = \"anna\"\nowner = 7\nweight = 3.0\npriority = 8\n\
                    [[limits]]\nname = \"students\"\ngroup = 100\nweight = 0.5\npriority = 3\n\
                    [[limits]]\nname = \"bulk\"\nclass = \"bulk\"\ndrives = 1\npriority = 2\n";
        let limits = Config::parse(text).unwrap().limits;
        let (bulk, other) = (ClassName("bulk".into()), ClassName("default".into()));
        let of = |uid, gid, class| {
            let who = Asker { uid, gid, class };
            (priority_of(&limits, &who), weight_of(&limits, &who))
        };
        assert_eq!([of(7, 1, &bulk), of(8, 1, &bulk), of(8, 1, &other)], [(8, 3.0), (2, 1.0), (5, 1.0)]);
        assert_eq!(
            [of(7, 100, &other), of(8, 100, &other), of(8, 100, &bulk)],
            [(8, 3.0), (3, 0.5), (3, 0.5)]
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_to_write_instead() {
        let parse = |rest: &str| Config::parse(&format!("[[limits]]\n{rest}")).unwrap_err();
        assert!(parse("name = \"a\"\ndrives = 0\n").contains("1 or more"));
        assert!(parse("drives = 1\n").contains("name"));
        assert!(parse("name = \"a\"\npriority = 10\n").contains("between 1 and 9"));
        assert!(parse("name = \"a\"\nweight = 0.0\n").contains("weight"));
        assert!(parse("name = \"a\"\n").contains("limits nothing"));
        let twice = "name = \"a\"\ndrives = 1\n[[limits]]\nname = \"a\"\ndrives = 2\n";
        assert!(parse(twice).contains("twice"));
        assert!(parse("name = \"a\"\ndrive = 1\n").contains("did you mean `drives`?"));
    }
}
