//! Which volumes are worth being emptied.

use std::fmt;
use types::{Barcode, Generation, Volume, VolumeState};

/// When a volume is emptied without being asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReclaimRules {
    /// A full volume is, when so many per cent of what was written to it are dead; 0: never for that.
    pub dead_percent: u8,
    /// Every volume of this generation of LTO or an older one is; 0: never for that.
    pub generation: u8,
    /// Most files that a volume takes, 0: any number. One that holds so many is full whatever room it has, so of it dead files count
    /// as dead bytes do: directories, links and words on files have no bytes.
    pub most_files: u64,
}

impl ReclaimRules {
    /// Whether any volume ever is.
    pub fn any(&self) -> bool {
        self.dead_percent > 0 || self.generation > 0
    }
}

/// A volume to be emptied, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reclaim {
    /// Volume.
    pub volume: Barcode,
    /// Per cent of it that are dead.
    pub dead_percent: u8,
    /// Because of its generation, not of what is dead.
    pub old: bool,
}

impl fmt::Display for Reclaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = if self.old { "its medium is of an old generation, " } else { "" };
        write!(f, "volume {} is emptied: {why}{} per cent of it are dead", self.volume, self.dead_percent)
    }
}

/// Number of the generation of LTO by the media identifier at the end of a barcode.
pub fn generation(barcode: &Barcode) -> Option<u8> {
    Generation::of(barcode).map(Generation::number)
}

/// Share of what was written to a volume that nothing needs (per cent, rounded down). Of one that holds as many files as it may
/// (`most_files`, 0: any number) that of its files, if it is more.
pub fn dead_percent(v: &Volume, most_files: u64) -> u8 {
    let share = |all: u64, live: u64| match all {
        0 => 0,
        all => (u128::from(all.saturating_sub(live)) * 100 / u128::from(all)) as u8,
    };
    let files = if most_files > 0 && v.files >= most_files { share(v.files, v.live_files) } else { 0 };
    share(v.written, v.live).max(files)
}

