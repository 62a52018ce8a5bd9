//! What happens to the hosts while programs run on the clients.

use crate::hall::{AT, Work};
use crate::load::{Load, STRIPED};
use crate::site::{CLIENTS, MOVERS, Site, TARGET, follows, is_followed};
use e2e::Way;
use e2e::cluster::{lies_on, targets};
use posix::random::Random;
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Hosts and how long it lasts follow from the seed.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// The first node, or its standby, is killed and started again.
    KillFirst,
    KillStandby,
    /// The first node is killed while a drive writes, and its standby goes on in its place; the old one becomes the standby of that.
    TakeOver,
    /// Until its certificate has ended.
    KillMover,
    /// The host of the drives is killed while one of them is at work.
    KillDrives(Work),
    /// With all its programs.
    KillClient,
    /// The link of a host is cut, with the first node alive and all others.
    CutMover(Way),
    CutDrives,
    CutClient(Way),
    CutStandby,
    CutFirst,
    /// A host can send and receive two megabits a second only.
    Slow,
    /// A host stands still and goes on, with its clock.
    StandStill(Who),
    /// A host has a tenth of the time that it had, in small pieces.
    Starve,
    /// Somebody else fills the file system of a target.
    Fill,
    /// The disk of a target is gone, and replaced.
    LoseDisk,
}

/// Who stands still.
#[derive(Clone, Copy, Debug)]
pub enum Who {
    First,
    Mover,
    Client,
}

/// All of them, once each.
pub const ALL: [Fault; 22] = [
    Fault::TakeOver,
    Fault::KillMover,
    Fault::KillDrives(Work::Write),
    Fault::KillDrives(Work::Read),
    Fault::CutMover(Way::To),
    Fault::CutMover(Way::From),
    Fault::CutDrives,
    Fault::KillStandby,
    Fault::KillFirst,
    Fault::CutClient(Way::To),
    Fault::CutClient(Way::From),
    Fault::CutClient(Way::Both),
    Fault::CutStandby,
    Fault::CutFirst,
    Fault::Slow,
    Fault::StandStill(Who::First),
    Fault::StandStill(Who::Mover),
    Fault::StandStill(Who::Client),
    Fault::Starve,
    Fault::KillClient,
    Fault::Fill,
    Fault::LoseDisk,
];

impl Fault {
    /// Lets it happen, and waits until all hosts are back.
    pub fn happen(self, site: &mut Site, load: &mut Load, random: &mut Random) {
        let begun = Instant::now();
        let mover = *random.of(&MOVERS.collect::<Vec<_>>());
        let client = *random.of(&CLIENTS);
        let pause = Duration::from_millis(500 + random.below(1500) as u64);
        println!("{self:?}, mover {mover}, client {client}, {pause:?}");
        match self {
            Self::KillFirst => die(site, site.first, pause),
            Self::KillStandby => die(site, site.standby, pause),
            Self::TakeOver => take_over(site, load),
            Self::KillMover => {
                site.network.kill(mover);
                site.wait_for_its_end(mover);
                site.bed(mover).up();
            }
            Self::KillDrives(work) => {
                site.hall.wait_for(work);
                die(site, AT, pause);
            }
            Self::KillClient => {
                load.without(|| {
                    die(site, CLIENTS[1], pause);
                    site.mount(CLIENTS[1]);
                });
                load.begin_again(site);
            }
            Self::CutMover(way) => cut(site, mover, way, 2 * pause),
            Self::CutDrives => cut(site, AT, Way::Both, 2 * pause),
            Self::CutClient(way) => cut(site, client, way, 2 * pause),
            Self::CutStandby => cut(site, site.standby, Way::Both, 2 * pause),
            Self::CutFirst => cut(site, site.first, Way::Both, 2 * pause),
            Self::Slow => {
                site.network.slow(mover, 2);
                sleep(2 * pause);
                site.network.heal(mover);
            }
            Self::StandStill(who) => {
                let host = match who {
                    Who::First => site.first,
                    Who::Mover => mover,
                    Who::Client => client,
                };
                // Longer than a lease of the first node, at times.
                stand_still(site, host, 3 * pause);
            }
            Self::Starve => {
                let begun = Instant::now();
                while begun.elapsed() < 2 * pause {
                    stand_still(site, mover, Duration::from_millis(90));
                    sleep(Duration::from_millis(10));
                }
            }
            Self::Fill => fill(site, mover, 2 * pause),
            Self::LoseDisk => lose(site, load, random),
        }
        site.is_whole();
        load.goes_on();
        println!("it lasted {:?}", begun.elapsed());
    }
}

