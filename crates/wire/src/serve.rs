//! The node's end of a connection.

use crate::{Call, Channel, Failure, Reply, WireError};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use types::{ErrorClass, FileView, Grade, PathText};

/// Wire version from which on clients know all grades of findings.
const GRADES_SINCE: u32 = 5;
/// From this version on, names and paths of views may be other than UTF-8.
const NAMES_AS_BYTES: u32 = 5;
/// From this version on, clients hear where something was written.
const WRITTEN_SINCE: u32 = 5;

/// A reply and the descriptor that goes with it.
#[derive(Debug)]
pub struct Answer {
    /// The reply. `direct` of `Opened` is set from whether there is a descriptor.
    pub reply: Reply,
    /// Descriptor of the whole file's object, opened with no more rights than the call asked for.
    pub descriptor: Option<Arc<OwnedFd>>,
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Self {
        Self { reply, descriptor: None }
    }
}

/// Answers the calls of one connection, one after another, until the client closes it (`Ok`). Whoever wants to end it
/// keeps a clone of the stream and shuts that down. An answer that is too large becomes a [`Failure`].
///
/// # Errors
/// A client of another version, one that breaks the protocol, or a socket that failed.
pub fn serve_connection(
    stream: UnixStream,
    program: &str,
    handler: &mut dyn FnMut(Call) -> Result<Answer, Failure>,
) -> Result<(), WireError> {
    serve_channel(Channel::open(stream, program)?, handler)
}

/// The same for a connection that is open already. Where no descriptors travel, an open file has none.
///
/// # Errors
/// As [`serve_connection`].
pub fn serve_channel(
    mut channel: Channel,
    handler: &mut dyn FnMut(Call) -> Result<Answer, Failure>,
) -> Result<(), WireError> {
    loop {
        let (id, call) = match channel.receive_call() {
            Err(WireError::Closed) => return Ok(()),
            other => other?,
        };
        let (result, descriptor) = match handler(call) {
            Ok(Answer { reply, descriptor }) => {
                let descriptor = descriptor.filter(|_| channel.carries_descriptors());
                (Ok(consistent(older(reply, channel.version()), descriptor.is_some())), descriptor)
            }
            Err(failure) => (Err(failure), None),
        };
        match channel.send_result(id, &result, descriptor.as_ref().map(|fd| fd.as_fd())) {
            Err(e @ WireError::TooLarge(_)) => {
                let failure = Failure { class: ErrorClass::Invalid, fs: None, message: e.to_string() };
                channel.send_result(id, &Err(failure), None)?;
            }
            other => other?,
        }
    }
}

/// An answer as a version that does not know all of it understands it.
fn older(mut reply: Reply, version: u32) -> Reply {
    if version < NAMES_AS_BYTES {
        in_utf8(&mut reply);
    }
    if let Reply::Check(report) = &mut reply
        && version < GRADES_SINCE
    {
        let unknown = report.findings.iter_mut().filter(|f| f.grade == Grade::Incomplete);
        unknown.for_each(|f| f.grade = Grade::Leftover);
    }
    match reply {
        Reply::Written { count, .. } if version < WRITTEN_SINCE => Reply::Count(count),
        reply => reply,
    }
}

fn consistent(reply: Reply, with_descriptor: bool) -> Reply {
    match reply {
        Reply::Opened { handle, attr, .. } => Reply::Opened { handle, attr, direct: with_descriptor },
        other => other,
    }
}

/// For clients that refuse what is not UTF-8: it is replaced, as it was when they were made.
fn in_utf8(reply: &mut Reply) {
    let path = |path: &mut PathText| *path = path.lossy().into_owned().into();
    let file = |view: &mut FileView| {
        path(&mut view.path);
        view.link_target.as_mut().map(path);
    };
    match reply {
        Reply::Files { entries, .. } => entries.iter_mut().for_each(|(_, view)| file(view)),
        Reply::File(view) => file(view),
        Reply::RequestItems(items) => items.iter_mut().for_each(|item| path(&mut item.path)),
        Reply::PurgeList(found) => found.iter_mut().for_each(|one| path(&mut one.path)),
        Reply::Ended { found, .. } => found.iter_mut().for_each(|one| path(&mut one.path)),
        Reply::Quote(quote) => quote.lost_files.iter_mut().for_each(|lost| path(&mut lost.path)),
        _ => {}
    }
}
