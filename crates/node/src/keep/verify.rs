//! Which volumes are verified when: those of requests, and in the background those that have not been for long.

use super::Task;
use super::ticket::End;
use crate::Node;
use crate::clock::Moment;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use types::*;

/// Errors of drives after which a volume is given up for this time.
const TRIES: u32 = 3;
/// Volumes that are due by themselves are looked for this often.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// A volume that could not be verified is tried again by itself after this long.
const AGAIN_AFTER: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);

/// See the module.
#[derive(Default)]
pub struct Verify {
    /// What was found so far, and errors of drives, of volumes that are not through.
    open: BTreeMap<Barcode, Open>,
    /// Volumes in the background, until they are through.
    background: BTreeSet<Barcode>,
    looked: Option<Moment>,
    /// Volumes whose time is over, as operators were told.
    overdue: BTreeSet<Barcode>,
    /// Not before then.
    again: BTreeMap<Barcode, Moment>,
}

#[derive(Default)]
struct Open {
    notes: Vec<String>,
    errors: u32,
    /// Since when the volume is suspect by an error, if all of it is read since then.
    doubted: Option<Time>,
}

impl Open {
    /// A drive is about to begin, or to go on. What was read before the volume became suspect says nothing: then it is read from its
    /// beginning.
    fn look(&mut self, node: &Node, volume: &Barcode) {
        let Ok(Some(v)) = node.catalog.volume(volume) else { return };
        let doubted = doubted(&v);
        if doubted != self.doubted {
            let afresh = || {
                v.verified_to == 0 || node.catalog.update_volume(volume, &mut |v| v.verified_to = 0).is_ok()
            };
            self.doubted = doubted.filter(|_| afresh());
        }
    }
}

/// Since when a volume is suspect by an error that it or a drive gave. What an operator suspects only he takes back.
fn doubted(v: &Volume) -> Option<Time> {
    (v.state == VolumeState::Suspect && v.by.is_none()).then_some(v.since)
}

/// Every copy on a volume was read and is right: if it was suspect since `doubted`, and no error has come since, it is trusted
/// again, but not written. What is to be said of that.
fn trust(node: &Node, volume: &Barcode, since: Time) -> catalog::Result<String> {
    let (now, mut said) = (crate::now(), String::new());
    // Of an empty one nothing was read.
    if node.catalog.volume(volume)?.is_none_or(|v| v.live_files == 0) {
        return Ok(said);
    }
    node.catalog.update_volume(volume, &mut |v| {
        said.clear();
        if doubted(v) == Some(since) {
            let then = match v.may_hold_more() {
                true => ", for it may hold more than the catalogue lists".to_owned(),
                false => format!(" (`thermo volume state {volume} filling` has it written again)"),
            };
            let before = "all that is needed of it was read and is right: it is read, and not written";
            said = format!("it was suspect ({}), and {before}{then}", v.reason);
            v.becomes(VolumeState::ReadOnly, said.as_str(), now);
        }
    })?;
    Ok(said)
}

/// Whether a volume has copies that can be read.
pub fn can_be_verified(v: &Volume) -> bool {
    use VolumeState as S;
    let readable = matches!(v.state, S::Filling | S::Full | S::ReadOnly | S::Suspect | S::Repacking);
    readable && !v.uuid.is_empty()
}

/// When a volume that is to be verified at all was verified or labelled, the beginning of time if nobody knows.
fn verified(v: &Volume) -> Option<Time> {
    (v.live_files > 0 && can_be_verified(v)).then(|| v.last_verified.or(v.labelled).unwrap_or_default())
}

/// Volumes that were to be verified by now: a tenth more than the configured days has passed. Longest first.
fn overdue(volumes: &[Volume], days: u32, now: Time) -> Vec<(&Volume, Duration)> {
    if days == 0 {
        return Vec::new();
    }
    let most = DAY * days + DAY * days / 10;
    let late = |v| {
        // One that came from elsewhere, and was never verified here, is counted from its arrival.
        let late = now.since(verified(v)?.max(v.last_verified.or(v.labelled).unwrap_or(v.since)));
        (late >= most).then_some((v, late))
    };
    let mut late: Vec<_> = volumes.iter().filter_map(late).collect();
    late.sort_by_key(|(v, since)| (std::cmp::Reverse(*since), &v.barcode));
    late
}

