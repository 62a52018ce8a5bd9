//! libiscsi: the unsafe part. The library is loaded when the first iSCSI device is used, so a machine that has none needs
//! none. What is declared here is that of `iscsi.h` and `scsi-lowlevel.h` for soname 7 (releases 1.16 to 1.19); the test
//! `declarations_are_those_of_the_header` compares.
#![allow(unsafe_code)]

use super::chap::Chap;
use crate::{CHECK_CONDITION, Data, Reply};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// File name of the library.
pub const LIBRARY: &CStr = c"libiscsi.so.7";
const SESSION_DISCOVERY: c_int = 1;
const SESSION_NORMAL: c_int = 2;
const XFER_NONE: c_int = 0;
const XFER_READ: c_int = 1;
const XFER_WRITE: c_int = 2;
const RESIDUAL_UNDERFLOW: c_int = 1;
/// Longest wait for a polite end of a session.
const LOGOUT: Duration = Duration::from_secs(2);

#[repr(C)]
struct Context {
    _opaque: [u8; 0],
}

/// Head of `struct scsi_task`, up to what is read here.
#[repr(C)]
struct Task {
    status: c_int,
    cdb_size: c_int,
    xfer_dir: c_int,
    expxferlen: c_int,
    cdb: [u8; 16],
    residual_status: c_int,
    residual: usize,
    sense: [u32; 4],
    datain_size: c_int,
    datain_data: *mut u8,
}

/// `struct scsi_iovec`.
#[repr(C)]
struct Iovec {
    base: *mut c_void,
    len: usize,
}

/// Head of `struct iscsi_discovery_address`.
#[repr(C)]
struct DiscoveryAddress {
    next: *const DiscoveryAddress,
    target_name: *const c_char,
}

type Callback = extern "C" fn(*mut Context, c_int, *mut c_void, *mut c_void);

macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions used here.
        #[allow(clippy::type_complexity)]
        struct Library { $($name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)* }

        impl Library {
            /// # Safety
            /// `handle` is that of libiscsi, soname 7.
            unsafe fn resolve(handle: *mut c_void) -> Result<Self, String> {
                $(
                    let name = CString::new(stringify!($name)).unwrap_or_default();
                    // SAFETY: a handle that dlopen gave, and a name that ends in NUL.
                    let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
                    if address.is_null() {
                        return Err(format!("{} lacks {}", LIBRARY.to_string_lossy(), stringify!($name)));
                    }
                    // SAFETY: this is the function's type in the library's header.
                    let $name = unsafe {
                        std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>(address)
                    };
                )*
                Ok(Self { $($name,)* })
            }
        }
    };
}

functions! {
    iscsi_create_context: fn(*const c_char) -> *mut Context;
    iscsi_destroy_context: fn(*mut Context) -> c_int;
    iscsi_set_targetname: fn(*mut Context, *const c_char) -> c_int;
    iscsi_set_session_type: fn(*mut Context, c_int) -> c_int;
    iscsi_set_initiator_username_pwd: fn(*mut Context, *const c_char, *const c_char) -> c_int;
    iscsi_set_target_username_pwd: fn(*mut Context, *const c_char, *const c_char) -> c_int;
    iscsi_set_noautoreconnect: fn(*mut Context, c_int);
    iscsi_set_isid_random: fn(*mut Context, u32, u32) -> c_int;
    iscsi_connect_async: fn(*mut Context, *const c_char, Callback, *mut c_void) -> c_int;
    iscsi_login_async: fn(*mut Context, Callback, *mut c_void) -> c_int;
    iscsi_logout_async: fn(*mut Context, Callback, *mut c_void) -> c_int;
    iscsi_discovery_async: fn(*mut Context, Callback, *mut c_void) -> c_int;
    iscsi_get_fd: fn(*mut Context) -> c_int;
    iscsi_which_events: fn(*mut Context) -> c_int;
    iscsi_service: fn(*mut Context, c_int) -> c_int;
    iscsi_get_error: fn(*mut Context) -> *const c_char;
    iscsi_set_tcp_keepalive: fn(*mut Context, c_int, c_int, c_int) -> c_int;
    iscsi_scsi_command_async: fn(*mut Context, c_int, *mut Task, Callback, *mut c_void, *mut c_void) -> c_int;
    scsi_create_task: fn(c_int, *mut u8, c_int, c_int) -> *mut Task;
    scsi_free_scsi_task: fn(*mut Task);
    scsi_task_set_iov_in: fn(*mut Task, *mut Iovec, c_int);
    scsi_task_set_iov_out: fn(*mut Task, *mut Iovec, c_int);
}

