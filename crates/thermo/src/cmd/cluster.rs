//! `thermo cluster`.

use crate::context::Context;
use crate::exit::{Exit, usage};
use crate::out::Table;
use crate::render::time;
use anyhow::Result;
use client::Newcomer;
use ident::{Credentials, Token};
use node::Config;
use std::fs;
use types::{BoundUser, ClientId, ClusterView, ErrorClass, Grant, Member, MemberId, NodeId, TargetView};
use wire::{Call, Failure, Reply, TurnsView};

/// Nodes and clients on other hosts
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Make a cluster of which this node is the first
    #[command(
        after_help = "The node makes an authority, whose key stays in its state directory: back that up, apart from the catalogue. So \
                            that others can join, [cluster] in its configuration says where it listens.\n\n\
                            Example:\n  thermo cluster init\n  thermo cluster init --name mds1"
    )]
    Init {
        /// What the node is called, for people [default: name of this host]
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
    /// Print a token with which one more node or client can join, once
    #[command(
        after_help = "Whoever has the token can join: give it to nobody else. The cluster keeps only a digest of it.\n\n\
                            Example:\n  thermo cluster token\n  thermo cluster token --client-uid 1000 --client-gid 100 --hours 1"
    )]
    Token {
        /// For a client that speaks for this user, instead of a node
        #[arg(long, value_name = "UID", requires = "client_gid")]
        client_uid: Option<u32>,
        /// Group of that user
        #[arg(long, value_name = "GID", requires = "client_uid")]
        client_gid: Option<u32>,
        /// A further group of that user; may be repeated
        #[arg(long, value_name = "GID", requires = "client_uid")]
        client_group: Vec<u32>,
        /// How long it can be used (hours)
        #[arg(long, value_name = "HOURS", default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=168))]
        hours: u32,
    },
    /// Make the node or user of this state directory a member of a cluster
    #[command(
        after_help = "The key is made here and never leaves the state directory. The token is read from standard input if it is not \
                            given, so that it is not seen in the list of processes.\n\n\
                            Example:\n  cat token | thermo cluster join\n  thermo cluster join --name mover3 thermo1.TOKEN"
    )]
    Join {
        /// What `cluster token` printed [default: read from standard input]
        token: Option<String>,
        /// What the new member is called, for people [default: name of this host]
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
    /// Show who belongs to the cluster
    #[command(
        after_help = "Example:\n  thermo cluster status\n  thermo cluster status --all --node mds1.example:7430"
    )]
    Status {
        /// Members that were removed, too
        #[arg(long)]
        all: bool,
    },
    /// Remove a member: its certificate is not believed any more, at once
    #[command(
        after_help = "Its connections end, and the other nodes are told. A node that cannot be reached hears of it within a minute of \
                            being there again; until then it would still answer the removed member. Its number is never given again; it can \
                            join with a new token.\n\n\
                            Example:\n  thermo cluster remove node 3 --reason stolen\n  thermo cluster remove client 12"
    )]
    Remove {
        /// What it is
        kind: Kind,
        /// Its number, as the status shows it
        number: u32,
        /// Why, for the record
        #[arg(long, value_name = "TEXT", default_value = "")]
        reason: String,
    },
    /// Withdraw all tokens that nobody has used yet
    #[command(after_help = "Who has joined stays a member.\n\nExample:\n  thermo cluster revoke")]
    Revoke,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Kind {
    /// Runs services
    Node,
    /// Only asks
    Client,
}

/// Runs `thermo cluster`.
pub fn run(context: &mut Context, args: Args) -> Result<Exit> {
    match args.command {
        Command::Init { name } => {
            let name = name.unwrap_or_else(host);
            let view: ClusterView = context.connect()?.ask(&Call::ClusterInit { name })?;
            show(context, &view, false)
        }
        Command::Token { client_uid, client_gid, client_group, hours } => {
            let user =
                client_uid.zip(client_gid).map(|(uid, gid)| BoundUser { uid, gid, groups: client_group });
            let grant = user.map_or(Grant::Node, Grant::Client);
            token(context, &Call::ClusterToken { grant, lifetime_s: hours * 3600 })
        }
        Command::Join { token, name } => join(context, token, name.unwrap_or_else(host)),
        Command::Status { all } => {
            // A node that takes turns with nobody says so; one that waits knows no more than who serves.
            let turns = context.connect()?.ask::<TurnsView>(&Call::Turns).ok();
            if let Some(turns) = turns.as_ref().filter(|turns| turns.waits || !context.global.json) {
                super::turns::show(context, turns)?;
                if turns.waits {
                    return Ok(Exit::OK);
                }
            }
            let view: ClusterView = context.connect()?.ask(&Call::Cluster)?;
            show(context, &view, all)
        }
        Command::Remove { kind, number, reason } => {
            let id = match kind {
                Kind::Node => MemberId::Node(NodeId(number)),
                Kind::Client => MemberId::Client(ClientId(number)),
            };
            remove(context, id, reason)
        }
        Command::Revoke => {
            let count: u64 = context.connect()?.ask(&Call::ClusterRevoke)?;
            context.out.line(format!("{count} tokens withdrawn"))?;
            Ok(Exit::OK)
        }
    }
}

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn token(context: &mut Context, call: &Call) -> Result<Exit> {
    let (Reply::Token(text), _) = context.connect()?.call(call)? else {
        return Err(client::ClientError::WrongAnswer { asked: "Token" }.into());
    };
    if context.global.json {
        context.out.json(&text)?;
    } else {
        context.out.line(text)?;
    }
    Ok(Exit::OK)
}

