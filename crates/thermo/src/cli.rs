//! Arguments and dispatch.

use crate::cmd::*;
use crate::context::{Context, Global};
use crate::exit::{self, Exit};
use crate::out::Out;
use anyhow::Result;
use clap::{Parser, Subcommand};
use std::process::ExitCode;

const ABOUT: &str = "Thermocline keeps files on disk and tape under one POSIX namespace.

Paths: either below a mount of the node (as the shell shows them), or in the namespace, written tc:/dir/file.";

/// The command line.
#[derive(Debug, Parser)]
#[command(name = "thermo", version, about = "Files on disk and tape under one namespace", long_about = ABOUT,
          after_help = exit::HELP, max_term_width = 100)]
pub struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Up(up::Args),
    Down(down::Args),
    Reload(reload::Args),
    Status(status::Args),
    Mount(mount::Args),
    Umount(mount::UmountArgs),
    Ls(ls::Args),
    Stat(stat::Args),
    Put(copy::PutArgs),
    Get(copy::GetArgs),
    Migrate(act::MigrateArgs),
    Protect(act::ProtectArgs),
    Purge(act::PurgeArgs),
    Stage(act::StageArgs),
    Pin(pin::PinArgs),
    Unpin(pin::UnpinArgs),
    Versions(undelete::VersionsArgs),
    Undelete(undelete::Args),
    Request(request::Args),
    Volume(volume::Args),
    Drive(drive::Args),
    Du(du::Args),
    Library(library::Args),
    Catalog(catalog::Args),
    Engine(engine::Args),
    Class(class::Args),
    Cluster(cluster::Args),
    Junction(junction::Args),
    Layout(layout::Args),
    Standby(standby::Args),
    Target(target::Args),
    Pool(pool::Args),
    Quota(quota::Args),
    Check(check::Args),
    Demo(demo::Args),
    Bench(bench::Args),
    Plan(plan::Args),
    Completions(completions::Args),
}

/// Runs the program.
pub fn run() -> ExitCode {
    let cli = Cli::parse();
    let mut context = Context { global: cli.global, out: Out::new() };
    let result = dispatch(&mut context, cli.command).and_then(|exit| context.out.finish().map(|()| exit));
    let exit = result.unwrap_or_else(|error| match exit::of_error(&error) {
        Some(code) => {
            eprintln!("thermo: {}", exit::told(&error));
            code
        }
        None => Exit::OK,
    });
    ExitCode::from(exit.0)
}

fn dispatch(context: &mut Context, command: Command) -> Result<Exit> {
    match command {
        Command::Up(args) => up::run(context, args),
        Command::Down(args) => down::run(context, args),
        Command::Reload(_) => reload::run(context),
        Command::Status(_) => status::run(context),
        Command::Mount(args) => mount::run(context, args),
        Command::Umount(args) => mount::unmount(context, args),
        Command::Ls(args) => ls::run(context, args),
        Command::Stat(args) => stat::run(context, args),
        Command::Put(args) => copy::put(context, args),
        Command::Get(args) => copy::get(context, args),
        Command::Migrate(args) => act::migrate(context, args),
        Command::Protect(args) => act::protect(context, args),
        Command::Purge(args) => act::purge(context, args),
        Command::Stage(args) => act::stage(context, args),
        Command::Pin(args) => pin::pin(context, args),
        Command::Unpin(args) => pin::unpin(context, args),
        Command::Versions(args) => undelete::versions(context, args),
        Command::Undelete(args) => undelete::run(context, args),
        Command::Request(args) => request::run(context, args),
        Command::Volume(args) => volume::run(context, args),
        Command::Drive(args) => drive::run(context, args),
        Command::Du(args) => du::run(context, args),
        Command::Library(args) => library::run(context, args),
        Command::Catalog(args) => catalog::run(context, args),
        Command::Engine(args) => engine::run(context, args),
        Command::Class(args) => class::run(context, args),
        Command::Cluster(args) => cluster::run(context, args),
        Command::Junction(args) => junction::run(context, args),
        Command::Layout(args) => layout::run(context, args),
        Command::Standby(args) => standby::run(context, args),
        Command::Target(args) => target::run(context, args),
        Command::Pool(args) => pool::run(context, args),
        Command::Quota(args) => quota::run(context, args),
        Command::Check(args) => check::run(context, args),
        Command::Demo(args) => demo::run(context, args),
        Command::Bench(args) => bench::run(context, args),
        Command::Plan(args) => plan::run(context, args),
        Command::Completions(args) => completions::run(context, args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use clap::error::ErrorKind;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    /// Every command that does something shows an example, and every example parses.
    #[test]
    fn every_help_has_an_example_that_parses() {
        fn leaves(command: &clap::Command, found: &mut Vec<(String, String)>) {
            if command.has_subcommands() {
                command.get_subcommands().for_each(|c| leaves(c, found));
            } else {
                let help = command.get_after_help().map(|h| h.to_string()).unwrap_or_default();
                found.push((command.get_name().to_owned(), help));
            }
        }
        let mut found = Vec::new();
        leaves(&Cli::command(), &mut found);
        for (name, help) in found {
            // A command within a sentence stands in backticks, and may be one of several.
            let example = |l: &&str| l.contains("thermo ") && !l.contains('`');
            let examples: Vec<_> = help.lines().map(str::trim).filter(example).collect();
            assert!(!examples.is_empty(), "{name} has no example");
            for example in examples {
                let line = &example[example.find("thermo ").unwrap()..];
                let words = line.split_whitespace().take_while(|w| !["|", ">", "#"].contains(w));
                Cli::try_parse_from(words).unwrap_or_else(|e| panic!("{name}: {example}: {e}"));
            }
        }
    }

    /// No document names a command or an option that there is not.
    #[test]
    fn every_command_in_the_documents_is_one() {
        let documents = [
            include_str!("../../../README.md"),
            include_str!("../../../docs/OPERATIONS.md"),
            include_str!("../../../docs/OPERATORS.md"),
            include_str!("../../../docs/PLANNING.md"),
            include_str!("../../../docs/SEMANTICS.md"),
            include_str!("../../../docs/ERRORS.md"),
            include_str!("../../../docs/STATUS.md"),
        ];
        let mut seen = 0;
        for command in documents.iter().flat_map(|text| code(text)) {
            let Some(at) = command.find("thermo ") else { continue };
            let ends = [";", "&&", "|", "\\|", ">", "<", "#"];
            let parts = command[at..].split('\'').enumerate();
            let words = parts.flat_map(|(n, part)| match n % 2 {
                0 => part.split_whitespace().collect(),
                _ => vec![part],
            });
            let words = words.take_while(|w| !ends.contains(w)).map(|w| w.trim_matches(['[', ']', ';']));
            let Err(e) = Cli::try_parse_from(words) else {
                seen += 1;
                continue;
            };
            let unknown = matches!(e.kind(), ErrorKind::InvalidSubcommand | ErrorKind::UnknownArgument);
            assert!(!unknown, "`{command}`: {e}");
        }
        assert!(seen > 100, "{seen} commands found in the documents");
    }

    /// Commands of blocks and spans of code.
    fn code(text: &str) -> Vec<&str> {
        let mut found = Vec::new();
        for (n, part) in text.split("```").enumerate() {
            if n % 2 == 1 {
                found.extend(part.lines().flat_map(|line| line.split("; ")));
            } else {
                let spans = part.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
                found.extend(spans.flat_map(|span| span.split("; ")));
            }
        }
        found
    }
}