fn library() -> Result<&'static Library, Broken> {
    static LOADED: OnceLock<Result<Library, String>> = OnceLock::new();
    let load = || {
        // SAFETY: loading runs the library's constructors; libiscsi has none of its own.
        let handle = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            let name = LIBRARY.to_string_lossy();
            return Err(format!("iSCSI needs {name}, which cannot be loaded: apt-get install libiscsi7"));
        }
        // SAFETY: the soname says that it is that library. It is never unloaded.
        unsafe { Library::resolve(handle) }
    };
    LOADED.get_or_init(load).as_ref().map_err(|e| Broken::Unusable(e.clone()))
}

/// Why a session cannot be used (any more).
#[derive(Debug)]
pub enum Broken {
    /// libiscsi is missing, or an argument is impossible.
    Unusable(String),
    /// Nothing came within the time limit.
    Timeout,
    /// The session ended, or did not begin.
    Lost(String),
}

/// Where the callback puts the outcome. It lies on the heap until libiscsi cannot call back any more.
#[derive(Default)]
struct Outcome {
    done: bool,
    status: c_int,
    targets: Vec<String>,
}

extern "C" fn finished(_: *mut Context, status: c_int, data: *mut c_void, private: *mut c_void) {
    // SAFETY: `private` is the outcome of the pending call. It outlives the context (see `Session::call`) and is not
    // borrowed while libiscsi runs.
    let outcome = unsafe { &mut *private.cast::<Outcome>() };
    outcome.done = true;
    outcome.status = status;
    let _ = data;
}

extern "C" fn discovered(context: *mut Context, status: c_int, data: *mut c_void, private: *mut c_void) {
    let mut next = if status == 0 { data.cast_const().cast::<DiscoveryAddress>() } else { ptr::null() };
    // SAFETY: with status 0 the data of a discovery is a list that ends in NULL and lives during this call; names are C
    // strings.
    while let Some(address) = unsafe { next.as_ref() } {
        if !address.target_name.is_null() {
            // SAFETY: see above; the outcome as in `finished`.
            let name = unsafe { CStr::from_ptr(address.target_name) }.to_string_lossy().into_owned();
            unsafe { &mut *private.cast::<Outcome>() }.targets.push(name);
        }
        next = address.next;
    }
    finished(context, status, data, private);
}

/// Who talks to whom.
#[derive(Clone, Debug)]
pub struct Names {
    /// Name of this initiator.
    pub initiator: String,
    /// Host and port; an IPv6 address in brackets.
    pub portal: String,
    /// Target; None: a session for discovery only.
    pub target: Option<String>,
    /// Identifies the session within this initiator (24 and 16 bits).
    pub session: (u32, u16),
    /// Names and secrets, for targets that ask for them.
    pub chap: Option<Chap>,
}

/// A session with a target. After an error it has no connection and only waits to be dropped.
pub struct Session {
    library: &'static Library,
    context: Option<NonNull<Context>>,
}

// SAFETY: libiscsi keeps no state per thread; a context may be used by one thread after the other.
unsafe impl Send for Session {}

impl Session {
    /// Connects and logs in.
    pub fn open(names: &Names, limit: Duration) -> Result<Self, Broken> {
        let library = library()?;
        let text =
            |s: &str| CString::new(s).map_err(|_| Broken::Unusable(format!("{s:?} has a NUL character")));
        let (initiator, portal) = (text(&names.initiator)?, text(&names.portal)?);
        let target = names.target.as_deref().map(text).transpose()?;
        // SAFETY: a C string, which is copied.
        let context = NonNull::new(unsafe { (library.iscsi_create_context)(initiator.as_ptr()) });
        let context = context.ok_or_else(|| Broken::Unusable("libiscsi makes no context".into()))?;
        let mut session = Self { library, context: Some(context) };
        let raw = context.as_ptr();
        let kind = if target.is_some() { SESSION_NORMAL } else { SESSION_DISCOVERY };
        // SAFETY: a live context and C strings, which are copied. The settings fail only after a login.
        unsafe {
            if let Some(target) = &target {
                (library.iscsi_set_targetname)(raw, target.as_ptr());
            }
            (library.iscsi_set_session_type)(raw, kind);
            (library.iscsi_set_isid_random)(raw, names.session.0 & 0xFF_FFFF, u32::from(names.session.1));
            // A library that reconnects behind our back would send commands again.
            (library.iscsi_set_noautoreconnect)(raw, 1);
        }
        if let Some(chap) = &names.chap {
            session.authenticate(raw, chap)?;
        }
        let end = deadline(limit);
        // SAFETY: a live context, a C string that lives during the call, and the outcome that `call` keeps.
        session.call(end, finished, |context, callback, outcome| unsafe {
            (library.iscsi_connect_async)(context, portal.as_ptr(), callback, outcome)
        })?;
        // SAFETY: the connection has a socket; a failure only means that a dead peer is noticed later.
        unsafe { (library.iscsi_set_tcp_keepalive)(raw, 30, 3, 30) };
        // SAFETY: as before.
        session.call(end, finished, |context, callback, outcome| unsafe {
            (library.iscsi_login_async)(context, callback, outcome)
        })?;
        Ok(session)
    }

