//! `thermo stage --dry-run`, `thermo purge --list`, `thermo request ls --by`: answers that change nothing.

use crate::cmd::files::Files;
use crate::context::Context;
use crate::exit::Exit;
use crate::out::Table;
use crate::render::{time, word};
use crate::units::{size, span};
use anyhow::Result;
use client::Connection;
use types::{PurgeCandidateView, QuoteView, RequestSum, SumBy};
use wire::{Act, Call};

/// What bringing these files back would take.
pub fn quote(context: &mut Context, files: Files) -> Result<Exit> {
    let mut node = context.connect()?;
    let done = files.act(&mut node, Act::Quote)?;
    if context.global.json {
        let mut view = serde_json::to_value(done.quote.clone().unwrap_or_default())?;
        view["left_out"] = done.left.json();
        context.out.json(&view)?;
    } else {
        let lines = done.quote.as_ref().map(lines).unwrap_or_default();
        lines.into_iter().try_for_each(|line| context.out.line(line))?;
    }
    let lost = done.quote.is_some_and(|quote| quote.lost > 0);
    Ok(done.left.exit(if lost { Exit::SOME_FAILED } else { Exit::OK }))
}

fn lines(view: &QuoteView) -> Vec<String> {
    let files = |(files, bytes): (u64, u64)| format!("{files} files, {}", size(bytes));
    let mut lines = vec![
        format!("asked for      {}", files((view.files, view.bytes))),
        format!("on disk        {}", files(view.resident)),
        format!("on their way   {}", files(view.coming)),
        format!("to be read     {} from {} volumes", files(view.wanted), view.volumes),
        format!("mounts         {}", view.mounts),
    ];
    match view.estimate {
        Some(e) => {
            let [drive, drive_p90] = [view.drive_s.0, view.drive_s.1].map(span);
            let [end, end_p90] = [e.finish_p50_s, e.finish_p90_s].map(span);
            lines.push(format!("use of drives  {drive}, in nine cases of ten at most {drive_p90}"));
            lines.push(format!("there in       {end}, in nine cases of ten within {end_p90}"));
        }
        None => lines
            .push("there in       not known: every drive is out of use; `thermo drive ls` says why".into()),
    }
    if view.lost > 0 {
        lines.push(format!("cannot come    {} files:", view.lost));
        let told = view.lost_files.iter();
        lines.extend(told.map(|(path, why)| format!("  {}: {why}", client::escape(path.as_bytes()))));
    }
    if view.lost > view.lost_files.len() as u64 {
        lines.push(format!("  and {} more", view.lost - view.lost_files.len() as u64));
    }
    lines
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
                client::escape(file.path.as_bytes()),
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
        let lost_files = vec![("/a".to_owned(), "copy 1: volume TC0001L9 is not in the library".to_owned())];
        let view = QuoteView { files: 3, lost: 2, estimate, lost_files, ..QuoteView::default() };
        let text = lines(&view).join("\n");
        assert!(text.contains("there in       1m00s, in nine cases of ten within 1m30s"), "{text}");
        assert!(text.contains("  /a: copy 1: volume TC0001L9") && text.ends_with("and 1 more"), "{text}");
        let none = lines(&QuoteView::default()).join("\n");
        assert!(none.contains("every drive is out of use"), "{none}");
    }
}
