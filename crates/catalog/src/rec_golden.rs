//! Fixed bytes of what is stored. If a test here fails, an encoding has changed and every catalogue in the world has become
//! unreadable: raise the version of the record and keep the old shape, do not change the bytes.

use crate::rec::*;
use format::record::{self, Record};
use types::*;

fn golden<T: Record + PartialEq + std::fmt::Debug>(value: &T, expected: &str) {
    assert_eq!(hex(&record::encode(value)), expected, "the encoding of {} has changed", T::NAME);
    assert_eq!(record::decode::<T>(&record::encode(value)).as_ref(), Ok(value));
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn time(n: i64) -> Time {
    Time::new(n, n.unsigned_abs() as u32)
}

fn inode() -> InodeRec {
    let stamp = ObjectStamp { size: 5, allocated: 4096, mtime: time(5), ctime: time(6) };
    let file = FileRec {
        version: Version(2),
        object: Some(ObjectId(7)),
        far: false,
        stamp: Some(stamp),
        sealed: true,
        known: false,
        pinned: true,
        mend: false,
        gone: false,
        heard: false,
        copies: 3,
        digest: Some(Digest([0xab; 32])),
        due: Some(14),
        used: 60,
    };
    InodeRec {
        ino: Ino(300),
        kind: FileKind::File,
        mode: 0o644,
        nlink: 1,
        uid: 1000,
        gid: 100,
        rdev: 0,
        class: 1,
        size: 5,
        atime: time(1),
        mtime: time(-2),
        ctime: time(4),
        btime: time(4),
        link: (Ino::ROOT, 310),
        xattrs: 7,
        file: Some(file),
    }
}

fn volume() -> Volume {
    Volume {
        barcode: "TC0001L9".into(),
        pool: Some("p".into()),
        state: VolumeState::Filling,
        reason: "r".to_owned(),
        since: time(1),
        uuid: "u".to_owned(),
        labelled: Some(time(2)),
        block_size: 524_288,
        capacity: 1,
        written: 2,
        live: 3,
        files: 4,
        live_files: 5,
        append_block: 6,
        next_uid: 7,
        generation: 8,
        index_block: 9,
        indexed_to: 10,
        vcr: 11,
        mounts: 12,
        errors: 13,
        last_written: None,
        last_read: Some(time(3)),
        by: Some(1000),
        last_verified: Some(time(4)),
        verified_to: 300,
        family: Some("f".to_owned()),
        key: "k1".into(),
        format: VolumeFormat::AnsiTar,
        worm: true,
        imported: true,
        holds_more: true,
    }
}

fn tape_file() -> TapeFile {
    TapeFile {
        uid: 2,
        ino: Ino(3),
        version: Version(4),
        copy: CopyNo(1),
        file_size: 6,
        segment_offset: 0,
        segment_length: 6,
        extents: vec![Extent { file_offset: 1, start_block: 300, byte_offset: 70_000, byte_count: 5 }],
        path: b"/a\xff".to_vec(),
        mode: 0o100_644,
        uid_owner: 5,
        gid_owner: 6,
        times: [time(1), time(2), time(3), time(4)],
        digest: Some(Digest([1; 32])),
        xattrs: vec![(b"user.k".to_vec(), b"v".to_vec())],
        class: "std".into(),
        written: time(5),
        live: true,
        node: NodeFacts {
            target: b"t".to_vec(),
            rdev: 1,
            gone: true,
            parent: Ino(9),
            names: vec![(Ino(10), b"n".to_vec())],
            beside: Version(7),
        },
    }
}

#[test]
fn golden_bytes() {
    assert_eq!(
        hex(&inode().encode()),
        "0100a40301e80764000105080485f882ad1683f085da2c0001140701020501070105802082a8d6b90784d0acf30e0301abababababababababababababababababababababababababababababababab011470"
    );
    assert_eq!(InodeRec::decode(Ino(300), &inode().encode()).expect("an inode"), inode());
    let named = KnownVersion { path: b"/a".to_vec(), ..KnownVersion::new(6, time(1), None) };
    golden(&KnownVersion { ended: Some(time(2)), replaced: true, ..named }, "0306020100022f6101040201");
    golden(
        &VolumeRec {
            volume: volume(),
            tree: 300,
            next_dir: 2,
            before: Some(Before { state: VolumeState::Suspect, reason: "r".into(), by: Some(7) }),
        },
        "05085443303030314c39010170030172020101750104028080200102030405060708090a0b0c0d0001060301e807010804ac02010166026b3101010101ac0202010601720107",
    );
    golden(&TapeEntry::Dir { id: TapeDir(300), created: time(1), mirrors: Ino(9) }, "0200ac02020109");
    golden(
        &TapeEntry::File(Box::new(tape_file())),
        "0201020304010600060101ac02f0a20405032f61ffa48302050602010402060308040101010101010101010101010101010101010101010101010101010101010101010106757365722e6b0176037374640a05010174010109010a016e07",
    );
    golden(&ItemRec { state: ItemState::Failed("w".to_owned()), bytes: 300 }, "01020177ac02");
    golden(&FormatRec { created: time(1) }, "020201");
    assert_eq!(record::decode(&[1, 2, 1]), Ok(FormatRec { created: time(1) }));
}

#[test]
fn ended_versions_of_earlier_releases_are_read() {
    let known = KnownVersion::new(6, time(1), None);
    assert_eq!(record::decode(&[1, 6, 2, 1, 0]), Ok(known.clone()));
    let known = KnownVersion { path: b"/a".to_vec(), ended: Some(time(2)), ..known };
    assert_eq!(record::decode(&unhex("0206020100022f61010402")), Ok(known));
}

#[test]
fn entries_of_volumes_of_earlier_releases_are_read() {
    let first = TapeEntry::File(Box::new(TapeFile { node: NodeFacts::default(), ..tape_file() }));
    let bytes = unhex(
        "0101020304010600060101ac02f0a20405032f61ffa48302050602010402060308040101010101010101010101010101010101010101010101010101010101010101010106757365722e6b0176037374640a0501",
    );
    assert_eq!(record::decode(&bytes), Ok(first));
    let dir = TapeEntry::Dir { id: TapeDir(300), created: time(1), mirrors: Ino(0) };
    assert_eq!(record::decode(&unhex("0100ac020201")), Ok(dir));
}

#[test]
fn golden_bytes_of_a_target() {
    let target = Target {
        id: TargetId(3),
        uuid: "u".to_owned(),
        node: NodeId(2),
        data: vec!["a:1".to_owned()],
        domain: "d".to_owned(),
        draining: true,
        lost: false,
        capacity: 300,
        free: 7,
        seen: time(4),
    };
    golden(&target, "02030175020103613a3101640100ac02070804");
    // Before a target could be lost.
    let old = "01030175020103613a31016401ac02070804";
    let old: Vec<u8> =
        (0..old.len()).step_by(2).map(|n| u8::from_str_radix(&old[n..n + 2], 16).unwrap()).collect();
    assert_eq!(record::decode::<Target>(&old), Ok(target));
}

#[test]
fn golden_bytes_of_layouts() {
    let component = layout::Component {
        range: 0..u64::MAX,
        unit_bytes: 1 << 20,
        redundancy: layout::Redundancy::Mirror { copies: 2 },
        base: ObjectId(300),
        targets: vec![TargetId(1), TargetId(300)],
    };
    let layout = layout::Layout { generation: 2, components: vec![component] };
    let far = FarRec { layout, stale: vec![(0, 1)], then: vec![], pool: None };
    let bytes = "020100ffffffffffffffffff018080400102ac020201ac02010001";
    golden(&far, &format!("03{bytes}0000"));
    let rule = LayoutRule { unit_bytes: 1 << 20, stripes: 4, copies: 1, parity: 2, then: vec![], pool: None };
    golden(&RuleRec(rule.clone()), "038080400401020000");
    let then = vec![Widening { from: 300, stripes: 3, unit_bytes: 4096 }];
    let pool = || Some("fast".to_owned());
    let grows = FarRec { then: then.clone(), ..far.clone() };
    golden(&FarRec { pool: pool(), ..grows.clone() }, &format!("03{bytes}01ac02038020010466617374"));
    let widens = LayoutRule { then, ..rule.clone() };
    golden(&RuleRec(LayoutRule { pool: pool(), ..widens.clone() }), "0380804004010201ac02038020010466617374");
    // Before files could be kept to a pool of targets.
    assert_eq!(record::decode::<FarRec>(&unhex(&format!("02{bytes}01ac02038020"))), Ok(grows));
    assert_eq!(record::decode::<RuleRec>(&unhex("0280804004010201ac02038020")), Ok(RuleRec(widens)));
    assert_eq!(record::decode::<FarRec>(&unhex(&format!("02{bytes}00"))), Ok(far.clone()));
    assert_eq!(record::decode::<RuleRec>(&unhex("0280804004010200")), Ok(RuleRec(rule.clone())));
    // Before files got more as they grew.
    assert_eq!(record::decode::<FarRec>(&unhex(&format!("01{bytes}"))), Ok(far));
    assert_eq!(record::decode::<RuleRec>(&unhex("01808040040102")), Ok(RuleRec(rule)));
    let targets = vec![TargetId(3), TargetId(300)];
    golden(&TargetPool { name: "fast".into(), targets }, "0104666173740203ac02");
    let junction = Junction { subsystem: "s".into(), addresses: vec!["a:1".into()], made: time(1) };
    golden(&junction, "0101730103613a310201");
    golden(&TakenOut { by: Some(7), at: time(1), reason: "r".into() }, "01010702010172");
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().map(|b| (b as char).to_digit(16).expect("a digit") as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// What earlier releases wrote is still read.
#[test]
fn old_versions_are_read() {
    let fourth = Volume { holds_more: false, ..volume() };
    let second = Volume {
        verified_to: 0,
        family: None,
        key: String::new(),
        format: VolumeFormat::Ltfs,
        worm: false,
        imported: false,
        ..fourth.clone()
    };
    let first = Volume { by: None, last_verified: None, ..second.clone() };
    let written = [
        (
            "01085443303030314c39010170030172020101750104028080200102030405060708090a0b0c0d00010603ac0202",
            first,
        ),
        (
            "02085443303030314c39010170030172020101750104028080200102030405060708090a0b0c0d0001060301e807010804ac0202",
            second,
        ),
        (
            "03085443303030314c39010170030172020101750104028080200102030405060708090a0b0c0d0001060301e807010804ac02010166026b31010101ac0202",
            fourth.clone(),
        ),
    ];
    for (bytes, volume) in written {
        let bytes = unhex(bytes);
        assert_eq!(record::decode(&bytes), Ok(VolumeRec { volume, tree: 300, next_dir: 2, before: None }));
        assert!(record::decode::<VolumeRec>(&bytes[..bytes.len() - 1]).is_err());
        assert!(record::decode::<VolumeRec>(&[&bytes[..], &[0]].concat()).is_err());
    }
    let bytes = unhex(
        "04085443303030314c39010170030172020101750104028080200102030405060708090a0b0c0d0001060301e807010804ac02010166026b31010101ac0202010601720107",
    );
    let before = Some(Before { state: VolumeState::Suspect, reason: "r".into(), by: Some(7) });
    let read = VolumeRec { volume: fourth, tree: 300, next_dir: 2, before };
    assert_eq!(record::decode(&bytes), Ok(read));
    assert!(record::decode::<VolumeRec>(&bytes[..bytes.len() - 1]).is_err());
}

/// Records of earlier releases do not say that a tape may hold more than the catalogue lists. What the node itself did not write any
/// more may be such a one.
#[test]
fn of_old_records_what_the_node_made_read_only_may_hold_more() {
    use VolumeState as S;
    let was = |state, by| Some(Before { state, reason: "r".into(), by });
    let node = || was(S::ReadOnly, None);
    let cases = [
        (S::ReadOnly, None, None, true),
        (S::ReadOnly, Some(3), None, false),
        (S::ReadOnly, Some(3), node(), true),
        (S::ReadOnly, Some(3), was(S::Full, None), false),
        (S::Suspect, None, None, false),
        (S::Suspect, None, node(), true),
        (S::Repacking, None, node(), true),
        (S::Repacking, None, was(S::ReadOnly, Some(3)), false),
        (S::Repacking, None, was(S::Full, None), false),
        (S::Repacking, None, None, true),
        (S::Exported, Some(3), node(), true),
        (S::Full, None, None, false),
        (S::Filling, None, None, false),
    ];
    for (state, by, before, holds_more) in cases {
        let volume = Volume { state, by, holds_more: false, ..volume() };
        let now = VolumeRec { volume, tree: 300, next_dir: 2, before };
        let bytes = record::encode(&now);
        assert_eq!(record::decode::<VolumeRec>(&bytes).as_ref(), Ok(&now), "this one says so");
        // As version 4 wrote it: without the byte that says so.
        let more = Volume { holds_more: true, ..now.volume.clone() };
        let more = record::encode(&VolumeRec { volume: more, ..now.clone() });
        let at = (0..bytes.len()).find(|at| bytes[*at] != more[*at]).expect("it is told");
        let mut old = bytes;
        old[0] = 4;
        assert_eq!(old.remove(at), 0);
        let read = record::decode::<VolumeRec>(&old).expect("version 4");
        assert_eq!(read.volume.holds_more, holds_more, "{:?}", (state, by, &now.before));
        assert_eq!((&read.before, read.tree, read.next_dir), (&now.before, 300, 2));
        if now.before.is_none() {
            // Version 3 did not keep what it was before.
            (old[0], _) = (3, old.pop());
            let read = record::decode::<VolumeRec>(&old).expect("version 3");
            assert_eq!(read.volume.holds_more, holds_more, "{state} by {by:?}");
        }
    }
    // Version 1 did not say who set a state either.
    let mut first =
        unhex("01085443303030314c39010170030172020101750104028080200102030405060708090a0b0c0d00010603ac0202");
    for (state, holds_more) in [(3, false), (4, false), (5, true), (6, false), (12, true)] {
        first[13] = state;
        let read = record::decode::<VolumeRec>(&first).expect("version 1");
        assert_eq!(read.volume.holds_more, holds_more, "{}", read.volume.state);
    }
}

/// The number of an enum's variant is part of the encoding: new variants go to the end.
#[test]
fn variants_keep_their_numbers() {
    use FileKind as K;
    use VolumeState as S;
    let kinds = [K::File, K::Directory, K::Symlink, K::Fifo, K::Socket, K::CharDevice, K::BlockDevice];
    for (number, kind) in kinds.into_iter().enumerate() {
        assert_eq!(usize::from(InodeRec { kind, ..inode() }.encode()[1]), number, "{kind:?}");
    }
    let states = [
        S::Unknown,
        S::Blank,
        S::Scratch,
        S::Filling,
        S::Full,
        S::ReadOnly,
        S::Suspect,
        S::Foreign,
        S::Broken,
        S::Unverified,
        S::Exported,
        S::Retired,
        S::Repacking,
    ];
    for (number, state) in states.into_iter().enumerate() {
        let volume = VolumeRec { volume: Volume { state, ..volume() }, tree: 1, next_dir: 1, before: None };
        assert_eq!(usize::from(record::encode(&volume)[13]), number, "{state:?}");
    }
    let items = [ItemState::Pending, ItemState::Done, ItemState::Failed(String::new())];
    for (number, state) in items.into_iter().enumerate() {
        assert_eq!(usize::from(record::encode(&ItemRec { state, bytes: 0 })[1]), number);
    }
}

#[test]
fn golden_bytes_of_a_cluster() {
    let cluster = Cluster {
        id: "c".into(),
        authority: vec![1, 2],
        made: time(3),
        next_node: NodeId(2),
        next_client: ClientId(1),
    };
    golden(&cluster, "01016302010206030201");
    let member = Member {
        id: MemberId::Node(NodeId(7)),
        name: "n".into(),
        certificate: Digest([0xab; 32]),
        joined: time(1),
        expires: time(2),
        user: None,
        control: vec!["a".into()],
        data: Vec::new(),
        next: Some(Digest([0xef; 32])),
        removed: Some(Removal { at: time(3), reason: "r".into() }),
    };
    let (first, next) = ("ab".repeat(32), "ef".repeat(32));
    golden(&member, &format!("010007016e{first}02010402000101610001{next}0106030172"));
    let user = BoundUser { uid: 1000, gid: 100, groups: vec![1] };
    let token = TokenRecord {
        id: [5; 16],
        secret: Digest([0xcd; 32]),
        expires: time(2),
        grant: Grant::Client(user),
        used: Some(MemberId::Client(ClientId(3))),
    };
    golden(&token, &format!("01{}{}040201e807640101010103", "05".repeat(16), "cd".repeat(32)));
}
