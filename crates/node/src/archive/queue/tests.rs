//! What the queue promises to the governor and to drives.

use super::*;
use policy::MigrateWhy;
use types::ClassName;

fn batch(pool: &str, from: u64, count: u64) -> MigrateBatch {
    let item =
        |n| MigrateItem { ino: Ino(n), version: Version(1), copy: CopyNo(1), size: 10, due: Time::default() };
    let (class, pool) = (ClassName("default".into()), PoolName(pool.into()));
    MigrateBatch {
        class,
        pool,
        items: (from..from + count).map(item).collect(),
        bytes: 0,
        why: MigrateWhy::Age,
    }
}

#[test]
fn a_pool_that_takes_no_data_or_is_slow_leaves_room_for_the_others() {
    let queue = WriteQueue::default();
    let now = Time::new(1, 0);
    let [blocked, slow, good] = ["blocked", "slow", "good"].map(|n| PoolName(n.into()));
    queue.set_blocked(&blocked, Some("no volume".into()));
    let count = POOL_LIMIT as u64 + 100;
    let some = |added, full| Pushed { added, full };
    assert_eq!(queue.push(&batch("blocked", 0, count), false, now), some(BLOCKED_LIMIT, false));
    assert_eq!(queue.push(&batch("blocked", 0, count), false, now), some(0, false));
    assert!(!queue.makes_progress());
    assert_eq!(queue.push(&batch("slow", count, count), false, now), some(POOL_LIMIT, true));
    assert_eq!(
        queue.push(&batch("slow", count, POOL_LIMIT as u64), false, now),
        some(0, false),
        "all are in"
    );
    assert_eq!(queue.push(&batch("good", 2 * count, 7), false, now), some(7, false));
    assert_eq!(queue.sated(), BTreeSet::from([blocked, slow.clone()]));
    while queue.queued(&slow) >= POOL_ENOUGH {
        queue.pop(&slow);
    }
    assert!(!queue.sated().contains(&slow));
    assert_eq!(queue.queued(&good), 7);
}

#[test]
fn owners_take_turns_and_a_limit_holds_back_drives_until_the_disk_needs_the_space() {
    let (queue, now) = (WriteQueue::default(), Time::new(1, 0));
    let limit = LimitConfig { name: "a".into(), owner: Some(7), drives: Some(1), ..Default::default() };
    queue.renew(std::slice::from_ref(&limit));
    let one = batch("p", 0, 20);
    let turn = |item: &MigrateItem| {
        let uid = if item.ino.0 < 10 { 7 } else { 8 };
        let who = Asker { uid, gid: 0, class: &one.class };
        (item.ino, queue.turn(std::slice::from_ref(&limit), &who))
    };
    let turns = one.items.iter().map(turn).collect();
    assert_eq!(queue.push_for(&one, &turns, false, now).added, 20);
    let pool = one.pool.clone();
    let ino = |item: Option<MigrateItem>| item.map(|item| item.ino.0);
    let [a, b] = [queue.begin(&pool), queue.begin(&pool)];
    let first = queue.take(&pool, a).unwrap();
    assert_eq!(first.ino.0, 0);
    assert_eq!(queue.limited(&pool, 1 << 30), Some(Limited { drives: 2, open: 100 }));
    let others: Vec<u64> = std::iter::from_fn(|| ino(queue.take(&pool, b))).collect();
    assert_eq!(others, (10..20).collect::<Vec<_>>(), "the second drive writes for others");
    assert_eq!(queue.limited(&pool, 1 << 30), Some(Limited { drives: 1, open: 0 }));
    queue.put_back(&pool, first);
    assert_eq!(ino(queue.take(&pool, b)), Some(0), "no drive writes for him just now");
    queue.hold(&first, false, now);
    assert_eq!(queue.limited(&pool, 1 << 30), Some(Limited { drives: 1, open: 90 }));
    let second = queue.take(&pool, a).unwrap();
    assert_eq!(ino(queue.take(&pool, b)), None);
    queue.set_pressed(true);
    assert_eq!((ino(queue.take(&pool, b)), queue.limited(&pool, 1)), (Some(2), None));
    queue.set_pressed(false);
    queue.finish(&second);
    assert_eq!(ino(queue.take(&pool, a)), None, "the other holds one");
    let next = batch("p", 100, 1);
    assert!(queue.is_new(&next.items[0], now) && !queue.is_new(&one.items[5], now));
}

