//! Which descriptors of the program are files that may lie on a mount of a node.
//!
//! The table belongs to one process. A child of fork(2) begins with an empty one: what it has inherited goes to the mount. A child of
//! vfork(2) runs in the memory of its parent with descriptors of its own, so for any other process than the one that the table belongs
//! to there is none.

use crate::log;
use crate::nodes::Nodes;
use crate::open::{self, Open, What};
use crate::{own, real};
use libc::{c_int, pid_t};
use parking_lot::{Mutex, RwLock};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Who takes the number of a descriptor that the library uses waits for so long until another thread has come out of it.
const RETIRING: Duration = Duration::from_secs(2);
/// Descriptors from this number on go to the mount.
pub const MOST: usize = 1 << 16;

/// Which descriptors are in the table: what is not here is not, whatever the table says.
static KNOWN: Numbers = Numbers::new();
static TABLE: AtomicPtr<Table> = AtomicPtr::new(null_mut());
static OWNER: AtomicI32 = AtomicI32::new(0);

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Numbers of descriptors, which signal handlers may look at too.
pub struct Numbers {
    marks: [AtomicBool; MOST],
    /// None is as great.
    end: AtomicUsize,
}

impl Numbers {
    /// None.
    pub const fn new() -> Self {
        Self { marks: [const { AtomicBool::new(false) }; MOST], end: AtomicUsize::new(0) }
    }

    fn mark(&self, fd: c_int) -> Option<&AtomicBool> {
        self.marks.get(usize::try_from(fd).ok()?)
    }

    /// Whether it is one of them.
    pub fn has(&self, fd: c_int) -> bool {
        self.mark(fd).is_some_and(|mark| mark.load(Ordering::Acquire))
    }

    /// One more; one of [`MOST`] or greater is left out.
    pub fn add(&self, fd: c_int) {
        if let Some(mark) = self.mark(fd) {
            self.end.fetch_max(fd as usize + 1, Ordering::AcqRel);
            mark.store(true, Ordering::Release);
        }
    }

    /// One less.
    pub fn remove(&self, fd: c_int) {
        self.mark(fd).into_iter().for_each(|mark| mark.store(false, Ordering::Release));
    }

    /// Those between two, both included.
    pub fn within(&self, first: c_int, last: c_int) -> impl Iterator<Item = c_int> {
        let end = self.end.load(Ordering::Acquire) as c_int;
        (first.max(0)..end.min(last.saturating_add(1))).filter(|fd| self.has(*fd))
    }
}

/// What is known of this process.
#[derive(Default)]
pub struct Table {
    files: RwLock<BTreeMap<c_int, Arc<Open>>>,
    /// Files that were mapped: what is mapped is seen by the mount only.
    mapped: Mutex<BTreeSet<What>>,
    /// Nodes that were found.
    pub nodes: Nodes,
}

/// While it lives this thread is at work in the library: calls that it makes, and those of a signal handler in between, are not taken
/// over. Keeps errno as it was.
pub struct Inside {
    errno: c_int,
}

impl Inside {
    fn enter() -> Option<Self> {
        let first = INSIDE.try_with(|inside| !inside.replace(true)).unwrap_or(false);
        // SAFETY: errno of this thread.
        first.then(|| Self { errno: unsafe { *libc::__errno_location() } })
    }

    /// This thread is one of the library's.
    pub fn for_ever() {
        let _ = INSIDE.try_with(|inside| inside.set(true));
    }

    /// Whether this thread is.
    pub fn is() -> bool {
        INSIDE.try_with(Cell::get).unwrap_or(true)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        // SAFETY: errno of this thread.
        unsafe { *libc::__errno_location() = self.errno };
        let _ = INSIDE.try_with(|inside| inside.set(false));
    }
}

