//! What hosts may take for given for a moment: what they saw, and that nobody else writes.

use super::session::Held;
use crate::Node;
use crate::leases::{News, Stands, TERM, Writes};
use crate::movers::Grantee;
use std::sync::Arc;
use types::api::{FileApi, FsResult, OpenFlags};
use types::{Attr, Cx, FsError, Handle, Ino};
use wire::{Alone, CopiesLayout, FileCall, LeasedReply, Look, Reply, Seen};

impl Node {
    /// Looks, with leases of what is seen. `number`: that of the call in its session.
    pub(super) fn leased(&self, cx: &Cx, session: &Held, at: Look, number: u64) -> FsResult<Reply> {
        // What is remembered is shown to all users of a host, whose kernel checks them.
        let client = session.client().filter(|_| cx.checked).ok_or(FsError::NotSupported)?;
        let look = self.leases.look();
        let (seen, inodes) = match at {
            Look::Lookup { parent, name } => match self.lookup(cx, parent, &name) {
                Ok(attr) => {
                    let inodes = vec![parent, attr.ino];
                    (Seen::Attr(attr), inodes)
                }
                Err(FsError::NotFound) => (Seen::Absent, vec![parent]),
                Err(e) => return Err(e),
            },
            Look::GetAttr(ino) => (Seen::Attr(self.getattr(cx, ino)?), vec![ino]),
            Look::ReadDir { dir, after, limit } => {
                let entries = self.readdir_plus(cx, dir, after, limit.clamp(1, 5_000) as usize)?;
                let inodes = entries.iter().map(|(_, attr): &(_, Attr)| attr.ino).chain([dir]).collect();
                (Seen::Entries(entries), inodes)
            }
        };
        // Who writes a file changes it without a word.
        let (written, quiet): (Vec<Ino>, Vec<Ino>) =
            inodes.into_iter().partition(|ino| self.is_written(*ino));
        let mut refused = self.leases.give(&look, client, number, quiet.into_iter());
        refused.extend(written);
        let term_ms = u32::try_from(TERM.as_millis()).unwrap_or(0);
        Ok(Reply::Leased(Box::new(LeasedReply { seen, refused, term_ms })))
    }

    /// Who makes a file has just forgotten what he knew of its directory, and the kernel of his host asks for that with the next name in it: he
    /// is told with the answer what it has become.
    pub(super) fn with_parent(
        &self,
        cx: &Cx,
        session: &Held,
        reply: Reply,
        made_in: Option<Ino>,
        number: u64,
    ) -> Reply {
        match (reply, made_in) {
            (Reply::OpenedAt { handle, attr, resident, layout, .. }, Some(parent)) => {
                let parent = match self.leased(cx, session, Look::GetAttr(parent), number) {
                    Ok(Reply::Leased(told)) => Some(told),
                    _ => None,
                };
                Reply::OpenedAt { handle, attr, resident, layout, parent }
            }
            (reply, _) => reply,
        }
    }

    fn is_written(&self, ino: Ino) -> bool {
        self.open.get(ino).is_some_and(|inode| inode.state.lock().writers > 0)
    }

    /// A session is about to make a call that changes something, and has forgotten what the call names.
    pub(super) fn forgets_what_it_changes(&self, session: &Held, call: &FileCall, number: u64) {
        if let Some(client) = session.client() {
            self.leases.give_back(client, number, &call.changes().collect::<Vec<_>>());
            if let Some(open) = call.cuts().and_then(|ino| self.open.get(ino)) {
                open.lengths.give_back(client, number);
            }
        }
    }

    /// What a session is to forget.
    pub(super) fn to_forget(&self, session: &Arc<Held>, after: u64) -> FsResult<Reply> {
        let client = session.client().ok_or(FsError::NotSupported)?;
        let News { place, inodes, alone } = self.leases.news(client, after);
        Ok(Reply::Forget { place, inodes, alone })
    }

