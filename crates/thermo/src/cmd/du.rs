//! `thermo du`.

use crate::context::Context;
use crate::exit::Exit;
use crate::out::Table;
use crate::units::size;
use anyhow::Result;
use types::UsageView;
use wire::Call;

/// What each owner holds: files, and bytes on disk and on tape
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  thermo du\n  thermo du --owner 1000\n  thermo du --tape --json\n\n\
                        ON DISK is what files take on the node's own disk and on disk targets; what copies and parity take on targets \
                        is not counted.\n\
                        ON TAPE counts every copy that counts: a file of 1 GiB with two copies has 2 GiB there.")]
pub struct Args {
    /// Only this owner (uid)
    #[arg(long, value_name = "UID")]
    owner: Option<u32>,
    /// Who has most on tape first [default: in order of uid]
    #[arg(long)]
    tape: bool,
}

/// Runs `thermo du`.
pub fn run(context: &mut Context, args: Args) -> Result<Exit> {
    let mut users: Vec<UsageView> = context.connect()?.ask(&Call::Usage)?;
    users.retain(|u| args.owner.is_none_or(|uid| uid == u.uid));
    if args.tape {
        users.sort_by_key(|u| std::cmp::Reverse(u.tape_bytes));
    }
    context.print(&users, |users| table(users))
}

fn table(users: &[UsageView]) -> Table {
    let mut table =
        Table::new(&["OWNER>", "FILES>", "LENGTH>", "ON DISK>", "OF THAT ON TARGETS>", "ON TAPE>"]);
    for u in users {
        table.row(vec![
            u.uid.to_string(),
            u.files.to_string(),
            size(u.bytes),
            size(u.disk_bytes),
            size(u.target_bytes),
            size(u.tape_bytes),
        ]);
    }
    table
}
