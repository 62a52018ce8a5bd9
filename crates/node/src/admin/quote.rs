//! What a recall would take: told before anything is moved.

use crate::Node;
use crate::archive::{Asked, Quoted, quote};
use crate::limits::Asker;
use types::*;

/// Files that cannot come back, named at most.
const NAMED: usize = 1_000;

/// Files of one question, which may take several calls.
#[derive(Default)]
pub struct Quoting {
    files: Vec<Asked>,
    /// On their way already.
    coming: Vec<Ino>,
    view: QuoteView,
}

impl Quoting {
    /// Files so far.
    pub(super) fn files(&self) -> u64 {
        self.view.files
    }
}

impl Node {
    /// One more file of the question.
    pub(super) fn to_quote(&self, cx: &Cx, quoting: &mut Quoting, inode: &Inode) {
        let Quoting { files, coming, view } = quoting;
        let Some(file) = &inode.file else { return };
        let (ino, bytes) = (inode.attr.ino, inode.attr.size);
        (view.files, view.bytes) = (view.files + 1, view.bytes + bytes);
        let sum = match (file.object, self.staging.get(ino)) {
            (Some(_), _) => &mut view.resident,
            (None, Some(_)) => {
                coming.push(ino);
                &mut view.coming
            }
            (None, None) => {
                let who = Asker { uid: cx.uid, gid: inode.attr.gid, class: &file.class };
                let account = self.archive.account(&who);
                files.push((ino, file.version, bytes, account));
                &mut view.wanted
            }
        };
        *sum = (sum.0 + 1, sum.1 + bytes);
    }

    /// What bringing these files back would take.
    pub(super) fn quote(&self, quoting: &mut Quoting) -> (QuoteView, QuoteWaits) {
        let Quoting { files, coming, view } = quoting;
        files.sort_unstable();
        let before = files.len();
        files.dedup();
        if files.len() < before {
            // Hard links, or paths that overlap.
            let twice = (before - files.len()) as u64;
            (view.files, view.wanted.0) = (view.files - twice, view.wanted.0 - twice);
            view.wanted.1 = files.iter().map(|(_, _, bytes, _)| bytes).sum();
        }
        let Quoted { quote, lost, waiting } = quote(self, files);
        let named = |files: &[(Ino, String)]| -> Vec<LostFile> {
            let some = files.iter().take(NAMED).map(|(ino, why)| {
                let path = self.catalog.path_of(*ino).unwrap_or_default();
                LostFile { path: path.into(), why: why.clone() }
            });
            some.collect()
        };
        let waits = QuoteWaits { files: waiting.len() as u64, named: named(&waiting) };
        let up = |seconds: f64| seconds.max(0.0).ceil() as u64;
        let mut told = QuoteView { lost: lost.len() as u64, lost_files: named(&lost), ..view.clone() };
        if let Some(q) = quote {
            (told.volumes, told.mounts) = (q.volumes, q.mounts);
            told.drive_s = (up(q.drives.p50_s()), up(q.drives.p90_s()));
            let [p50, p90] = [up(q.time.p50_s()), up(q.time.p90_s())];
            let estimate = Estimate { finish_p50_s: p50, finish_p90_s: p90, ..Estimate::default() };
            told.estimate = Some(later(estimate, self.archive.progress_of(self, coming, true).estimate));
        }
        (told, waits)
    }
}

/// Both are there: what is to be read, and what is on its way.
fn later(wanted: Estimate, coming: Option<Estimate>) -> Estimate {
    let coming = coming.unwrap_or_default();
    Estimate {
        finish_p50_s: wanted.finish_p50_s.max(coming.finish_p50_s),
        finish_p90_s: wanted.finish_p90_s.max(coming.finish_p90_s),
        ..wanted
    }
}