/// The volumes to empty now, at most `room`: those of an old generation and the most dead first. One that still takes data is
/// left alone unless its generation is old; so is one on which nothing was written. One that may hold more than the catalogue lists, or
/// that the node itself made read-only, is left to operators.
pub fn reclaim<'v>(
    rules: &ReclaimRules,
    volumes: impl Iterator<Item = &'v Volume>,
    room: usize,
) -> Vec<Reclaim> {
    let decided = |v: &&Volume| !v.may_hold_more() && (v.state != VolumeState::ReadOnly || v.by.is_some());
    let chosen = volumes.filter(|v| v.files > 0).filter(decided).filter_map(|v| {
        let old = rules.generation > 0 && generation(&v.barcode).is_some_and(|g| g <= rules.generation);
        let dead = dead_percent(v, rules.most_files);
        let ended = matches!(v.state, VolumeState::Full | VolumeState::ReadOnly);
        // Of a medium that is written once nothing comes back.
        let worth = rules.dead_percent > 0 && dead >= rules.dead_percent && ended && !v.worm;
        (old || worth).then(|| Reclaim { volume: v.barcode.clone(), dead_percent: dead, old })
    });
    let mut chosen: Vec<Reclaim> = chosen.collect();
    chosen.sort_by(|a, b| (b.old, b.dead_percent, &a.volume).cmp(&(a.old, a.dead_percent, &b.volume)));
    chosen.truncate(room);
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Time;

    fn volume(barcode: &str, state: VolumeState, written: u64, live: u64) -> Volume {
        let fresh = Volume::new(Barcode::from(barcode), Time::default());
        Volume { state, written, live, files: u64::from(written > 0), ..fresh }
    }

    #[test]
    fn old_generations_and_the_most_dead_go_first() {
        use VolumeState::{Filling, Full};
        let volumes = [
            volume("AA0001L9", Full, 100, 50),
            volume("AA0002L9", Full, 100, 20),
            volume("AA0003L9", Filling, 100, 0),
            volume("AA0004L6", Filling, 100, 100),
            volume("AA0005L5", Full, 0, 0),
            volume("AA0006LA", Full, 100, 51),
        ];
        let chosen = |dead_percent, generation, room| {
            let rules = ReclaimRules { dead_percent, generation, most_files: 0 };
            let found = reclaim(&rules, volumes.iter(), room).into_iter();
            found.map(|r| r.volume.as_str()[5..6].to_owned()).collect::<String>()
        };
        assert_eq!(chosen(0, 0, 9), "");
        assert_eq!(chosen(50, 0, 9), "21", "a volume that takes data is left alone");
        assert_eq!(chosen(50, 0, 1), "2");
        assert_eq!(chosen(0, 6, 9), "4", "nothing was written to the fifth");
        assert_eq!(chosen(49, 6, 9), "4216");
        let worm = [volume("AA0007LZ", Full, 100, 10), volume("AA0008LW", Full, 100, 10)];
        let rules = ReclaimRules { dead_percent: 50, generation: 6, most_files: 0 };
        let chosen: Vec<_> =
            reclaim(&rules, worm.iter(), 9).into_iter().map(|r| r.volume.to_string()).collect();
        assert_eq!(chosen, ["AA0008LW"], "nothing comes back of what is written once");
        // What the node does not write any more is left to operators, and so is what may hold more than the catalogue lists.
        let mut found = volume("AA0007L5", VolumeState::ReadOnly, 100, 1);
        assert_eq!(reclaim(&rules, [&found].into_iter(), 9), []);
        found.by = Some(0);
        assert_eq!(reclaim(&rules, [&found].into_iter(), 9).len(), 1);
        for state in [VolumeState::ReadOnly, VolumeState::Full, VolumeState::Suspect] {
            found.state = state;
            assert_eq!(reclaim(&rules, [&found].into_iter(), 9).len(), 1);
            (found.imported, found.holds_more) = (true, false);
            assert_eq!(reclaim(&rules, [&found].into_iter(), 9), []);
            (found.imported, found.holds_more) = (false, true);
            assert_eq!(reclaim(&rules, [&found].into_iter(), 9), []);
            found.holds_more = false;
        }
        let suspect = volume("AA0008L9", VolumeState::Suspect, 100, 1);
        assert_eq!(reclaim(&rules, [&suspect].into_iter(), 9), []);
        let why = reclaim(&ReclaimRules { dead_percent: 80, ..ReclaimRules::default() }, volumes.iter(), 9);
        assert_eq!(why[0].to_string(), "volume AA0002L9 is emptied: 80 per cent of it are dead");
    }

    #[test]
    fn dead_files_count_where_a_volume_takes_no_more_of_them() {
        let full = |files, live_files, live| Volume {
            files,
            live_files,
            ..volume("AA0001L9", VolumeState::Full, 1_000, live)
        };
        let rules = ReclaimRules { dead_percent: 50, most_files: 100, ..ReclaimRules::default() };
        let dead = |v: Volume| reclaim(&rules, [&v].into_iter(), 9).first().map(|r| r.dead_percent);
        assert_eq!(dead(full(100, 40, 990)), Some(60), "it has room for bytes that nothing can use");
        assert_eq!(dead(full(100, 51, 990)), None);
        assert_eq!(dead(full(99, 0, 990)), None, "it is full of bytes, and they are needed");
        assert_eq!(dead(full(100, 100, 300)), Some(70), "the larger share");
        assert_eq!(dead(Volume { written: 0, ..full(100, 10, 0) }), Some(90), "directories and links alone");
        let any = ReclaimRules { most_files: 0, ..rules.clone() };
        assert_eq!(reclaim(&any, [&full(100, 40, 990)].into_iter(), 9), []);
        assert_eq!(dead_percent(&full(100, 200, 2_000), 100), 0, "never less than nothing");
    }
}