    /// Whether a session may keep for a moment in its memory what it writes within a file that it goes to the targets of.
    pub(super) fn write_alone(&self, session: &Held, (handle, number): (Handle, u64)) -> FsResult<Reply> {
        let file = self.open.handle(handle).filter(|file| file.flags.write).ok_or(FsError::BadHandle)?;
        let Some(client) = session.client() else { return Ok(Reply::Alone(None)) };
        let ino = file.inode.ino;
        let state = file.inode.state.lock();
        let nobody_else = self.has_all(session, handle, state.handles, ino);
        let Some(far) = state.backing.as_ref().and_then(|backing| backing.far()) else {
            return Ok(Reply::Alone(None));
        };
        let term_ms = u32::try_from(TERM.as_millis()).unwrap_or(0);
        Ok(Reply::Alone(match self.leases.write_alone(client, ino, nobody_else) {
            Writes::Alone(lease) => {
                file.inode.lengths.told(client, number);
                let (cuts, length) = far.length_now();
                Some(Alone { number: lease, term_ms, cuts, length })
            }
            Writes::NotAlone => None,
        }))
    }

    /// Whether all that is open of a file belongs to the session of this handle.
    fn has_all(&self, session: &Held, handle: Handle, handles: u32, ino: Ino) -> bool {
        match handles {
            0 => false,
            1 => session.has(handle),
            all => session.handles_of(|handle| self.is_of(handle, ino, |_| true)) == all as usize,
        }
    }

    /// The same of handles by which somebody reads or writes.
    fn has_all_used(&self, session: &Held, ino: Ino, used: u32) -> bool {
        let is_used = |flags: OpenFlags| !flags.is_idle();
        used > 0 && session.handles_of(|handle| self.is_of(handle, ino, is_used)) == used as usize
    }

    /// Whether what a session wrote alone by a lease of this number may still come to the targets, with rights that it got before. ESTALE: it may not, somebody
    /// else may have opened the file since.
    pub(super) fn write_alone_stands(&self, session: &Held, handle: Handle, number: u64) -> FsResult<Reply> {
        let file = self.open.handle(handle).filter(|file| file.flags.write).ok_or(FsError::BadHandle)?;
        let client = session.client().ok_or(FsError::NotSupported)?;
        let ino = file.inode.ino;
        let state = file.inode.state.lock();
        let stands = match self.leases.stands(client, ino, number) {
            Stands::Yes => true,
            Stands::No => false,
            // Nobody else has had it open since that node left it. The node itself reads only to move what is there, and what comes meanwhile moves too.
            Stands::Unknown => {
                let used = state.handles - state.idle;
                state.returned == Some(used) && self.has_all_used(session, ino, used)
            }
        };
        if stands { Ok(Reply::Done) } else { Err(FsError::Stale) }
    }

    fn is_of(&self, handle: Handle, ino: Ino, is: impl Fn(OpenFlags) -> bool) -> bool {
        self.open.handle(handle).is_some_and(|file| file.inode.ino == ino && is(file.flags))
    }

    /// What a session wrote alone is at the targets.
    pub(super) fn write_alone_end(&self, session: &Held, ino: Ino, number: u64) -> FsResult<Reply> {
        let client = session.client().ok_or(FsError::NotSupported)?;
        self.leases.end_alone(client, ino, number);
        Ok(Reply::Done)
    }

    /// Where all copies of a file of the session may be written, if it is the only one that has it open for writing.
    pub(super) fn copies_for(
        &self,
        cx: &Cx,
        session: &Held,
        handle: Handle,
    ) -> FsResult<Option<Box<CopiesLayout>>> {
        let Some(client) = session.client() else { return Ok(None) };
        let writes = |handle, ino| {
            self.open.handle(handle).is_some_and(|file| file.flags.write && file.inode.ino == ino)
        };
        let all = |ino, writers| session.handles_of(|handle| writes(handle, ino)) == writers as usize;
        // A host that speaks for users could open the file for reading, too, and the node reads what is in journals: whoever writes them is trusted.
        let trusted = cx.checked || cx.uid == 0;
        let layout = self.layout_copies(handle, Grantee { client, uid: cx.uid }, (&all, trusted))?;
        if layout.is_some()
            && let Some(file) = self.open.handle(handle)
        {
            // It is used through any of them.
            session.all_go_to_targets(|handle| writes(handle, file.inode.ino));
        }
        Ok(layout.map(Box::new))
    }

    /// Returns what a change came to, when nobody remembers it otherwise.
    pub(crate) fn seen_by_all<T>(&self, done: T) -> T {
        self.leases.settle();
        done
    }
}
