//! Questions to other nodes of the cluster.

use super::{Own, told};
use crate::error::failure;
use ident::Connector;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use types::{ErrorClass, MemberId};
use wire::{Call, Channel, Failure, Reply, SubsystemView, WireError};

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// The next address is asked, too, when one has not answered for so long ...
const SILENT: Duration = Duration::from_millis(500);
/// ... and one that has nothing to say is asked again as often, as long as another one may still answer.
const AGAIN: Duration = Duration::from_millis(500);
const PROGRAM: &str = concat!("thermo ", env!("CARGO_PKG_VERSION"));

impl Own {
    /// Asks as [`ask`] does.
    pub(crate) fn ask(
        &self,
        addresses: &[String],
        whom: Option<MemberId>,
        call: &Call,
    ) -> Result<Reply, Failure> {
        ask(&self.connector, addresses, whom, call)
    }

    /// The same for what several may be asked, and each of them more than once: one that stands still keeps nobody from the others.
    pub(crate) fn ask_any(self: &Arc<Self>, addresses: &[String], call: Call) -> Result<Reply, Failure> {
        let own = self.clone();
        first_answer(addresses, move |address| try_at(&own.connector, address, None, &call))
    }

    /// The same of a subsystem: it is asked first whose names it holds, and only who `is_wanted` is asked more. Who holds others, or none, keeps nobody from the next.
    pub(crate) fn ask_subsystem(
        self: &Arc<Self>,
        addresses: &[String],
        is_wanted: impl Fn(&SubsystemView) -> Result<(), Failure> + Send + Sync + 'static,
        call: Call,
    ) -> Result<Reply, Failure> {
        let own = self.clone();
        let ask = move |address: &str| {
            let mut channel = open(&own.connector, address, None)?;
            match exchange(&mut channel, 1, &Call::Subsystem)? {
                Ok(Reply::Subsystem(found)) => is_wanted(&found)?,
                Ok(_) => {
                    return Err(failure(ErrorClass::Bug, "whose names there are is not what was answered"));
                }
                Err(e) => return Err(e),
            }
            exchange(&mut channel, 2, &call)
        };
        first_answer(addresses, move |address| with_address(address, ask(address)))
    }
}

/// Asks the first of those addresses (`host:port`) where a node answers; it must be this one, if it matters which. One that says that it may answer
/// later (a standby) is passed over.
pub(super) fn ask(
    connector: &Connector,
    addresses: &[String],
    whom: Option<MemberId>,
    call: &Call,
) -> Result<Reply, Failure> {
    let mut last = failure(ErrorClass::Invalid, "no address of another node is known");
    for address in addresses {
        match try_at(connector, address, whom, call) {
            Ok(answer) => return answer,
            Err(e) => last = e,
        }
    }
    Err(last)
}

/// The outer result is whether it has an answer now.
fn try_at(
    connector: &Connector,
    address: &str,
    whom: Option<MemberId>,
    call: &Call,
) -> Result<Result<Reply, Failure>, Failure> {
    let asked = open(connector, address, whom).and_then(|mut channel| exchange(&mut channel, 1, call));
    with_address(address, asked)
}

/// One that says that it may answer later has not answered.
fn with_address(
    address: &str,
    asked: Result<Result<Reply, Failure>, Failure>,
) -> Result<Result<Reply, Failure>, Failure> {
    match asked {
        Ok(Err(later)) if later.class == ErrorClass::Retry => Err(later),
        Ok(answer) => Ok(answer),
        Err(e) => Err(failure(e.class, format!("{address}: {}", e.message))),
    }
}

/// A connection to a node; to this one, if it matters which.
pub(super) fn open(connector: &Connector, address: &str, whom: Option<MemberId>) -> Result<Channel, Failure> {
    let stream = connector.connect(address).map_err(told)?;
    let found = stream.peer().map(|(identity, _)| super::member_id(identity.role));
    if whom.is_some() && found != whom {
        let other = found.map_or("somebody else".into(), |id| id.to_string());
        return Err(failure(ErrorClass::Invalid, format!("that is {other}")));
    }
    stream.socket().set_read_timeout(Some(PATIENCE)).map_err(|e| lost(&e.into()))?;
    Channel::over(Box::new(stream), PROGRAM).map_err(|e| lost(&e))
}

