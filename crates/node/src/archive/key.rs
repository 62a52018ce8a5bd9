//! Which key a new volume gets: the one that was named for it, that of its pool, or what the configuration says of its pool.

use super::trouble::ours;
use super::worker::Worker;
use tape::{Fault, Key, Keys, TapeError};
use types::{Barcode, Pool, PoolName};

/// The key of a new volume; None: it is not encrypted.
///
/// # Errors
/// There is none of that name: nothing may be written in plain instead.
pub fn choose(
    worker: &Worker,
    barcode: &Barcode,
    pool: Option<&PoolName>,
    named: Option<&str>,
) -> Result<Option<Key>, TapeError> {
    let of_pool = pool.map(|pool| named_for(worker, barcode, pool)).transpose()?.flatten();
    let name = named.map(str::to_owned).or(of_pool);
    let found = match (&worker.node.keys, name, pool) {
        (Some(keys), Some(name), _) => keys.key(&name).map(Some),
        (None, Some(name), _) => {
            Err(format!("key `{name}` is wanted, and encryption.keys does not say where keys are"))
        }
        (Some(keys), None, Some(pool)) => keys.for_pool(pool),
        (_, None, _) => Ok(None),
    };
    found.map_err(|why| {
        let what = format!("it is to be encrypted, and there is no key for it: {why}; nothing was written");
        TapeError { fault: Fault::Key, ..ours(barcode, "labelling it", what) }
    })
}

/// Whether new volumes of a pool are encrypted.
pub fn encrypts(worker: &Worker, barcode: &Barcode, pool: &PoolName) -> Result<bool, TapeError> {
    let configured = worker.node.keys.as_ref().is_some_and(|keys| keys.encrypts(pool));
    Ok(configured || named_for(worker, barcode, pool)?.is_some())
}

/// Name of the key that the pool has been given.
fn named_for(worker: &Worker, barcode: &Barcode, pool: &PoolName) -> Result<Option<String>, TapeError> {
    let pools = worker.node.catalog.pools().map_err(|e| ours(barcode, "looking up its pool", e))?;
    let key = |p: Pool| Some(p.key).filter(|key| !key.is_empty());
    Ok(pools.into_iter().find(|p| p.name == *pool).and_then(key))
}
