//! A closed data file is damaged at random. Whatever the damage, opening it is refused, or everything reads as it was
//! written: never another value, a missing key, a panic or a fault of the processor.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use kv::{Durability, Engine, KvError, LmdbEngine, LmdbOptions, read, write};

const TRIALS: u64 = 400;
const PAGE: usize = 4096;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// splitmix64
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

fn open(dir: &Path) -> Result<LmdbEngine, KvError> {
    LmdbEngine::open(dir, LmdbOptions::default())
}

/// Keys of several tables, short and long, with values from none to many pages; changed in many transactions, so that
/// there are free pages, and older versions of pages that are in use.
fn fill(dir: &Path, random: &mut Random) -> Model {
    let engine = open(dir).unwrap();
    let mut model = Model::new();
    for _ in 0..60 {
        write::<_, KvError>(&engine, Durability::Durable, |w| {
            for _ in 0..100 {
                let n = random.below(3000) as u32;
                let mut key = [&[(n % 5) as u8 + 1], n.to_be_bytes().as_slice()].concat();
                key.resize(key.len() + if n.is_multiple_of(7) { 300 } else { 8 }, b'k');
                if random.below(3) == 0 {
                    w.delete(&key)?;
                    model.remove(&key);
                    continue;
                }
                let len = if random.below(60) == 0 { random.below(20_000) } else { random.below(120) };
                let value = vec![random.next() as u8; len];
                w.put(&key, &value)?;
                model.insert(key, value);
            }
            Ok(())
        })
        .unwrap();
    }
    model
}

fn everything(engine: &LmdbEngine) -> Result<Model, KvError> {
    read(engine, |r| {
        let mut found = Model::new();
        r.scan(&[0], &[0xff; 481], &mut |k, v| {
            found.insert(k.to_vec(), v.to_vec());
            ControlFlow::Continue(())
        })?;
        Ok(found)
    })
}

/// Damages `file` and says how.
fn damage(file: &mut [u8], earlier: &[u8], random: &mut Random) -> String {
    let pages = file.len() / PAGE;
    // a quarter of the trials hit the meta pages, which are few
    let page = if random.below(4) == 0 { random.below(2) } else { random.below(pages) };
    let at = page * PAGE + if page < 2 { random.below(160) } else { random.below(PAGE) };
    match random.below(7) {
        0 | 1 => {
            let bit = random.below(8);
            file[at] ^= 1 << bit;
            format!("bit {bit} of byte {at}")
        }
        2 => {
            let len = (1 + random.below(16)).min(file.len() - at);
            file[at..at + len].iter_mut().for_each(|b| *b = random.next() as u8);
            format!("{len} bytes at {at}")
        }
        3 => {
            let sector = at / 512 * 512;
            file[sector..sector + 512].fill(0);
            format!("sector at {sector} is zero")
        }
        4 => {
            let other = random.below(pages);
            for n in 0..PAGE {
                file.swap(page * PAGE + n, other * PAGE + n);
            }
            format!("pages {page} and {other} swapped")
        }
        5 => {
            let other = random.below(pages);
            file.copy_within(other * PAGE..(other + 1) * PAGE, page * PAGE);
            format!("page {other} written to {page}")
        }
        _ if (page + 1) * PAGE <= earlier.len() => {
            file[page * PAGE..(page + 1) * PAGE].copy_from_slice(&earlier[page * PAGE..(page + 1) * PAGE]);
            format!("page {page} is an earlier one: a write was lost")
        }
        _ => "nothing".into(),
    }
}

#[test]
fn a_damaged_file_gives_the_truth_or_an_error() {
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    println!("seed {seed}");
    let mut random = Random(seed);
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path(), &mut random);
    let data = dir.path().join("data.mdb");
    let earlier = fs::read(&data).unwrap();
    let engine = open(dir.path()).unwrap();
    let mut model = everything(&engine).unwrap();
    for n in 0..20u32 {
        let key = model.keys().nth(random.below(model.len())).unwrap().clone();
        write::<_, KvError>(&engine, Durability::Durable, |w| w.put(&key, &n.to_le_bytes())).unwrap();
        model.insert(key, n.to_le_bytes().to_vec());
    }
    engine.verify().unwrap();
    let used = engine.stats().bytes as usize;
    drop(engine);
    let whole = fs::read(&data).unwrap()[..used].to_vec();
    let file = OpenOptions::new().write(true).open(&data).unwrap();
    let mut refused = 0;
    for trial in 0..TRIALS {
        let mut damaged = whole.clone();
        let how: Vec<String> =
            (0..1 + random.below(2)).map(|_| damage(&mut damaged, &earlier, &mut random)).collect();
        file.write_all_at(&damaged, 0).unwrap();
        match open(dir.path()) {
            Ok(engine) => {
                let found = everything(&engine);
                assert!(
                    found.is_ok_and(|found| found == model),
                    "trial {trial}, {how:?}: reads what was not written"
                );
                engine.verify().unwrap();
            }
            Err(KvError::Corrupt { .. }) => refused += 1,
            Err(other) => panic!("trial {trial}, {how:?}: {other}"),
        }
    }
    println!("refused {refused} of {TRIALS}");
    assert!(refused > TRIALS / 4, "most damage hits something, but only {refused} were refused");
    file.write_all_at(&whole, 0).unwrap();
    assert_eq!(everything(&open(dir.path()).unwrap()).unwrap(), model);
}

