//! Who serves, and who waits, of nodes that take turns with one database.

use crate::context::Context;
use crate::out::Table;
use crate::render::time;
use crate::units::span;
use anyhow::Result;
use wire::{TurnNode, TurnState, TurnsView};

/// Shows them.
pub(super) fn show(context: &mut Context, view: &TurnsView) -> Result<()> {
    if context.global.json {
        return context.out.json(view);
    }
    let this = if view.waits { "this node waits for its turn" } else { "this node serves" };
    context.out.line(format!(
        "turns      {this}; after {} s without a sign of life another one goes on",
        view.lease_s
    ))?;
    context.out.table(&table(&view.nodes, context.global.utc))?;
    if let Some(trouble) = &view.trouble {
        context.out.line(format!("what is shown may be old: {trouble}"))?;
    }
    for node in &view.nodes {
        if let Some(why) = &node.lacks {
            context.out.line(format!("{} could not serve: {why}", node.host))?;
        }
    }
    context.out.line("")
}

fn table(nodes: &[TurnNode], utc: bool) -> Table {
    let mut table = Table::new(&["HOST", "NODE", "CONTROL", "STATE", "SINCE", "HEARD"]);
    for node in nodes {
        let state = match node.state {
            TurnState::Serves => "serves",
            TurnState::Waits => "waits",
            TurnState::Away => "away",
        };
        table.row(vec![
            node.host.clone(),
            node.node.map_or("-".into(), |id| id.to_string()),
            if node.addresses.is_empty() { "-".into() } else { node.addresses.join(" ") },
            state.into(),
            time(node.since, utc),
            format!("{} ago", span(node.heard_s)),
        ]);
    }
    table
}
