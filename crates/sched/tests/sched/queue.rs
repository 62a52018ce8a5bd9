//! What a queue knows of its files without looking at them.

use proptest::prelude::*;
use sched::*;
use std::collections::BTreeMap;
use types::Time;

#[derive(Clone, Debug)]
enum Step {
    Insert(RecallItem),
    Remove(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let item = (0..40u64, 0..6u64, 0..5u32, 0..4u8, 0..4i64, prop::option::of(0..4i64));
    let insert = item.prop_map(|(id, block, account, priority, since, deadline)| {
        let since = Time::new(1_000_000 + since, 0);
        let deadline = deadline.map(|s| Time::new(2_000_000 + s, 0));
        Step::Insert(RecallItem {
            id,
            block,
            bytes: 10 + id,
            priority,
            since,
            account: AccountId(account),
            deadline,
            ..RecallItem::default()
        })
    });
    prop_oneof![3 => insert, 2 => (0..40u64).prop_map(Step::Remove)]
}

/// The same, added up.
fn shares(items: &BTreeMap<u64, RecallItem>) -> Vec<Share> {
    let mut of: BTreeMap<AccountId, Vec<&RecallItem>> = BTreeMap::new();
    items.values().for_each(|item| of.entry(item.account).or_default().push(item));
    let share = |(account, items): (AccountId, Vec<&RecallItem>)| Share {
        account,
        files: items.len() as u64,
        bytes: items.iter().map(|item| item.bytes).sum(),
        since: items.iter().map(|item| item.since).min().unwrap(),
        priority: items.iter().map(|item| item.priority).max().unwrap(),
        deadline: items.iter().filter_map(|item| item.deadline).min(),
    };
    of.into_iter().map(share).collect()
}

proptest! {
    #[test]
    fn what_waits_for_each_account_is_what_its_files_add_up_to(steps in prop::collection::vec(step(), 1..150)) {
        let (mut queue, mut items) = (RecallQueue::default(), BTreeMap::new());
        for step in steps {
            match step {
                Step::Insert(item) => {
                    queue.insert(item);
                    items.insert(item.id, item);
                }
                Step::Remove(id) => prop_assert_eq!(queue.remove(id), items.remove(&id)),
            }
            let shares = shares(&items);
            prop_assert_eq!(queue.len(), items.len());
            prop_assert_eq!(queue.bytes(), shares.iter().map(|share| share.bytes).sum::<u64>());
            prop_assert_eq!(queue.oldest(), shares.iter().map(|share| share.since).min());
            prop_assert_eq!(queue.priority(), shares.iter().map(|share| share.priority).max().unwrap_or(0));
            prop_assert_eq!(queue.shares().collect::<Vec<_>>(), shares);
        }
    }
}
