//! What the store must hold: for each table, that is for all keys with the same first byte, how many there are and the
//! sum of their sums. Kept in the store itself, in a record that every flush writes in its own transaction.

use std::collections::BTreeMap;

use super::sealed;
use crate::MAX_KEY;
use crate::standby::Content;

/// Key of the record: one byte longer than keys may be and behind all of them, so that no scan meets it.
pub(super) const RECORD_KEY: [u8; MAX_KEY + 1] = [0xff; MAX_KEY + 1];
/// Bytes of the transaction's number, and of one table.
const HEAD: usize = 8;
const ENTRY: usize = 17;

/// Keys of one table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Table {
    keys: u64,
    /// Sum of the sums of its pairs, wrapping.
    sum: u64,
}

/// All tables by the first byte of their keys; those without keys are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tables(BTreeMap<u8, Table>);

impl Tables {
    /// A pair with `sum` is entered. Keys are never empty.
    pub(super) fn add(&mut self, key: &[u8], sum: u32) {
        let table = self.0.entry(key[0]).or_default();
        table.keys = table.keys.wrapping_add(1);
        table.sum = table.sum.wrapping_add(sum.into());
    }

    /// A pair with `sum` is removed.
    pub(super) fn remove(&mut self, key: &[u8], sum: u32) {
        let table = self.0.entry(key[0]).or_default();
        table.keys = table.keys.wrapping_sub(1);
        table.sum = table.sum.wrapping_sub(sum.into());
        if *table == Table::default() {
            self.0.remove(&key[0]);
        }
    }

    /// Adds all pairs of `other`.
    pub(super) fn merge(&mut self, other: &Self) {
        for (first, table) in &other.0 {
            let mine = self.0.entry(*first).or_default();
            mine.keys = mine.keys.wrapping_add(table.keys);
            mine.sum = mine.sum.wrapping_add(table.sum);
        }
    }

    /// Number of keys.
    pub(super) fn keys(&self) -> u64 {
        self.0.values().fold(0, |n, table| n.wrapping_add(table.keys))
    }

    /// All tables but the one of keys that begin with `except`, short.
    pub(super) fn content(&self, except: u8) -> Content {
        let mut rest = self.clone();
        rest.0.remove(&except);
        Content { keys: rest.keys(), sum: crc32c::crc32c(&rest.encode(0)) }
    }

    /// How `found` differs from this, for people; `None` if it does not.
    pub(super) fn difference(&self, found: &Self) -> Option<String> {
        let first = (0..=u8::MAX).find(|t| self.0.get(t) != found.0.get(t))?;
        let keys = |tables: &Self| tables.0.get(&first).map_or(0, |t| t.keys);
        let (want, is) = (keys(self), keys(found));
        Some(if want == is {
            format!("table {first:02x} has its {want} keys, but some have an older value")
        } else {
            format!("table {first:02x} has {is} keys of {want}")
        })
    }

    /// The record's value, of transaction `txn`.
    pub(super) fn encode(&self, txn: u64) -> Vec<u8> {
        let mut out = txn.to_le_bytes().to_vec();
        for (first, table) in &self.0 {
            out.push(*first);
            out.extend(table.keys.to_le_bytes());
            out.extend(table.sum.to_le_bytes());
        }
        out
    }

    /// Reads what is stored at [`RECORD_KEY`]: the number of its transaction, and the tables.
    pub(super) fn decode(sealed: &[u8]) -> Option<(u64, Self)> {
        let (txn, entries) = sealed::open(&RECORD_KEY, sealed)?.split_first_chunk::<HEAD>()?;
        let number = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_le_bytes);
        let mut tables = BTreeMap::new();
        for entry in entries.chunks(ENTRY) {
            let (first, counts) = entry.split_first()?;
            let (keys, sum) = counts.split_at_checked(8)?;
            tables.insert(*first, Table { keys: number(keys)?, sum: number(sum)? });
        }
        Some((u64::from_le_bytes(*txn), Self(tables)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sealed(tables: &Tables, txn: u64) -> Vec<u8> {
        let mut out = Vec::new();
        sealed::seal(&RECORD_KEY, &tables.encode(txn), &mut out);
        out
    }

    proptest! {
        #[test]
        fn records_come_back_and_damaged_ones_do_not(
            pairs in proptest::collection::vec((any::<u8>(), any::<u32>()), 0..50),
            txn in any::<u64>(),
            bytes in proptest::collection::vec(any::<u8>(), 0..80),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut tables = Tables::default();
            pairs.iter().for_each(|(first, sum)| tables.add(&[*first], *sum));
            let record = sealed(&tables, txn);
            prop_assert_eq!(Tables::decode(&record[..cut.index(record.len())]), None);
            prop_assert_eq!(Tables::decode(&record), Some((txn, tables.clone())));
            // any bytes with a right sum: no panic
            let mut any = Vec::new();
            sealed::seal(&RECORD_KEY, &bytes, &mut any);
            let _ = Tables::decode(&any);
            pairs.iter().for_each(|(first, sum)| tables.remove(&[*first], *sum));
            prop_assert_eq!(tables, Tables::default());
        }
    }

    #[test]
    fn differences_name_their_table() {
        let (mut want, mut is) = (Tables::default(), Tables::default());
        want.add(b"a1", 1);
        want.add(b"b1", 2);
        is.merge(&want);
        assert_eq!(want.difference(&is), None);
        is.remove(b"b1", 2);
        assert_eq!(want.difference(&is).unwrap(), "table 62 has 0 keys of 1");
        is.add(b"b1", 3);
        assert!(want.difference(&is).unwrap().contains("older value"));
        assert_eq!((want.keys(), is.keys()), (2, 2));
    }
}
