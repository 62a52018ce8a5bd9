//! `thermo layout`.

use crate::context::Context;
use crate::exit::{Exit, usage};
use crate::out::Table;
use crate::units::{parse_size, size};
use anyhow::Result;
use std::ffi::OsString;
use types::{LayoutRule, LayoutView, Widening};
use wire::Call;

/// How files are dealt out to disk targets of the cluster
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Show where the bytes of a file lie, or what new files of a directory get
    #[command(after_help = "Example:\n  thermo layout get /mnt/tc/runs/field.nc")]
    Get {
        /// File or directory
        #[arg(value_name = "PATH")]
        path: OsString,
    },
    Set(SetArgs),
}

/// How the bytes of a file are dealt out
#[derive(Debug, clap::Args)]
pub struct RuleArgs {
    /// Targets among which the bytes of a file are dealt out
    #[arg(long, value_name = "N", default_value_t = 1)]
    stripes: u16,
    /// Bytes that lie in one piece on one target before the next one's turn comes (a multiple of 4 KiB); without it 1 MiB, with a code so
    /// much that the units of data come to 1 MiB together
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    stripe_size: Option<u64>,
    /// Targets that hold the same byte
    #[arg(long, value_name = "N")]
    copies: Option<u8>,
    /// Units of data and of parity (`4+2`): any two targets may be lost with 2 of parity; instead of stripes and copies
    #[arg(long, value_name = "K+M", value_parser = parse_code, conflicts_with_all = ["stripes", "copies"])]
    code: Option<(u16, u8)>,
    /// What a file gets when it grows beyond a size: stripes (with a code: units of data, with as many of parity as before) for what lies behind
    /// that, and their size if it is another one (`1GiB:16:4MiB`); may be given several times. It gets them when somebody writes there, and keeps
    /// them when it becomes shorter
    #[arg(long, value_name = "FROM:N[:SIZE]", value_parser = parse_then)]
    then: Vec<Then>,
    /// Only targets of this pool, now and wherever it moves later (`thermo target pool` says which ones those are)
    #[arg(long, value_name = "NAME")]
    pool: Option<String>,
}

impl RuleArgs {
    /// Whether it is said what may be lost.
    pub fn is_about_redundancy(&self) -> bool {
        self.copies.is_some() || self.code.is_some()
    }

    /// What they say.
    pub fn rule(&self) -> Result<LayoutRule> {
        let (stripes, parity) = self.code.unwrap_or((self.stripes, 0));
        let bytes = self.stripe_size.unwrap_or_else(|| usual_unit(self.code));
        let unit_bytes = u32::try_from(bytes)
            .map_err(|_| usage(format!("a stripe size of {bytes} is too large: at most 1 GiB")))?;
        let then = self.then.iter().map(|then| self.widening(then, unit_bytes)).collect();
        let (copies, pool) = (self.copies.unwrap_or(1), self.pool.clone());
        Ok(LayoutRule { unit_bytes, stripes, copies, parity, then, pool })
    }

    fn widening(&self, then: &Then, before: u32) -> Widening {
        let Then { from, stripes, unit_bytes } = *then;
        // Nobody has said how large those of a code are: rows have a usual size.
        let usual = self.code.filter(|_| self.stripe_size.is_none());
        let usual = usual.and_then(|(_, parity)| u32::try_from(usual_unit(Some((stripes, parity)))).ok());
        Widening { from, stripes, unit_bytes: unit_bytes.or(usual).unwrap_or(before) }
    }
}

/// Say what new files and directories of a directory get; files that are there keep what they have
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A stripe is what one target holds of a file. A file that comes back from tape gets what it had \
                        before.\n\nExample:\n  thermo layout set /mnt/tc/runs --stripes 4 --stripe-size 1MiB\n  \
                        thermo layout set /mnt/tc/runs --stripes 1 --then 64MiB:4 --then 1GiB:16:4MiB\n  \
                        thermo layout set /mnt/tc/home --code 4+2\n  thermo layout set /mnt/tc/big --code 2+2 --then 1GiB:8\n  \
                        thermo layout set /mnt/tc/scratch --stripes 2 --pool fast\n  thermo layout set /mnt/tc/runs --local"
)]
struct SetArgs {
    /// Directory
    #[arg(value_name = "DIR")]
    dir: OsString,
    #[command(flatten)]
    rule: RuleArgs,
    /// One object in the node's own disk tier, as without a layout
    #[arg(long, conflicts_with_all = ["stripes", "stripe_size", "copies", "code", "then", "pool"])]
    local: bool,
}

