//! Requests to the node, followed to their end.

use super::ui::Progress;
use anyhow::{Result, bail};
use client::Connection;
use std::path::Path;
use std::time::Duration;
use types::{FileView, Ino, ItemState, RequestItemView, RequestState, RequestView, Residency};
use wire::{Call, Selection};

/// Time between two questions.
const PAUSE: Duration = Duration::from_millis(100);

/// Asks, waits, shows progress; an error if any file failed.
pub fn follow(socket: &Path, call: &Call, progress: &Progress) -> Result<RequestView> {
    let mut node = Connection::open(socket)?;
    let mut view: RequestView = node.ask(call)?;
    loop {
        let request = &view.request;
        progress.total(request.bytes_total);
        progress.at(
            view.bytes_moved.min(request.bytes_total),
            format!("{} of {} files, {}", request.files_done, request.files_total, view.doing),
        );
        match request.state {
            RequestState::Done if request.files_failed == 0 => return Ok(view),
            RequestState::Done | RequestState::Failed | RequestState::Cancelled => {
                bail!("request {} failed: {}", request.id, reasons(&mut node, &view)?)
            }
            _ => {}
        }
        std::thread::sleep(PAUSE);
        view = node.ask(&Call::Request(view.request.id))?;
    }
}

fn reasons(node: &mut Connection, view: &RequestView) -> Result<String> {
    let call = Call::RequestItems { id: view.request.id, after: Ino(0), limit: 100_000 };
    let items: Vec<RequestItemView> = node.ask(&call)?;
    let failed = items.into_iter().filter_map(|item| match item.state {
        ItemState::Failed(why) => Some(format!("{}: {why}", item.path)),
        _ => None,
    });
    let mut lines: Vec<String> = failed.take(5).collect();
    lines.insert(0, format!("{} ({} files)", view.request.message, view.request.files_failed));
    Ok(lines.join("\n  "))
}

/// Everything below a directory.
pub fn below(path: Vec<u8>) -> Selection {
    Selection { paths: vec![path], recursive: true }
}

/// Regular files below a directory that are not wholly on tape only: their number, and the first ones.
pub fn not_offline(node: &mut Connection, dir: &[u8], found: &mut (u64, Vec<String>)) -> Result<u64> {
    let (mut after, mut files) = (0, 0);
    loop {
        let call = Call::List { path: dir.to_vec(), after, limit: 1000 };
        let (entries, next): (Vec<(Vec<u8>, FileView)>, Option<u64>) = node.ask(&call)?;
        for (name, view) in entries {
            let path = [dir, b"/", &name].concat();
            if view.attr.kind == types::FileKind::Directory {
                files += not_offline(node, &path, found)?;
            } else if view.residency.is_some() && view.attr.size > 0 {
                files += 1;
                if view.residency != Some(Residency::Offline) || view.attr.disk_bytes > 512 {
                    found.0 += 1;
                    if found.1.len() < 5 {
                        found.1.push(client::escape(&path));
                    }
                }
            }
        }
        match next {
            Some(cookie) => after = cookie,
            None => return Ok(files),
        }
    }
}
