//! Things that threads take turns with; the one used last is used next.

use std::ops::{Deref, DerefMut};

use parking_lot::{Condvar, Mutex};

/// A stock of things; whoever finds none waits.
pub(super) struct Pool<T> {
    idle: Mutex<Vec<T>>,
    freed: Condvar,
}

/// One of them, until it is dropped.
pub(super) struct Taken<'p, T> {
    pool: &'p Pool<T>,
    thing: Option<T>,
}

impl<T> Pool<T> {
    pub(super) fn new(things: impl Iterator<Item = T>) -> Self {
        Self { idle: Mutex::new(things.collect()), freed: Condvar::new() }
    }

    pub(super) fn take(&self) -> Taken<'_, T> {
        let mut idle = self.idle.lock();
        loop {
            if let Some(thing) = idle.pop() {
                return Taken { pool: self, thing: Some(thing) };
            }
            self.freed.wait(&mut idle);
        }
    }
}

impl<T> Deref for Taken<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.thing.as_ref().expect("it is there until it is dropped")
    }
}

impl<T> DerefMut for Taken<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.thing.as_mut().expect("it is there until it is dropped")
    }
}

impl<T> Drop for Taken<'_, T> {
    fn drop(&mut self) {
        if let Some(thing) = self.thing.take() {
            self.pool.idle.lock().push(thing);
            self.pool.freed.notify_one();
        }
    }
}
