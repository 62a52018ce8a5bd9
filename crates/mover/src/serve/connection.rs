//! One connection: greetings, then request after request, each checked before anything is done.

use super::gate::{Denial, Peer, What};
use super::{Mover, Served, Turn};
use crate::read::{Content, Source};
use crate::sidecar::Done;
use crate::target::Target;
use data::frame::{
    self, Answer, COMPARED, FOR_WRITING, HELD, LISTED, Op, REQUEST_LEN, Request, SETTLED, Session,
};
use data::hello::{self, ClientHello, HELLO_LEN, MoverHello};
use data::{
    CAPABILITY_LEN, Capability, CapabilityKey, Incoming, Link, MAX_MESSAGE, Outgoing, Refusal, Rights,
};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use types::{ObjectId, Time};

/// Longest wait for a client that connects and says nothing, or shows no capability.
const HELLO_PATIENCE: Duration = Duration::from_secs(10);

/// Longest wait for more of what a client still sends when its connection ends.
const GOODBYE_PATIENCE: Duration = Duration::from_secs(1);

/// What ends a connection.
type Ending = Served;

pub(super) fn run(mover: &Mover, number: u64, link: Link, peer: &Peer) -> Served {
    let Link { mut incoming, mut outgoing, .. } = link;
    let (session, client) = match greet(mover, peer, incoming.as_mut(), outgoing.as_mut()) {
        Ok(greeted) => greeted,
        Err(ending) => return ending,
    };
    let mut connection = Connection {
        mover,
        number,
        peer,
        session,
        client,
        incoming,
        outgoing,
        slots: BTreeMap::new(),
        refused: BTreeMap::new(),
        turn: None,
        last: 0,
        buffer: Vec::new(),
    };
    let ending = loop {
        if let Err(ending) = connection.request() {
            break ending;
        }
    };
    if connection.turn.is_some() {
        mover.leave_turn((client.client, client.channel));
    }
    if !matches!(ending, Served::Gone(_)) {
        connection.say_goodbye();
    }
    ending
}

fn greet(
    mover: &Mover,
    peer: &Peer,
    incoming: &mut dyn Incoming,
    outgoing: &mut dyn Outgoing,
) -> Result<(Session, ClientHello), Ending> {
    let mut nonce = [0; 16];
    ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut nonce)
        .map_err(|_| Served::Gone(std::io::Error::other("the system gives no random numbers")))?;
    let ours = MoverHello { version: frame::VERSION, boot: mover.boot, cluster: mover.cluster, nonce };
    let mut bytes = [0; HELLO_LEN];
    incoming
        .set_patience(Some(HELLO_PATIENCE))
        .and_then(|()| incoming.receive(&mut bytes))
        .map_err(Served::Gone)?;
    let refused = |what, denial: Denial| {
        mover.gate.refused(peer, what, &denial, Instant::now());
        Served::Refused(denial.refusal)
    };
    let theirs = ClientHello::decode(&bytes).map_err(|e| refused(What::default(), Denial::suspect(e)))?;
    outgoing.send(&[&ours.encode()], false).map_err(Served::Gone)?;
    // Of a release far away, or of a cluster that had this address before: honest ones may be.
    let who = What::default().of(theirs.client);
    hello::agree(theirs.version).map_err(|e| refused(who, Denial::ordinary(e)))?;
    if theirs.cluster != mover.cluster {
        let other = Refusal::Malformed("the client belongs to another cluster");
        return Err(refused(who, Denial::ordinary(other)));
    }
    Ok((hello::session(&theirs, &ours), theirs))
}

struct Connection<'a> {
    mover: &'a Mover,
    number: u64,
    peer: &'a Peer,
    session: Session,
    client: ClientHello,
    incoming: Box<dyn Incoming>,
    outgoing: Box<dyn Outgoing>,
    slots: BTreeMap<u16, Arc<Attached>>,
    /// Why others are empty.
    refused: BTreeMap<u16, Denial>,
    turn: Option<Arc<Turn>>,
    /// Number of the last request.
    last: u64,
    /// Bytes of the request; grows to the longest one.
    buffer: Vec<u8>,
}

/// A capability whose bearer has shown that he has its key.
struct Attached {
    capability: Capability,
    key: CapabilityKey,
    target: Arc<Target>,
}

/// What is answered besides the header.
enum Body {
    Nothing,
    Bytes(Content),
    Descriptor(OwnedFd),
}

