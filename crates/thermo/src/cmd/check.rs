//! `thermo check`.

use crate::context::Context;
use crate::exit::Exit;
use crate::out::Tint;
use crate::units::size;
use anyhow::Result;
use types::CheckReport;
use wire::Call;

/// Compare the catalogue with the disk, and with the cartridges
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  thermo check\n  thermo check --tapes\n  thermo check --deep --json\n\n\
                        Exit code 7 if data may be at risk.")]
pub struct Args {
    /// Mount every volume and compare its newest index with the catalogue
    #[arg(long)]
    tapes: bool,
    /// Read every byte on disk and tape and compare digests; implies --tapes
    #[arg(long)]
    deep: bool,
}

/// Runs `thermo check`.
pub fn run(context: &mut Context, args: Args) -> Result<Exit> {
    let mut node = context.connect()?;
    let call = Call::Check { tapes: args.tapes || args.deep, deep: args.deep };
    let report: CheckReport = node.ask(&call)?;
    if context.global.json {
        context.out.json(&report)?;
    } else {
        print(context, &report)?;
    }
    let serious = report.findings.iter().any(|f| f.serious);
    Ok(if serious { Exit::SUSPECT } else { Exit::OK })
}

fn print(context: &mut Context, report: &CheckReport) -> Result<()> {
    let out = &mut context.out;
    for finding in &report.findings {
        let grade =
            if finding.serious { out.tint(Tint::Red, "SERIOUS") } else { out.tint(Tint::Yellow, "leftover") };
        out.line(format!("{grade} {}: {}. {}", finding.subject, finding.problem, finding.remedy))?;
    }
    out.line(format!(
        "{} inodes, {} disk objects, {} volumes, {} files on tape compared; {} read and verified",
        report.inodes,
        report.objects,
        report.volumes,
        report.tape_files,
        size(report.bytes_verified)
    ))?;
    let serious = report.findings.iter().filter(|f| f.serious).count();
    let verdict = match (serious, report.findings.len()) {
        (0, 0) => out.tint(Tint::Green, "all is well"),
        (0, n) => out.tint(Tint::Green, format!("no data at risk; {n} leftovers")),
        (s, _) => out.tint(Tint::Red, format!("{s} findings put data at risk; act on them now")),
    };
    out.line(verdict)
}
