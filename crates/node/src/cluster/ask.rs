//! Questions to other nodes of the cluster.

use super::{Own, told};
use crate::error::failure;
use ident::Connector;
use std::time::Duration;
use types::{ErrorClass, MemberId};
use wire::{Call, Channel, Failure, Reply, WireError};

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(10);
const PROGRAM: &str = concat!("thermo ", env!("CARGO_PKG_VERSION"));

impl Own {
    /// Asks as [`ask`] does.
    pub(crate) fn ask(
        &self,
        addresses: &[String],
        whom: Option<MemberId>,
        call: &Call,
    ) -> Result<Reply, Failure> {
        ask(&self.connector, addresses, whom, call)
    }
}

/// Asks the first of those addresses (`host:port`) where a node answers; it must be this one, if it matters which. One that says that it may answer
/// later (a standby) is passed over.
pub(super) fn ask(
    connector: &Connector,
    addresses: &[String],
    whom: Option<MemberId>,
    call: &Call,
) -> Result<Reply, Failure> {
    let mut last = failure(ErrorClass::Invalid, "no address of another node is known");
    for address in addresses {
        match ask_at(connector, address, whom, call) {
            Ok(Err(later)) if later.class == ErrorClass::Retry => last = later,
            Ok(answer) => return answer,
            Err(e) => last = failure(e.class, format!("{address}: {}", e.message)),
        }
    }
    Err(last)
}

/// The outer result is that of reaching it, the inner one its answer.
fn ask_at(
    connector: &Connector,
    address: &str,
    whom: Option<MemberId>,
    call: &Call,
) -> Result<Result<Reply, Failure>, Failure> {
    let stream = connector.connect(address).map_err(told)?;
    let found = stream.peer().map(|(identity, _)| super::member_id(identity.role));
    if whom.is_some() && found != whom {
        let other = found.map_or("somebody else".into(), |id| id.to_string());
        return Err(failure(ErrorClass::Invalid, format!("that is {other}")));
    }
    let lost = |e: WireError| failure(e.class(), e.to_string());
    stream.socket().set_read_timeout(Some(PATIENCE)).map_err(|e| lost(e.into()))?;
    let mut channel = Channel::over(Box::new(stream), PROGRAM).map_err(lost)?;
    channel.send_call(1, call).map_err(lost)?;
    Ok(channel.receive_result().map_err(lost)?.result)
}