impl Connection<'_> {
    /// Takes one request from the connection, does it, and answers.
    fn request(&mut self) -> Result<(), Ending> {
        let mut header = [0; REQUEST_LEN];
        self.incoming.receive(&mut header).map_err(Served::Gone)?;
        let request = match Request::decode(&header) {
            Ok(request) => request,
            Err(refusal) => {
                // Nothing more can be told apart. What it was is not known either: any operation will do.
                let op = Op::Attach;
                let request =
                    Request { op, flags: 0, slot: 0, sums: 0, sequence: 0, object: 0, offset: 0, length: 0 };
                // Honest clients of a later release may ask for what is not known here.
                self.deny(&request, None, What::default(), &Denial::ordinary(refusal.clone()))?;
                return Err(Served::Refused(refusal));
            }
        };
        if self.turn.is_none() && request.op != Op::Attach {
            // From somebody who has shown nothing, nothing longer than a capability is taken.
            let denial = self.why_empty(request.slot);
            self.deny(&request, None, What::default().object(request.object), &denial)?;
            return Err(Served::Refused(denial.refusal));
        }
        let mut sums = vec![0; request.sums as usize * 4];
        self.incoming.receive(&mut sums).map_err(Served::Gone)?;
        let payload = request.payload();
        if self.buffer.len() < payload {
            self.buffer.resize(payload, 0);
        }
        self.incoming.receive(&mut self.buffer[..payload]).map_err(Served::Gone)?;
        match request.op {
            Op::Attach => self.attach(&request, &header),
            _ => self.ask(&request, &header, &sums),
        }
    }

    /// A capability is presented.
    fn attach(&mut self, request: &Request, header: &[u8; REQUEST_LEN]) -> Result<(), Ending> {
        let judged = self.judge(header);
        match judged {
            Ok(attached) => {
                let attached = Arc::new(attached);
                if self.turn.is_none() {
                    self.incoming.set_patience(None).map_err(Served::Gone)?;
                    let channel = (self.client.client, self.client.channel);
                    self.turn = Some(self.mover.take_turn(channel, self.number));
                }
                self.refused.remove(&request.slot);
                self.slots.insert(request.slot, attached.clone());
                self.answer(request, &attached.key, 0, Body::Nothing)
            }
            Err(denial) => {
                self.slots.remove(&request.slot);
                self.refused.insert(request.slot, denial.clone());
                let shown = self.buffer.first_chunk().and_then(|bytes| Capability::decode(bytes).ok());
                let what = shown.map_or(What::default(), |shown| What::default().with(&shown));
                self.deny(request, None, what, &denial)?;
                if matches!(denial.refusal, Refusal::Elsewhere(_)) {
                    self.mover.is_behind();
                }
                match denial.refusal.ends_connection() {
                    true => Err(Served::Refused(denial.refusal)),
                    false => Ok(()),
                }
            }
        }
    }

    fn judge(&self, header: &[u8; REQUEST_LEN]) -> Result<Attached, Denial> {
        let bytes: &[u8; CAPABILITY_LEN] =
            self.buffer.first_chunk().ok_or(Refusal::Malformed("not the length of a capability"))?;
        // Of a later release: it may have another version.
        let id = Capability::decode(bytes).map_err(Denial::ordinary)?.target;
        let target = self.mover.target(id).ok_or_else(|| {
            Refusal::Elsewhere(format!(
                "target {id} is not served there, the log of that host says more; if its disk is lost: `thermo target replace {id}`"
            ))
        })?;
        let (capability, key) = target.judge(bytes)?;
        Request::verify(header, &self.session, &key, &[], bytes).map_err(|refusal| {
            match target.is_changing_secrets() {
                true => Denial::ordinary(refusal),
                false => refusal.into(),
            }
        })?;
        if capability.client != self.client.client {
            // Whoever shows it has its key: he may have got another number meanwhile.
            return Err(Denial::ordinary(Refusal::Capability("it is for another client")));
        }
        if self.now() >= capability.expires {
            return Err(Refusal::Expired.into());
        }
        drop(target.admits(&capability)?);
        Ok(Attached { capability, key, target })
    }

    /// Why nothing can be asked with a slot. Whoever has presented what has ended meanwhile is to get another one.
    fn why_empty(&self, slot: u16) -> Denial {
        let none = Refusal::Capability("none was presented in this slot");
        self.refused.get(&slot).cloned().unwrap_or(none.into())
    }

    /// Refuses what somebody has no right to, and tells the log before he hears of it. The connection ends if he was refused too often.
    fn deny(
        &mut self,
        request: &Request,
        key: Option<&CapabilityKey>,
        what: What,
        denial: &Denial,
    ) -> Result<(), Ending> {
        let what = what.of(self.client.client);
        let goes_on = self.mover.gate.refused(self.peer, what, denial, Instant::now());
        self.refuse(request, key, &denial.refusal)?;
        if goes_on { Ok(()) } else { Err(Served::Refused(denial.refusal.clone())) }
    }

    /// Anything but an attachment.
    fn ask(&mut self, request: &Request, header: &[u8; REQUEST_LEN], sums: &[u8]) -> Result<(), Ending> {
        let (Some(attached), Some(turn)) = (self.slots.get(&request.slot).cloned(), self.turn.clone()) else {
            let denial = self.why_empty(request.slot);
            self.deny(request, None, What::default().object(request.object), &denial)?;
            return self.after(request, true);
        };
        let what = What::default().with(&attached.capability).object(request.object);
        let body = &self.buffer[..request.payload()];
        if let Err(refusal) = Request::verify(header, &self.session, &attached.key, sums, body) {
            self.deny(request, None, what, &refusal.clone().into())?;
            return Err(Served::Refused(refusal));
        }
        if request.sequence <= self.last {
            let refusal = Refusal::Malformed("a request comes twice or out of order");
            self.deny(request, Some(&attached.key), what, &Denial::suspect(refusal.clone()))?;
            return Err(Served::Refused(refusal));
        }
        self.last = request.sequence;
        let done = {
            let whose = turn.connection.lock();
            if *whose != self.number {
                return Err(Served::Ended);
            }
            attached.target.admits(&attached.capability).and_then(|_until_it_is_done| {
                self.check(request, &attached)?;
                self.execute(request, &attached, sums)
            })
        };
        match done {
            Ok((value, body)) => self.answer(request, &attached.key, value, body),
            Err(refusal) => {
                match refusal.class() {
                    types::ErrorClass::Denied => {
                        self.deny(request, Some(&attached.key), what, &refusal.into())?;
                    }
                    _ => self.refuse(request, Some(&attached.key), &refusal)?,
                }
                self.after(request, true)
            }
        }
    }

    /// What was to be changed and was not must not be overtaken by what follows: the client sends it all again over a new connection.
    fn after(&self, request: &Request, refused: bool) -> Result<(), Ending> {
        match refused && matches!(request.op, Op::Write | Op::SetLength) {
            true => Err(Served::Ended),
            false => Ok(()),
        }
    }

    fn check(&self, request: &Request, attached: &Attached) -> Result<(), Refusal> {
        let capability = &attached.capability;
        let nothing = capability.range.start..capability.range.start;
        let everything = 0..u64::MAX;
        let to_the_end = request.offset..u64::MAX;
        let (rights, range) = match request.op {
            Op::Attach => return Ok(()),
            Op::Read => (Rights::READ, request.offset..request.offset.saturating_add(request.length)),
            Op::Write => (Rights::WRITE, request.offset..request.offset.saturating_add(request.length)),
            Op::Sync => (Rights::WRITE, nothing),
            Op::SetLength => (Rights::WRITE, to_the_end),
            Op::Stat => (Rights::default(), nothing),
            Op::Create | Op::Remove | Op::Fence | Op::Revoke => (Rights::MANAGE, nothing),
            // What was written by one would have no sums, and no fence would end it.
            Op::Descriptor if request.flags & FOR_WRITING != 0 => {
                return Err(Refusal::Malformed("descriptors are given for reading only"));
            }
            Op::Descriptor if !self.outgoing.is_local() => {
                return Err(Refusal::Malformed("descriptors can be given to clients on the same host only"));
            }
            Op::Descriptor => (Rights::READ, everything.clone()),
        };
        let object = match request.op {
            // It is not about an object, so it has to be allowed for all of them.
            Op::Revoke if capability.objects != everything => {
                return Err(Refusal::Capability("it is for some objects only"));
            }
            Op::Revoke => 0,
            Op::Create | Op::Remove => self.named(request).max().unwrap_or(request.object),
            _ => request.object,
        };
        let least = match request.op {
            Op::Create | Op::Remove => self.named(request).min().unwrap_or(object),
            _ => request.object.min(object),
        };
        capability.allows(rights, ObjectId(object), &range, self.now())?;
        capability.allows(rights, ObjectId(least), &range, self.now())
    }

    /// Numbers of the objects that a request to make or remove some names.
    fn named(&self, request: &Request) -> impl Iterator<Item = u64> + use<> {
        let listed = frame::decode_list(&self.buffer[..request.payload()]);
        let counted = match request.op {
            _ if request.flags & LISTED != 0 => 0,
            Op::Create => request.length,
            _ => 1,
        };
        listed.into_iter().chain(request.object..request.object.saturating_add(counted))
    }

    fn execute(&self, request: &Request, attached: &Attached, sums: &[u8]) -> Result<(u64, Body), Refusal> {
        let target = &attached.target;
        let id = ObjectId(request.object);
        let generation = attached.capability.generation;
        let done =
            Done { client: self.client.client, channel: self.client.channel, sequence: request.sequence };
        let nothing = |value| (value, Body::Nothing);
        match request.op {
            Op::Attach => Ok(nothing(0)),
            Op::Read if request.flags & COMPARED != 0 => {
                target.compare(id, generation, request.offset, request.length).map(nothing)
            }
            Op::Read => {
                let settled = request.flags & SETTLED != 0;
                let content =
                    target.read(id, generation, request.offset, request.length as usize, settled)?;
                Ok((content.object_length, Body::Bytes(content)))
            }
            Op::Write => {
                let bytes = &self.buffer[..request.payload()];
                let parts = frame::decode_sums(sums);
                target.write(id, generation, request.offset, bytes, &parts, done).map(nothing)
            }
            Op::SetLength => target.set_length(id, generation, request.offset, done).map(nothing),
            Op::Sync | Op::Stat => {
                let object = target.object(id)?;
                object.admits(generation)?;
                if request.op == Op::Sync {
                    object.sync_written()?;
                }
                object.length().map(nothing)
            }
            Op::Create => {
                let objects: Vec<u64> = self.named(request).collect();
                target.create(&objects, done).map(|()| nothing(0))
            }
            Op::Remove => {
                let objects: Vec<ObjectId> = self.named(request).map(ObjectId).collect();
                target.remove(&objects).map(|()| nothing(0))
            }
            Op::Fence => target.object(id)?.fence(request.offset).map(|()| nothing(0)),
            Op::Revoke => {
                let since = Time::from_nanos(i64::try_from(request.offset).unwrap_or(i64::MAX));
                target.revoke(request.object, since).map(|()| nothing(0))
            }
            Op::Descriptor => {
                let (length, descriptor) = target.descriptor(id, generation)?;
                Ok((length, Body::Descriptor(descriptor)))
            }
        }
    }

    fn answer(
        &mut self,
        request: &Request,
        key: &CapabilityKey,
        value: u64,
        body: Body,
    ) -> Result<(), Ending> {
        let held = match &body {
            // He compares what he reads by himself, as he would what is sent: neither has been looked at here.
            Body::Bytes(content) => {
                request.flags & HELD != 0
                    && content.length > 0
                    && self.outgoing.is_local()
                    && matches!(content.source, Source::File(..))
            }
            _ => false,
        };
        let (parts, length): (&[u32], usize) = match &body {
            Body::Bytes(content) if held => (&content.parts, 0),
            Body::Bytes(content) => (&content.parts, content.available()),
            _ => (&[], 0),
        };
        let sums = frame::encode_sums(parts);
        let answer = Answer {
            op: request.op,
            code: 0,
            sums: parts.len() as u32,
            sequence: request.sequence,
            value,
            length: length as u64,
        };
        let header = answer.encode(&self.session, Some(key), &sums, &[]);
        let out = self.outgoing.as_mut();
        match &body {
            Body::Nothing => out.send(&[&header], false),
            Body::Descriptor(descriptor) => out.pass(&header, descriptor.as_fd()),
            Body::Bytes(_) if held => {
                self.mover.held.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                out.send(&[&header, &sums], false)
            }
            Body::Bytes(content) => match &content.source {
                Source::Memory(bytes) => out.send(&[&header, &sums, bytes], false),
                // Where nothing follows, the network must not wait for it.
                Source::File(file, offset) => out
                    .send(&[&header, &sums], content.length > 0)
                    .and_then(|()| out.send_file(file.as_fd(), *offset, content.length)),
            },
        }
        .map_err(Served::Gone)
    }

    fn refuse(
        &mut self,
        request: &Request,
        key: Option<&CapabilityKey>,
        refusal: &Refusal,
    ) -> Result<(), Ending> {
        let text = refusal.to_string();
        let message = &text.as_bytes()[..text.len().min(MAX_MESSAGE)];
        let answer = Answer {
            op: request.op,
            code: refusal.code(),
            sums: 0,
            sequence: request.sequence,
            value: 0,
            length: message.len() as u64,
        };
        let header = answer.encode(&self.session, key, &[], message);
        self.outgoing.send(&[&header, message], false).map_err(Served::Gone)
    }

    /// Takes what the client still sends, for a while: if bytes were left unread, the network would throw away the answer that he has not
    /// read yet.
    fn say_goodbye(&mut self) {
        self.outgoing.finish();
        let mut left = 2 * frame::MAX_IO;
        let mut some = [0; 4096];
        let patient = self.incoming.set_patience(Some(GOODBYE_PATIENCE)).is_ok();
        let until = Instant::now() + 3 * GOODBYE_PATIENCE;
        while patient && left > 0 && Instant::now() < until && self.incoming.receive(&mut some).is_ok() {
            left = left.saturating_sub(some.len());
        }
    }

    fn now(&self) -> Time {
        (self.mover.clock)()
    }
}