/// The token is used when the cluster has admitted us; what follows can fail only for want of space or by the hand of somebody else
/// in the state directory, and then another token is needed.
fn join(context: &mut Context, given: Option<String>, name: String) -> Result<Exit> {
    let text = match given {
        Some(text) => text,
        None => std::io::read_to_string(std::io::stdin())?,
    };
    let token: Token = text.parse().map_err(|e: ident::IdentError| usage(e.to_string()))?;
    let state_dir = context.global.state_dir();
    let dir = state_dir.join("cluster");
    if dir.exists() {
        let message = format!("{} exists: this state directory belongs to a cluster already", dir.display());
        return Err(Failure { class: ErrorClass::Exists, fs: None, message }.into());
    }
    fs::create_dir_all(&state_dir)?;
    let config: Config = context.config(None)?;
    let newcomer = Newcomer { name, control: config.cluster.control(), data: config.cluster.data() };
    let member = client::join_cluster(&token, &newcomer)?;
    member.prepare(&dir)?;
    Credentials::commit(&dir)?;
    context.out.line(format!("joined cluster {} as {}", member.identity.cluster, member.identity.role))?;
    Ok(Exit::OK)
}

fn remove(context: &mut Context, id: MemberId, reason: String) -> Result<Exit> {
    let unreached: Vec<MemberId> = context.connect()?.ask(&Call::ClusterRemove { id, reason })?;
    if context.global.json {
        context.out.json(&unreached)?;
        return Ok(Exit::OK);
    }
    context.out.line(format!("{id} is removed"))?;
    for node in unreached {
        let late = "hears of it within a minute of being there again (the same command tells it at once)";
        context.out.line(format!("{node} was not reached: it {late}"))?;
    }
    Ok(Exit::OK)
}

fn show(context: &mut Context, view: &ClusterView, all: bool) -> Result<Exit> {
    if context.global.json {
        context.out.json(view)?;
        return Ok(Exit::OK);
    }
    let admits = if view.admits { ", which has the authority" } else { "" };
    context.out.line(format!("cluster    {}, as {} sees it{admits}", view.id, view.answers))?;
    context.out.line(format!("tokens     {} can still be used", view.tokens))?;
    let utc = context.global.utc;
    if let Some((at, why)) = &view.last_refused {
        context.out.line(format!("refused    {} connections; {} {why}", view.refused, time(*at, utc)))?;
    }
    context.out.line("")?;
    let shown: Vec<&Member> = view.members.iter().filter(|m| all || m.removed.is_none()).collect();
    context.out.table(&table(&shown, utc))?;
    let mut node = context.connect()?;
    let targets: Vec<TargetView> = node.ask(&Call::Targets)?;
    if !targets.is_empty() {
        context.out.line("")?;
        super::target::show(context, &mut node, &targets)?;
    }
    for member in shown {
        if let Some(removal) = &member.removed {
            context.out.line(format!(
                "{} was removed {} {}",
                member.id,
                time(removal.at, utc),
                removal.reason
            ))?;
        }
    }
    Ok(Exit::OK)
}

fn table(members: &[&Member], utc: bool) -> Table {
    let mut table =
        Table::new(&["MEMBER", "NAME", "CONTROL", "DATA", "SPEAKS FOR", "JOINED", "CERTIFICATE ENDS"]);
    for member in members {
        let list = |addresses: &[String]| if addresses.is_empty() { "-".into() } else { addresses.join(" ") };
        table.row(vec![
            member.id.to_string(),
            member.name.clone(),
            list(&member.control),
            list(&member.data),
            member.user.as_ref().map_or("itself".into(), |user| format!("uid {}", user.uid)),
            time(member.joined, utc),
            time(member.expires, utc),
        ]);
    }
    table
}
