//! The way to a cluster: TiKV's own client, driven by threads of ours that wait for it.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tikv_client::transaction::HeartbeatOption;
use tikv_client::{
    CheckLevel, Config, Snapshot, Timestamp, TimestampExt, Transaction, TransactionClient, TransactionOptions,
};
use tokio::runtime::{Builder, Runtime};

use super::address::Address;
use super::keys::{self, Names};
use crate::merge::Direction;
use crate::patience::Fault;
use crate::{KvError, Result};

/// Threads that talk to the cluster.
const THREADS: usize = 2;
/// Longest wait for one answer.
const ANSWER: Duration = Duration::from_secs(10);
/// Largest answer: a page of values in pieces of 64 KiB.
const LARGEST: usize = 64 << 20;
/// Keys asked for at once.
const AT_ONCE: usize = 512;
/// A reading that began so lately needs nothing that may have been collected; less than the shortest time for which everything is kept.
const YOUNG: Duration = Duration::from_secs(300);
/// For so long it is believed that nothing more was collected.
const BELIEVED: Duration = Duration::from_secs(1);

/// Name and stored value.
pub(super) type Pair = (Vec<u8>, Vec<u8>);

/// What is known of what the cluster may have forgotten.
#[derive(Default)]
struct Collected {
    /// Version before which it may.
    before: u64,
    asked: Option<Instant>,
}

/// A cluster.
pub(super) struct Link {
    pub(super) address: Address,
    pub(super) names: Names,
    client: TransactionClient,
    collected: Mutex<Collected>,
    /// Dropped last: what is still on its way ends with it.
    runtime: Runtime,
}

impl Link {
    pub(super) fn open(address: &Address) -> Result<Self, Fault> {
        let lost = |e: std::io::Error| Fault::Lost(format!("starting threads: {e}"));
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(THREADS).thread_name("kv-tikv").enable_all().build();
        let runtime = runtime.map_err(lost)?;
        let mut config = Config::default().with_timeout(ANSWER).with_grpc_max_decoding_message_size(LARGEST);
        if let Some([ca, cert, key]) = &address.tls {
            config = config.with_security(ca, cert, key);
        }
        let drivers = address.drivers.clone();
        let client = runtime.block_on(TransactionClient::new_with_config(drivers, config));
        let client = client.map_err(|e| Fault::Lost(e.to_string()))?;
        Ok(Self {
            address: address.clone(),
            names: Names::new(address),
            client,
            collected: Mutex::default(),
            runtime,
        })
    }

    pub(super) fn path(&self) -> PathBuf {
        self.address.to_string().into()
    }

    /// Waits for an answer. Which of the client's errors pass by themselves is not told apart: whoever asks tries again for a while.
    pub(super) fn run<T>(
        &self,
        answer: impl Future<Output = std::result::Result<T, tikv_client::Error>>,
    ) -> Result<T, Fault> {
        self.runtime.block_on(answer).map_err(|e| Fault::Lost(e.to_string()))
    }

    /// A moment after everything that was committed before this call.
    pub(super) fn now(&self) -> Result<Timestamp, Fault> {
        self.run(self.client.current_timestamp())
    }

    /// What was stored at a moment. Made anew for each question, because the client keeps what it has read with it.
    fn at(&self, moment: &Timestamp) -> Snapshot {
        let options = TransactionOptions::new_optimistic().drop_check(CheckLevel::None);
        self.client.snapshot(moment.clone(), options)
    }

    pub(super) fn get(&self, moment: &Timestamp, name: Vec<u8>) -> Result<Option<Vec<u8>>, Fault> {
        // TiKV has no empty values; a store may answer with one for a key that is not there.
        Ok(self.run(self.at(moment).get(name))?.filter(|value| !value.is_empty()))
    }

    /// The same at the beginning of a transaction.
    pub(super) fn get_in(&self, txn: &mut Transaction, name: Vec<u8>) -> Result<Option<Vec<u8>>, Fault> {
        Ok(self.run(txn.get(name))?.filter(|value| !value.is_empty()))
    }

