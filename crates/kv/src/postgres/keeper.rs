//! What goes on beside the work: the lease is renewed. Nothing else is done here, so that nothing makes it late.

use std::time::Duration;

use super::connection::Conn;
use super::{Core, owner};
use crate::patience::Fault;
use crate::{KvError, lease};

/// Renews the lease until the engine is dropped, and then gives it back.
pub(super) fn hold(core: &Core) {
    let mut conn = None;
    while core.pause(core.options.lease / lease::RENEWALS) {
        let sent = lease::now();
        match renew(core, &mut conn) {
            Ok(()) => core.lease.renewed(sent),
            Err(Fault::Failed(KvError::Taken { .. })) => return, // whoever writes is told
            Err(_) => conn = None,                               // tried again in a moment
        }
    }
    if let Some(conn) = conn.or_else(|| Conn::open(&core.server).ok()) {
        let _ = owner::renew(&core.server, &conn, Duration::ZERO); // otherwise it ends by itself
    }
}

fn connected<'c>(core: &Core, conn: &'c mut Option<Conn>) -> Result<&'c Conn, Fault> {
    if conn.as_ref().is_none_or(|c| c.client.is_closed()) {
        *conn = Some(Conn::open(&core.server)?);
    }
    conn.as_ref().ok_or_else(|| Fault::Lost("not connected".into()))
}

fn renew(core: &Core, conn: &mut Option<Conn>) -> Result<(), Fault> {
    owner::renew(&core.server, connected(core, conn)?, core.options.lease)
}
