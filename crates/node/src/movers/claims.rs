//! Files of which a column is being rebuilt or moved: one at a time of each file, and who may be let at its targets meanwhile.

use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use types::{ObjectId, TargetId};

/// By first object.
#[derive(Default)]
pub(super) struct Claims {
    files: Mutex<BTreeMap<ObjectId, Doing>>,
    given_back: Condvar,
}

#[derive(Clone, Copy, Default)]
struct Doing {
    /// Something of it is copied.
    copies: bool,
    /// A column, to this target.
    to: Option<TargetId>,
    /// Objects are made for it, on targets that are not known before.
    widens: bool,
    /// It is about to lie there.
    ends: bool,
    /// Somebody else waits for it.
    wanted: bool,
}

/// A file that nobody else rebuilds or moves.
pub(super) struct Claim<'a> {
    claims: &'a Claims,
    object: ObjectId,
}

impl Claims {
    /// Waits until nobody else has it.
    pub(super) fn take(&self, object: ObjectId) -> Claim<'_> {
        let mut files = self.files.lock();
        while let Some(doing) = files.get_mut(&object) {
            doing.wanted = true;
            self.given_back.wait(&mut files);
        }
        files.insert(object, Doing::default());
        Claim { claims: self, object }
    }

    /// None if somebody else has it.
    pub(super) fn try_take(&self, object: ObjectId) -> Option<Claim<'_>> {
        let mut files = self.files.lock();
        let free = !files.contains_key(&object);
        free.then(|| {
            files.insert(object, Doing::default());
            Claim { claims: self, object }
        })
    }

    /// What `look` finds of a file, and whether a client may be let at its targets as they are then, to write or only to read. Whoever writes
    /// while a column is copied does it through the node, which copies that once more.
    pub(super) fn look<T>(&self, object: ObjectId, writes: bool, look: impl FnOnce() -> T) -> (T, bool) {
        let files = self.files.lock();
        let closed = files.get(&object).is_some_and(|doing| doing.ends || (writes && doing.copies));
        (look(), !closed)
    }

    /// What `look` gives of a file of which no column is being rebuilt or moved; None: one is.
    pub(super) fn unless_claimed<T>(&self, object: ObjectId, look: impl FnOnce() -> T) -> Option<T> {
        let files = self.files.lock();
        (!files.contains_key(&object)).then(look)
    }

    /// Whether an object may just be copied to a target, or made there for a file that grows.
    pub(super) fn copies(&self, object: ObjectId, to: TargetId) -> bool {
        // Columns have higher numbers than the file; more than that need not be known.
        self.files.lock().range(..=object).any(|(_, doing)| doing.to == Some(to) || doing.widens)
    }
}

impl Claim<'_> {
    fn set(&self, doing: Doing) {
        let wanted = self.is_wanted();
        self.claims.files.lock().insert(self.object, Doing { wanted, ..doing });
    }

    /// Whether somebody else waits for it: a writer whose target is full, or who moves its columns.
    pub(super) fn is_wanted(&self) -> bool {
        self.claims.files.lock().get(&self.object).is_some_and(|doing| doing.wanted)
    }

    /// A column is copied: from now on nobody gets a right to write at the targets.
    pub(super) fn copies_to(&self, to: TargetId) {
        self.set(Doing { copies: true, to: Some(to), ..Doing::default() });
    }

    /// The same; all of it, to other objects.
    pub(super) fn copies(&self) {
        self.set(Doing { copies: true, ..Doing::default() });
    }

    /// It gets more targets: from now on nobody gets any right.
    pub(super) fn widens(&self) {
        self.set(Doing { ends: true, widens: true, ..Doing::default() });
    }

    /// From now on nobody gets any.
    pub(super) fn ends(&self) {
        if let Some(doing) = self.claims.files.lock().get_mut(&self.object) {
            doing.ends = true;
        }
    }

    /// It lies where the catalogue says.
    pub(super) fn over(&self) {
        self.set(Doing::default());
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.claims.files.lock().remove(&self.object);
        self.claims.given_back.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_are_let_at_targets_again_when_a_move_is_over_and_readers_until_it_ends() {
        let (claims, file, to) = (Claims::default(), ObjectId(7), TargetId(2));
        let may = || [true, false].map(|writes| claims.look(file, writes, || ()).1);
        let claim = claims.take(file);
        assert_eq!(may(), [true, true], "a rebuild concerns nobody else");
        claim.copies_to(to);
        assert_eq!((may(), claims.copies(ObjectId(8), to)), ([false, true], true));
        assert!(!claims.copies(ObjectId(6), to) && !claims.copies(file, TargetId(3)));
        claim.ends();
        assert_eq!(may(), [false, false]);
        claim.over();
        assert_eq!((may(), claims.copies(file, to)), ([true, true], false));
        claim.copies();
        assert_eq!((may(), claims.copies(file, to)), ([false, true], false));
        claim.ends();
        assert_eq!(may(), [false, false]);
        claim.widens();
        assert_eq!((may(), claims.copies(ObjectId(8), to)), ([false, false], true));
        assert!(!claims.copies(ObjectId(6), to), "its next objects have higher numbers");
        drop(claim);
        assert_eq!(may(), [true, true]);
    }

    #[test]
    fn a_file_is_claimed_once_at_a_time() {
        let (claims, file) = (Claims::default(), ObjectId(7));
        let first = claims.take(file);
        let other = claims.take(ObjectId(8));
        assert!(claims.try_take(file).is_none() && claims.try_take(ObjectId(9)).is_some());
        std::thread::scope(|scope| {
            let second = scope.spawn(|| drop(claims.take(file)));
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!second.is_finished());
            assert!(first.is_wanted() && !other.is_wanted());
            first.copies();
            assert!(first.is_wanted(), "whatever is done with it");
            drop((first, other));
        });
    }
}
