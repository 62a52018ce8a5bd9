//! Compares the catalogue with itself: what the engine has stored with what was written, then every index, sum and
//! reverse link with the records that it follows from. Reads one snapshot, so it is exact however busy the catalogue is.

mod archive;
mod names;
mod requests;

use crate::store::View;
use crate::{Catalog, Result, keys};
use kv::KvError;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// Pairs held in memory at a time.
const BATCH: usize = 2000;
/// Findings told; of the others only their number.
const MOST_FINDINGS: usize = 1000;

/// Everything that disagrees, as text for people; empty when all is well. Memory grows with users, pools and classes,
/// not with files (but for a bit or so per file of one volume at a time).
pub fn verify(catalog: &Catalog) -> Vec<String> {
    let stored = catalog.engine().verify().err().map(|e| e.to_string());
    let findings = catalog.read(|view| Ok(verify_snapshot(view)));
    stored.into_iter().chain(findings.unwrap_or_else(|e| vec![e.to_string()])).collect()
}

fn verify_snapshot(view: View<'_>) -> Vec<String> {
    let mut check =
        Check { view, findings: Vec::new(), untold: 0, sums: BTreeMap::new(), counts: BTreeMap::new() };
    let parts: [fn(&mut Check<'_>) -> Result<()>; 11] = [
        names::inodes,
        names::gone,
        names::entries,
        names::marks,
        names::stale,
        names::junctions,
        archive::volumes,
        archive::versions,
        archive::parts,
        requests::requests,
        |c| c.compare_sums(),
    ];
    for part in parts {
        if let Err(e) = part(&mut check) {
            check.find(e);
        }
    }
    if check.untold > 0 {
        check.findings.push(format!("{} more findings are not told", check.untold));
    }
    check.findings
}

/// A check under way.
struct Check<'a> {
    view: View<'a>,
    findings: Vec<String>,
    /// Findings beyond [`MOST_FINDINGS`].
    untold: u64,
    /// What the sums must be.
    sums: BTreeMap<Vec<u8>, i64>,
    /// How many keys each index must have.
    counts: BTreeMap<u8, u64>,
}

type Pair = (Vec<u8>, Vec<u8>);

impl Check<'_> {
    fn find(&mut self, text: impl ToString) {
        if self.findings.len() < MOST_FINDINGS {
            self.findings.push(text.to_string());
        } else {
            self.untold += 1;
        }
    }

    fn expect(&mut self, right: bool, text: impl FnOnce() -> String) {
        if !right {
            self.find(text());
        }
    }

    fn read<T>(&self, f: impl Fn(View<'_>) -> Result<T>) -> Result<T> {
        f(self.view)
    }

    fn has(&self, key: &[u8]) -> Result<bool> {
        self.read(|v| Ok(v.r.get(key)?.is_some()))
    }

    fn add(&mut self, key: Vec<u8>, n: i64) {
        *self.sums.entry(key).or_default() += n;
    }

    /// Calls `each` for every pair below `prefix`.
    fn table(&mut self, prefix: &[u8], mut each: impl FnMut(&mut Self, Pair) -> Result<()>) -> Result<()> {
        let to = keys::end(prefix);
        let mut from = prefix.to_vec();
        loop {
            let (batch, damaged) = self.read(|v| pairs(v, &from, &to))?;
            // The engine's own check tells of the damaged value.
            let Some(last) = damaged.as_ref().or(batch.last().map(|(key, _)| key)) else { return Ok(()) };
            from = keys::after(last);
            for pair in batch {
                if let Err(e) = each(self, pair) {
                    self.find(e);
                }
            }
        }
    }

    fn compare_sums(&mut self) -> Result<()> {
        let mut expected = std::mem::take(&mut self.sums);
        self.table(&[keys::SUM], |c, (key, value)| {
            let is = crate::store::counter_value(&value)?;
            let want = expected.remove(&key).unwrap_or(0);
            c.expect(is == want, || format!("sum {key:02x?} is {is}, but its inodes make {want}"));
            Ok(())
        })?;
        for (key, want) in expected.into_iter().filter(|(_, n)| *n != 0) {
            self.find(format!("sum {key:02x?} is missing, but its inodes make {want}"));
        }
        let indexes = [
            (keys::OBJECT, "objects"),
            (keys::CANDIDATE, "candidates"),
            (keys::PURGE, "purge order"),
            (keys::PURGE_FAR, "purge order of targets"),
            (keys::MEND, "files to mend"),
        ];
        for (table, name) in indexes {
            let mut is = 0;
            self.table(&[table], |_, _| {
                is += 1;
                Ok(())
            })?;
            let want = self.counts.get(&table).copied().unwrap_or(0);
            self.expect(is == want, || format!("index {name} has {is} keys, but inodes make {want}"));
        }
        Ok(())
    }
}

/// The next pairs, and the key of the value that ends them because it is damaged.
fn pairs(view: View<'_>, from: &[u8], to: &[u8]) -> Result<(Vec<Pair>, Option<Vec<u8>>)> {
    let mut found = Vec::new();
    let scanned = view.r.scan(from, to, &mut |k, v| {
        found.push((k.to_vec(), v.to_vec()));
        if found.len() < BATCH { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    match scanned {
        Err(KvError::BadValue { key, .. }) => Ok((found, Some(key))),
        other => Ok(other.map(|()| (found, None))?),
    }
}
