//! The cluster, as `thermo status` shows it: a line for each member, and for what needs a look.

use super::standby;
use crate::out::{Out, Table};
use crate::render::{drive_status, time, words};
use crate::units::{size, span};
use anyhow::Result;
use std::collections::BTreeMap;
use types::{DriveView, JunctionState, JunctionView, MemberId, RequestView, TargetState, TargetView, plural};
use wire::{ClusterStatus, MemberState, MemberStatus, TurnState, TurnsView};

/// No line of it is longer (characters).
const WIDTH: usize = 100;
/// Nor a name of a member.
const NAME: usize = 20;

/// Shows it.
pub(super) fn show(out: &mut Out, cluster: &ClusterStatus, utc: bool) -> Result<()> {
    for line in lines(cluster, utc) {
        out.line(fit(&line, WIDTH))?;
    }
    Ok(())
}

/// What an operator should look at, of the node that holds the names and of other nodes that hold some.
pub(super) fn warnings(cluster: &ClusterStatus) -> Vec<String> {
    let mut all = cluster.warnings.clone();
    for status in cluster.members.iter().filter(|status| status.member.id != cluster.answers) {
        let Some(report) = status.report.as_ref().filter(|report| report.names.is_some()) else { continue };
        let from = format!("{} ({})", status.member.id, status.member.name);
        all.extend(report.warnings.iter().map(|warning| format!("{from}: {warning}")));
    }
    all
}

fn lines(cluster: &ClusterStatus, utc: bool) -> Vec<String> {
    let mut lines = vec![format!(
        "cluster    {}, {}, as {} sees it",
        cluster.id,
        plural(cluster.members.len() as u64, "member"),
        cluster.answers
    )];
    if !cluster.members.is_empty() {
        lines.extend(members(cluster, utc).lines());
    }
    lines.extend(targets(&cluster.targets));
    lines.extend(cluster.targets.iter().filter_map(target));
    lines.extend(out_of_date(cluster));
    lines.extend(cluster.moves.iter().map(a_move));
    lines.extend(cluster.members.iter().filter_map(tape));
    lines.extend(cluster.turns.iter().flat_map(turns));
    let labels = ["standby    "].into_iter().chain(std::iter::repeat("           "));
    let standby = cluster.standby.iter().flat_map(standby::lines);
    lines.extend(standby.zip(labels).map(|(line, label)| format!("{label}{line}")));
    lines.extend(cluster.subsystems.iter().map(subsystem));
    lines
}

