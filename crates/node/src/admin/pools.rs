//! What a pool writes with, and what of it is away.

use crate::Node;
use crate::error::refused;
use std::collections::BTreeSet;
use tape::Keys;
use types::*;
use wire::Failure;

impl Node {
    /// Keys are looked up now: it may take a while where a program gives them.
    pub(super) fn pool_keys(&self) -> Result<Vec<PoolKeyView>, Failure> {
        let fail = |e| refused("pools", &e);
        let volumes = self.catalog.volumes().map_err(fail)?;
        let present = self.present();
        let view = |pool: Pool| {
            let mine = volumes.iter().filter(|v| v.pool.as_ref() == Some(&pool.name));
            let absent = mine.filter(|v| !present.contains(&v.barcode)).count() as u64;
            let (key, problem) = match self.writes_with(&pool) {
                Ok(key) => (key, None),
                Err(why) => (Some(pool.key.clone()).filter(|key| !key.is_empty()), Some(why)),
            };
            let by_configuration = pool.key.is_empty() && (key.is_some() || problem.is_some());
            PoolKeyView { name: pool.name, key, by_configuration, problem, absent }
        };
        Ok(self.catalog.pools().map_err(fail)?.into_iter().map(view).collect())
    }

    /// Volumes that are in a library.
    pub(super) fn present(&self) -> BTreeSet<Barcode> {
        let elements = self.archive.view().libraries.into_iter().flat_map(|library| library.elements);
        elements.filter_map(|element| element.barcode).collect()
    }

    /// Name of the key that the next new volume of a pool gets, if it can be had.
    fn writes_with(&self, pool: &Pool) -> Result<Option<String>, String> {
        match &self.keys {
            None if pool.key.is_empty() => Ok(None),
            None => Err("encryption.keys in the configuration does not say where keys are".into()),
            Some(keys) if pool.key.is_empty() => {
                let key = keys.for_pool(&pool.name)?;
                Ok(key.map(|key| key.name().to_owned()))
            }
            Some(keys) => keys.key(&pool.key).map(|key| Some(key.name().to_owned())),
        }
    }
}