fn die(site: &Site, host: usize, pause: Duration) {
    site.network.kill(host);
    sleep(pause);
    site.bed(host).up();
}

fn cut(site: &Site, host: usize, way: Way, pause: Duration) {
    site.network.cut(host, way);
    sleep(pause);
    site.network.heal(host);
}

fn stand_still(site: &Site, host: usize, pause: Duration) {
    site.network.freeze(host);
    sleep(pause);
    site.network.thaw(host);
}

fn take_over(site: &mut Site, load: &Load) {
    let (old, new) = (site.first, site.standby);
    // By itself, and in this fault only: a start after any other may take longer.
    site.set_standby(new, &follows(old, "take_over_after_s = 2\n"));
    site.bed(new).ok(["down"]);
    site.bed(new).up();
    // It takes over only from a node that it has heard since.
    site.bed(new).wait("news", || site.bed(new).json(["standby", "status"])["heard_ms"].is_u64());
    site.is_whole();
    site.hall.wait_for(Work::Write);
    site.network.kill(old);
    let killed = Instant::now();
    site.bed(new).wait("it takes over", || site.bed(new).run(["status"]).status.success());
    (site.first, site.standby) = (new, old);
    site.taken_over += 1;
    load.makes_progress(site);
    println!("all programs went on {:?} after the first node had died", killed.elapsed());
    site.wait_for_its_end(old);
    let (_, error) = site.bed(old).fails(["up"]);
    assert!(error.contains("has taken over from this node"), "{error}");
    site.set_standby(old, &follows(new, ""));
    site.bed(old).up();
    site.bed(new).ok(["down"]);
    site.set_standby(new, &is_followed(&site.network, old));
    site.bed(new).up();
}

fn fill(site: &Site, host: usize, pause: Duration) {
    let filler = site.target(host).join("filler");
    // Until nothing more goes in.
    let full = fs::write(&filler, vec![1; TARGET as usize]).unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    sleep(pause);
    fs::remove_file(filler).unwrap();
}

/// The disk on which nothing lies that has no redundancy.
fn lose(site: &mut Site, load: &Load, random: &mut Random) {
    // What was open when the first node was started anew is open again: until then its copies are not compared.
    load.makes_progress(site);
    site.is_mended();
    let first = site.first();
    let needed: Vec<u64> =
        STRIPED.iter().flat_map(|name| lies_on(first, Path::new(&format!("tc:/{name}")))).collect();
    let all = targets(first);
    let number = |view: &serde_json::Value, what: &str| view["target"][what].as_u64().unwrap();
    let up: Vec<_> = all.iter().filter(|view| view["state"] == "Up").collect();
    let spare: Vec<_> = up.iter().filter(|view| !needed.contains(&number(view, "id"))).collect();
    let lost = if spare.is_empty() { random.of(&up) } else { *random.of(&spare) };
    let (target, host) = (number(lost, "id").to_string(), number(lost, "node") as usize);
    if spare.is_empty() {
        // Files in stripes have gone to others when a target was full: one is emptied, and gets new files.
        first.ok(["target", "drain", &target, "--wait"]);
        first.ok(["target", "return", &target]);
        load.makes_progress(site);
    }
    site.network.kill(host);
    site.new_disk(host);
    site.bed(host).up();
    site.first().ok(["target", "replace", &target, "--wait"]);
}