/// Called by the loader before the program begins.
extern "C" fn begin() {
    log::begin();
    open::begin();
    OWNER.store(process(), Ordering::Release);
    TABLE.store(Box::into_raw(Box::default()), Ordering::Release);
    // SAFETY: functions of this library, which is never unloaded. If they cannot be registered there is no table.
    let registered = unsafe { libc::pthread_atfork(None, None, Some(forked)) == 0 && libc::atexit(end) == 0 };
    if !registered {
        TABLE.store(null_mut(), Ordering::Release);
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

/// In the child. What the parent had is left alone: its threads, which held the locks, are not here.
extern "C" fn forked() {
    own::close_all();
    KNOWN.within(0, c_int::MAX).for_each(|fd| KNOWN.remove(fd));
    OWNER.store(process(), Ordering::Release);
    if !TABLE.load(Ordering::Acquire).is_null() {
        TABLE.store(Box::into_raw(Box::default()), Ordering::Release);
    }
}

/// The program ends: nodes are told what it had open.
extern "C" fn end() {
    let Some(table) = table() else { return };
    let Some(_inside) = Inside::enter() else { return };
    let all = std::mem::take(&mut *table.files.write());
    drop(all);
}

fn process() -> pid_t {
    // SAFETY: it cannot fail.
    unsafe { libc::getpid() }
}

/// The table of this process.
fn table() -> Option<&'static Table> {
    // SAFETY: what was stored there is never freed.
    let table = unsafe { TABLE.load(Ordering::Acquire).as_ref() }?;
    (OWNER.load(Ordering::Acquire) == process()).then_some(table)
}

/// Does something with an open file that is known; None: it is not, or that is to be done by the mount.
pub fn with<T>(fd: c_int, act: impl FnOnce(&Table, &Arc<Open>) -> Option<T>) -> Option<T> {
    if !KNOWN.has(fd) {
        return None;
    }
    let (table, _inside) = (table()?, Inside::enter()?);
    let open = table.files.read().get(&fd).cloned()?;
    // A defect is one of the library, not of the program.
    catch_unwind(AssertUnwindSafe(|| act(table, &open))).ok().flatten()
}

/// The program has opened something.
pub fn opened(fd: c_int, flags: c_int) {
    forget(fd);
    if fd < 0 || !Open::may_be(flags) || Inside::is() {
        return;
    }
    let Some(table) = table() else { return };
    let Some(_inside) = Inside::enter() else { return };
    if let Some(open) = Open::new(fd, flags) {
        table.enter(fd, Arc::new(open));
    }
}

/// One descriptor is another one's copy.
pub fn copied(from: c_int, to: c_int) {
    if to < 0 || from == to {
        return;
    }
    let open = with(from, |_, open| Some(open.clone()));
    forget(to);
    let Some(open) = open else { return };
    if let (Some(table), Some(_inside)) = (table(), Inside::enter()) {
        table.enter(to, open);
    }
}

/// A descriptor is closed, or stands for something else now.
pub fn forget(fd: c_int) {
    if !KNOWN.has(fd) {
        return;
    }
    let Some(table) = table() else { return };
    KNOWN.remove(fd);
    let Some(_inside) = Inside::enter() else { return };
    let open = table.files.write().remove(&fd);
    drop(open);
}

/// The same for all of a range.
pub fn forget_range(first: c_int, last: c_int) {
    KNOWN.within(first, last).for_each(forget);
}

/// The program maps a file: from now on all of its bytes go through the mount, however it was or will be opened.
pub fn mapped(fd: c_int) {
    with(fd, |table, open| {
        table.mapped.lock().insert(open.what);
        table.leave(fd, open.what);
        Some(())
    });
}

/// The bytes of a file go through the mount from now on: the kernel is to move them by itself, or flags were set.
pub fn leave(fd: c_int) {
    with(fd, |table, open| {
        table.leave(fd, open.what);
        Some(())
    });
}

/// Nodes are told what was written past their mounts.
pub fn tell_all() {
    if KNOWN.within(0, c_int::MAX).next().is_none() {
        return;
    }
    let (Some(table), Some(_inside)) = (table(), Inside::enter()) else { return };
    let all: Vec<_> = table.files.read().values().cloned().collect();
    let until = Instant::now() + open::PATIENCE;
    let _ = catch_unwind(AssertUnwindSafe(|| all.iter().for_each(|open| open.tell(until))));
}

/// The same of one file.
pub fn tell(fd: c_int) {
    with(fd, |table, open| {
        let until = Instant::now() + open::PATIENCE;
        table.all(open.what).iter().for_each(|open| open.tell(until));
        Some(())
    });
}

/// What was written past the mount to a file is durable; false: it is not, or nobody knows.
pub fn sync(fd: c_int) -> bool {
    let synced = |table: &Table, open: &Arc<Open>| {
        let all = table.all(open.what);
        let until = Instant::now() + open::PATIENCE;
        // All are synced, whatever comes of the first; whoever syncs one of the others hears of it too.
        let synced = || {
            let heard = open.hears_of_loss();
            let whole = all.iter().filter(|open| !open.sync(until)).count() == 0;
            let others = all.iter().filter(|other| !whole && !Arc::ptr_eq(other, open));
            others.for_each(|other| other.note_loss());
            whole && !heard
        };
        Some(catch_unwind(AssertUnwindSafe(synced)).unwrap_or(false))
    };
    with(fd, synced).unwrap_or(true)
}

/// The program takes the number of a descriptor of the library: from now on everything goes to the mount, and the library closes what it has open,
/// so that none of its threads meets the program's descriptor. False: another thread is just using it.
pub fn retire(fd: c_int) -> bool {
    if OWNER.load(Ordering::Acquire) != process() {
        // A child of vfork(2) has descriptors of its own.
        return true;
    }
    let Some(_inside) = Inside::enter() else { return false };
    if let Some(table) = table() {
        log::say(&format_args!(
            "the program takes descriptor {fd}: from here on everything goes to the mount"
        ));
        TABLE.store(null_mut(), Ordering::Release);
        let all = std::mem::take(&mut *table.files.write());
        all.values().for_each(|open| open.leave());
        drop(all);
        table.nodes.end();
    }
    let until = Instant::now() + RETIRING;
    while own::is_own(fd) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    !own::is_own(fd)
}

impl Table {
    fn enter(&self, fd: c_int, open: Arc<Open>) {
        let before = self.files.write().insert(fd, open);
        drop(before);
        KNOWN.add(fd);
    }

    fn leave(&self, fd: c_int, what: What) {
        self.all(what).iter().for_each(|open| open.leave());
        open::measure(fd);
    }

    /// All that is open of a file.
    fn all(&self, what: What) -> Vec<Arc<Open>> {
        self.files.read().values().filter(|open| open.what == what).cloned().collect()
    }

    /// Whether the program has mapped a file.
    pub fn is_mapped(&self, what: What) -> bool {
        self.mapped.lock().contains(&what)
    }
}

/// Where the next read or write of a descriptor begins, which is moved by `by`; None: it cannot be.
pub fn advance(fd: c_int, by: i64) -> Option<i64> {
    // SAFETY: moves the position of a descriptor.
    let end = unsafe { real::lseek()(fd, by, libc::SEEK_CUR) };
    (end >= 0).then(|| end - by)
}