#[test]
fn copies_of_files_that_have_only_one_left_go_first() {
    let queue = WriteQueue::default();
    let now = Time::new(1, 0);
    queue.push(&batch("p", 1, 5), false, now);
    queue.push(&batch("q", 10, 2), false, now);
    let of = |pool: &str| queue.backlog()[&PoolName(pool.into())].rescue;
    assert!(!of("p") && !of("q"));
    queue.go_first(&[Ino(4), Ino(3), Ino(99)].map(|ino| (ino, CopyNo(1))).into());
    assert!(of("p") && !of("q"));
    queue.push(&batch("p", 6, 1), false, now);
    queue.go_first(&[(Ino(6), CopyNo(1))].into());
    let pool = PoolName("p".into());
    let first = queue.pop(&pool).unwrap();
    assert_eq!(first.ino, Ino(3));
    queue.put_back(&pool, first);
    queue.push(&batch("r", 20, 1), false, now);
    let r = PoolName("r".into());
    queue.move_all(&pool, &r);
    assert!(of("r") && queue.queued(&pool) == 0);
    let order: Vec<u64> = std::iter::from_fn(|| queue.pop(&r)).map(|i| i.ino.0).collect();
    assert_eq!(order, [3, 4, 6, 20, 1, 2, 5], "in their order");
    queue.finish(&first);
    queue.push(&batch("p", 3, 1), false, now);
    assert!(!of("p"), "it has two again");
}

#[test]
fn a_copy_that_fails_is_left_alone_longer_each_time() {
    let queue = WriteQueue::default();
    let one = batch("p", 1, 1);
    let pool = one.pool.clone();
    let mut now = Time::new(1000, 0);
    let mut pauses = Vec::new();
    for _ in 0..14 {
        let item = queue.pop(&pool).or_else(|| {
            assert_eq!(queue.push(&one, true, now).added, 1);
            queue.pop(&pool)
        });
        queue.hold(&item.unwrap(), pauses.len() == 6, now);
        assert_eq!(queue.was_wasteful(&one.items[0]), pauses.len() >= 6);
        let failed = now;
        while queue.push(&one, true, now).added == 0 {
            now = now.plus(Duration::from_secs(1));
        }
        pauses.push(now.secs - failed.secs);
    }
    assert_eq!(pauses, [2, 4, 8, 16, 32, 60, 128, 256, 512, 1024, 2048, 3600, 3600, 3600]);
    queue.finish(&queue.pop(&pool).unwrap());
    assert_eq!((queue.push(&one, true, now).added, queue.was_wasteful(&one.items[0])), (1, false));
    queue.hold(&queue.pop(&pool).unwrap(), true, now);
    queue.push(&one, true, now.plus(RETRY_AFTER));
    queue.hold(&queue.pop(&pool).unwrap(), true, now.plus(RETRY_AFTER));
    let mut next = batch("p", 1, 1);
    next.items[0].version = Version(2);
    assert_eq!(queue.push(&next, true, now.plus(RETRY_AFTER)).added, 1, "a new version does not wait");
    queue.hold(&queue.pop(&pool).unwrap(), true, now);
    assert_eq!(queue.push(&next, true, now).added, 0);
    queue.let_in([Ino(1)].into_iter(), now);
    assert_eq!(queue.push(&next, true, now).added, 1, "nor does what a user asks for");
    assert!(!queue.was_wasteful(&one.items[0]) && queue.was_wasteful(&next.items[0]));
}

#[test]
fn a_file_left_alone_is_offered_again_for_a_request_made_meanwhile() {
    let rig = super::super::testing::Rig::new();
    let node = &rig.worker.node;
    let first = rig.put("f", 0); // more would not fit: there is no cartridge
    let pools = ["primary", "second"].map(|n| PoolName(n.into()));
    for (pool, copy) in pools.iter().zip(1..) {
        let item = MigrateItem { copy: CopyNo(copy), ..first };
        let batch = super::super::testing::Rig::batch(pool, &[item]);
        assert_eq!(node.writes.push(&batch, false, crate::now()).added, 1);
        node.writes.hold(&node.writes.pop(pool).unwrap(), false, crate::now());
    }
    let request = types::Request::new(types::RequestKind::Migrate, 0, "/f".into(), crate::now());
    node.catalog.create_request(&request, &[(first.ino, 0)]).unwrap();
    node.governor.wake();
    let begun = std::time::Instant::now();
    while pools.iter().any(|pool| node.writes.queued(pool) == 0) {
        assert!(begun.elapsed() < Duration::from_secs(300), "nobody offers it again");
        std::thread::sleep(Duration::from_millis(20));
    }
}
