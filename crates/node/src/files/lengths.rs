//! Who takes the length of a file for given. A host that writes at the targets tells the node when a file becomes longer ([`wire::FileCall::LayoutCommit`]), not when
//! it writes within the length that it knows. Before a file becomes shorter the rights of all who know its length are ended: whoever writes then asks for
//! another one, and learns the length with it. Else he would make the file longer, and nobody would know.

use parking_lot::Mutex;
use std::collections::HashMap;

/// Those who know the length of one inode.
#[derive(Debug, Default)]
pub(crate) struct Lengths(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// By session; with the number of its last call to which it was told.
    sessions: HashMap<u64, u64>,
    /// An earlier node may have told others.
    left: bool,
}

impl Lengths {
    /// Nobody has the file open, unless an earlier node `left` it open.
    pub(crate) fn begin(&self, left: bool) {
        *self.0.lock() = Known { left, ..Known::default() };
    }

    /// A session is about to be told, in the answer to its call of this number. To be called before the length is read, and after a right is made that goes with it.
    pub(crate) fn told(&self, session: u64, call: u64) {
        let mut known = self.0.lock();
        let last = known.sessions.entry(session).or_insert(call);
        *last = call.max(*last);
    }

    /// A session is about to set the length by its call of this number: it takes nothing for given of what it was told by earlier ones.
    pub(crate) fn give_back(&self, session: u64, call: u64) {
        self.0.lock().sessions.retain(|other, last| *other != session || *last > call);
    }

    /// Whether somebody knows it; from now on nobody does whose right is of before.
    pub(crate) fn take(&self) -> bool {
        let known = std::mem::take(&mut *self.0.lock());
        known.left || !known.sessions.is_empty()
    }

    /// Their rights could not be ended.
    pub(crate) fn may_be_known(&self) {
        self.0.lock().left = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_knows_a_length_is_there_until_it_is_taken_from_him_or_he_gives_it_back() {
        let lengths = Lengths::default();
        assert!(!lengths.take());
        lengths.told(1, 5);
        lengths.give_back(2, 9);
        lengths.give_back(1, 4);
        assert!(lengths.take(), "call 5 came after it");
        assert!(!lengths.take());
        lengths.told(1, 5);
        lengths.told(1, 4);
        lengths.give_back(1, 6);
        assert!(!lengths.take());
        // Programs number no calls.
        lengths.told(3, 0);
        lengths.give_back(3, 0);
        assert!(!lengths.take());
        lengths.begin(true);
        assert!(lengths.take(), "an earlier node may have told somebody");
        lengths.may_be_known();
        assert!(lengths.take());
        lengths.may_be_known();
        lengths.begin(false);
        assert!(!lengths.take(), "nobody has it open");
    }
}
