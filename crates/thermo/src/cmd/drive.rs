//! `thermo drive`.

use crate::context::Context;
use crate::exit::Exit;
use crate::out::Table;
use crate::render::{drive_status, or_dash, rate_or_dash, time, time_or_dash, word};
use crate::units::{rate, size};
use anyhow::Result;
use client::Connection;
use types::{DriveDetails, DriveNo, DriveStatus, DriveView, Hold, LearntKind, LearntView, plural};
use wire::Call;

/// Tape drives
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List drives and what they do
    #[command(after_help = "Example:\n  thermo drive ls\n  thermo drive ls --long")]
    Ls {
        /// Also element, since when in this state, requests that are served, and where the node has the drive
        #[arg(short, long)]
        long: bool,
    },
    /// Show all about one drive: state and since when, what it does for whom, how fast it is, who else may use it
    #[command(after_help = "Example:\n  thermo drive show 1")]
    Show {
        /// Number of the drive
        drive: u16,
    },
    /// Take a drive into use again after a repair; it must answer and give up the cartridge in it
    #[command(
        after_help = "Drives that failed are also tried again by themselves (tape.drive_retry_s).\n\nExample:\n  thermo drive up 1\n  thermo drive up 1 --preempt"
    )]
    Up {
        /// Number of the drive
        drive: u16,
        /// Take it from another host that has reserved it: only if that host no longer uses it
        #[arg(long)]
        preempt: bool,
    },
    /// Take a drive out of use: what it does is ended first, and its cartridge is put away
    #[command(
        after_help = "Lasts until the drive is taken into use again (`drive up`), also over restarts of the node. A drive that takes its place \
                      (another serial number) is in use.\n\nExample:\n  thermo drive down 1 --reason service"
    )]
    Down {
        /// Number of the drive
        drive: u16,
        /// Why: shown by `thermo drive ls` and `thermo drive show`
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
}

/// Runs `thermo drive`.
pub fn run(context: &mut Context, args: Args) -> Result<Exit> {
    match args.command {
        Command::Ls { long: false } => {
            let drives: Vec<DriveView> = context.connect()?.ask(&Call::Drives)?;
            context.print(&drives, |drives| table(drives))
        }
        Command::Ls { long: true } => long_list(context),
        Command::Show { drive } => {
            let details = details(&mut context.connect()?, DriveNo(drive))?;
            if context.global.json {
                context.out.json(&details)?;
                return Ok(Exit::OK);
            }
            let lines = shown(&details, context.global.utc);
            lines.into_iter().try_for_each(|line| context.out.line(line))?;
            Ok(Exit::OK)
        }
        Command::Up { drive, preempt } => {
            let no = DriveNo(drive);
            let call =
                if preempt { Call::TakeDrive { drive: no } } else { Call::SetDrive { drive: no, up: true } };
            context.connect()?.ask::<()>(&call)?;
            context.out.line(format!("drive {drive} is in use"))?;
            Ok(Exit::OK)
        }
        Command::Down { drive, reason } => {
            let (mut node, no) = (context.connect()?, DriveNo(drive));
            node.ask::<()>(&match reason {
                Some(reason) => Call::TakeDriveOut { drive: no, reason },
                None => Call::SetDrive { drive: no, up: false },
            })?;
            context.out.line(going_down(&details(&mut node, DriveNo(drive))?))?;
            Ok(Exit::OK)
        }
    }
}

fn details(node: &mut Connection, drive: DriveNo) -> Result<DriveDetails> {
    Ok(node.ask(&Call::DriveDetails(drive))?)
}

