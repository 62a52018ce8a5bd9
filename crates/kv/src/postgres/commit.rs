//! Sending what a transaction changes, and its end, all at once.

use tokio_postgres::Error;

use super::base::Base;
use super::connection::Fault;
use crate::Result;
use crate::counted::Done;
use crate::counter::{Delta, Kind};
use crate::key::Key;
use crate::lmdb::sealed;

/// What one statement may carry (bytes of keys and values, rows).
const STATEMENT_BYTES: usize = 4 << 20;
const STATEMENT_ROWS: usize = 10_000;
/// Statements that are sent before an answer is waited for; each of them may be as large as above.
const AT_ONCE: usize = 8;

/// How a transaction ended.
pub(super) enum End {
    Committed,
    /// There was nothing to commit.
    Nothing,
    /// The connection was lost before the answer came.
    Unknown(String),
    /// What was remembered about counters is not true any more, or a sum has become too large.
    Stale,
    /// Another owner has been there.
    Fenced,
}

/// The number of the connection's next transaction: epoch, slot, number.
pub(super) type Mark = (i64, i64, i64);

enum Step {
    Mark(Mark),
    Put(Puts),
    Delete(Vec<Vec<u8>>),
    Change(Kind, Vec<Vec<u8>>, Vec<i64>, i64),
    Commit,
}

#[derive(Default)]
struct Puts {
    keys: Vec<Vec<u8>>,
    values: Vec<Vec<u8>>,
    kinds: Vec<i16>,
    bytes: usize,
}

/// Commits. With `plain`, counters are read and set, not added to.
pub(super) fn commit(base: &Base<'_>, mark: Mark, done: &Done, plain: bool) -> Result<End, Fault> {
    let counted = Counted::new(base, done, plain)?;
    let mut steps = vec![Step::Mark(mark)];
    put_all(&mut steps, done, &counted);
    for keys in deleted(done).chunks(STATEMENT_ROWS) {
        steps.push(Step::Delete(keys.to_vec()));
    }
    for (kind, deltas) in [(Kind::Adds, &counted.adds), (Kind::Raises, &counted.raises)] {
        for part in deltas.chunks(STATEMENT_ROWS) {
            let (keys, numbers) = part.iter().cloned().unzip();
            steps.push(Step::Change(kind, keys, numbers, mark.1));
        }
    }
    steps.push(Step::Commit);
    let end = send(base, steps)?;
    match end {
        End::Committed => {
            let changed = done.counters.keys().map(Key::bytes);
            base.server.note_changed(changed);
            base.server.remember(counted.set.iter().map(|(key, _, kind)| (key, *kind)));
        }
        End::Stale => base.server.forget(done.counters.keys()),
        End::Unknown(_) | End::Fenced | End::Nothing => {}
    }
    Ok(end)
}

/// Ends a transaction that has only read: the server says whether all of it was serialisable.
pub(super) fn nothing(base: &Base<'_>) -> Result<End, Fault> {
    if base.begun.replace(false) {
        base.conn.batch(base.server, "COMMIT")?;
    }
    Ok(End::Nothing)
}

fn deleted(done: &Done) -> Vec<Vec<u8>> {
    done.changes.iter().filter(|(_, v)| v.is_none()).map(|(k, _)| k.bytes().to_vec()).collect()
}

fn put_all(steps: &mut Vec<Step>, done: &Done, counted: &Counted) {
    let plain = done.changes.iter().filter_map(|(k, v)| Some((k, v.as_ref()?, Kind::Plain)));
    let mut puts = Puts::default();
    for (key, value, kind) in plain.chain(counted.set.iter().map(|(k, v, kind)| (k, v, *kind))) {
        let mut stored = Vec::with_capacity(value.len() + sealed::SUM);
        sealed::seal(key.bytes(), value, &mut stored);
        puts.bytes += key.bytes().len() + stored.len();
        puts.keys.push(key.bytes().to_vec());
        puts.values.push(stored);
        puts.kinds.push(kind as i16);
        if puts.bytes >= STATEMENT_BYTES || puts.keys.len() >= STATEMENT_ROWS {
            steps.push(Step::Put(std::mem::take(&mut puts)));
        }
    }
    if !puts.keys.is_empty() {
        steps.push(Step::Put(puts));
    }
}

