//! What the index of a volume would list, and an empty catalogue that it is entered into.

use super::{POOLS, class, t};
use catalog::{Catalog, ListedDir, ListedFile, TapeNode};
use kv::MemoryEngine;
use std::ops::ControlFlow;
use std::sync::Arc;
use types::*;

/// What the index of a volume would list, as the archive service writes and reads it.
pub fn listing(c: &Catalog, barcode: &str) -> Vec<ListedFile> {
    let mut stack: Vec<(ListedDir, Option<Ino>)> = Vec::new();
    let mut files = Vec::new();
    c.walk_volume(&barcode.into(), &mut |node| {
        match node {
            TapeNode::EnterDir { name, created, mirrors, .. } => {
                let parent = stack.last().map_or(Some(Ino::ROOT), |(_, ino)| *ino);
                let found = match mirrors {
                    Ino(0) => parent.and_then(|p| c.dir_facts(p, name.as_bytes(), t(0)).unwrap()),
                    ino => c.facts_of(ino, t(0)).unwrap().map(|facts| (ino, facts)),
                };
                let (ino, facts) = found.map_or((None, None), |(ino, facts)| (Some(ino), Some(facts)));
                let dir = ListedDir { name: name.into(), created, facts };
                stack.push((dir, ino));
            }
            // The index tells of it only as long as it is live.
            TapeNode::File { name, file } if name.starts_with('/') && !file.live => {}
            TapeNode::LeaveDir => drop(stack.pop()),
            TapeNode::File { name, file } => files.push(ListedFile {
                dirs: stack.iter().map(|(dir, _)| dir.clone()).collect(),
                name: name.into(),
                file: file.clone(),
            }),
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    files
}

pub fn empty() -> Catalog {
    let c = Catalog::open(Arc::new(MemoryEngine::new()), t(9_000)).unwrap();
    for pool in POOLS {
        c.put_pool(&Pool::new(pool.into())).unwrap();
    }
    c.put_class(&class("default", &POOLS)).unwrap();
    c.put_class(&class("single", &["pool-b"])).unwrap();
    c.skip_numbers(t(9_000)).unwrap();
    c
}
