//! The two meta pages of an LMDB data file: where its trees begin.

use super::page::{Fault, HEADER, META, u16_at, u32_at, u64_at};

const MAGIC: u32 = 0xbeef_c0de;
const VERSION: u32 = 1;
/// Flag of the tree of free pages: its keys are numbers.
const INTEGER_KEY: u16 = 0x08;
/// Bytes of a meta page in use.
pub(super) const META_LEN: usize = HEADER + 24 + 2 * TREE + 16;
const TREE: usize = 48;
/// Offset of the number of the last page in a meta page; that of the transaction follows.
pub(super) const LAST_PAGE_AT: usize = HEADER + 24 + 2 * TREE;
/// The root of a tree without pages.
pub(super) const NO_ROOT: u64 = u64::MAX;

/// Begin and size of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tree {
    pub(super) depth: u16,
    pub(super) branches: u64,
    pub(super) leaves: u64,
    pub(super) overflows: u64,
    pub(super) entries: u64,
    pub(super) root: u64,
}

/// One state of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meta {
    pub(super) page_size: usize,
    /// Keys are numbers of transactions, values lists of pages.
    pub(super) free: Tree,
    pub(super) main: Tree,
    pub(super) last_page: u64,
    pub(super) txn: u64,
}

impl Meta {
    /// Reads meta page `number` (0 or 1) from its first bytes.
    pub(super) fn read(bytes: &[u8; META_LEN], number: u64) -> Result<Self, Fault> {
        let head =
            (u64_at(bytes, 0), u16_at(bytes, 8), u16_at(bytes, 10), u32_at(bytes, 16), u32_at(bytes, 20));
        if head != (number, 0, META, MAGIC, VERSION) {
            return Err("it is no meta page of LMDB".into());
        }
        let (free, main) = (HEADER + 24, HEADER + 24 + TREE);
        let page_size = u32_at(bytes, free) as usize;
        if !page_size.is_power_of_two() || !(512..=65536).contains(&page_size) {
            return Err(format!("pages of {page_size} bytes are impossible"));
        }
        let flags = [u16_at(bytes, free + 4), u16_at(bytes, main + 4)];
        if flags != [INTEGER_KEY, 0] || u32_at(bytes, main) != 0 {
            return Err(format!("the flags {flags:x?} of its trees are not ours"));
        }
        Ok(Self {
            page_size,
            free: tree(&bytes[free..]),
            main: tree(&bytes[main..]),
            last_page: u64_at(bytes, LAST_PAGE_AT),
            txn: u64_at(bytes, LAST_PAGE_AT + 8),
        })
    }
}

fn tree(bytes: &[u8]) -> Tree {
    Tree {
        depth: u16_at(bytes, 6),
        branches: u64_at(bytes, 8),
        leaves: u64_at(bytes, 16),
        overflows: u64_at(bytes, 24),
        entries: u64_at(bytes, 32),
        root: u64_at(bytes, 40),
    }
}