/// What becomes of a drive that an operator wants out of use.
fn going_down(d: &DriveDetails) -> String {
    let drive = d.drive.drive;
    match (&d.drive.volume, d.begun.is_some()) {
        _ if !d.leaving => format!("drive {drive} is out of use"),
        (None, _) => format!("drive {drive} is out of use"),
        (Some(volume), false) => {
            format!("drive {drive} is out of use as soon as volume {volume} is put away")
        }
        (Some(volume), true) => {
            let does = if d.drive.activity.is_empty() {
                drive_status(&d.drive.status)
            } else {
                d.drive.activity.clone()
            };
            format!(
                "drive {drive} is out of use as soon as it has ended what it does ({does}) and volume {volume} is put away; \
                 see `thermo drive show {drive}`"
            )
        }
    }
}

fn long_list(context: &mut Context) -> Result<Exit> {
    let mut node = context.connect()?;
    let drives: Vec<DriveView> = node.ask(&Call::Drives)?;
    let all = drives.iter().map(|view| details(&mut node, view.drive)).collect::<Result<Vec<_>>>()?;
    let utc = context.global.utc;
    context.print(&all, |all| long_table(all, utc))
}

fn long_table(all: &[DriveDetails], utc: bool) -> Table {
    let mut table = Table::new(&[
        "DRIVE>", "LIBRARY", "ELEMENT>", "PRODUCT", "SERIAL", "VOLUME", "STATE", "SINCE", "BY", "REQUESTS",
        "KEY", "RESERVED", "DEVICE", "DOING",
    ]);
    for d in all {
        let view = &d.drive;
        table.row(vec![
            view.drive.to_string(),
            view.library.clone(),
            view.element.to_string(),
            view.product.clone(),
            view.serial.clone(),
            or_dash(view.volume.as_ref()),
            state(d),
            time(d.since, utc),
            or_dash(d.taken_out.as_ref().and_then(|out| out.by).map(|uid| format!("uid {uid}"))),
            or_dash(Some(requests(d)).filter(|list| !list.is_empty())),
            or_dash(d.key.as_ref().filter(|key| !key.is_empty())),
            word(&view.hold),
            d.device.clone(),
            doing(view),
        ]);
    }
    table
}

/// State in a word or two.
fn state(d: &DriveDetails) -> String {
    let state = drive_status(&d.drive.status);
    if d.leaving { format!("{state}, going down") } else { state }
}

fn requests(d: &DriveDetails) -> String {
    d.requests.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// All about a drive, line by line.
fn shown(d: &DriveDetails, utc: bool) -> Vec<String> {
    let view = &d.drive;
    let by = d.taken_out.as_ref().map_or_else(String::new, |out| {
        let uid = out.by.map_or_else(String::new, |uid| format!(" of uid {uid}"));
        let why = if out.reason.is_empty() { String::new() } else { format!(": {}", out.reason) };
        format!(", by order{uid} at {}{why}", time(out.at, utc))
    });
    let why = match &view.status {
        DriveStatus::Suspect(why) => format!(": {why}"),
        _ => String::new(),
    };
    let alerts: Vec<String> = view.alerts.iter().map(u8::to_string).collect();
    let served = requests(d);
    let mut lines = vec![
        ("state", format!("{} since {}{by}{why}", state(d), time(d.since, utc))),
        ("does", if view.activity.is_empty() { "nothing".into() } else { view.activity.clone() }),
        ("requests", if served.is_empty() { "-".into() } else { format!("{served} (thermo request show)") }),
        ("begun", time_or_dash(d.begun, utc)),
        ("ends about", time_or_dash(d.until, utc)),
        ("volume", or_dash(view.volume.as_ref())),
        ("mounted", time_or_dash(d.mounted, utc)),
        ("moved", format!("{} since then, {} now", size(view.bytes), rate_or_dash(view.rate))),
        ("library", format!("{}, element {}", view.library, view.element)),
        ("product", format!("{}, serial number {}", view.product, view.serial)),
        ("generation", or_dash(d.generation.as_ref())),
        ("media", if view.media.is_empty() { "it does not say".into() } else { view.media.clone() }),
        ("device", format!("{} of host {}", d.device, d.host)),
        ("mounts", format!("{}, {} since the node started", view.mounts, plural(view.errors, "error"))),
        ("alerts", if alerts.is_empty() { "-".into() } else { alerts.join(", ") }),
        ("cleaning", if d.asks_for_cleaning { "the drive asks for it".into() } else { "-".into() }),
        ("reserved", reserved(d).into()),
        ("encryption", encryption(d)),
        (
            "compression",
            d.compression.map_or("as the drive is set", |on| if on { "on" } else { "off" }).into(),
        ),
        ("protection", protection(d)),
    ];
    if d.learnt.is_empty() {
        lines.push(("learnt", "nothing yet: estimates are those of the model".into()));
    }
    lines.extend(d.learnt.iter().map(|one| ("learnt", learnt(one))));
    let lines = lines.into_iter().map(|(name, value)| format!("  {name:<12} {value}"));
    std::iter::once(format!("drive {}", view.drive)).chain(lines).collect()
}

fn reserved(d: &DriveDetails) -> &'static str {
    match (d.drive.hold, d.reserve) {
        (Hold::Held, _) => "for this node: other hosts are kept off",
        (Hold::Unsupported, _) => "no: the drive has no reservations",
        (Hold::No, true) => "no: nothing was asked of it yet, or another host has it",
        (Hold::No, false) => "no: `tape.reserve` is off",
    }
}

