//! `thermo class`.

use crate::context::Context;
use crate::exit::{Exit, usage};
use crate::out::Table;
use crate::units::{parse_seconds, parse_size, size, span};
use anyhow::Result;
use std::ffi::OsString;
use types::{Class, ClassName, PoolName};
use wire::{Call, ClassChange};

/// Classes of service: how many copies, where, when
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List classes
    #[command(after_help = "Example:\n  thermo class ls")]
    Ls,
    Set(SetArgs),
}

/// Make or change a class, or assign one to a directory or file
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  thermo class set raw --copies primary,second --migrate-after 5m --migrate-bytes 10G\n  \
                        thermo class set scratch --copies '' --keep-on-disk true\n  \
                        thermo class set --on /mnt/tc/raw raw"
)]
struct SetArgs {
    /// Class
    name: String,
    /// Pool of each copy, separated by commas; empty: files of this class stay on disk
    #[arg(long, value_name = "POOL,POOL", num_args = 0..=1, default_missing_value = "")]
    copies: Option<String>,
    /// Migrate files unchanged for this long (90, 5m, 2h, 1d)
    #[arg(long, value_name = "TIME", value_parser = parse_seconds)]
    migrate_after: Option<u32>,
    /// Migrate at once when so many bytes wait (10G); 0: only age counts
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    migrate_bytes: Option<u64>,
    /// Never purge files of this class
    #[arg(long, value_name = "true|false")]
    keep_on_disk: Option<bool>,
    /// Assign the class: new files below this directory get it, or this file
    #[arg(long, value_name = "PATH", conflicts_with_all = ["copies", "migrate_after", "migrate_bytes", "keep_on_disk"])]
    on: Option<OsString>,
}

/// Runs `thermo class`.
pub fn run(context: &mut Context, args: Args) -> Result<Exit> {
    match args.command {
        Command::Ls => list(context),
        Command::Set(args) => set(context, args),
    }
}

fn list(context: &mut Context) -> Result<Exit> {
    let classes: Vec<Class> = context.connect()?.ask(&Call::Classes)?;
    context.print(&classes, |classes| table(classes))
}

fn table(classes: &[Class]) -> Table {
    let mut table = Table::new(&["CLASS", "COPIES", "MIGRATE AFTER>", "OR AT>", "KEEP ON DISK"]);
    for class in classes {
        let copies: Vec<_> = class.copies.iter().map(PoolName::as_str).collect();
        table.row(vec![
            class.name.to_string(),
            if copies.is_empty() { "none".into() } else { copies.join(",") },
            span(class.migrate_after_s.into()),
            if class.migrate_bytes == 0 { "-".into() } else { size(class.migrate_bytes) },
            if class.keep_on_disk { "yes".into() } else { "no".into() },
        ]);
    }
    table
}

fn set(context: &mut Context, args: SetArgs) -> Result<Exit> {
    let mut node = context.connect()?;
    let name = ClassName(args.name);
    if let Some(on) = args.on {
        let path = context.path(&mut node, &on)?;
        node.ask::<()>(&Call::AssignClass { path, class: name.clone() })?;
        context.out.line(format!("{} has class {name} now", on.display()))?;
        return Ok(Exit::OK);
    }
    let copies = args.copies.map(|list| {
        list.split(',').map(str::trim).filter(|p| !p.is_empty()).map(PoolName::from).collect::<Vec<_>>()
    });
    let change = ClassChange {
        copies,
        migrate_after_s: args.migrate_after,
        migrate_bytes: args.migrate_bytes,
        keep_on_disk: args.keep_on_disk,
    };
    if change == ClassChange::default() {
        return Err(usage(format!("nothing to change in class {name}; see `thermo class set --help`")));
    }
    node.ask::<()>(&Call::SetClass { name: name.clone(), change })?;
    context.out.line(format!("class {name} is set"))?;
    Ok(Exit::OK)
}
