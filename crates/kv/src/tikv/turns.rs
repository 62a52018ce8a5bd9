//! Nodes that take turns with an engine of a cluster, seen from outside.

use std::time::Duration;

use super::address::Address;
use super::link::{Link, Pair, millis};
use super::{keys, owner};
use crate::merge::Direction;
use crate::patience::{Fault, Patience};
use crate::{Result, Seen, SeenOwner, Taker, Turns};

/// Most nodes that take turns.
const MOST: u32 = 1000;

/// One of them.
pub(crate) struct TikvTurns {
    address: Address,
    name: String,
    link: Option<Link>,
}

impl TikvTurns {
    pub(crate) fn new(address: &str, name: &str) -> Result<Self> {
        Ok(Self { address: Address::parse(address)?, name: name.into(), link: None })
    }

    fn try_tell(&mut self, told: &str) -> Result<Seen, Fault> {
        let link = match self.link.take() {
            Some(link) => link,
            None => Link::open(&self.address)?,
        };
        let seen = tell(&link, &self.name, told)?;
        self.link = Some(link);
        Ok(seen)
    }
}

/// What was told is its time (milliseconds of the cluster's clock), then the text.
fn tell(link: &Link, name: &str, told: &str) -> Result<Seen, Fault> {
    let mut txn = link.begin()?;
    let now = millis(&txn.start_timestamp());
    let Some(found) = owner::read(link, &mut txn)? else {
        link.run(async { txn.rollback().await })?;
        return Ok(Seen::default());
    };
    let lease = link.get_in(&mut txn, link.names.lease())?.map_or(0, |bytes| keys::number(&bytes));
    let reached = found.place(link.get_in(&mut txn, link.names.mark())?.as_deref()).reached;
    let owner = SeenOwner { name: found.name, reached, live: now < lease };
    let value = [&now.to_be_bytes()[..], told.as_bytes()].concat();
    link.run(async {
        txn.put(link.names.told(name), value).await?;
        txn.commit().await
    })?;
    let (from, to) = link.names.all_told();
    let pairs = link.page(&link.now()?, (&from, &to), Direction::Up, MOST)?;
    let taker = |(key, value): Pair| {
        let name = String::from_utf8_lossy(link.names.teller(&key)?).into_owned();
        let (at, text) = value.split_first_chunk()?;
        let ago = Duration::from_millis(now.saturating_sub(u64::from_be_bytes(*at)));
        Some(Taker { name, told: String::from_utf8_lossy(text).into_owned(), ago })
    };
    Ok(Seen { owner: Some(owner), takers: pairs.into_iter().filter_map(taker).collect() })
}

impl Turns for TikvTurns {
    fn tell(&mut self, told: &str) -> Result<Seen> {
        loop {
            match self.try_tell(told) {
                Ok(seen) => return Ok(seen),
                Err(fault) => Patience::new(Duration::ZERO).after(&self.address, fault)?,
            }
        }
    }
}