/// Stripes from a byte of a file on.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Then {
    from: u64,
    stripes: u16,
    unit_bytes: Option<u32>,
}

/// Runs `thermo layout`.
pub fn run(context: &mut Context, args: Args) -> Result<Exit> {
    match args.command {
        Command::Get { path } => {
            let mut node = context.connect()?;
            let path = context.path(&mut node, &path)?;
            let view: LayoutView = node.ask(&Call::Layout(path))?;
            context.print(&view, table)
        }
        Command::Set(args) => set(context, args),
    }
}

fn set(context: &mut Context, args: SetArgs) -> Result<Exit> {
    let rule = match args.local {
        true => None,
        false => Some(args.rule.rule()?),
    };
    let mut node = context.connect()?;
    let path = context.path(&mut node, &args.dir)?;
    let line = format!("new files in {} get {}", args.dir.display(), said(rule.as_ref()));
    node.ask::<()>(&Call::SetLayout(path, rule))?;
    context.out.line(line)?;
    Ok(Exit::OK)
}

/// Bytes of a unit, if nothing is said. A mount writes at most 1 MiB at once, and of a coded file only whole rows go to their places
/// without a detour through the log.
fn usual_unit(code: Option<(u16, u8)>) -> u64 {
    const ROW: u64 = 1 << 20;
    const LEAST: u64 = 64 << 10;
    code.map_or(ROW, |(data, _)| (ROW >> u64::from(data).next_power_of_two().ilog2()).max(LEAST))
}

fn parse_then(text: &str) -> Result<Then, String> {
    let mut words = text.split(':');
    let from = words.next().map(parse_size).transpose()?.filter(|from| *from > 0);
    let stripes = words.next().and_then(|n| n.parse().ok()).filter(|n| *n > 0);
    let size = words.next().map(parse_size).transpose()?.map(u32::try_from);
    let unit_bytes = size.transpose().map_err(|_| "a stripe size is at most 1 GiB".to_owned())?;
    match (from, stripes, words.next()) {
        (Some(from), Some(stripes), None) => Ok(Then { from, stripes, unit_bytes }),
        _ => Err("a size of the file and the stripes from there on, as 64MiB:4, or with their size, as 1GiB:16:4MiB".to_owned()),
    }
}

fn parse_code(text: &str) -> Result<(u16, u8), String> {
    let parts = text.split_once('+').and_then(|(k, m)| Some((k.parse().ok()?, m.parse().ok()?)));
    let fits = |(k, m): &(u16, u8)| (2..=250).contains(k) && *m > 0 && k + u16::from(*m) <= 255;
    parts.filter(fits).ok_or_else(|| "units of data, at least 2, and of parity, as 4+2".to_owned())
}

/// A layout in words.
pub fn said(rule: Option<&LayoutRule>) -> String {
    match rule {
        None => "an object in the node's own disk tier".to_owned(),
        Some(LayoutRule { unit_bytes, stripes, copies, parity, then, pool }) => {
            let copies = match (copies, parity) {
                (0 | 1, 0) => String::new(),
                (copies, 0) => format!(", {copies} copies"),
                (_, parity) => format!(" and {parity} of parity"),
            };
            let more = |Widening { from, stripes, unit_bytes }: &Widening| {
                format!(", from {} on {stripes} of {}", size(*from), size((*unit_bytes).into()))
            };
            let then: String = then.iter().map(more).collect();
            let pool = pool.as_ref().map_or_else(String::new, |pool| format!(" of pool {pool}"));
            format!("{stripes} stripes of {}{then}{copies} on disk targets{pool}", size((*unit_bytes).into()))
        }
    }
}

