//! `thermo check`.

use crate::context::Context;
use crate::exit::Exit;
use crate::out::Tint;
use crate::units::size;
use anyhow::Result;
use types::{CheckReport, Grade, plural};
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
    let serious = report.findings.iter().any(|f| f.is_serious());
    Ok(if serious { Exit::SUSPECT } else { Exit::OK })
}

fn print(context: &mut Context, report: &CheckReport) -> Result<()> {
    let out = &mut context.out;
    for finding in &report.findings {
        let grade = match finding.grade {
            Grade::Serious => out.tint(Tint::Red, "SERIOUS"),
            Grade::Incomplete => out.tint(Tint::Yellow, "incomplete"),
            Grade::Leftover => out.tint(Tint::Yellow, "leftover"),
        };
        out.line(format!("{grade} {}: {}. {}", finding.subject, finding.problem, finding.remedy))?;
    }
    out.line(format!(
        "{}, {}, {}, {} on tape compared; {} read and verified",
        plural(report.inodes, "inode"),
        plural(report.objects, "disk object"),
        plural(report.volumes, "volume"),
        plural(report.tape_files, "file"),
        size(report.bytes_verified)
    ))?;
    let (text, tint) = verdict(report);
    let verdict = out.tint(tint, text);
    out.line(verdict)
}

/// What all findings come to.
fn verdict(report: &CheckReport) -> (String, Tint) {
    let of = |grade| report.findings.iter().filter(|f| f.grade == grade).count();
    let (serious, incomplete, leftovers) = (of(Grade::Serious), of(Grade::Incomplete), of(Grade::Leftover));
    if serious > 0 {
        return (format!("data is at risk: {}; act now", plural(serious, "serious finding")), Tint::Red);
    }
    if incomplete + leftovers == 0 {
        return ("all is well".into(), Tint::Green);
    }
    let files = format!("; {}", plural(incomplete, "incomplete finding"));
    let files = if incomplete > 0 { files } else { String::new() };
    let left = if leftovers > 0 { format!("; {}", plural(leftovers, "leftover")) } else { String::new() };
    (format!("no data at risk{files}{left}"), Tint::Green)
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Finding;

    #[test]
    fn the_verdict_tells_what_is_at_risk_from_what_is_only_missing() {
        let of = |grades: &[Grade]| {
            let finding = |grade: &Grade| Finding {
                grade: *grade,
                subject: "/a".into(),
                problem: "p".into(),
                remedy: "r".into(),
            };
            let findings = grades.iter().map(finding).collect();
            verdict(&CheckReport { findings, ..CheckReport::default() }).0
        };
        use Grade::{Incomplete, Leftover, Serious};
        assert_eq!(of(&[]), "all is well");
        assert_eq!(of(&[Leftover]), "no data at risk; 1 leftover");
        assert_eq!(of(&[Incomplete, Leftover]), "no data at risk; 1 incomplete finding; 1 leftover");
        assert_eq!(of(&[Incomplete, Serious]), "data is at risk: 1 serious finding; act now");
    }
}
