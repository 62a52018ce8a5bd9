//! Months pass: what is on tape is verified when it is due, and not before; what decayed meanwhile is made anew.

use super::{Act, Outcome, Shape, World, check};
use crate::dice::Dice;
use std::collections::BTreeMap;
use std::time::Duration;
use types::*;
use wire::{Call, Reply};

const DAY: Duration = Duration::from_secs(86_400);
/// Days after which volumes are to be verified.
const EVERY: u32 = 180;
/// In so long everything comes to rest.
const REST: Duration = Duration::from_secs(2 * 3600);
/// Things that users do before.
const ACTS: u32 = 25;

/// Runs the months from a seed.
///
/// # Errors
/// The machine gives no room for it.
pub fn run_months(seed: u64) -> anyhow::Result<Outcome> {
    let shape = Shape {
        drives: 2,
        cartridges: 10,
        cartridge_bytes: 8 << 20,
        disk_bytes: 32 << 20,
        acts: ACTS,
        act_every: Duration::from_secs(60),
        fault_every: None,
    };
    let mut world = World::new(shape, Dice::new(seed), false, None)?;
    world.config.tape.verify_every_days = EVERY;
    let failed = world.months().err();
    Ok(world.ended(seed, failed))
}

impl World {
    fn months(&mut self) -> Result<(), String> {
        self.start()?;
        for (after, act) in [(1, Act::Look), (1, Act::Govern), (2, Act::User)] {
            self.at(Duration::from_secs(after), act);
        }
        let mut left = self.shape.acts;
        while left > 0 {
            left -= u32::from(self.turn()? == Some(Act::User));
        }
        self.calm = true;
        self.agenda.retain(|_, act| matches!(act, Act::Look | Act::Govern | Act::GovernSoon));
        self.until("what users asked for", |w| w.users.requests.is_empty() && w.users.reads.is_empty())?;
        self.all("migrated", Call::Migrate)?;
        self.all("released", Call::Purge)?;
        self.pass(REST)?;
        self.nothing_is_read(DAY * (EVERY - 1))?;
        let (dir, decayed) = self.a_segment()?;
        self.decay(&dir, &decayed)?;
        // Later than a tenth after the time.
        self.hub.advance(self.hub.time() + DAY * 20);
        if !self.is_overdue()? {
            return Err("nobody is told that the verification is overdue".into());
        }
        let (due, before) = (self.now(), self.verified()?);
        self.until("the verification of everything", |w| {
            let good = |all: &BTreeMap<_, _>, v| all.get(v).is_none_or(|at| *at >= Some(due));
            w.verified().is_ok_and(|all| before.keys().all(|v| good(&all, v)))
        })?;
        self.until("a new copy of what decayed", |w| w.is_mended(&decayed).unwrap_or(false))?;
        self.pass(REST)?;
        if self.is_overdue()? {
            return Err("it is verified, and still said to be overdue".into());
        }
        self.nothing_is_read(DAY * (EVERY / 2))?;
        self.seen.clear();
        self.check()?;
        self.read_everything()?;
        check::catalogue(self.node()?)
    }

    fn now(&self) -> Time {
        node::Clock::now(&*self.hub)
    }

    /// Time passes, and the services look around as often as they do.
    fn pass(&mut self, time: Duration) -> Result<(), String> {
        let end = self.hub.time() + time;
        while self.hub.time() < end {
            self.turn()?;
        }
        Ok(())
    }

    /// So much time passes without anything for drives to do: they do nothing.
    fn nothing_is_read(&mut self, time: Duration) -> Result<(), String> {
        let (before, jobs) = (self.verified()?, self.jobs);
        for _ in 0..4 {
            self.hub.advance(self.hub.time() + time / 4 - REST);
            self.pass(REST)?;
        }
        if (self.verified()?, self.jobs) != (before, jobs) {
            return Err(format!("drives did {} jobs although nothing was due", self.jobs - jobs));
        }
        Ok(())
    }

    /// When each volume that is needed was verified.
    fn verified(&self) -> Result<BTreeMap<Barcode, Option<Time>>, String> {
        let volumes = self.node()?.catalog().volumes().map_err(|e| e.to_string())?;
        let needed = volumes.into_iter().filter(|v| v.live_files > 0);
        let all: BTreeMap<_, _> = needed.map(|v| (v.barcode, v.last_verified)).collect();
        if all.len() < 2 { Err("nothing is on tape".into()) } else { Ok(all) }
    }

    fn is_overdue(&self) -> Result<bool, String> {
        let cx = Cx::admin(self.now());
        let answer = self.node()?.node().call(&cx, &mut node::Session::default(), Call::Status);
        let Reply::Status(status) = answer.map_err(|e| e.message)?.reply else {
            return Err("no status".into());
        };
        Ok(status.warnings.iter().any(|w| w.contains("should have been verified")))
    }

    /// Whether every file has two copies, and none lies where it decayed.
    fn is_mended(&self, decayed: &Segment) -> Result<bool, String> {
        let cx = Cx::admin(self.now());
        for name in self.users.now().keys() {
            let said = |e: &dyn std::fmt::Debug| format!("{name}: {e:?}");
            let attr = types::api::FileApi::lookup(&**self.node()?.node(), &cx, Ino::ROOT, name.as_bytes());
            let inode =
                self.node()?.catalog().inode(attr.map_err(|e| said(&e))?.ino).map_err(|e| said(&e))?;
            let Some(file) = inode.file else { continue };
            let copies = self.node()?.catalog().version_copies(inode.attr.ino, file.version);
            let copies = copies.map_err(|e| said(&e))?;
            if file.copies.len() < 2 || copies.iter().any(|c| c.segments.contains(decayed)) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
