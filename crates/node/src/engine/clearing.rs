//! Removing what a move has left in a database.

use super::{class, owner, pending};
use crate::Config;
use crate::error::failure;
use crate::startup::{io, patiently, prepare};
use kv::{Aside, DatabaseOptions, KvError, Role};
use types::ErrorClass;
use wire::Failure;

/// Removes all that the engine at `address` holds, which a move of this node has left or not finished. Its record stays, so that nobody who has used
/// it before can change anything. The node must not run: no move is under way then. Again after a kill, it goes on.
///
/// # Errors
/// The node runs; a move is to be finished first; there is no such engine, or it is one that counts, or of another node.
pub fn clear_engine(config: &Config, address: &str) -> Result<(), Failure> {
    let state = &config.state_dir;
    let fail = |e: KvError| failure(class(&e), e.to_string());
    kv::check_address(address).map_err(fail)?;
    if config.catalog.engine.as_deref() == Some(address) {
        let message = "the catalogue is there (catalog.engine in the configuration); nothing was changed";
        return Err(failure(ErrorClass::Invalid, message));
    }
    let (_lock, _) = patiently(|| prepare(state))?;
    if pending::read(state).map_err(|e| io(state, &e))?.is_some() {
        let message = "a move of the catalogue was interrupted, and which engine counts is decided when the node starts: start it once, then \
                       clear what it does not use. Nothing was changed";
        return Err(failure(ErrorClass::Busy, message));
    }
    let why = "its content was removed by `thermo engine clear`: a catalogue can be moved there".to_owned();
    let mark = Aside { role: Role::Copy, id: uuid::Uuid::new_v4().to_string(), why };
    let mut options = DatabaseOptions::new(&owner(state).map_err(|e| io(state, &e))?);
    (options.create, options.take_over) = (false, false);
    (options.fill, options.clear) = (Some(mark), true);
    kv::open_database(address, options).map(drop).map_err(fail)
}