    /// Who we are, and who the target must be.
    fn authenticate(&self, raw: *mut Context, chap: &Chap) -> Result<(), Broken> {
        let text = |s: &str| {
            CString::new(s).map_err(|_| Broken::Unusable("a name or secret has a NUL character".into()))
        };
        let (user, secret) = (text(&chap.ours.user)?, text(&chap.ours.secret)?);
        // SAFETY: a live context and C strings, which are copied.
        let mut set =
            unsafe { (self.library.iscsi_set_initiator_username_pwd)(raw, user.as_ptr(), secret.as_ptr()) };
        if let Some(theirs) = &chap.theirs {
            let (user, secret) = (text(&theirs.user)?, text(&theirs.secret)?);
            // SAFETY: as before.
            set |=
                unsafe { (self.library.iscsi_set_target_username_pwd)(raw, user.as_ptr(), secret.as_ptr()) };
        }
        match set {
            0 => Ok(()),
            _ => Err(Broken::Unusable("libiscsi does not take the name and secret for CHAP".into())),
        }
    }

    /// Names of the targets behind the portal of a discovery session.
    pub fn targets(&mut self, limit: Duration) -> Result<Vec<String>, Broken> {
        let start = self.library.iscsi_discovery_async;
        // SAFETY: a live context and the outcome that `call` keeps.
        let begin = |context, callback, outcome| unsafe { start(context, callback, outcome) };
        Ok(self.call(deadline(limit), discovered, begin)?.targets)
    }

    /// Handles what came in since the last command (targets ask idle initiators whether they live).
    pub fn look(&mut self) -> Result<(), Broken> {
        let Some(context) = self.context else { return Err(gone()) };
        let result = self.step(context, 0);
        if result.is_err() {
            self.destroy();
        }
        result
    }

    /// Executes one command; any error ends the session.
    pub fn execute(
        &mut self,
        lun: u16,
        cdb: &[u8],
        data: Data<'_>,
        limit: Duration,
    ) -> Result<Reply, Broken> {
        let too_long = |_| Broken::Unusable("a command of 2 GiB or more".into());
        let (direction, base, len) = match data {
            Data::None | Data::There(_) | Data::Keep(_) | Data::In([]) | Data::Out([]) => {
                (XFER_NONE, ptr::null_mut(), 0)
            }
            Data::In(room) => (XFER_READ, room.as_mut_ptr(), room.len()),
            // Data that goes out is only read.
            Data::Out(bytes) => (XFER_WRITE, bytes.as_ptr().cast_mut(), bytes.len()),
        };
        let mut cdb: Vec<u8> = cdb.to_vec();
        if cdb.len() > 16 {
            return Err(Broken::Unusable("a command of more than 16 bytes".into()));
        }
        let (cdb_size, expected) =
            (c_int::try_from(cdb.len()).map_err(too_long)?, c_int::try_from(len).map_err(too_long)?);
        let library = self.library;
        let mut iovec = Iovec { base: base.cast(), len };
        // SAFETY: the CDB is copied.
        let task = unsafe { (library.scsi_create_task)(cdb_size, cdb.as_mut_ptr(), direction, expected) };
        if task.is_null() {
            return Err(Broken::Unusable("libiscsi makes no task".into()));
        }
        // SAFETY: a live task; the vector and what it points to live until the command has ended or the context is gone,
        // which `call` waits for.
        unsafe {
            match direction {
                XFER_READ => (library.scsi_task_set_iov_in)(task, &raw mut iovec, 1),
                XFER_WRITE => (library.scsi_task_set_iov_out)(task, &raw mut iovec, 1),
                _ => {}
            }
        }
        // SAFETY: a live context and task, and the outcome that `call` keeps.
        let outcome = self.call(deadline(limit), finished, |context, callback, outcome| unsafe {
            let task = task.cast();
            (library.iscsi_scsi_command_async)(context, lun.into(), task, callback, ptr::null_mut(), outcome)
        });
        // SAFETY: the command has ended or its context is gone, so nobody else uses the task.
        let reply = outcome.map(|outcome| unsafe { answer(&*task, outcome.status, len) });
        // SAFETY: see above.
        unsafe { (library.scsi_free_scsi_task)(task) };
        reply
    }

