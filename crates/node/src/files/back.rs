//! Where files lie that come back from tape: on disk targets if their layout says so, and there is room or it can be made; else in the node's disk tier.

use super::behind::Writer;
use super::open::{Backing, Content};
use super::staging::Staging;
use crate::Node;
use crate::archive::FileHash;
use crate::error::fs_error;
use crate::movers::{Hope, Room, Shares, with_overhead};
use catalog::Far;
use std::sync::Arc;
use types::api::FsResult;
use types::*;

/// Read at once (bytes).
const PIECE: usize = 1 << 20;

/// Where a file comes back to.
pub(crate) enum Again {
    /// New objects on targets.
    Targets(Backing),
    /// Its targets are full, and room is being made there.
    Later,
    /// The node's own disk tier: it belongs there, or no target takes it.
    Tier,
}

/// What becomes of a recall that found no room on targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GoesOn {
    /// It is read: there is room, or it comes back elsewhere.
    Now,
    /// It waits for room.
    Later,
    /// Nobody waits any longer for it.
    Never,
    /// It has ended.
    Dropped,
}

/// Why bytes are not where they are to be.
pub(crate) enum Unstored {
    /// A target is full, and no other one takes what the file has there.
    Full,
    /// The disk, or a target, failed.
    Failed(String),
}

impl Node {
    /// Where a recall goes whose object is to be chosen. Objects on targets are reserved until [`Node::settle_object`].
    pub(crate) fn far_again(&self, recall: &Arc<Staging>) -> FsResult<Again> {
        let ino = recall.ino;
        let rule = self.catalog.layout_rule(ino).map_err(|e| fs_error("recall", &e))?;
        let Some(rule) = rule.filter(|_| !self.movers.short.has_given_up(recall)) else {
            return Ok(Again::Tier);
        };
        let Ok(views) = self.target_views() else { return Ok(Again::Tier) };
        let room = self.movers.short.room(&views);
        if let Some(lacked) = self.movers.short.lacked(recall) {
            let still = self.movers.short.without_room(recall, &room, &lacked);
            if !still.is_empty() {
                return Ok(self.lacks_room(recall, &room, lacked));
            }
        }
        let takes = |view: &&TargetView| view.takes_files() && view.is_in(rule.pool.as_deref());
        let takers: Vec<TargetView> = views.iter().filter(takes).cloned().collect();
        let first = match self.far_objects(ino, recall.size, || self.make_far(&rule)) {
            Ok(first) => first,
            // They are fuller than they have told: not even objects can be made.
            Err(FsError::NoSpace) if takers.len() as u64 >= most_columns(&rule, recall.size) => {
                let needs = needs_where_there_is_most(takers, &rule, recall);
                return Ok(self.lacks_room(recall, &room, needs));
            }
            // Too few of them take files.
            Err(_) => return Ok(Again::Tier),
        };
        let lacking = match self.with_room_for(recall, &views, first)? {
            Ok(backing) => return Ok(Again::Targets(backing)),
            Err(lacking) => lacking,
        };
        // Others may have room.
        let full = lacking.keys().copied().collect();
        let others = takers.iter().filter(|view| !lacking.contains_key(&view.target.id)).count() as u64;
        if others >= most_columns(&rule, recall.size)
            && let Ok(second) = self.far_objects(ino, recall.size, || self.make_far_beside(&rule, &full))
            && let Ok(backing) = self.with_room_for(recall, &views, second)?
        {
            return Ok(Again::Targets(backing));
        }
        Ok(self.lacks_room(recall, &room, lacking))
    }

    /// Promises a recall the room that it needs there; else its objects are given up, and what it lacks is told.
    fn with_room_for(
        &self,
        recall: &Arc<Staging>,
        views: &[TargetView],
        objects: Backing,
    ) -> FsResult<Result<Backing, Shares>> {
        let promised = self.catalog.far(objects.object).map_err(|e| fs_error("recall", &e)).map(|far| {
            let needs = far.map(|far| needs(&far, recall)).unwrap_or_default();
            self.movers.short.promise(recall, views, needs)
        });
        match promised {
            Ok(lacking) if lacking.is_empty() => Ok(Ok(objects)),
            lacking => {
                self.settle_object(&objects);
                lacking.map(Err)
            }
        }
    }