fn encryption(d: &DriveDetails) -> String {
    match d.key.as_deref() {
        None => "-".into(),
        Some("") => "the volume in it is not encrypted".into(),
        Some(key) => format!("the volume in it, with key {key}"),
    }
}

fn protection(d: &DriveDetails) -> String {
    let word = |on: bool| if on { "where the drive has it" } else { "off" };
    format!("sums on records: {}; append-only mode: {}", word(d.block_protection), word(d.append_only))
}

/// What was learnt of one kind of work.
fn learnt(one: &LearntView) -> String {
    let what = match one.what {
        LearntKind::Move => "robot's way",
        LearntKind::Load => "load",
        LearntKind::Unload => "unload",
        LearntKind::Locate => "locate",
        LearntKind::Read => "read",
        LearntKind::Write => "write",
        LearntKind::File => "between files",
    };
    let took = one.ms.map(|ms| format!("{:.3} s", ms as f64 / 1000.0));
    let parts = [
        took,
        one.bytes_per_s.map(rate),
        one.percent.map(|percent| format!("{percent} % of the time by the model")),
        Some(plural(one.observations, "observation")),
    ];
    format!("{what}: {}", parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
}

/// What it does, or why it does nothing: the last column, because it is as long as it is.
fn doing(drive: &DriveView) -> String {
    match &drive.status {
        DriveStatus::Suspect(why) if drive.activity.is_empty() => why.clone(),
        _ => drive.activity.clone(),
    }
}

/// Drives as a table.
pub fn table(drives: &[DriveView]) -> Table {
    let mut table = Table::new(&[
        "DRIVE>", "LIBRARY", "PRODUCT", "SERIAL", "MEDIA", "VOLUME", "STATE", "MOVED>", "RATE>", "MOUNTS>",
        "ERRORS>", "ALERTS", "RESERVED", "DOING",
    ]);
    for drive in drives {
        let alerts: Vec<_> = drive.alerts.iter().map(u8::to_string).collect();
        table.row(vec![
            drive.drive.to_string(),
            drive.library.clone(),
            drive.product.clone(),
            drive.serial.clone(),
            or_dash(Some(&drive.media).filter(|media| !media.is_empty())),
            or_dash(drive.volume.as_ref()),
            drive_status(&drive.status),
            size(drive.bytes),
            rate_or_dash(drive.rate),
            drive.mounts.to_string(),
            drive.errors.to_string(),
            if alerts.is_empty() { "-".into() } else { alerts.join(",") },
            word(&drive.hold),
            doing(drive),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{RequestId, TakenOut, Time};

    fn details(status: DriveStatus, volume: Option<&str>) -> DriveDetails {
        let drive = DriveView {
            drive: DriveNo(3),
            library: "hall-a".into(),
            media: "LTO-8, LTO-9".into(),
            product: "IBM ULT3580-TD9".into(),
            serial: "1013000001".into(),
            element: 257,
            status,
            volume: volume.map(Into::into),
            activity: String::new(),
            bytes: 0,
            rate: 0,
            mounts: 1,
            errors: 1,
            alerts: vec![20],
            hold: Hold::Held,
        };
        DriveDetails {
            drive,
            since: Time::new(1_700_000_000, 0),
            taken_out: None,
            leaving: false,
            generation: Some("LTO-9".into()),
            device: "sg:/dev/sg3".into(),
            host: "tape1".into(),
            mounted: None,
            begun: None,
            until: None,
            requests: Vec::new(),
            learnt: Vec::new(),
            reserve: true,
            key: None,
            compression: None,
            block_protection: true,
            append_only: false,
            asks_for_cleaning: false,
        }
    }

    #[test]
    fn a_drive_that_does_nothing_is_not_said_to_have_a_job() {
        let mut d = details(DriveStatus::Free, None);
        d.leaving = true;
        assert_eq!(going_down(&d), "drive 3 is out of use");
        let mut d = details(DriveStatus::Idle, Some("TC0001L9"));
        d.leaving = true;
        assert_eq!(going_down(&d), "drive 3 is out of use as soon as volume TC0001L9 is put away");
        d.begun = Some(Time::new(1_700_000_000, 0));
        d.drive.activity = "4 files are wanted from it".into();
        let text = going_down(&d);
        assert!(text.contains("ended what it does (4 files are wanted from it)"), "{text}");
        assert_eq!(going_down(&details(DriveStatus::Down, None)), "drive 3 is out of use");
    }

    #[test]
    fn who_took_a_drive_out_of_use_is_told_with_the_reason() {
        let mut d = details(DriveStatus::Down, None);
        let out =
            |reason: &str| TakenOut { by: Some(7), at: Time::new(1_600_000_000, 0), reason: reason.into() };
        d.taken_out = Some(out("loud"));
        let state = |d: &DriveDetails| shown(d, true)[1].trim().to_owned();
        let since = "down since 2023-11-14 22:13:20Z, by order of uid 7 at 2020-09-13 12:26:40Z";
        assert!(state(&d).ends_with(&format!("{since}: loud")), "{}", state(&d));
        d.taken_out = Some(out(""));
        assert!(state(&d).ends_with(since), "{}", state(&d));
    }

    #[test]
    fn all_about_a_drive_is_told() {
        let mut d = details(DriveStatus::Suspect("it does not answer".into()), Some("TC0001L9"));
        d.requests = vec![RequestId(12), RequestId(14)];
        d.key = Some("k2026".into());
        d.learnt = vec![
            LearntView {
                what: LearntKind::Load,
                observations: 1,
                percent: Some(50),
                ms: Some(8_000),
                bytes_per_s: None,
            },
            LearntView {
                what: LearntKind::Read,
                observations: 7,
                percent: Some(100),
                ms: None,
                bytes_per_s: Some(400 << 20),
            },
        ];
        let text = shown(&d, true).join("\n");
        for part in [
            "drive 3\n",
            "suspect since 2023-11-14 22:13:20Z: it does not answer",
            "requests     12,14 ",
            "library      hall-a, element 257",
            "serial number 1013000001",
            "generation   LTO-9",
            "device       sg:/dev/sg3 of host tape1",
            "mounts       1, 1 error since",
            "alerts       20",
            "encryption   the volume in it, with key k2026",
            "load: 8.000 s, 50 % of the time by the model, 1 observation",
            "read: 400 MiB/s, 100 % of the time by the model, 7 observations",
        ] {
            assert!(text.contains(part), "{part:?} is missing in\n{text}");
        }
        let long = long_table(&[d], true).lines().join("\n");
        assert!(long.contains("12,14") && long.contains("k2026") && long.contains("2023-11-14"), "{long}");
    }
}