/// How counters are changed.
#[derive(Default)]
struct Counted {
    adds: Vec<(Vec<u8>, i64)>,
    raises: Vec<(Vec<u8>, i64)>,
    /// Those that have to be set, since they are new or were no counters of this kind.
    set: Vec<(Key, Vec<u8>, Kind)>,
}

impl Counted {
    fn new(base: &Base<'_>, done: &Done, plain: bool) -> Result<Self, Fault> {
        let mut counted = Self::default();
        let mut unsure = Vec::new();
        for (key, delta) in &done.counters {
            match !plain && base.server.knows(key, delta.kind()) {
                true => counted.delta(key, *delta),
                false => unsure.push((key, *delta)),
            }
        }
        for part in unsure.chunks(STATEMENT_ROWS) {
            counted.look_at(base, part, plain)?;
        }
        Ok(counted)
    }

    fn look_at(&mut self, base: &Base<'_>, part: &[(&Key, Delta)], plain: bool) -> Result<(), Fault> {
        let keys: Vec<&[u8]> = part.iter().map(|(key, _)| key.bytes()).collect();
        let mut found = base.lookup_all(&keys)?;
        found.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        for (key, delta) in part {
            let stored =
                found.binary_search_by(|s| s.key.as_slice().cmp(key.bytes())).ok().map(|n| &found[n]);
            let after = delta.apply(stored.map(|s| s.value.as_slice()))?;
            match stored.is_some_and(|s| s.kind == delta.kind() as i16) && !plain {
                true => {
                    base.server.remember([(*key, delta.kind())]);
                    self.delta(key, *delta);
                }
                false => self.set.push(((*key).clone(), after, delta.kind())),
            }
        }
        Ok(())
    }

    fn delta(&mut self, key: &Key, delta: Delta) {
        let list = if delta.kind() == Kind::Adds { &mut self.adds } else { &mut self.raises };
        list.push((key.bytes().to_vec(), delta.number()));
    }
}

/// Large changes go one after another; what is left, with the end of the transaction, at once.
fn send(base: &Base<'_>, steps: Vec<Step>) -> Result<End, Fault> {
    base.begin()?;
    let first = steps.len().saturating_sub(AT_ONCE);
    for (n, step) in steps[..first].iter().enumerate() {
        if let Err(fault) = base.conn.run(base.server, one(base, step)) {
            return if matches!(fault, Fault::Guard) { Ok(guarded(&steps[n])) } else { Err(fault) };
        }
    }
    let answers = base.conn.run_all(base.server, steps[first..].iter().map(|step| one(base, step)));
    base.begun.set(false); // committed or rolled back, whatever the answers are
    for (step, answer) in steps[first..].iter().zip(answers) {
        match answer {
            Ok(()) => {}
            Err(Fault::Lost(detail)) => return Ok(End::Unknown(detail)),
            Err(Fault::Guard) => return Ok(guarded(step)),
            Err(fault) => return Err(fault),
        }
    }
    Ok(End::Committed)
}

fn guarded(step: &Step) -> End {
    if matches!(step, Step::Mark(_)) { End::Fenced } else { End::Stale }
}

async fn one(base: &Base<'_>, step: &Step) -> Result<(), Error> {
    let (client, known) = (&base.conn.client, base.statements);
    match step {
        Step::Mark((epoch, slot, number)) => {
            client.query(&known.mark, &[epoch, slot, number]).await.map(drop)
        }
        Step::Put(p) => client.execute(&known.put, &[&p.keys, &p.values, &p.kinds]).await.map(drop),
        Step::Delete(keys) => client.execute(&known.delete, &[keys]).await.map(drop),
        Step::Change(kind, keys, numbers, slot) => {
            let statement = if *kind == Kind::Adds { &known.add } else { &known.raise };
            client.query(statement, &[keys, numbers, slot, &(keys.len() as i64)]).await.map(drop)
        }
        Step::Commit => client.batch_execute("COMMIT").await,
    }
}
