//! How large everything is made: the demonstration shrinks rather than fill a disk.

use crate::units::size;

/// Space that is always left free (bytes).
const RESERVE: u64 = 1 << 30;
/// The big file is not made smaller than this (bytes).
const SMALLEST_BIG: u64 = 16 << 20;
/// What a small file costs beyond its bytes: a block on disk, its part of an index on tape (bytes).
const PER_FILE: u64 = 8 << 10;
/// Cartridges per pool, of 8 in two pools.
const PER_POOL: u64 = 4;
/// Smallest cartridge that is useful (bytes).
const SMALLEST_CARTRIDGE: u64 = 64 << 20;

/// What is wished for and what there is.
#[derive(Clone, Debug)]
pub struct Wish {
    /// Size of the big file (bytes).
    pub big: u64,
    /// Bytes of the tree.
    pub tree_bytes: u64,
    /// Entries of the tree.
    pub tree_files: u64,
    /// Free bytes of the file system that holds the state directory.
    pub free: u64,
    /// Disk tier, if given (bytes).
    pub disk_pool: Option<u64>,
    /// Capacity of a cartridge, if given (bytes).
    pub cartridge: Option<u64>,
    /// Room for another copy of the tree is needed, to compare without a mount.
    pub scratch: bool,
}

/// Sizes to use (bytes).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Big file.
    pub big: u64,
    /// Disk tier.
    pub disk_pool: u64,
    /// Capacity of a cartridge.
    pub cartridge: u64,
    /// What had to be made smaller, and why.
    pub notes: Vec<String>,
}

/// Decides.
///
/// # Errors
/// Text for the user if not even the tree fits.
pub fn plan(wish: &Wish) -> Result<Plan, String> {
    let tree = wish.tree_bytes + wish.tree_files * PER_FILE;
    let mut notes = Vec::new();
    let mut big = wish.big;
    let mut limit = |most: u64, why: String| {
        if most < big {
            notes.push(format!("{why}: the big file is {} instead of {}", size(most), size(big)));
            big = most;
        }
    };
    limit(most_by_space(wish, tree)?, format!("{} are free", size(wish.free)));
    if let Some(pool) = wish.disk_pool {
        limit(pool * 2 / 5, format!("the disk tier has {}", size(pool)));
    }
    if let Some(cartridge) = wish.cartridge {
        // one cartridge's worth is kept for what an end of medium and the indexes waste
        let room = cartridge.saturating_mul(PER_POOL - 1);
        let most = room.checked_sub(tree).filter(|&m| m >= SMALLEST_BIG);
        let most = most.ok_or_else(|| {
            format!(
                "{PER_POOL} cartridges of {} cannot hold the tree ({}) and a big file; give a larger --cartridge or a smaller --tree",
                size(cartridge),
                size(tree)
            )
        })?;
        limit(most, format!("a pool has {PER_POOL} cartridges of {}", size(cartridge)));
    }
    let disk_pool = wish.disk_pool.unwrap_or(2 * (big + tree) + RESERVE);
    // Three quarters of the data fill one: writing goes on from one cartridge to the next within a file.
    let cartridge = wish.cartridge.unwrap_or(((big + tree) * 3 / 4).max(SMALLEST_CARTRIDGE));
    Ok(Plan { big, disk_pool, cartridge, notes })
}

/// The tree and the big file are on disk once and on tape twice.
fn most_by_space(wish: &Wish, tree: u64) -> Result<u64, String> {
    let on_disk = |bytes: u64| wish.disk_pool.map_or(bytes, |pool| bytes.min(pool));
    let scratch = if wish.scratch { tree } else { 0 };
    let needed = |big: u64| on_disk(big + tree) + 2 * (big + tree) + scratch + RESERVE;
    if needed(wish.big) <= wish.free {
        return Ok(wish.big);
    }
    if needed(SMALLEST_BIG) > wish.free {
        return Err(format!(
            "{} are free below the state directory, and the tree needs {} (disk once, tape twice, {} left free); \
             give a smaller --tree, or a --state-dir with more space",
            size(wish.free),
            size(needed(SMALLEST_BIG)),
            size(RESERVE)
        ));
    }
    Ok(((wish.free - needed(0)) / 3).max(SMALLEST_BIG))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn wish(free: u64) -> Wish {
        Wish {
            big: 4 * GIB,
            tree_bytes: GIB / 2,
            tree_files: 25_000,
            free,
            disk_pool: None,
            cartridge: None,
            scratch: false,
        }
    }

    #[test]
    fn with_space_nothing_shrinks_and_the_data_needs_more_than_one_cartridge() {
        let plan = plan(&wish(100 * GIB)).unwrap();
        assert_eq!((plan.big, plan.notes.len()), (4 * GIB, 0));
        assert!(plan.cartridge < plan.big && plan.cartridge * PER_POOL > 2 * plan.big);
    }

    #[test]
    fn with_less_space_the_big_file_shrinks_and_all_fits() {
        for free in [5, 6, 9, 14] {
            let plan = plan(&wish(free * GIB)).unwrap();
            assert!(plan.big < 4 * GIB && plan.notes[0].contains("are free"), "{plan:?}");
            assert!(3 * (plan.big + GIB / 2 + 25_000 * PER_FILE) + RESERVE <= free * GIB + 3 * SMALLEST_BIG);
        }
        assert!(plan(&wish(2 * GIB)).unwrap_err().contains("smaller --tree"));
    }

    #[test]
    fn a_small_disk_tier_or_small_cartridges_bound_the_big_file() {
        let small = plan(&Wish { disk_pool: Some(GIB / 4), ..wish(100 * GIB) }).unwrap();
        assert_eq!((small.big, small.disk_pool), (GIB / 10, GIB / 4));
        let small = plan(&Wish { cartridge: Some(GIB), ..wish(100 * GIB) }).unwrap();
        assert!(small.big + GIB / 2 < 3 * GIB && small.big > 2 * GIB && small.cartridge == GIB);
        assert!(plan(&Wish { cartridge: Some(GIB / 10), ..wish(100 * GIB) }).is_err());
    }
}