    /// Begins something and waits for its callback. On any error the context is destroyed before this returns, so that
    /// nothing given to it is used afterwards.
    fn call(
        &mut self,
        end: Option<Instant>,
        callback: Callback,
        begin: impl FnOnce(*mut Context, Callback, *mut c_void) -> c_int,
    ) -> Result<Outcome, Broken> {
        let Some(context) = self.context else { return Err(gone()) };
        let outcome = Box::into_raw(Box::<Outcome>::default());
        let begun = begin(context.as_ptr(), callback, outcome.cast());
        let mut result = if begun == 0 { self.wait(context, outcome, end) } else { Err(self.error(context)) };
        // SAFETY: libiscsi is not running, so nobody else looks at it.
        let status = unsafe { (*outcome).status };
        // Codes above a byte are those of libiscsi: cancelled, failed, timed out.
        if result.is_ok() && !(0..=0xFF).contains(&status) {
            result = Err(self.error(context));
        }
        if result.is_err() {
            self.destroy();
        }
        // SAFETY: it came from a Box, and its callback was called or its context is gone.
        let outcome = unsafe { Box::from_raw(outcome) };
        result.map(|()| *outcome)
    }

    fn wait(
        &self,
        context: NonNull<Context>,
        outcome: *const Outcome,
        end: Option<Instant>,
    ) -> Result<(), Broken> {
        // SAFETY: the outcome lives, and libiscsi runs only inside of `step`.
        let done = || unsafe { (*outcome).done };
        loop {
            if done() {
                return Ok(());
            }
            let left = end.map_or(Duration::MAX, |end| end.saturating_duration_since(now()));
            if left.is_zero() {
                return Err(Broken::Timeout);
            }
            let step = self.step(context, left.as_millis().clamp(1, 1000) as c_int);
            // A step that fails may have ended the call first, with a status that says why.
            if !done() {
                step?;
            }
        }
    }

    /// Waits for the socket at most so many milliseconds and lets libiscsi do its work.
    fn step(&self, context: NonNull<Context>, milliseconds: c_int) -> Result<(), Broken> {
        let raw = context.as_ptr();
        // SAFETY: a live context; poll gets one valid entry.
        unsafe {
            let fd = (self.library.iscsi_get_fd)(raw);
            if fd < 0 {
                return Err(self.error(context));
            }
            let events = (self.library.iscsi_which_events)(raw) as i16;
            let mut poll = libc::pollfd { fd, events, revents: 0 };
            if libc::poll(&raw mut poll, 1, milliseconds) < 0 {
                let e = std::io::Error::last_os_error();
                let again = e.kind() == std::io::ErrorKind::Interrupted;
                return if again { Ok(()) } else { Err(Broken::Lost(e.to_string())) };
            }
            if (self.library.iscsi_service)(raw, c_int::from(poll.revents)) < 0 {
                return Err(self.error(context));
            }
        }
        Ok(())
    }