/// The outer result is that of reaching it, the inner one its answer.
pub(super) fn exchange(
    channel: &mut Channel,
    id: u64,
    call: &Call,
) -> Result<Result<Reply, Failure>, Failure> {
    channel.send_call(id, call).map_err(|e| lost(&e))?;
    Ok(channel.receive_result().map_err(|e| lost(&e))?.result)
}

fn lost(e: &WireError) -> Failure {
    failure(e.class(), e.to_string())
}

/// The first answer of one of these addresses; if none of them has one, why the last one has not.
pub(super) fn first_answer<T: Send + 'static>(
    addresses: &[String],
    ask: impl Fn(&str) -> Result<Result<T, Failure>, Failure> + Send + Sync + 'static,
) -> Result<T, Failure> {
    let none = || failure(ErrorClass::Invalid, "no address of another node is known");
    if let [only] = addresses {
        return ask(only).unwrap_or_else(Err);
    }
    let (ask, over) = (Arc::new(ask), Arc::new(AtomicBool::new(false)));
    let (tell, told) = mpsc::channel();
    let mut waiting = addresses.iter().cloned().enumerate();
    let (mut failed, mut last) = (BTreeSet::new(), none());
    loop {
        if let Some((n, address)) = waiting.next() {
            let (ask, over, tell) = (ask.clone(), over.clone(), tell.clone());
            crate::startup::spawn(None, "ask", move || {
                while !over.load(Ordering::Acquire) && tell.send((n, ask(&address))).is_ok() {
                    std::thread::sleep(AGAIN);
                }
            })?;
        }
        match told.recv_timeout(if failed.len() == addresses.len() { Duration::ZERO } else { SILENT }) {
            Ok((_, Ok(answer))) => {
                over.store(true, Ordering::Release);
                return answer;
            }
            Ok((n, Err(why))) => {
                failed.insert(n);
                last = why;
            }
            Err(_) => {}
        }
        if failed.len() == addresses.len() {
            over.store(true, Ordering::Release);
            return Err(last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::time::Instant;

    fn addresses() -> [String; 2] {
        ["first".into(), "second".into()]
    }

    #[test]
    fn one_that_stands_still_keeps_nobody_from_the_one_that_answers_as_soon_as_it_does() {
        let (begin, asked) = (Instant::now(), AtomicUsize::new(0));
        let answer = first_answer(&addresses(), move |address| match address {
            "first" => {
                std::thread::sleep(Duration::from_secs(20));
                Err(failure(ErrorClass::Retry, "silent"))
            }
            _ if asked.fetch_add(1, Ordering::AcqRel) < 2 => Err(failure(ErrorClass::Retry, "not yet")),
            _ => Ok(Ok(Reply::Done)),
        });
        assert!(matches!(answer, Ok(Reply::Done)), "{answer:?}");
        assert!(begin.elapsed() < Duration::from_secs(15), "{:?}", begin.elapsed());
    }

    #[test]
    fn a_no_counts_and_nobody_else_is_asked_then() {
        let answer = first_answer::<()>(&addresses(), |address| match address {
            "first" => Ok(Err(failure(ErrorClass::Denied, "no"))),
            _ => unreachable!("{address} is asked"),
        });
        assert_eq!(answer.unwrap_err().message, "no");
        let answer = first_answer::<()>(&addresses(), |address| Err(failure(ErrorClass::Retry, address)));
        assert_eq!(answer.unwrap_err().class, ErrorClass::Retry);
        assert_eq!(first_answer(&[], |_| Ok(Ok(Reply::Done))).unwrap_err().class, ErrorClass::Invalid);
    }
}
