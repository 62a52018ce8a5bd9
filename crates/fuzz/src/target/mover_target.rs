//! A target as a crash or somebody else left it: the log of what is being written, a file of sums, the list of clients that were shut
//! out. It is refused by name, or opened; opened once, it is opened again and nothing is left to be repaired.

use super::bench::scratch;
use crate::input::{Input, piece};
use mover::{Secrets, Target};
use types::TargetId;

const CLUSTER: [u8; 16] = [2; 16];
/// Longest object (bytes).
const LONGEST: u64 = 1 << 20;

pub(super) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let dir = scratch();
    let length = u64::from(input.u32()) % LONGEST;
    let (intents, sums, revoked) = (input.piece(), input.piece(), input.piece());
    for sub in ["objects/00", "sums/00"] {
        std::fs::create_dir_all(dir.path().join(sub)).expect("a directory");
    }
    let write = |name: &str, bytes: &[u8]| std::fs::write(dir.path().join(name), bytes).expect("a file");
    write("target", b"thermocline disk target\nformat 1\nuuid 30a91a08-daae-48d1-ae75-69804e61d2ea\n");
    write("objects/00/0000000000000001", b"content");
    let object = std::fs::File::options().write(true).open(dir.path().join("objects/00/0000000000000001"));
    object.and_then(|file| file.set_len(length)).expect("a length");
    write("sums/00/0000000000000001", sums);
    write("intents", intents);
    write("revoked", revoked);
    let open = || Target::open(TargetId(3), CLUSTER, dir.path(), Secrets::default());
    let Ok(target) = open() else { return };
    target.close().expect("what was opened is closed");
    drop(target);
    let log = std::fs::metadata(dir.path().join("intents")).expect("the log is there").len();
    assert_eq!(log, 24, "nothing is left but the number of the machine's start");
    open().expect("what was opened is opened again");
}

/// Fields with their CRC32C behind them.
fn summed(fields: &[&[u8]]) -> Vec<u8> {
    let bytes = fields.concat();
    let check = crc32c::crc32c(&bytes);
    [&bytes[..], &check.to_le_bytes()].concat()
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let record = |object: u64, first: u32, last: u32, kind: u32| {
        summed(&[&object.to_le_bytes(), &first.to_le_bytes(), &last.to_le_bytes(), &kind.to_le_bytes()])
    };
    let head = summed(&[b"THERMOSM", &1_u32.to_le_bytes(), &0_u32.to_le_bytes(), &7_u64.to_le_bytes()]);
    let mut sums = head;
    sums.resize(4096, 0);
    sums.extend([1, 2, 3, 4, 5, 6, 7, 8]);
    let seed = |length: u32, intents: &[u8], sums: &[u8], revoked: &[u8]| {
        [&length.to_be_bytes()[..], &piece(intents), &piece(sums), &piece(revoked)].concat()
    };
    let log =
        [record(1, 0, 0, 3), record(1, 0, 0, 1), record(1, 0, u32::MAX, 1), record(2, 5, 9, 1)].concat();
    vec![
        seed(100_000, &log, &sums, b"8 1700000000000000000\n"),
        seed(100_000, &[log.clone(), record(1, 0, 0, 2)].concat(), &sums, b""),
        seed(7, &record(1, u32::MAX, u32::MAX, 1), &sums[..4000], b""),
        seed(0, &record(1, 9, 3, 1), &sums, b"8 x\n"),
    ]
}
