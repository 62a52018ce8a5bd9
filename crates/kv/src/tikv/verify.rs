//! Reading everything.

use std::ops::ControlFlow;
use std::time::Instant;

use super::keys;
use super::link::Link;
use crate::merge::Direction;
use crate::patience::{Fault, Patience};
use crate::{KvError, Result};

/// Names asked for at once.
const PAGE: u32 = 512;

/// Every value is the one that was stored, and there are no pieces but those of values.
pub(super) fn verify(engine: &super::TikvEngine, link: &Link) -> Result<()> {
    crate::Engine::read_dyn(engine, &mut |r| {
        r.scan(&[], &[255; crate::MAX_KEY + 1], &mut |_, _| ControlFlow::Continue(()))
    })?;
    let mut patience = Patience::new(engine.core.options.patience);
    loop {
        match count(link) {
            Ok((expected, found)) if expected == found => return Ok(()),
            Ok((expected, found)) => {
                let detail = format!("large values have {expected} pieces, {found} are stored");
                return Err(KvError::Corrupt { path: link.path(), detail });
            }
            Err(fault) => patience.after(&link.address, fault)?,
        }
    }
}

/// How many pieces values have, and how many there are, at one moment.
fn count(link: &Link) -> Result<(u64, u64), Fault> {
    let (asked, at) = (Instant::now(), link.now()?);
    let (mut expected, mut found) = (0, 0);
    let data = (link.names.data(&[]), link.names.data(&[255; crate::MAX_KEY + 1]));
    for (range, stored) in [(data, true), (link.names.pieces(), false)] {
        let (mut from, to) = range;
        loop {
            let page = link.page(&at, (&from, &to), Direction::Up, PAGE)?;
            link.has_kept(&at, asked)?;
            match stored {
                true => {
                    expected += page.iter().filter_map(|(_, v)| keys::pieces(v)).map(u64::from).sum::<u64>()
                }
                false => found += page.len() as u64,
            }
            let Some((last, _)) = page.last().filter(|_| page.len() == PAGE as usize) else { break };
            from = [last, &[0][..]].concat();
        }
    }
    Ok((expected, found))
}
