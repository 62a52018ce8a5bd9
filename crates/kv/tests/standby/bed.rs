//! An engine and its standby.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kv::standby::{Feed, FeedOptions, FollowError, Follower, Mode, Sender, Step};
use kv::{Engine, KvError, LmdbEngine, LmdbOptions, read};

pub type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// Longest wait in tests that expect one to be in vain.
pub const PATIENCE: Duration = Duration::from_millis(200);
pub const LEASE: Duration = Duration::from_millis(600);

pub fn feed(mode: Mode, armed: bool) -> Arc<Feed> {
    feed_of(1, mode, armed)
}

/// One that waits for the standby as long as a slow machine takes.
pub fn feed_patient(mode: Mode, armed: bool) -> Arc<Feed> {
    let long = Duration::from_secs(60);
    let options = FeedOptions { lineage: [1; 16], mode, patience: long, lease: long, armed, clock_ms: || 7 };
    Arc::new(Feed::new(options))
}

pub fn feed_of(history: u8, mode: Mode, armed: bool) -> Arc<Feed> {
    let lineage = [history; 16];
    Arc::new(Feed::new(FeedOptions {
        lineage,
        mode,
        patience: PATIENCE,
        lease: LEASE,
        armed,
        clock_ms: || 7,
    }))
}

pub fn primary(dir: &Path, feed: &Arc<Feed>) -> LmdbEngine {
    let options = LmdbOptions {
        feed: Some(feed.clone()),
        flush_interval: Duration::from_millis(1),
        ..LmdbOptions::default()
    };
    opened(|| LmdbEngine::open(dir, options.clone())).unwrap()
}

pub fn follower(dir: &Path) -> Follower {
    opened(|| Follower::open(dir, LmdbOptions::default())).unwrap()
}

/// A child that another test starts holds copies of our descriptors, and so the lock, until it executes its program.
pub fn opened<T>(mut f: impl FnMut() -> Result<T, KvError>) -> Result<T, KvError> {
    let begin = Instant::now();
    loop {
        match f() {
            Err(KvError::Locked { .. }) if begin.elapsed() < Duration::from_secs(30) => {
                std::thread::yield_now()
            }
            opened => return opened,
        }
    }
}

/// One step, over the bytes that would travel; false if there is nothing to do.
pub fn step(sender: &mut Sender<'_>, feed: &Feed, follower: &mut Follower) -> Result<bool, FollowError> {
    let sent = Instant::now();
    let step = Step::decode(&sender.next(follower.state()).unwrap().encode()).expect("it is as it was sent");
    let taken = follower.take(&step);
    feed.answered(follower.state(), sent);
    taken.map(|()| step != Step::Idle)
}

/// Steps until the follower has everything.
pub fn catch_up(engine: &LmdbEngine, feed: &Arc<Feed>, follower: &mut Follower) {
    let mut sender = Sender::new(engine, feed.clone());
    while step(&mut sender, feed, follower).unwrap() {}
    assert!(follower.state().is_complete() && follower.state().number == feed.last());
}

pub fn dump(engine: &dyn Engine) -> Pairs {
    read::<_, KvError>(engine, |r| {
        let mut all = Pairs::new();
        r.scan(b"", &[255; 481], &mut |k, v| {
            all.push((k.to_vec(), v.to_vec()));
            ControlFlow::Continue(())
        })?;
        Ok(all)
    })
    .unwrap()
}

/// What an engine holds that has taken over from its standby.
pub fn promoted(follower: Follower, dir: &Path) -> Pairs {
    follower.promote(dir).unwrap();
    dump(&opened(|| LmdbEngine::open(dir, LmdbOptions::default())).unwrap())
}

pub struct Dirs {
    _dir: tempfile::TempDir,
    pub primary: PathBuf,
    pub standby: PathBuf,
}

pub fn dirs() -> Dirs {
    let dir = tempfile::tempdir().unwrap();
    Dirs { primary: dir.path().join("primary"), standby: dir.path().join("standby"), _dir: dir }
}
