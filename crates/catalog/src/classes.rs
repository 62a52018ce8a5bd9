//! Class records by id. A record never changes once written (a changed class gets a new id), so it can be kept in memory.

use crate::rec::{self, MAX_COPIES};
use crate::{CatalogError, Result, keys};
use kv::Reader;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;
use types::{Class, ClassName};

/// Class records seen so far.
#[derive(Default)]
pub struct Classes {
    seen: RwLock<BTreeMap<u32, Arc<Class>>>,
}

impl Classes {
    /// The record with this id. Not to be asked for an id made in the same, uncommitted transaction.
    pub fn get(&self, r: &dyn Reader, id: u32) -> Result<Arc<Class>> {
        if let Some(class) = self.seen.read().get(&id) {
            return Ok(class.clone());
        }
        let class = Arc::new(load(r, id)?);
        self.seen.write().insert(id, class.clone());
        Ok(class)
    }
}

/// Reads a class record by id.
pub fn load(r: &dyn Reader, id: u32) -> Result<Class> {
    let value = r.get(&keys::class_record(id))?;
    let value =
        value.ok_or_else(|| CatalogError::corrupt("class", id, "an inode has it, but it is not there"))?;
    let class: Class = rec::decode("class", id, &value)?;
    if class.copies.len() > usize::from(MAX_COPIES) {
        return Err(CatalogError::corrupt("class", id, "more copies than a class can have"));
    }
    Ok(class)
}

/// Id of the record in force for this name.
pub fn current(r: &dyn Reader, name: &ClassName) -> Result<Option<u32>> {
    let Some(value) = r.get(&keys::class_current(name))? else { return Ok(None) };
    let id = value.as_slice().try_into().map_err(|_| CatalogError::corrupt("class", name, "bad id"))?;
    Ok(Some(u32::from_be_bytes(id)))
}

/// The same; `Missing` if there is no such class.
pub fn require(r: &dyn Reader, name: &ClassName) -> Result<u32> {
    current(r, name)?.ok_or_else(|| CatalogError::missing("class", name))
}
