//! What a follower is told to do next, and the bytes of that (`docs/formats/engine.md`).

use super::{Batch, Content, Lineage};
use crate::lmdb::batch::whole;

const BEGIN: u8 = 0;
const BATCH: u8 = 1;
const PAGE: u8 = 2;
const IDLE: u8 = 3;

/// What a follower is told to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Begin a copy of everything, behind batch `number`.
    Begin {
        /// Of this history.
        lineage: Lineage,
        /// Behind this batch.
        number: u64,
    },
    /// Apply a batch.
    Batch(Lineage, Batch),
    /// Take a part of the copy.
    Page(Lineage, Page),
    /// Nothing is to be done.
    Idle,
}

/// A part of the copy: all keys of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Begins here.
    pub(crate) from: Vec<u8>,
    /// Ends before this key; None: it is the last.
    pub(crate) to: Option<Vec<u8>>,
    /// As of the batch with the number in `pairs`; counted with the last page only.
    pub(crate) content: Content,
    /// Keys and values, as a batch.
    pub(crate) pairs: Vec<u8>,
}

impl Page {
    /// The last batch that is in it.
    pub(crate) fn number(&self) -> u64 {
        whole(&self.pairs).map_or(0, |batch| batch.number)
    }
}

impl Step {
    /// The bytes that travel.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Begin { lineage, number } => {
                out.push(BEGIN);
                out.extend(lineage);
                out.extend(number.to_le_bytes());
            }
            Self::Batch(lineage, batch) => {
                out.push(BATCH);
                out.extend(lineage);
                put_content(&mut out, batch.content);
                out.extend(&batch.bytes);
            }
            Self::Page(lineage, page) => {
                out.push(PAGE);
                out.extend(lineage);
                put_content(&mut out, page.content);
                put_key(&mut out, &page.from);
                out.push(page.to.is_some().into());
                put_key(&mut out, page.to.as_deref().unwrap_or_default());
                out.extend(&page.pairs);
            }
            Self::Idle => out.push(IDLE),
        }
        out
    }

    /// What these bytes say; None if they are not what was sent.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let kind = take::<1>(&mut rest)?[0];
        if kind == IDLE {
            return rest.is_empty().then_some(Self::Idle);
        }
        let lineage = take::<16>(&mut rest)?;
        match kind {
            BEGIN => {
                let number = u64::from_le_bytes(take(&mut rest)?);
                rest.is_empty().then_some(Self::Begin { lineage, number })
            }
            BATCH => {
                let content = content(&mut rest)?;
                let number = whole(rest)?.number;
                Some(Self::Batch(lineage, Batch { number, content, bytes: rest.to_vec() }))
            }
            PAGE => {
                let content = content(&mut rest)?;
                let from = key(&mut rest)?;
                let more = take::<1>(&mut rest)?[0];
                let to = key(&mut rest)?;
                whole(rest)?;
                let to = match (more, to.is_empty()) {
                    (0, true) => None,
                    (1, false) => Some(to),
                    _ => return None,
                };
                Some(Self::Page(lineage, Page { from, to, content, pairs: rest.to_vec() }))
            }
            _ => None,
        }
    }
}

fn put_content(out: &mut Vec<u8>, content: Content) {
    out.extend(content.keys.to_le_bytes());
    out.extend(content.sum.to_le_bytes());
}

fn put_key(out: &mut Vec<u8>, key: &[u8]) {
    out.extend((key.len() as u16).to_le_bytes());
    out.extend(key);
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, after) = rest.split_first_chunk::<N>()?;
    *rest = after;
    Some(*first)
}

fn content(rest: &mut &[u8]) -> Option<Content> {
    let keys = u64::from_le_bytes(take(rest)?);
    Some(Content { keys, sum: u32::from_le_bytes(take(rest)?) })
}

fn key(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let length = u16::from_le_bytes(take(rest)?);
    let (key, after) = rest.split_at_checked(length.into())?;
    *rest = after;
    Some(key.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lmdb::batch::Writing;

    fn steps() -> Vec<Step> {
        let mut writing = Writing::default();
        writing.change(b"a", Some(b"1"));
        writing.change(b"b", None);
        let bytes = writing.finish(7, 8);
        let content = Content { keys: 3, sum: 4 };
        let page = |to| Page { from: b"a".to_vec(), to, content, pairs: bytes.clone() };
        vec![
            Step::Begin { lineage: [9; 16], number: 5 },
            Step::Batch([9; 16], Batch { number: 7, content, bytes: bytes.clone() }),
            Step::Page([9; 16], page(Some(b"c".to_vec()))),
            Step::Page([9; 16], page(None)),
            Step::Idle,
        ]
    }

    #[test]
    fn steps_come_back_and_torn_or_changed_ones_do_not() {
        for step in steps() {
            let bytes = step.encode();
            assert_eq!(Step::decode(&bytes), Some(step.clone()));
            for end in 0..bytes.len() {
                assert_eq!(Step::decode(&bytes[..end]), None, "{step:?} cut to {end}");
            }
            assert_eq!(Step::decode(&[bytes.as_slice(), &[0]].concat()), None, "{step:?}");
            for at in 0..bytes.len() {
                let mut bad = bytes.clone();
                bad[at] ^= 0x40;
                assert_ne!(Step::decode(&bad), Some(step.clone()), "{step:?}, byte {at}"); // no panic
            }
        }
    }
}