/// In which order those that are due are sent. First what is in a drive: an idle drive puts its volume away for the first one that
/// is to be fetched, and would have to fetch it again. Then what was begun, then that longest ago.
fn turn(v: &Volume, mounted: &BTreeSet<Barcode>) -> (bool, bool, Option<Time>) {
    (!mounted.contains(&v.barcode), v.verified_to == 0, v.last_verified)
}

impl Node {
    /// Volumes in the library that should have been verified.
    fn overdue<'v>(&self, volumes: &'v [Volume]) -> Vec<(&'v Volume, Duration)> {
        let mut late = overdue(volumes, self.settings().tape.verify_every_days, crate::now());
        if !late.is_empty() {
            let present = self.archive.present();
            late.retain(|(v, _)| present.contains(&v.barcode));
        }
        late
    }

    /// What operators are to know of them.
    pub(crate) fn overdue_warning(&self, volumes: &[Volume]) -> Option<String> {
        let late = self.overdue(volumes);
        let (Volume { barcode, .. }, since) = late.first()?;
        Some(format!(
            "{} should have been verified (tape.verify_every_days = {}), {barcode} was not for {}: order it (`thermo \
             volume verify {barcode}`); if drives have no time for it, give more days or more drives",
            plural(late.len(), "volume"),
            self.settings().tape.verify_every_days,
            plural(since.as_secs() / DAY.as_secs(), "day"),
        ))
    }
}

impl Verify {
    /// Says in the log which volumes are newly overdue.
    fn tell_overdue(&mut self, node: &Node, volumes: &[Volume]) {
        let late: BTreeSet<Barcode> =
            node.overdue(volumes).into_iter().map(|(v, _)| v.barcode.clone()).collect();
        if !late.is_subset(&self.overdue)
            && let Some(warning) = node.overdue_warning(volumes)
        {
            tracing::warn!("{warning}");
        }
        self.overdue = late;
    }

    /// Sends what is asked for, and what is due, to the drives.
    pub fn tick(&mut self, node: &Arc<Node>, volumes: &[Volume]) -> catalog::Result<()> {
        let asked: Vec<Barcode> =
            node.volumes_asked_for(RequestKind::Verify)?.into_iter().map(|(volume, _)| volume).collect();
        let wanted = |volume: &Barcode| asked.contains(volume) || self.background.contains(volume);
        {
            let all = node.keeper.running.lock();
            for (volume, running) in &*all {
                let verifies = self.open.contains_key(volume);
                running.withdrawn.store(verifies && !wanted(volume), Ordering::Relaxed);
            }
            self.open.retain(|volume, _| wanted(volume) || all.contains_key(volume));
        }
        // More than drives can do soon would only make the queue long.
        let drives = node.archive.view().drives;
        let mounted: BTreeSet<Barcode> = drives.iter().filter_map(|d| d.volume.clone()).collect();
        let room = (drives.len() * 2).max(4).saturating_sub(node.keeper.running.lock().len());
        let (here, elsewhere): (Vec<_>, Vec<_>) = asked.into_iter().partition(|v| mounted.contains(v));
        for volume in here.into_iter().chain(elsewhere).take(room) {
            self.send(node, volume, false);
        }
        self.look(node, volumes, &mounted);
        Ok(())
    }

    /// Volumes that are mounted anyway, and one at a time of the others, that longest ago first.
    fn look(&mut self, node: &Arc<Node>, volumes: &[Volume], mounted: &BTreeSet<Barcode>) {
        let days = node.settings().tape.verify_every_days;
        let (now, instant) = (crate::now(), Moment::now());
        if days == 0 || self.looked.is_some_and(|at| instant - at < LOOK_EVERY) {
            return;
        }
        self.looked = Some(instant);
        self.tell_overdue(node, volumes);
        self.again.retain(|_, at| *at > instant);
        let due = |v: &&Volume| {
            verified(v).is_some_and(|at| now.since(at) >= DAY * days) && !self.again.contains_key(&v.barcode)
        };
        let mut due: Vec<&Volume> = volumes.iter().filter(due).collect();
        due.sort_by_key(|v| turn(v, mounted));
        self.background.retain(|b| due.iter().any(|v| v.barcode == *b));
        let present = node.archive.present();
        for v in due.into_iter().filter(|v| present.contains(&v.barcode)) {
            let fetches = !mounted.contains(&v.barcode);
            let busy = self.background.iter().any(|b| *b != v.barcode && !mounted.contains(b));
            if (fetches && busy) || !node.keeper.take(0, node.settings().tape.verify_pace.0) {
                continue;
            }
            self.background.insert(v.barcode.clone());
            self.send(node, v.barcode.clone(), true);
        }
    }