/// Bytes change below a running engine: the value concerned is refused by name, others are not.
#[test]
fn a_value_that_rots_while_in_use_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).unwrap();
    write::<_, KvError>(&engine, Durability::Durable, |w| {
        w.put(b"good", b"fine")?;
        w.put(b"rotten", b"precious value")
    })
    .unwrap();
    let file = OpenOptions::new().write(true).open(dir.path().join("data.mdb")).unwrap();
    let bytes = fs::read(dir.path().join("data.mdb")).unwrap();
    let hits = bytes.windows(14).enumerate().filter(|(_, w)| *w == b"precious value").map(|(at, _)| at);
    for at in hits {
        file.write_all_at(b"Q", at as u64).unwrap();
    }
    let get = |key: &[u8]| read::<_, KvError>(&engine, |r| r.get(key));
    assert_eq!(get(b"good").unwrap(), Some(b"fine".to_vec()));
    let error = get(b"rotten").unwrap_err();
    assert!(matches!(&error, KvError::BadValue { key, .. } if key == b"rotten"), "{error}");
    assert!(matches!(everything(&engine), Err(KvError::BadValue { .. })));
    assert!(matches!(engine.verify(), Err(KvError::Corrupt { .. })));
    drop(engine);
    assert!(matches!(open(dir.path()), Err(KvError::Corrupt { .. })));
}

/// A meta page that could not be written has its former number put back by LMDB, but leads to the new state, all of
/// which is there: opening completes it.
#[test]
fn a_meta_page_that_was_not_finished_is_completed() {
    let dir = tempfile::tempdir().unwrap();
    let put = |n: u32| {
        let engine = open(dir.path()).unwrap();
        write::<_, KvError>(&engine, Durability::Durable, |w| w.put(&n.to_be_bytes(), &[n as u8; 3000]))
            .unwrap();
    };
    (0..20).for_each(put);
    let data = dir.path().join("data.mdb");
    let file = OpenOptions::new().read(true).write(true).open(&data).unwrap();
    let number = |page: u64| {
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, page * PAGE as u64 + 144).unwrap();
        u64::from_ne_bytes(bytes)
    };
    let (newest, txn) = (0..2).map(|page| (page, number(page))).max_by_key(|(_, txn)| *txn).unwrap();
    file.write_all_at(&[3u64.to_ne_bytes(), (txn - 2).to_ne_bytes()].concat(), newest * PAGE as u64 + 136)
        .unwrap();
    let engine = open(dir.path()).unwrap();
    assert_eq!(number(newest), txn);
    let last = read::<_, KvError>(&engine, |r| r.get(&19u32.to_be_bytes())).unwrap();
    assert_eq!(last, Some(vec![19; 3000]), "what was flushed last is there");
    drop(engine);
    (20..30).for_each(put);
    open(dir.path()).unwrap().verify().unwrap();
}

/// Replaces `old` by `new` of the same length wherever it stands in `file`.
fn forge(file: &fs::File, bytes: &[u8], old: &[u8], new: &[u8]) {
    let mut hits = bytes.windows(old.len()).enumerate().filter(|(_, w)| *w == old).peekable();
    assert!(hits.peek().is_some() && old.len() == new.len());
    hits.for_each(|(at, _)| file.write_all_at(new, at as u64).unwrap());
}

/// The disk has lost a write: a value is a former one, with the right sum. Only the record of the tables tells.
#[test]
fn a_former_value_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data.mdb");
    let put = |value: &[u8]| {
        let engine = open(dir.path()).unwrap();
        write::<_, KvError>(&engine, Durability::Durable, |w| w.put(b"key", value)).unwrap();
        drop(engine);
        let bytes = fs::read(&data).unwrap();
        let at = bytes.windows(value.len()).position(|w| w == value).unwrap();
        bytes[at..at + value.len() + 4].to_vec()
    };
    let (former, present) = (put(b"former value"), put(b"newest value"));
    let file = OpenOptions::new().write(true).open(&data).unwrap();
    forge(&file, &fs::read(&data).unwrap(), &present, &former);
    let error = open(dir.path()).err().expect("refused");
    assert!(matches!(&error, KvError::Corrupt { detail, .. } if detail.contains("table 6b")), "{error}");
}

/// A list of free pages names one that is in use: LMDB would overwrite it.
#[test]
fn a_used_page_in_the_list_of_free_ones_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path(), &mut Random(7));
    let file = OpenOptions::new().read(true).write(true).open(dir.path().join("data.mdb")).unwrap();
    let number = |at: usize| {
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, at as u64).unwrap();
        u64::from_ne_bytes(bytes) as usize
    };
    let meta = if number(144) > number(PAGE + 144) { 0 } else { PAGE };
    let (free, main) = (number(meta + 80) * PAGE, number(meta + 128));
    let node = free + (number(free + 16) & 0xffff);
    let (listed, first) = (number(node + 16), node + 24);
    assert!((1..500).contains(&listed), "the lowest list lies in the page");
    file.write_all_at(&main.to_ne_bytes(), first as u64).unwrap();
    let error = open(dir.path()).err().expect("refused");
    assert!(matches!(&error, KvError::Corrupt { .. }), "{error}");
}