fn table(view: &LayoutView) -> Table {
    let Some(file) = &view.file else {
        let mut table = Table::new(&["LAYOUT"]);
        let new = view.rule.as_ref().map(|rule| format!("new files get {}", said(Some(rule))));
        table.row(vec![new.unwrap_or_else(|| said(None))]);
        return table;
    };
    let grows = !file.rule.then.is_empty();
    let head: &[&str] = if grows { &["FROM>", "TO>"] } else { &[] };
    let tail: &[&str] = if file.rule.pool.is_some() { &["POOL"] } else { &[] };
    let mut table = Table::new(&[head, &["STRIPE>", "COPY>", "TARGET>", "OBJECT", "STATE"], tail].concat());
    let mut row = |from: u64, until: Option<u64>, cells: [String; 5]| {
        let to = until.map_or_else(|| "-".to_owned(), size);
        let head = grows.then(|| [size(from), to]);
        table.row(head.into_iter().flatten().chain(cells).chain(file.rule.pool.clone()).collect());
    };
    let copies = usize::from(file.rule.copies.max(1));
    for part in file.columns.chunk_by(|one, next| one.from == next.from) {
        for (n, column) in part.iter().enumerate() {
            let cells = [
                (n / copies + 1).to_string(),
                (n % copies + 1).to_string(),
                column.target.to_string(),
                format!("{:016x}", column.object.0),
                if column.current { "current".into() } else { "out of date".into() },
            ];
            row(column.from, column.until, cells);
        }
    }
    let there = file.columns.last().map_or(0, |column| column.from);
    let mut left = file.rule.then.iter().filter(|part| part.from > there).peekable();
    while let Some(part) = left.next() {
        let dash = || "-".to_owned();
        let cells = [part.stripes.to_string(), dash(), dash(), dash(), "when it grows".to_owned()];
        row(part.from, left.peek().map(|behind| behind.from), cells);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_said_in_words() {
        let rule =
            LayoutRule { unit_bytes: 1 << 20, stripes: 4, copies: 1, parity: 0, then: vec![], pool: None };
        assert_eq!(said(Some(&rule)), "4 stripes of 1.00 MiB on disk targets");
        assert_eq!(
            said(Some(&LayoutRule { copies: 2, ..rule.clone() })),
            "4 stripes of 1.00 MiB, 2 copies on disk targets"
        );
        let then = vec![Widening { from: 64 << 20, stripes: 16, unit_bytes: 4 << 20 }];
        assert_eq!(
            said(Some(&LayoutRule { then, copies: 2, ..rule.clone() })),
            "4 stripes of 1.00 MiB, from 64.0 MiB on 16 of 4.00 MiB, 2 copies on disk targets"
        );
        assert_eq!(
            said(Some(&LayoutRule { pool: Some("fast".into()), ..rule.clone() })),
            "4 stripes of 1.00 MiB on disk targets of pool fast"
        );
        let coded = LayoutRule { parity: 2, ..rule };
        assert_eq!(said(Some(&coded)), "4 stripes of 1.00 MiB and 2 of parity on disk targets");
        let units = [(2, 512), (3, 256), (4, 256), (8, 128), (10, 64), (200, 64)];
        assert!(units.iter().all(|(data, kib)| usual_unit(Some((*data, 2))) == kib << 10));
        assert_eq!(usual_unit(None), 1 << 20);
        assert_eq!(parse_code("8+2"), Ok((8, 2)));
        assert!(["1+1", "4", "4+0", "4+x", "250+9"].iter().all(|text| parse_code(text).is_err()));
        let then = |from, stripes, unit_bytes| Ok(Then { from, stripes, unit_bytes });
        assert_eq!(parse_then("64MiB:4"), then(64 << 20, 4, None));
        assert_eq!(parse_then("1GiB:16:4MiB"), then(1 << 30, 16, Some(4 << 20)));
        assert!(
            ["", "4", "0:4", "1MiB:0", "1MiB:x", "1MiB:4:x", "1MiB:4:8GiB", "1MiB:4:1MiB:"]
                .iter()
                .all(|text| parse_then(text).is_err())
        );
        assert_eq!(said(None), "an object in the node's own disk tier");
    }
}