    fn lacks_room(&self, recall: &Arc<Staging>, room: &Room, lacking: Shares) -> Again {
        let fits = room.may_hold(&lacking);
        if self.has_hope_of_room(recall, room, lacking) == Hope::Wait && fits {
            return Again::Later;
        }
        self.movers.short.gives_up(recall);
        tracing::warn!(
            "inode {} comes back to the node's own disk tier: its targets are full, and nothing more can leave them; see `thermo target ls`",
            recall.ino
        );
        Again::Tier
    }

    fn has_hope_of_room(&self, recall: &Arc<Staging>, room: &Room, lacking: Shares) -> Hope {
        let patience = (crate::now(), self.space.patience());
        self.movers.short.lacks(recall, lacking, room, self.writes.makes_progress(), patience)
    }

    /// A target got full while a recall came: whether what is left of it waits for room. A coded file does not: what of it is there already would
    /// go into its log when it is read again, where it takes more.
    pub(crate) fn rest_waits_for_targets(&self, recall: &Arc<Staging>, content: &Content) -> bool {
        let coded = matches!(content, Content::Far(file) if file.striped().is_coded());
        let (room, lacking) = (self.movers.short.room(&[]), self.movers.short.needed_by(recall));
        !coded && self.has_hope_of_room(recall, &room, lacking) == Hope::Wait
    }

    /// Whether a recall that has begun, and found no room then, is to be tried again; None: it has nothing to hope for.
    pub(crate) fn may_go_on(&self, recall: &Arc<Staging>) -> Option<bool> {
        let Some(lacked) = self.movers.short.lacked(recall) else { return Some(true) };
        let room = self.room_on_targets();
        if self.movers.short.without_room(recall, &room, &lacked).is_empty() {
            self.movers.short.tried_again(recall);
            return Some(true);
        }
        (self.has_hope_of_room(recall, &room, lacked) == Hope::Wait).then_some(false)
    }

    /// Whether a recall that waits for room on targets is to be read. No drive is needed to know that.
    pub(crate) fn goes_on(&self, recall: &Arc<Staging>, room: &mut Room) -> GoesOn {
        let Some(lacked) = self.movers.short.lacked(recall) else { return GoesOn::Now };
        if self.movers.short.without_room(recall, room, &lacked).is_empty() {
            self.movers.short.call(recall, room, crate::now());
            return GoesOn::Now;
        }
        if recall.object().is_some() {
            return match self.has_hope_of_room(recall, room, lacked) {
                Hope::Wait => GoesOn::Later,
                Hope::None => GoesOn::Never,
            };
        }
        match self.lacks_room(recall, room, lacked) {
            Again::Later => GoesOn::Later,
            _ => GoesOn::Now,
        }
    }

    /// Room on targets now. While they are not known none has any.
    pub(crate) fn room_on_targets(&self) -> Room {
        self.movers.short.room(&self.target_views().unwrap_or_default())
    }

    /// New objects on targets, of `size` zeros.
    fn far_objects(
        &self,
        ino: Ino,
        size: u64,
        make: impl FnOnce() -> FsResult<(ObjectId, Far)>,
    ) -> FsResult<Backing> {
        let made = make().map_err(|e| (None, e)).and_then(|(object, far)| {
            let file = self.far_file_at(ino, object, far, ObjectStamp::default());
            // The parts that it needs behind the first one are made by that.
            let sized = file.and_then(|file| file.truncate(size, || Ok(())).map(|()| file));
            sized.map(|file| Backing { object, content: Content::Far(file) }).map_err(|e| (Some(object), e))
        });
        made.map_err(|(object, e)| {
            if let Some(object) = object {
                self.movers.settle(object);
                self.movers.wake();
            }
            tracing::warn!("inode {ino} gets no objects on targets: {e}");
            e
        })
    }

    /// An object that was taken for a recall belongs to its file now, or to nobody.
    pub(crate) fn settle_object(&self, object: &Backing) {
        match object.content {
            Content::Local(_) => self.objects.settle(object.object),
            Content::Far(_) => {
                self.movers.settle(object.object);
                self.movers.wake();
            }
        }
    }

    /// An object for a file without bytes.
    pub(crate) fn empty_object(&self, ino: Ino) -> FsResult<Backing> {
        let rule = self.catalog.layout_rule(ino).map_err(|e| fs_error("recall", &e))?;
        if let Some(far) = rule.and_then(|rule| self.far_objects(ino, 0, || self.make_far(&rule)).ok()) {
            return Ok(far);
        }
        let (object, fd) = self.objects.take(&self.catalog, &self.disk)?;
        Ok(Backing::local(object, Arc::new(fd)))
    }
}