    fn send(&mut self, node: &Arc<Node>, volume: Barcode, paced: bool) {
        // Nobody but the keeper gives such errands.
        if node.keeper.running.lock().contains_key(&volume) {
            return;
        }
        // Before a drive begins, which may be at once.
        let mut open = self.open.remove(&volume).unwrap_or_default();
        if open.notes.is_empty() {
            open.look(node, &volume);
        }
        if node.send_errand(&volume, Task::Verify, paced) {
            self.open.insert(volume, open);
        }
    }

    /// A drive has done with a volume for now.
    pub fn ended(&mut self, node: &Arc<Node>, volume: &Barcode, end: End) -> catalog::Result<()> {
        let mut open = self.open.remove(volume).unwrap_or_default();
        let note = |open: &mut Open, note: String| {
            if !note.is_empty() {
                open.notes.push(note);
            }
        };
        let state = match end {
            End::Paused(what) => {
                note(&mut open, what);
                self.open.insert(volume.clone(), open);
                return Ok(());
            }
            End::Failed(why) if open.errors + 1 < TRIES => {
                tracing::warn!("volume {volume} is not verified to its end: {why}; it is tried again");
                open.errors += 1;
                self.open.insert(volume.clone(), open);
                return Ok(());
            }
            End::Failed(why) | End::Refused(why) => {
                note(&mut open, why);
                self.again.insert(volume.clone(), Moment::now() + AGAIN_AFTER);
                ItemState::Failed(open.notes.join("; "))
            }
            End::Done(what) => {
                note(&mut open, what);
                if let Some(since) = open.doubted.filter(|_| open.notes.is_empty()) {
                    note(&mut open, trust(node, volume, since)?);
                }
                ItemState::Done
            }
        };
        self.background.remove(volume);
        let said = open.notes.join("; ");
        let said = if said.is_empty() { said } else { format!("volume {volume}: {said}") };
        node.finish_volume(RequestKind::Verify, volume, &state, &said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_a_drive_is_verified_before_anything_is_fetched() {
        let volume = |name: &str, to: u64, verified: i64| Volume {
            verified_to: to,
            last_verified: Some(Time::new(verified, 0)),
            ..Volume::new(Barcode::from(name), Time::default())
        };
        let mounted = ["HERE", "TOO"].map(Barcode::from).into();
        let mut all = [volume("OLD", 0, 1), volume("BEGUN", 7, 3), volume("HERE", 0, 4), volume("TOO", 0, 2)];
        all.sort_by_key(|v| turn(v, &mounted));
        assert_eq!(all.map(|v| v.barcode.to_string()), ["TOO", "HERE", "BEGUN", "OLD"]);
    }

    #[test]
    fn a_volume_is_overdue_when_a_tenth_more_than_its_time_has_passed() {
        let volume = |n: i64, verified: Option<i64>| Volume {
            uuid: "u".into(),
            state: VolumeState::Full,
            live_files: 1,
            labelled: Some(Time::new(0, 0)),
            last_verified: verified.map(|days| Time::new(days * 86_400, 0)),
            ..Volume::new(Barcode::from(format!("V{n}")), Time::default())
        };
        let empty = Volume { live_files: 0, ..volume(3, None) };
        let retired = Volume { state: VolumeState::Retired, ..volume(4, None) };
        let came = Volume { labelled: None, since: Time::new(86_400, 0), ..volume(5, None) };
        let all = [volume(1, Some(5)), volume(2, None), empty, retired, came];
        let late = |days, at: i64| {
            let found = overdue(&all, days, Time::new(at * 86_400, 0));
            found.into_iter().map(|(v, _)| v.barcode.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(late(100, 109), [""; 0]);
        assert_eq!(late(100, 110), ["V2"]);
        assert_eq!(late(100, 111), ["V2", "V5"], "it came a day later");
        assert_eq!(late(100, 115), ["V2", "V5", "V1"], "the longest first");
        assert_eq!(late(0, 9_999), [""; 0], "nobody wants it");
    }
}