/// A text with no more characters than that.
fn fit(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(width.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

fn members(cluster: &ClusterStatus, utc: bool) -> Table {
    let mut table = Table::new(&["MEMBER", "NAME", "STATE", "VERSION", "DOES"]);
    for status in &cluster.members {
        let version = status.report.as_ref().map(|report| report.version.as_str());
        table.row(vec![
            status.member.id.to_string(),
            fit(&words(&status.member.name), NAME),
            state(status, utc),
            version.filter(|version| !version.is_empty()).unwrap_or("-").to_owned(),
            words(&does(status, cluster)),
        ]);
    }
    table
}

fn state(status: &MemberStatus, utc: bool) -> String {
    match (&status.state, status.heard) {
        (MemberState::Answers, _) => "answers".into(),
        (MemberState::Away(_), Some(heard)) => format!("away since {}", time(heard, utc)),
        (MemberState::Away(_), None) => "away".into(),
        (MemberState::TakesNoCalls, Some(heard)) => format!("heard {}", time(heard, utc)),
        (MemberState::TakesNoCalls, None) => "-".into(),
        (MemberState::NotAsked, Some(heard)) => format!("not asked in time, heard {}", time(heard, utc)),
        (MemberState::NotAsked, None) => "not asked in time".into(),
    }
}

/// What a member is there for, as far as is known.
fn does(status: &MemberStatus, cluster: &ClusterStatus) -> String {
    let MemberId::Node(node) = status.member.id else {
        let uid = status.member.user.as_ref().map_or(0, |user| user.uid);
        return format!("client of uid {uid}");
    };
    let mut does = Vec::new();
    let report = status.report.as_ref();
    if let Some(names) = report.and_then(|report| report.names.as_ref()) {
        let subsystem = names.name.as_ref().map(|name| format!("names of subsystem {name}"));
        does.push(subsystem.unwrap_or_else(|| "names".into()));
    } else if status.member.id == cluster.answers {
        does.push("names".into());
    }
    does.extend(report.and_then(|report| report.silent.clone()));
    let count = cluster.targets.iter().filter(|view| view.target.node == node).count();
    does.extend((count > 0).then(|| plural(count as u64, "target")));
    let devices = report.map_or(0, |report| report.devices.len());
    does.extend((devices > 0).then(|| plural(devices as u64, "device")));
    match report.map_or(&[][..], |report| &report.mounts) {
        [] => {}
        [one] => does.push(format!("mounted at {one}")),
        [first, rest @ ..] => does.push(format!("mounted at {first} and {} more", rest.len())),
    }
    if does.is_empty() { "-".into() } else { does.join(", ") }
}

/// All targets in one line; None: there are none.
fn targets(all: &[TargetView]) -> Option<String> {
    let mut states = BTreeMap::new();
    for view in all {
        let state = if is_full(view) { "full".into() } else { view.state.to_string() };
        *states.entry(state).or_insert(0) += 1;
    }
    let states: Vec<String> = states.iter().map(|(state, count)| format!("{count} {state}")).collect();
    let sum = |of: fn(&TargetView) -> u64| all.iter().map(of).fold(0, u64::saturating_add);
    (!all.is_empty()).then(|| {
        format!(
            "targets    {}; {} of {} free",
            states.join(", "),
            size(sum(|view| view.target.free)),
            size(sum(|view| view.target.capacity))
        )
    })
}

fn is_full(view: &TargetView) -> bool {
    view.state == TargetState::Up && view.target.free == 0
}

/// One that is not as it should be.
fn target(view: &TargetView) -> Option<String> {
    let target = &view.target;
    let used = size(target.capacity.saturating_sub(target.free));
    let state = match view.state {
        TargetState::Up if !is_full(view) => return None,
        TargetState::Up => "full".into(),
        state => state.to_string(),
    };
    Some(format!("target {:<3} {state}, at node {}, {used} used", target.id.to_string(), target.node))
}

fn out_of_date(cluster: &ClusterStatus) -> Vec<String> {
    let more = if cluster.more_out_of_date { "at least " } else { "" };
    let line = |lacks: &wire::OutOfDate| {
        let files = plural(lacks.files, "file");
        format!(
            "target {:<3} lacks {more}{files}, {}, being rebuilt",
            lacks.target.to_string(),
            size(lacks.bytes)
        )
    };
    cluster.out_of_date.iter().map(line).collect()
}

/// A request that moves something.
fn a_move(view: &RequestView) -> String {
    let rest = view.eta_s.map_or_else(String::new, |eta| format!(", about {} left", span(eta)));
    let doing = if view.doing.is_empty() { String::new() } else { format!("; {}", words(&view.doing)) };
    format!(
        "request {:<2} {}: {}%{rest}{doing}",
        view.request.id.to_string(),
        words(&view.request.subject),
        view.percent
    )
}

/// Drives and requests of a member that holds names.
fn tape(status: &MemberStatus) -> Option<String> {
    let report = status.report.as_ref().filter(|report| report.names.is_some())?;
    let mut libraries: BTreeMap<&str, BTreeMap<String, u64>> = BTreeMap::new();
    for DriveView { library, status, .. } in &report.drives {
        *libraries.entry(library).or_default().entry(drive_status(status)).or_default() += 1;
    }
    let library = |(name, states): (&&str, &BTreeMap<String, u64>)| {
        let states: Vec<String> = states.iter().map(|(state, count)| format!("{count} {state}")).collect();
        format!("drives of {}: {}", words(name), states.join(", "))
    };
    let libraries: Vec<String> = libraries.iter().map(library).collect();
    let drives = if libraries.is_empty() { "no drives".into() } else { libraries.join("; ") };
    let requests = plural(report.requests_open, "request");
    Some(format!("tape       at {}: {requests} open, {drives}", status.member.id))
}

fn turns(view: &TurnsView) -> Vec<String> {
    let line = |node: &wire::TurnNode| {
        let state = match node.state {
            TurnState::Serves => "serves".to_owned(),
            TurnState::Waits => "waits for its turn".to_owned(),
            TurnState::Away => format!("away for {}", span(node.heard_s)),
        };
        let lacks = node.lacks.as_ref().map_or_else(String::new, |why| format!("; could not serve: {why}"));
        format!("turns      {}: {state}{lacks}", words(&node.host))
    };
    view.nodes.iter().map(line).collect()
}

fn subsystem(view: &JunctionView) -> String {
    let state = match &view.state {
        JunctionState::Unasked => "not asked yet".to_owned(),
        JunctionState::Answers => "answers".to_owned(),
        JunctionState::Silent(why) => format!("does not answer: {why}"),
    };
    format!("subsystem  {} at {}: {state}", words(&view.junction.subsystem), view.path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::*;
    use wire::{MemberReport, OutOfDate, SubsystemView, TurnNode};

    fn member(id: MemberId, name: &str, state: MemberState, report: Option<MemberReport>) -> MemberStatus {
        let member = Member {
            id,
            name: name.into(),
            certificate: Digest([0; 32]),
            joined: Time::new(1, 0),
            expires: Time::new(2, 0),
            user: Some(BoundUser { uid: 7, gid: 8, groups: Vec::new() }),
            control: Vec::new(),
            data: Vec::new(),
            next: None,
            removed: None,
        };
        MemberStatus { member, state, heard: Some(Time::new(0, 0)), report }
    }

    fn target(id: u32, node: u32, state: TargetState, free: u64) -> TargetView {
        let (id, node, data, domain) = (TargetId(id), NodeId(node), Vec::new(), String::new());
        let (uuid, draining, lost, seen) = (String::new(), false, false, Time::new(1, 0));
        TargetView {
            pools: Vec::new(),
            target: Target { id, uuid, node, data, domain, draining, lost, capacity: 1 << 30, free, seen },
            state,
        }
    }

    fn some() -> ClusterStatus {
        let node = |id| MemberId::Node(NodeId(id));
        let names = |name: Option<&str>| {
            Some(SubsystemView { name: name.map(Into::into), site: "s".into(), addresses: Vec::new() })
        };
        let report = MemberReport {
            version: "0.9.0".into(),
            names: names(None),
            requests_open: 2,
            ..Default::default()
        };
        let mounts = vec!["/mnt/tc".into(), "/b".into()];
        let other = MemberReport {
            names: names(Some("scratch")),
            mounts,
            warnings: vec!["hot".into()],
            ..report.clone()
        };
        let devices = MemberReport {
            version: "0.9.0".into(),
            devices: vec!["d1".into(), "d2".into()],
            ..Default::default()
        };
        let members = vec![
            member(node(1), "mds1", MemberState::Answers, Some(report)),
            member(node(2), &"x".repeat(255), MemberState::Answers, Some(other)),
            member(node(3), "tape\x1b", MemberState::Answers, Some(devices)),
            member(node(4), "disk4", MemberState::Away("connection refused".into()), None),
            member(MemberId::Client(ClientId(5)), "desk", MemberState::TakesNoCalls, None),
        ];
        let drain = Request::new(RequestKind::Drain, 0, "drain target 2".into(), Time::new(1, 0));
        let drain = RequestView {
            request: Request { id: RequestId(12), ..drain },
            queue_position: 0,
            percent: 40,
            bytes_moved: 1,
            eta_s: Some(90),
            estimate: None,
            doing: "waits ".repeat(40),
            why: Vec::new(),
        };
        let turn = TurnNode {
            host: "mds2".into(),
            node: None,
            addresses: Vec::new(),
            state: TurnState::Away,
            since: Time::new(1, 0),
            heard_s: 61,
            lacks: None,
        };
        ClusterStatus {
            id: "9d0c".into(),
            answers: node(1),
            members,
            targets: vec![
                target(1, 4, TargetState::Down, 1 << 29),
                target(2, 3, TargetState::Draining, 1 << 29),
                target(3, 3, TargetState::Up, 0),
                target(4, 3, TargetState::Up, 1 << 30),
            ],
            out_of_date: vec![OutOfDate { target: TargetId(1), files: 3, bytes: 2048 }],
            more_out_of_date: true,
            moves: vec![drain],
            turns: Some(TurnsView { nodes: vec![turn], ..Default::default() }),
            standby: None,
            subsystems: Vec::new(),
            warnings: vec!["cold".into()],
        }
    }

    #[test]
    fn each_member_has_a_line_and_so_has_what_needs_a_look() {
        let lines = lines(&some(), true);
        let has = |start: &str, rest: &str| {
            let found = lines.iter().any(|line| line.starts_with(start) && line.contains(rest));
            assert!(found, "{start} {rest}: {lines:#?}");
        };
        has("cluster    9d0c, 5 members, as node 1 sees it", "");
        has("node 1 ", "answers");
        has("node 2 ", "names of subsystem scratch, mounted at /mnt/tc and 1 more");
        has("node 3 ", "3 targets, 2 devices");
        has("node 4 ", "away since 1970-01-01 00:00:00Z");
        has("client 5 ", "client of uid 7");
        has("targets    1 down, 1 draining, 1 full, 1 up; 2.00 GiB of 4.00 GiB free", "");
        has("target 1   down, at node 4, 512 MiB used", "");
        has("target 3   full, ", "");
        has("target 1   lacks at least 3 files, 2.00 KiB", "");
        has("request 12 drain target 2: 40%, about 1m30s left; waits", "");
        has("tape       at node 2: 2 requests open, no drives", "");
        has("turns      mds2: away for 1m01s", "");
        assert!(lines.iter().all(|line| !line.contains('\x1b')));
        assert!(lines.iter().map(|line| fit(line, WIDTH)).all(|line| line.chars().count() <= WIDTH));
        assert_eq!(
            warnings(&some()).iter().map(|w| w.rsplit(": ").next().unwrap_or_default()).collect::<Vec<_>>(),
            ["cold", "hot"]
        );
    }

    #[test]
    fn what_is_too_long_is_cut_by_characters() {
        assert_eq!((fit("äöü", 3), fit("äöüß", 3)), ("äöü".into(), "äö…".into()));
    }
}
