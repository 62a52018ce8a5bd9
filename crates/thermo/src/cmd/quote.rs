//! `thermo stage --dry-run`, `thermo purge --list`, `thermo request ls --by`: answers that change nothing.

use crate::cmd::files::Files;
use crate::context::Context;
use crate::exit::Exit;
use crate::out::Table;
use crate::render::{time, word};
use crate::units::{size, span};
use anyhow::Result;
use client::Connection;
use types::{LostFile, PurgeCandidateView, QuoteView, QuoteWaits, RequestSum, SumBy, plural};
use wire::{Act, Call};

/// What bringing these files back would take.
pub fn quote(context: &mut Context, files: Files) -> Result<Exit> {
    let mut node = context.connect()?;
    let done = files.act(&mut node, Act::Quote)?;
    if context.global.json {
        let (view, waits) = done.quote.clone().unwrap_or_default();
        let mut view = serde_json::to_value(view)?;
        view["waiting"] = serde_json::to_value(waits)?;
        view["left_out"] = done.left.json();
        context.out.json(&view)?;
    } else {
        let lines = done.quote.as_ref().map(|(view, waits)| lines(view, waits)).unwrap_or_default();
        lines.into_iter().try_for_each(|line| context.out.line(line))?;
    }
    let lost = done.quote.is_some_and(|(quote, waits)| quote.lost + waits.files > 0);
    Ok(done.left.exit(if lost { Exit::SOME_FAILED } else { Exit::OK }))
}

fn lines(view: &QuoteView, waits: &QuoteWaits) -> Vec<String> {
    let files = |(files, bytes): (u64, u64)| format!("{}, {}", plural(files, "file"), size(bytes));
    let mut lines = vec![
        format!("asked for      {}", files((view.files, view.bytes))),
        format!("on disk        {}", files(view.resident)),
        format!("on their way   {}", files(view.coming)),
        format!("to be read     {} from {}", files(view.wanted), plural(view.volumes, "volume")),
        format!("mounts         {}", view.mounts),
    ];
    // What cannot come, or not now, has no part in the estimate.
    let nothing = view.wanted.0 > 0 && view.lost + waits.files >= view.wanted.0 && view.coming.0 == 0;
    let but = if waits.files > 0 { " (but for those that wait for a drive)" } else { "" };
    match view.estimate {
        Some(_) if nothing && waits.files == 0 => lines.push("there in       never, as things stand".into()),
        Some(e) => {
            let [drive, drive_p90] = [view.drive_s.0, view.drive_s.1].map(span);
            let [end, end_p90] = [e.finish_p50_s, e.finish_p90_s].map(span);
            lines.push(format!("use of drives  {drive}, in nine cases of ten at most {drive_p90}"));
            lines.push(format!("there in       {end}, in nine cases of ten within {end_p90}{but}"));
        }
        None if waits.files > 0 => {
            lines.push("there in       not known: nothing comes before a drive is back".into())
        }
        None => lines
            .push("there in       not known: every drive is out of use; `thermo drive ls` says why".into()),
    }
    name(&mut lines, "wait           ", " that a request would wait for", waits.files, &waits.named);
    name(&mut lines, "cannot come    ", "", view.lost, &view.lost_files);
    lines
}

/// So many files, some of which are named with what is the matter.
fn name(lines: &mut Vec<String>, what: &str, which: &str, files: u64, named: &[LostFile]) {
    if files == 0 {
        return;
    }
    lines.push(format!("{what}{}{which}:", plural(files, "file")));
    lines.extend(named.iter().map(|lost| format!("  {}: {}", lost.path, lost.why)));
    if files > named.len() as u64 {
        lines.push(format!("  and {} more", files - named.len() as u64));
    }
}

/// Files on disk in the order in which space would be released.
pub fn purge_list(context: &mut Context, all: bool, limit: u32) -> Result<Exit> {
    let files: Vec<PurgeCandidateView> = context.connect()?.ask(&Call::PurgeList { all, limit })?;
    let utc = context.global.utc;
    context.print(&files, |files| {
        let mut table = Table::new(&["SIZE>", "LAST USE", "STAYS", "PATH"]);
        for file in files {
            table.row(vec![
                size(file.bytes),
                time(file.last_use, utc),
                file.held.clone().unwrap_or_else(|| "-".into()),
                file.path.to_string(),
            ]);
        }
        table
    })
}

/// How far open requests are, summed up.
pub fn sums(context: &mut Context, node: &mut Connection, by: SumBy) -> Result<Exit> {
    let sums: Vec<RequestSum> = node.ask(&Call::RequestSums(by))?;
    context.print(&sums, |sums| {
        let of = match by {
            SumBy::Owner => "OWNER",
            SumBy::Class => "CLASS",
            SumBy::Pool => "POOL",
        };
        let mut table = Table::new(&["KIND", of, "REQUESTS>", "DONE>", "FILES>", "BYTES>"]);
        for sum in sums {
            table.row(vec![
                word(&sum.kind),
                sum.of.clone(),
                sum.requests.to_string(),
                format!("{}%", sum.percent),
                format!("{}/{}", sum.files_done, sum.files_total),
                format!("{}/{}", size(sum.bytes_done), size(sum.bytes_total)),
            ]);
        }
        table
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Estimate;

    #[test]
    fn a_quote_says_what_comes_when_and_what_cannot() {
        let estimate = Some(Estimate { finish_p50_s: 60, finish_p90_s: 90, ..Estimate::default() });
        let why = "copy 1: volume TC0001L9 is not in the library".to_owned();
        let lost_files = vec![LostFile { path: "/a".into(), why }];
        let view = QuoteView { files: 3, lost: 2, estimate, lost_files, ..QuoteView::default() };
        let none_waits = QuoteWaits::default();
        let text = lines(&view, &none_waits).join("\n");
        assert!(text.contains("there in       1m00s, in nine cases of ten within 1m30s"), "{text}");
        assert!(text.contains("  /a: copy 1: volume TC0001L9") && text.ends_with("and 1 more"), "{text}");
        let none = lines(&QuoteView::default(), &none_waits).join("\n");
        assert!(none.contains("every drive is out of use"), "{none}");
        let waits = QuoteWaits {
            files: 2,
            named: vec![LostFile {
                path: "/b".into(),
                why: "copy 1: volume TC0001L9 waits for drive 0".into(),
            }],
        };
        let some = lines(&view, &waits).join("\n");
        assert!(some.contains("within 1m30s (but for those that wait for a drive)"), "{some}");
        assert!(
            some.contains("wait           2 files that a request would wait for:\n  /b: copy 1"),
            "{some}"
        );
        let none = lines(&QuoteView { wanted: (2, 9), ..view }, &none_waits).join("\n");
        assert!(none.contains("there in       never") && !none.contains("use of drives"), "{none}");
        let all = lines(&QuoteView::default(), &waits).join("\n");
        assert!(all.contains("not known: nothing comes before a drive is back"), "{all}");
    }
}
