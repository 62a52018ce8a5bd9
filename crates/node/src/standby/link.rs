//! A connection of a node to its standby.

use super::PROGRAM;
use super::ledger::Record;
use crate::Config;
use crate::cluster::member_id;
use crate::error::failure;
use ident::{Connector, Credentials};
use kv::standby::{Feed, Step};
use std::net::TcpStream;
use std::time::Duration;
use types::{ErrorClass, MemberId, NodeId};
use wire::{
    Call, Channel, Failure, KeptFile, MAX_PART, Reply, StandbyAnswer, StandbyPromise, StandbyStep, WireError,
};

/// Longest silence of the other end.
const MOST: Duration = Duration::from_secs(10);

pub(super) struct Link {
    channel: Channel,
    calls: u64,
    /// Number of the node at the other end.
    pub(super) node: u32,
    /// To end it from another thread.
    pub(super) socket: TcpStream,
}

impl Link {
    /// To the first address of the standby where a node answers; while something is promised, only to the one that was promised it.
    pub(super) fn to(config: &Config, record: &Record) -> Result<Self, Failure> {
        let told = |e: ident::IdentError| failure(e.class(), e.to_string());
        let credentials = credentials(config)?;
        let whom = record.promise.as_ref().and(record.standby);
        // Nothing is acknowledged without it, so it gets no new certificate before it is fed either.
        let ended = whom.map(|whom| crate::cluster::certificates_of(&config.state_dir, whom));
        let ended = ended.transpose().unwrap_or_else(|e| {
            tracing::debug!("the standby is not believed once its certificate has ended: {e}");
            None
        });
        let connector = Connector::member_knowing(&credentials, &ended.unwrap_or_default()).map_err(told)?;
        let mut last = failure(ErrorClass::Invalid, "no address of the standby is known (standby.to)");
        for address in &config.standby.to {
            match Self::at(&connector, address, config.standby.lease().min(MOST), whom) {
                Ok(link) => return Ok(link),
                Err(e) => last = failure(e.class, format!("{address}: {}", e.message)),
            }
        }
        Err(last)
    }

    fn at(
        connector: &Connector,
        address: &str,
        patience: Duration,
        whom: Option<u32>,
    ) -> Result<Self, Failure> {
        let stream = connector.connect(address).map_err(|e| failure(e.class(), e.to_string()))?;
        let Some(MemberId::Node(NodeId(node))) = stream.peer().map(|(identity, _)| member_id(identity.role))
        else {
            return Err(failure(ErrorClass::Invalid, "that is no node"));
        };
        if let Some(whom) = whom.filter(|whom| *whom != node) {
            let message = format!(
                "that is node {node}, and node {whom} was promised that nothing is acknowledged without it: give that standby up first \
                 (mode = \"follow\", and start this node once while node {whom} runs)"
            );
            return Err(failure(ErrorClass::Invalid, message));
        }
        let limit = stream.socket().set_read_timeout(Some(patience));
        limit.and_then(|()| stream.socket().set_write_timeout(Some(patience))).map_err(|e| lost(e.into()))?;
        let socket = stream.socket().try_clone().map_err(|e| lost(e.into()))?;
        let channel = Channel::over(Box::new(stream), PROGRAM).map_err(lost)?;
        Ok(Self { channel, calls: 0, node, socket })
    }

    /// Brings files there.
    pub(super) fn keep(&mut self, files: Vec<KeptFile>) -> Result<(), Failure> {
        self.calls += 1;
        self.channel.send_call(self.calls, &Call::StandbyKeep(files)).map_err(lost)?;
        self.channel.receive_result().map_err(lost)?.result.map(drop)
    }

    /// Brings a step there, in parts, and returns what the last one is answered with. The outer result is that of the connection, the inner one what the
    /// other end says.
    pub(super) fn exchange(
        &mut self,
        step: &Step,
        (epoch, promise): (u64, Option<&StandbyPromise>),
        feed: &Feed,
        config: &Config,
    ) -> Result<Result<StandbyAnswer, Failure>, Failure> {
        let bytes = step.encode();
        let health = feed.health();
        let mut offset = 0;
        loop {
            let part = &bytes[offset..bytes.len().min(offset + MAX_PART)];
            let call = StandbyStep {
                epoch,
                lease_ms: config.standby.lease().as_millis() as u32,
                promise: promise.cloned(),
                last: health.last,
                last_ms: health.last_ms,
                offset: offset as u32,
                total: bytes.len() as u32,
                bytes: part.to_vec(),
            };
            offset += part.len();
            self.calls += 1;
            self.channel.send_call(self.calls, &Call::StandbyStep(call)).map_err(lost)?;
            let answer = match self.channel.receive_result().map_err(lost)?.result {
                Ok(Reply::StandbyState(answer)) => *answer,
                Ok(_) => {
                    return Err(failure(ErrorClass::Bug, "a standby was fed, and something else answered"));
                }
                Err(said) => return Ok(Err(said)),
            };
            if offset >= bytes.len() || answer.serves || answer.epoch > epoch {
                return Ok(Ok(answer));
            }
        }
    }
}

/// As they are on disk: they are renewed while the node runs.
pub(super) fn credentials(config: &Config) -> Result<Credentials, Failure> {
    crate::cluster::credentials(&config.state_dir)?.ok_or_else(|| {
        let message = "[standby]: this node belongs to no cluster yet. The node that is followed: start it without [standby], make one (`thermo \
                       cluster init`), let the standby join it, and start it again with [standby]. The standby: `thermo cluster join` first";
        failure(ErrorClass::Invalid, message)
    })
}

fn lost(e: WireError) -> Failure {
    failure(e.class(), e.to_string())
}