    fn error(&self, context: NonNull<Context>) -> Broken {
        // SAFETY: a live context; the text is copied before anything else happens to it.
        let text = unsafe {
            let text = (self.library.iscsi_get_error)(context.as_ptr());
            if text.is_null() { String::new() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
        };
        let text = text.trim();
        Broken::Lost(if text.is_empty() { "the session ended".into() } else { text.to_owned() })
    }

    fn destroy(&mut self) {
        if let Some(context) = self.context.take() {
            // SAFETY: a live context, used for the last time. It calls back what is pending; those outcomes still live.
            unsafe { (self.library.iscsi_destroy_context)(context.as_ptr()) };
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.context.is_some() {
            let start = self.library.iscsi_logout_async;
            // SAFETY: a live context and the outcome that `call` keeps.
            let begin = |context, callback, outcome| unsafe { start(context, callback, outcome) };
            // Without an answer the target ends the session by itself.
            let _ = self.call(deadline(LOGOUT), finished, begin);
        }
        self.destroy();
    }
}

fn gone() -> Broken {
    Broken::Lost("the session has ended".into())
}

/// What the device answered.
///
/// # Safety
/// The task has ended, and libiscsi filled it in.
unsafe fn answer(task: &Task, status: c_int, length: usize) -> Reply {
    let missing = if task.residual_status == RESIDUAL_UNDERFLOW { task.residual.min(length) } else { 0 };
    let status = status as u8;
    let mut sense = Vec::new();
    if status == CHECK_CONDITION && !task.datain_data.is_null() {
        // SAFETY: libiscsi gives pointer and size of what came with the status: the length of the sense data in two
        // bytes, and the sense data.
        let raw = unsafe {
            std::slice::from_raw_parts(task.datain_data, usize::try_from(task.datain_size).unwrap_or(0))
        };
        if let [high, low, rest @ ..] = raw {
            let n = usize::from(u16::from_be_bytes([*high, *low])).min(rest.len());
            sense = rest[..n].to_vec();
        }
    }
    Reply { status, transferred: length - missing, sense }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a wait for the network has a limit; nothing is decided by the time"
)]
fn now() -> Instant {
    Instant::now()
}

/// None: too far away to matter.
fn deadline(limit: Duration) -> Option<Instant> {
    now().checked_add(limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    /// The header of the package libiscsi-dev, as a C compiler sees it, says the same as the declarations above.
    #[test]
    fn declarations_are_those_of_the_header() {
        let mut program =
            String::from("#include <stddef.h>\n#include <iscsi/iscsi.h>\n#include <iscsi/scsi-lowlevel.h>\n");
        let mut same = |c: &str, ours: usize| {
            program += &format!("_Static_assert(({c}) == {ours}, \"{c}\");\n");
        };
        same("offsetof(struct scsi_task, status)", offset_of!(Task, status));
        same("offsetof(struct scsi_task, cdb)", offset_of!(Task, cdb));
        same("sizeof ((struct scsi_task *)0)->cdb", 16);
        same("offsetof(struct scsi_task, residual_status)", offset_of!(Task, residual_status));
        same("offsetof(struct scsi_task, residual)", offset_of!(Task, residual));
        same("sizeof ((struct scsi_task *)0)->residual", size_of::<usize>());
        same("offsetof(struct scsi_task, datain.size)", offset_of!(Task, datain_size));
        same("offsetof(struct scsi_task, datain.data)", offset_of!(Task, datain_data));
        same("offsetof(struct scsi_iovec, iov_base)", offset_of!(Iovec, base));
        same("offsetof(struct scsi_iovec, iov_len)", offset_of!(Iovec, len));
        same("sizeof(struct scsi_iovec)", size_of::<Iovec>());
        same("offsetof(struct iscsi_discovery_address, next)", offset_of!(DiscoveryAddress, next));
        same(
            "offsetof(struct iscsi_discovery_address, target_name)",
            offset_of!(DiscoveryAddress, target_name),
        );
        same("ISCSI_SESSION_DISCOVERY", SESSION_DISCOVERY as usize);
        same("ISCSI_SESSION_NORMAL", SESSION_NORMAL as usize);
        same("SCSI_XFER_NONE", XFER_NONE as usize);
        same("SCSI_XFER_READ", XFER_READ as usize);
        same("SCSI_XFER_WRITE", XFER_WRITE as usize);
        same("SCSI_RESIDUAL_UNDERFLOW", RESIDUAL_UNDERFLOW as usize);
        for prototype in [
            "struct iscsi_context *iscsi_create_context(const char *)",
            "int iscsi_destroy_context(struct iscsi_context *)",
            "int iscsi_connect_async(struct iscsi_context *, const char *, iscsi_command_cb, void *)",
            "int iscsi_login_async(struct iscsi_context *, iscsi_command_cb, void *)",
            "int iscsi_discovery_async(struct iscsi_context *, iscsi_command_cb, void *)",
            "void iscsi_set_noautoreconnect(struct iscsi_context *, int)",
            "int iscsi_set_isid_random(struct iscsi_context *, uint32_t, uint32_t)",
            "int iscsi_set_tcp_keepalive(struct iscsi_context *, int, int, int)",
            "int iscsi_scsi_command_async(struct iscsi_context *, int, struct scsi_task *, iscsi_command_cb, \
             struct iscsi_data *, void *)",
            "struct scsi_task *scsi_create_task(int, unsigned char *, int, int)",
            "void scsi_task_set_iov_in(struct scsi_task *, struct scsi_iovec *, int)",
        ] {
            program += &format!("{prototype};\n");
        }
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("declarations.c");
        std::fs::write(&source, program).unwrap();
        let compiler =
            std::process::Command::new("cc").args(["-fsyntax-only", "-Werror"]).arg(&source).output();
        let done = compiler.expect("needs a C compiler and libiscsi-dev: apt-get install gcc libiscsi-dev");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
}