impl Content {
    /// Writes all of `bytes` at `offset`; why not, for the user.
    pub(crate) fn store(&self, node: &Node, bytes: &[u8], offset: u64) -> Result<(), Unstored> {
        match self {
            Self::Local(fd) => {
                node.disk.write_at(fd, bytes, offset).map_err(|e| Unstored::Failed(e.to_string()))
            }
            Self::Far(file) => file.write(offset, bytes, false, Writer::Elsewhere).map(drop).map_err(|e| {
                if e == FsError::NoSpace { Unstored::Full } else { Unstored::Failed(on_targets(e)) }
            }),
        }
    }

    /// Where the row ends that has a byte at this offset, if what is stored there is best stored by whole rows, and these have at most so many bytes.
    pub(crate) fn row_end(&self, offset: u64, most: u64) -> Option<u64> {
        match self {
            Self::Local(_) => None,
            Self::Far(file) => file.striped().row_end(offset, most),
        }
    }

    /// Makes a range zeros.
    pub(crate) fn clear(&self, node: &Node, start: u64, length: u64) -> Result<(), Unstored> {
        match self {
            Self::Local(fd) => {
                node.disk.punch_hole(fd, start, length).map_err(|e| Unstored::Failed(e.to_string()))
            }
            Self::Far(_) => {
                let zeros = vec![0; PIECE];
                (start..start + length).step_by(PIECE).try_for_each(|at| {
                    let piece = (start + length - at).min(PIECE as u64);
                    self.store(node, &zeros[..piece as usize], at)
                })
            }
        }
    }

    /// Makes all of it durable.
    pub(crate) fn sync(&self, node: &Node) -> Result<(), String> {
        match self {
            Self::Local(fd) => node.disk.sync_all(fd).map_err(|e| e.to_string()),
            Self::Far(file) => file.sync().map_err(on_targets),
        }
    }

    /// SHA-256 of its first `size` bytes, holes included; None if it is shorter or cannot be read.
    pub(crate) fn digest(&self, node: &Node, size: u64) -> Option<Digest> {
        let (mut hash, mut buf, mut at) = (FileHash::new(), vec![0; PIECE], 0);
        while at < size {
            let want = buf.len().min((size - at) as usize);
            let got = match self {
                Self::Local(fd) => node.disk.read_at(fd, &mut buf[..want], at).ok(),
                Self::Far(file) => file.read_into(at, &mut buf[..want]).ok(),
            };
            let got = got.filter(|got| *got > 0)?;
            hash.add(at, &buf[..got]);
            at += got as u64;
        }
        hash.finish(size)
    }
}

/// So many targets each part of a file needs that is so long, at most.
fn most_columns(rule: &LayoutRule, size: u64) -> u64 {
    let parts = rule.then.iter().filter(|next| next.from < size).map(|next| rule.at(*next).columns());
    parts.max().unwrap_or(0).max(rule.columns())
}

/// What a recall needs where it is not known which targets it gets: of as many as it needs, those with most room.
fn needs_where_there_is_most(mut views: Vec<TargetView>, rule: &LayoutRule, recall: &Staging) -> Shares {
    views.sort_by_key(|view| std::cmp::Reverse(view.target.free));
    let each = recall.data_bytes().div_ceil(rule.stripes.max(1).into()).max(1);
    let those = views.iter().take(rule.columns() as usize);
    with_overhead(&those.map(|view| (view.target.id, each)).collect())
}

/// What has to be free of each target for what a recall brings.
fn needs(far: &Far, recall: &Staging) -> Shares {
    let (size, data) = (recall.size.max(1), recall.data_bytes());
    let mut needs = Shares::new();
    for (number, component) in (0..).zip(&far.layout.components) {
        // What is away gets its bytes when it is back.
        let there = |column: &u16| !far.stale.contains(&(number, *column));
        for (column, target) in (0..).zip(&component.targets).filter(|(column, _)| there(column)) {
            *needs.entry(*target).or_default() += component.object_length(column, recall.size);
        }
    }
    // Holes take nothing, wherever they are.
    needs.values_mut().for_each(|bytes| {
        *bytes = (u128::from(*bytes) * u128::from(data.min(size)) / u128::from(size)) as u64
    });
    with_overhead(&needs)
}

fn on_targets(e: FsError) -> String {
    format!("its disk targets: {e}; the log says more, see `thermo target ls`")
}
