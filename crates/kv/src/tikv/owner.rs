//! Who uses an engine of a cluster. One node at a time: it knows what it has committed, and so does not ask for locks. A lease says who;
//! what makes it certain is that every transaction changes the mark, and that whoever takes over changes it too.

use tikv_client::Transaction;

use super::link::{Link, millis};
use crate::patience::Fault;
use crate::{Aside, DatabaseOptions, KvError, Place, Reached, Result};

/// First line of the owner's record: what the stored form is; of an engine that was set aside its mark follows.
const FORMAT: &str = "thermo tikv engine 1";
const ASIDE: &str = "thermo tikv engine 1 aside ";

/// The owner's record.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) epoch: u64,
    pub(super) name: String,
    /// None: it counts.
    pub(super) aside: Option<Aside>,
}

impl Owner {
    fn encode(&self) -> Vec<u8> {
        let format = self.aside.as_ref().map_or_else(|| FORMAT.into(), |mark| format!("{ASIDE}{mark}"));
        format!("{format}\n{}\n{}\n", self.epoch, self.name).into_bytes()
    }

    /// Where the engine is that has this mark.
    pub(super) fn place(&self, mark: Option<&[u8]>) -> Place {
        let mark = mark.and_then(Mark::decode).filter(|mark| mark.epoch == self.epoch);
        let reached = Reached { epoch: self.epoch, number: mark.map_or(0, |mark| mark.number) };
        Place { reached, owner: self.name.clone() }
    }

    /// Reads a record; what it says instead if it is none.
    fn decode(bytes: &[u8]) -> Result<Self, String> {
        let text = String::from_utf8_lossy(bytes);
        let mut lines = text.lines();
        let format = lines.next().unwrap_or_default();
        let epoch = lines.next().and_then(|line| line.parse().ok());
        let aside = format.strip_prefix(ASIDE).and_then(Aside::parse);
        match (epoch, lines.next()) {
            (Some(epoch), Some(name)) if format == FORMAT || aside.is_some() => {
                Ok(Self { epoch, name: name.into(), aside })
            }
            _ => Err(format.chars().take(80).collect()),
        }
    }
}

/// The number of an owner's last transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) epoch: u64,
    pub(super) number: u64,
}

impl Mark {
    pub(super) fn next(self) -> Self {
        Self { number: self.number + 1, ..self }
    }

    pub(super) fn encode(self) -> Vec<u8> {
        [self.epoch.to_be_bytes(), self.number.to_be_bytes()].concat()
    }

    /// Reads a mark.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (epoch, number) = bytes.split_first_chunk()?;
        Some(Self { epoch: u64::from_be_bytes(*epoch), number: u64::from_be_bytes(number.try_into().ok()?) })
    }
}

/// Who owns the engine at the transaction's beginning.
pub(super) fn read(link: &Link, txn: &mut Transaction) -> Result<Option<Owner>, Fault> {
    let Some(bytes) = link.get_in(txn, link.names.owner())? else { return Ok(None) };
    let known = FORMAT.into();
    let owner = Owner::decode(&bytes).map_err(|found| KvError::Format { path: link.path(), found, known })?;
    Ok(Some(owner))
}

/// Becomes the owner; the mark that the next transaction finds.
pub(super) fn take(link: &Link, options: &DatabaseOptions) -> Result<Mark, Fault> {
    let mut txn = link.begin()?;
    let now = millis(&txn.start_timestamp());
    let (epoch, found) = match read(link, &mut txn)? {
        None if !options.create => return Err(KvError::Absent { path: link.path() }.into()),
        None => (1, None),
        Some(owner) => {
            let lease = link.get_in(&mut txn, link.names.lease())?;
            let until = lease.and_then(|bytes| Some(u64::from_be_bytes(bytes.try_into().ok()?)));
            options.may_follow(link.path(), owner.name.clone(), until.is_some_and(|until| now < until))?;
            let mark = link.get_in(&mut txn, link.names.mark())?;
            options.may_go_on_from(link.path(), &owner.place(mark.as_deref()))?;
            options.may_open(link.path(), owner.aside.clone())?;
            (owner.epoch + 1, owner.aside)
        }
    };
    // What was set aside stays so until somebody says otherwise.
    let aside = options.fill.clone().or(found);
    let (owner, mark) = (Owner { epoch, name: options.owner.clone(), aside }, Mark { epoch, number: 0 });
    link.run(async {
        txn.put(link.names.mark(), mark.encode()).await?;
        txn.put(link.names.owner(), owner.encode()).await?;
        txn.put(link.names.lease(), until(now, options)).await?;
        txn.commit().await
    })?;
    Ok(mark)
}

fn until(now: u64, options: &DatabaseOptions) -> Vec<u8> {
    // A lease has fewer milliseconds than a clock.
    (now + options.lease.as_millis() as u64).to_be_bytes().to_vec()
}

/// Says that the owner of this epoch lives, or (`ends`) does not use the engine any more; an error once another one has taken over.
pub(super) fn renew(link: &Link, options: &DatabaseOptions, epoch: u64, ends: bool) -> Result<(), Fault> {
    let mut txn = link.begin()?;
    let now = millis(&txn.start_timestamp());
    is_ours(link, &mut txn, epoch)?;
    let lease = if ends { now.to_be_bytes().to_vec() } else { until(now, options) };
    link.run(async {
        txn.put(link.names.lease(), lease).await?;
        txn.commit().await
    })?;
    Ok(())
}

/// Writes down whether the engine of this epoch is set aside.
pub(super) fn set_aside(link: &Link, epoch: u64, mark: Option<&Aside>) -> Result<(), Fault> {
    let mut txn = link.begin()?;
    let owner = Owner { aside: mark.cloned(), ..is_ours(link, &mut txn, epoch)? };
    link.run(async {
        txn.put(link.names.owner(), owner.encode()).await?;
        txn.commit().await
    })?;
    Ok(())
}

/// The owner's record; an error if another one owns the engine.
pub(super) fn is_ours(link: &Link, txn: &mut Transaction, epoch: u64) -> Result<Owner, Fault> {
    match read(link, txn)? {
        Some(owner) if owner.epoch == epoch => Ok(owner),
        Some(owner) => Err(KvError::Taken { path: link.path(), by: owner.name }.into()),
        None => Err(KvError::Absent { path: link.path() }.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        let why = "moved to /a".to_owned();
        let aside = Aside { role: crate::Role::Left, id: "7-1".into(), why };
        for aside in [None, Some(aside)] {
            let owner = Owner { epoch: 7, name: "host 1".into(), aside };
            assert_eq!(Owner::decode(&owner.encode()), Ok(owner));
        }
        assert!(Owner::decode(b"thermo tikv engine 1 aside 3\n7\nx\n").is_err());
        assert_eq!(Owner::decode(b"thermo tikv engine 2\n7\nx\n"), Err("thermo tikv engine 2".into()));
        assert!(Owner::decode(b"").is_err() && Owner::decode(&[255, 10, 49]).is_err());
        let mark = Mark { epoch: 3, number: 9 };
        assert_eq!(Mark::decode(&mark.next().encode()), Some(Mark { epoch: 3, number: 10 }));
        assert_eq!(Mark::decode(b"short"), None);
    }
}