    pub(super) fn get_all(
        &self,
        moment: &Timestamp,
        names: &[Vec<u8>],
    ) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, Fault> {
        let mut found = BTreeMap::new();
        for some in names.chunks(AT_ONCE) {
            let mut snapshot = self.at(moment);
            let pairs = self.run(snapshot.batch_get(some.to_vec()))?;
            found.extend(pairs.filter(|pair| !pair.1.is_empty()).map(|pair| (pair.0.into(), pair.1)));
        }
        Ok(found)
    }

    /// At most `limit` pairs with `from <= name < to`.
    pub(super) fn page(
        &self,
        moment: &Timestamp,
        (from, to): (&[u8], &[u8]),
        direction: Direction,
        limit: u32,
    ) -> Result<Vec<Pair>, Fault> {
        let (mut snapshot, range) = (self.at(moment), from.to_vec()..to.to_vec());
        let plain = |pair: tikv_client::KvPair| (pair.0.into(), pair.1);
        Ok(match direction {
            Direction::Up => self.run(snapshot.scan(range, limit))?.map(plain).collect(),
            Direction::Down => self.run(snapshot.scan_reverse(range, limit))?.map(plain).collect(),
        })
    }

    /// Begins a transaction: what it changes is committed only if nobody has changed any of it since.
    pub(super) fn begin(&self) -> Result<Transaction, Fault> {
        // A lock that outlives its time is taken away by whoever meets it; then the commit fails, and is seen to have failed.
        let options = TransactionOptions::new_optimistic()
            .drop_check(CheckLevel::None)
            .heartbeat_option(HeartbeatOption::NoHeartbeat);
        self.run(self.client.begin_with_options(options))
    }

    /// An error if the state at a moment, asked for at `asked`, may not be whole any more: to be called behind every reading of it.
    pub(super) fn has_kept(&self, moment: &Timestamp, asked: Instant) -> Result<(), Fault> {
        let recent = self.collected.lock().asked.is_some_and(|at| at.elapsed() < BELIEVED);
        if asked.elapsed() > YOUNG && !recent {
            let begun = Instant::now();
            let stored = self.get(&self.now()?, keys::collected())?;
            let mut known = self.collected.lock();
            known.before = known.before.max(stored.map_or(0, |bytes| keys::number(&bytes)));
            known.asked = Some(begun);
        }
        if moment.version() >= self.collected.lock().before {
            return Ok(());
        }
        let detail = "this reading takes longer than old versions are kept: let all nodes that use this cluster keep them longer (keep=TIME \
                      of catalog.engine)";
        Err(self.refuses(detail).into())
    }

    /// Lets the cluster forget what was changed or removed longer than `keep` ago, and resolves locks that old.
    ///
    /// Whoever shares the cluster can know it before it happens. When it ends in between, something is refused that is still there, until then.
    pub(super) fn collect(&self, keep: Duration) -> Result<(), Fault> {
        let mut txn = self.begin()?;
        // No clock has fewer milliseconds than a time to keep.
        let before = millis(&txn.start_timestamp()).saturating_sub(keep.as_millis() as u64) << 18;
        let stored = self.get_in(&mut txn, keys::collected())?;
        let before = before.max(stored.map_or(0, |bytes| keys::number(&bytes)));
        self.run(async {
            txn.put(keys::collected(), before.to_be_bytes().to_vec()).await?;
            txn.commit().await
        })?;
        self.collected.lock().before = before;
        thread::sleep(2 * BELIEVED);
        self.run(self.client.gc(Timestamp::from_version(before))).map(drop)
    }

    pub(super) fn refuses(&self, detail: &str) -> KvError {
        KvError::Server { address: self.address.to_string(), detail: detail.into() }
    }
}

/// Milliseconds of the cluster's clock.
pub(super) fn millis(moment: &Timestamp) -> u64 {
    moment.version() >> 18
}
