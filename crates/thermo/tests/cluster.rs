//! A cluster on one machine: nodes with state directories and loopback addresses of their own. Members are answered; everybody
//! and everything else is refused.

use client::{ClientError, Connection, Newcomer, Remote, join_cluster};
use ident::{Connector, Credentials, Key, Role, Secret, Token, Validity, YEAR};
use node::{ClusterServer, Config, Node, Server, Size};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use types::api::OpenFlags;
use types::{BoundUser, ClientId, ClusterView, ErrorClass, Grant, Ino, MemberId, NodeId, StatusView, Time};
use wire::{Call, Channel, Failure, FileCall, FileOrder, JoinOrder, JoinSecret, RenewOrder, Reply, Speaks};

struct Host {
    dir: tempfile::TempDir,
    node: Option<Arc<Node>>,
    address: String,
    servers: Option<(Server, ClusterServer)>,
}

impl Host {
    /// Of 127.0.0.0/8 everything is this machine: an address for each node of each test process, so no port is fought for.
    fn new() -> Self {
        Self::signing_for(YEAR as u32)
    }

    /// The certificates that it signs are good for so many seconds.
    fn signing_for(certificate_s: u32) -> Self {
        static NEXT: AtomicU8 = AtomicU8::new(1);
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let address = format!("127.{}.{low}.{}:7430", 1 + high % 254, NEXT.fetch_add(1, Ordering::Relaxed));
        let dir = tempfile::tempdir().unwrap();
        let (node, servers) = start(&dir, &address, certificate_s);
        Self { dir, node: Some(node), address, servers: Some(servers) }
    }

    fn node(&self) -> &Arc<Node> {
        self.node.as_ref().expect("it runs")
    }

    fn stop(&mut self) {
        self.servers.take();
        if let Some(node) = self.node.take() {
            node.stop(true);
        }
    }

    /// Its catalogue and all else is gone, but not what it is in the cluster.
    fn lose_all_but_the_cluster(&mut self) {
        self.stop();
        for entry in self.dir.path().read_dir().unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true if path == self.cluster_dir() => {}
                true => std::fs::remove_dir_all(&path).unwrap(),
                false => std::fs::remove_file(&path).unwrap(),
            }
        }
        let (node, servers) = start(&self.dir, &self.address, YEAR as u32);
        (self.node, self.servers) = (Some(node), Some(servers));
    }

    /// Another node joins.
    fn with_second(&self) -> Self {
        let second = Self::new();
        let who = Newcomer { control: vec![second.address.clone()], ..newcomer("second") };
        join_cluster(&self.token(), &who).unwrap().prepare(&second.cluster_dir()).unwrap();
        Credentials::commit(&second.cluster_dir()).unwrap();
        second
    }

    fn with_client(&self) -> Credentials {
        join_cluster(&self.token_for(user(), 600), &newcomer("desk")).unwrap()
    }

    fn remove(&self, id: MemberId) -> Result<Vec<MemberId>, ClientError> {
        self.local().ask(&Call::ClusterRemove { id, reason: "stolen".into() })
    }

    fn founder() -> Self {
        Self::new().found()
    }

    fn found(self) -> Self {
        let host = self;
        let view: ClusterView = host.local().ask(&Call::ClusterInit { name: "first".into() }).unwrap();
        assert_eq!((view.answers, view.admits, view.members.len()), (MemberId::Node(NodeId(1)), true, 1));
        host
    }

    fn cluster_dir(&self) -> PathBuf {
        self.dir.path().join("cluster")
    }

    fn own(&self) -> Credentials {
        Credentials::load(&self.cluster_dir()).unwrap().expect("it is a member")
    }

    fn local(&self) -> Connection {
        Connection::open(&self.dir.path().join("control.sock")).unwrap()
    }

    fn token_for(&self, grant: Grant, lifetime_s: u32) -> Token {
        match self.local().call(&Call::ClusterToken { grant, lifetime_s }).unwrap().0 {
            Reply::Token(text) => text.parse().unwrap(),
            other => panic!("{other:?}"),
        }
    }

    fn token(&self) -> Token {
        self.token_for(Grant::Node, 600)
    }

    /// A call of a member, over TLS.
    fn asked_by(&self, member: &Credentials, call: &Call) -> Result<Reply, ClientError> {
        let mut connection = Connection::open_remote(Remote::new(&self.address, member)?, Duration::ZERO)?;
        connection.call(call).map(|(reply, _)| reply)
    }

    fn members(&self) -> usize {
        self.local().ask::<ClusterView>(&Call::Cluster).unwrap().members.len()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.stop();
    }
}

fn start(dir: &tempfile::TempDir, address: &str, certificate_s: u32) -> (Arc<Node>, (Server, ClusterServer)) {
    let mut config = Config { state_dir: dir.path().to_owned(), ..Config::default() };
    config.library.cartridge_capacity = Size::mib(64);
    config.cluster.listen = Some(address.parse().unwrap());
    config.cluster.certificate_s = certificate_s;
    let node = Node::start(config).unwrap();
    let control = node::serve(node.clone()).unwrap();
    let remote = node::serve_cluster(node.clone()).unwrap().expect("it listens");
    (node, (control, remote))
}

fn newcomer(name: &str) -> Newcomer {
    Newcomer { name: name.into(), control: vec!["192.0.2.9:7430".into()], data: Vec::new() }
}

fn refusal<T: std::fmt::Debug>(result: Result<T, ClientError>) -> Failure {
    match result {
        Err(ClientError::Refused(failure)) => failure,
        other => panic!("a refusal is due: {other:?}"),
    }
}

fn user() -> Grant {
    Grant::Client(BoundUser { uid: 4711, gid: 4711, groups: vec![4712] })
}

#[test]
fn two_nodes_and_a_client_make_a_cluster() {
    let (first, second) = (Host::founder(), Host::new());
    let joined = join_cluster(&first.token(), &newcomer("second")).unwrap();
    joined.prepare(&second.cluster_dir()).unwrap();
    Credentials::commit(&second.cluster_dir()).unwrap();
    let client = join_cluster(&first.token_for(user(), 600), &newcomer("desk")).unwrap();

    let view: ClusterView = first.local().ask(&Call::Cluster).unwrap();
    let names: Vec<&str> = view.members.iter().map(|m| m.name.as_str()).collect();
    assert_eq!((names, view.tokens), (vec!["first", "second", "desk"], 0));
    assert_eq!(view.members[1].control, ["192.0.2.9:7430"]);
    assert_eq!(view.members[2].user.as_ref().map(|u| u.uid), Some(4711));
    assert!(view.members[2].control.is_empty(), "nobody calls a client");

    // Each asks the other; the second one began to listen before it was a member.
    for (asked, by) in
        [(&first, &second.own()), (&second, &first.own()), (&first, &client), (&second, &client)]
    {
        let Reply::Status(status) = asked.asked_by(by, &Call::Status).unwrap() else { panic!("no status") };
        let status: StatusView = *status;
        assert_eq!(status.state_dir, asked.dir.path().to_string_lossy());
    }
    // Once a member, always that one.
    assert_eq!(
        refusal(second.local().ask::<ClusterView>(&Call::ClusterInit { name: "x".into() })).class,
        ErrorClass::Exists
    );
    assert_eq!(
        refusal(second.local().call(&Call::ClusterToken { grant: Grant::Node, lifetime_s: 9 })).class,
        ErrorClass::Invalid
    );
}

#[test]
fn a_caller_is_who_his_certificate_says_and_may_what_he_may() {
    let first = Host::founder();
    let node = join_cluster(&first.token(), &newcomer("second")).unwrap();
    let client = join_cluster(&first.token_for(user(), 600), &newcomer("desk")).unwrap();
    let down = Call::Down { graceful: true };
    for (who, call) in [(&client, &down), (&node, &down), (&node, &Call::File(FileCall::GetAttr(Ino::ROOT)))]
    {
        assert_eq!(refusal(first.asked_by(who, call)).class, ErrorClass::Denied, "{call:?}");
    }
    // He is user 4711 there: what is for everybody, he may.
    first.asked_by(&client, &Call::File(FileCall::GetAttr(Ino::ROOT))).unwrap();
    let mkdir = Call::File(FileCall::Mkdir { parent: Ino::ROOT, name: b"d".to_vec(), mode: 0o755 });
    assert_eq!(refusal(first.asked_by(&client, &mkdir)).fs, Some(types::FsError::AccessDenied));
}

#[test]
fn a_token_is_good_once_for_its_cluster_and_in_its_time() {
    let (first, other) = (Host::founder(), Host::founder());
    let token = first.token();
    join_cluster(&token, &newcomer("second")).unwrap();
    let used = refusal(join_cluster(&token, &newcomer("thief")));
    assert!(
        used.class == ErrorClass::Denied && used.message.contains("was used already, by node 2"),
        "{used}"
    );

    let guessed = Token { secret: Secret::from_bytes([0; 32]), ..first.token() };
    let unknown = Token { id: ident::Uuid::new_v4(), ..first.token() };
    for bad in [guessed, unknown] {
        let why = refusal(join_cluster(&bad, &newcomer("thief")));
        assert!(why.message.contains("no such token"), "{why}");
    }

    // A token of another cluster: its bearer notices first.
    let elsewhere = Token { addresses: vec![first.address.clone()], ..other.token() };
    let why = join_cluster(&elsewhere, &newcomer("lost")).unwrap_err();
    assert!(matches!(&why, ClientError::Ident { .. }) && why.class() == ErrorClass::Denied, "{why}");
    // And if he does not look, the cluster does.
    let blind =
        Token { authority: first.token().authority, cluster: first.own().identity.cluster, ..elsewhere };
    assert!(refusal(join_cluster(&blind, &newcomer("lost"))).message.contains("no such token"));

    let short = first.token_for(Grant::Node, 1);
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    while now() <= short.expires {
        std::thread::sleep(Duration::from_millis(50));
    }
    let late = refusal(join_cluster(&short, &newcomer("late")));
    assert!(late.message.contains("past its end"), "{late}");
    assert_eq!(first.members(), 2);
}

/// One call of somebody without a certificate.
fn bearer_says(token: &Token, call: &Call) -> Result<Reply, Failure> {
    let stream = Connector::bearer(token).unwrap().connect(&token.addresses[0]).unwrap();
    let mut channel = Channel::over(Box::new(stream), "test").unwrap();
    channel.send_call(1, call).unwrap();
    channel.receive_result().unwrap().result
}

#[test]
fn a_join_that_is_sent_again_gains_nothing() {
    let first = Host::founder();
    let token = first.token();
    let order = JoinOrder {
        token: *token.id.as_bytes(),
        secret: JoinSecret(*token.secret.bytes()),
        request: Key::generate().unwrap().request().unwrap(),
        name: "second".into(),
        control: Vec::new(),
        data: Vec::new(),
    };
    assert!(!format!("{order:?}").contains(&format!("{:?}", token.secret.bytes())));
    // A request that is none uses nothing up.
    let junk = JoinOrder { request: b"junk".to_vec(), ..order.clone() };
    assert_eq!(bearer_says(&token, &Call::ClusterJoin(junk)).unwrap_err().class, ErrorClass::Invalid);
    bearer_says(&token, &Call::ClusterJoin(order.clone())).unwrap();
    let again = bearer_says(&token, &Call::ClusterJoin(order.clone())).unwrap_err();
    assert!(again.message.contains("used already"), "{again}");
    // Without a certificate nothing else is answered, and a member does not join.
    let other = bearer_says(&token, &Call::Status).unwrap_err();
    assert_eq!(other.class, ErrorClass::Denied, "{other}");
    assert_eq!(refusal(first.local().call(&Call::ClusterJoin(order))).class, ErrorClass::Invalid);
    assert_eq!(first.members(), 2);
}

#[test]
fn two_who_have_the_same_token_do_not_both_get_in() {
    let first = Host::founder();
    let token = first.token();
    let admitted = std::thread::scope(|scope| {
        let tries: Vec<_> = (0..4)
            .map(|n| {
                let token = &token;
                scope.spawn(move || join_cluster(token, &newcomer(&format!("n{n}"))))
            })
            .collect();
        tries.into_iter().map(|t| t.join().unwrap()).filter(Result::is_ok).count()
    });
    assert_eq!((admitted, first.members()), (1, 2));
}

#[test]
fn what_the_authority_signed_and_the_cluster_does_not_know_is_refused() {
    let first = Host::founder();
    let own = first.own();
    let signer = own.signer().unwrap().unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    // A number that was never given, and one that somebody else has.
    for id in [9, 1] {
        let key = Key::generate().unwrap();
        let role = Role::Node(NodeId(id));
        let certificate = signer.sign(&key.request().unwrap(), role, Validity::of_member(now, YEAR)).unwrap();
        let forged = Credentials::new(certificate.to_vec(), key, own.authority.clone()).unwrap();
        let why = refusal(first.asked_by(&forged, &Call::Status));
        assert!(why.message.contains("no member"), "{why}");
    }
    let stranger = Host::founder();
    let mut other = stranger.own();
    other.authority = own.authority.clone();
    let why = first.asked_by(&other, &Call::Status).unwrap_err();
    assert_eq!(why.class(), ErrorClass::Denied, "{why}");
}

#[test]
fn plain_tcp_gets_no_answer_and_whoever_goes_on_is_not_listened_to() {
    let first = Host::founder();
    let member = join_cluster(&first.token(), &newcomer("second")).unwrap();
    first.asked_by(&member, &Call::Status).unwrap();
    for _ in 0..20 {
        let Ok(mut stream) = TcpStream::connect(&first.address) else { continue };
        // The node may close at once: then there is nothing to be sent.
        let _ = stream.write_all(b"GET / HTTP/1.0\r\n\r\n");
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty(), "{answer:?}");
    }
    // The same address, now with a good certificate.
    let why = first.asked_by(&member, &Call::Status).unwrap_err();
    assert!(why.no_node(), "{why}");
}

fn in_300_days() -> Time {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    Time::new(now as i64 + 300 * 24 * 3600, 0)
}

#[test]
fn a_removed_member_is_out_at_once_and_everywhere() {
    let first = Host::founder();
    let (second, client) = (first.with_second(), first.with_client());
    let mut open: Vec<Connection> = [&first, &second]
        .map(|host| {
            Connection::open_remote(Remote::new(&host.address, &client).unwrap(), Duration::ZERO).unwrap()
        })
        .into();
    for connection in &mut open {
        connection.call(&Call::Status).unwrap();
    }
    let desk = MemberId::Client(ClientId(1));
    assert_eq!(first.remove(desk).unwrap(), []);
    for (mut connection, host) in open.into_iter().zip([&first, &second]) {
        connection.call(&Call::Status).expect_err("what was open has ended");
        let why = host.asked_by(&client, &Call::Status).unwrap_err().to_string();
        assert!(why.contains("removed from the cluster"), "{why}");
    }
    let view: ClusterView = second.local().ask(&Call::Cluster).unwrap();
    assert_eq!(view.answers, MemberId::Node(NodeId(1)), "the second one asks the first");
    let removal = view.members[2].removed.as_ref().expect("it is on record");
    assert_eq!((view.members[2].id, removal.reason.as_str()), (desk, "stolen"));
    assert!(view.refused > 0 && view.last_refused.is_some_and(|(_, why)| why.contains("removed")));

    // The others go on, a number that was never given and the founder cannot be removed, and a second time changes nothing.
    second.asked_by(&first.own(), &Call::Status).unwrap();
    first.asked_by(&second.own(), &Call::Status).unwrap();
    assert_eq!(first.remove(desk).unwrap(), []);
    let unknown = refusal(first.remove(MemberId::Node(NodeId(9))));
    assert_eq!(
        (unknown.class, unknown.message.as_str()),
        (ErrorClass::NotFound, "the cluster: there is no member node 9")
    );
    assert_eq!(refusal(first.remove(MemberId::Node(NodeId(1)))).class, ErrorClass::Invalid);
    assert_eq!(refusal(second.remove(desk)).class, ErrorClass::Invalid);
}

#[test]
fn a_node_that_was_not_reached_is_named_and_hears_of_it_later() {
    let (first, mut second) = (Host::founder(), Host::new());
    let who = Newcomer { control: vec![second.address.clone()], ..newcomer("second") };
    join_cluster(&first.token(), &who).unwrap().prepare(&second.cluster_dir()).unwrap();
    Credentials::commit(&second.cluster_dir()).unwrap();
    let client = first.with_client();
    second.servers.take();
    assert_eq!(first.remove(MemberId::Client(ClientId(1))).unwrap(), [MemberId::Node(NodeId(2))]);
    second.servers = Some((
        node::serve(second.node().clone()).unwrap(),
        node::serve_cluster(second.node().clone()).unwrap().expect("it listens"),
    ));
    second.asked_by(&client, &Call::Status).expect("it does not know yet");
    second.node().hear_of_removed().unwrap();
    let why = second.asked_by(&client, &Call::Status).unwrap_err().to_string();
    assert!(why.contains("removed from the cluster"), "{why}");
    // A list of somebody else's making is refused, whoever brings it.
    let list =
        Host::founder().own().signer().unwrap().unwrap().withdraw(&[Role::Node(NodeId(1))].into()).unwrap();
    let forged = Call::ClusterRemoved { list };
    assert_eq!(refusal(second.asked_by(&first.own(), &forged)).class, ErrorClass::Invalid);
    first.asked_by(&second.own(), &Call::Status).unwrap();
}

#[test]
fn members_get_new_certificates_before_the_old_ones_end() {
    let first = Host::founder();
    let (second, client) = (first.with_second(), first.with_client());
    let now = Time::new(in_300_days().secs - 300 * 24 * 3600, 0);
    assert!(!second.node().renew_if_due(now).unwrap(), "most of the year is left");
    for host in [&first, &second] {
        let old = host.own();
        assert!(host.node().renew_if_due(in_300_days()).unwrap());
        let new = host.own();
        assert!(new.identity == old.identity && new.certificate != old.certificate);
        assert!(new.key.to_der() != old.key.to_der(), "the key is new too");
    }
    // Each has it in use, and is believed.
    second.asked_by(&first.own(), &Call::Status).unwrap();
    first.asked_by(&second.own(), &Call::Status).unwrap();

    // The old one is good until the new one is used, and not longer.
    let lost = client::renew_certificate(&client).unwrap();
    first.asked_by(&client, &Call::Status).expect("an answer that was lost costs nobody his place");
    let new = client::renew_certificate(&client).unwrap();
    first.asked_by(&new, &Call::File(FileCall::GetAttr(Ino::ROOT))).expect("still user 4711");
    for gone in [&client, &lost] {
        let why = refusal(first.asked_by(gone, &Call::Status));
        assert!(why.class == ErrorClass::Denied && why.message.contains("no member"), "{why}");
    }
    // In its directory, when it is time.
    let dir = first.dir.path().join("desk");
    new.prepare(&dir).unwrap();
    Credentials::commit(&dir).unwrap();
    let kept = || Credentials::load(&dir).unwrap().unwrap();
    let renew = |at: &str, now: Time| client::renew_if_due(&dir, &kept(), at, now.secs as u64).unwrap();
    assert!(renew(&first.address, now).is_none());
    assert!(renew(&first.address, in_300_days()).is_some());
    assert!(kept().certificate != new.certificate);
    first.asked_by(&kept(), &Call::Status).unwrap();
    // The node that is asked signs now, and is not among those that were known: it is from now on. One that does not sign is not.
    let gone = "127.0.0.1:1".to_owned();
    Credentials::keep_addresses(&dir, std::slice::from_ref(&gone)).unwrap();
    assert!(renew(&first.address, in_300_days()).is_some());
    assert_eq!(kept().addresses, [first.address.clone(), gone]);
    assert!(renew(&second.address, in_300_days()).is_some());
    assert_eq!(kept().addresses[0], first.address);
    first.asked_by(&kept(), &Call::Status).unwrap();
    // A node without the authority's key signs nothing; over the control socket nobody is known by a certificate.
    let asks_second = Credentials { addresses: vec![second.address.clone()], ..kept() };
    assert_eq!(refusal(client::renew_certificate(&asks_second)).class, ErrorClass::Retry);
    let request = Key::generate().unwrap().request().unwrap();
    let order = Call::ClusterRenew(RenewOrder { request, control: Vec::new(), data: Vec::new() });
    // Nor on a connection for calls.
    assert_eq!(refusal(first.asked_by(&second.own(), &order)).class, ErrorClass::Denied);
    assert_eq!(refusal(first.local().call(&order)).class, ErrorClass::Invalid);
}

#[test]
fn who_was_off_until_his_certificate_ended_gets_another_one_by_its_key() {
    let first = Host::signing_for(10).found();
    let (second, removed, replaced) = (first.with_second(), first.with_client(), first.with_client());
    let client = first.with_client();
    first.asked_by(&client::renew_certificate(&replaced).unwrap(), &Call::Status).unwrap();
    first.remove(MemberId::Client(ClientId(1))).unwrap();
    let now = || Time::new(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64, 0);
    // All are as old as that one, or older.
    while !client.valid.has_ended(now().secs as u64 - 1) {
        std::thread::sleep(Duration::from_millis(100));
    }
    // The first node signs its own, as others do not believe it either.
    let why = first.asked_by(&client, &Call::Status).unwrap_err();
    assert!(
        why.class() == ErrorClass::Retry
            && why.to_string().contains("the other end's certificate has expired"),
        "{why}"
    );
    assert!(first.node().renew_if_due(now()).unwrap());
    // However long all this takes.
    let is_good = || first.node().renew_if_due(now()).map(drop).unwrap();
    // All that goes on there asks again and again, and does not keep it from getting the next one.
    for _ in 0..20 {
        is_good();
        let why = first.asked_by(&client, &Call::Status).unwrap_err();
        assert!(
            why.class() == ErrorClass::Retry && why.to_string().contains("our certificate has expired"),
            "{why}"
        );
    }

    is_good();
    assert!(second.node().renew_if_due(now()).unwrap());
    first.asked_by(&second.own(), &Call::Status).unwrap();
    let new = client::renew_certificate(&client).unwrap();
    first.asked_by(&new, &Call::File(FileCall::GetAttr(Ino::ROOT))).expect("still user 4711");
    // Not with what was replaced or removed, and for nothing else.
    for (who, told) in
        [(&client, "no member"), (&replaced, "no member"), (&removed, "removed from the cluster")]
    {
        is_good();
        let why = client::renew_certificate(who).unwrap_err();
        assert!(why.class() == ErrorClass::Denied && why.to_string().contains(told), "{why}");
    }
    is_good();
    let stream = Connector::renewing(&new).unwrap().connect(&first.address).unwrap();
    let mut channel = Channel::over(Box::new(stream), "test").unwrap();
    channel.send_call(1, &Call::Status).unwrap();
    let why = channel.receive_result().unwrap().result.unwrap_err();
    assert_eq!(why.class, ErrorClass::Denied, "{why}");
}

#[test]
fn a_catalogue_that_was_lost_gets_its_cluster_back() {
    let mut first = Host::founder();
    let (client, other) = (first.with_client(), first.with_client());
    assert_eq!(first.remove(MemberId::Client(ClientId(2))).unwrap(), []);
    let before: ClusterView = first.local().ask(&Call::Cluster).unwrap();
    first.lose_all_but_the_cluster();
    let after: ClusterView = first.local().ask(&Call::Cluster).unwrap();
    assert_eq!(after.members, before.members);
    first.asked_by(&client, &Call::File(FileCall::GetAttr(Ino::ROOT))).expect("still user 4711");
    let why = first.asked_by(&other, &Call::Status).unwrap_err().to_string();
    assert!(why.contains("removed from the cluster"), "{why}");
    // Numbers are not given twice.
    assert_eq!(first.with_client().identity.role, Role::Client(ClientId(3)));
}

#[test]
fn tokens_can_be_withdrawn() {
    let first = Host::founder();
    let (used, open) = (first.token(), first.token());
    join_cluster(&used, &newcomer("second")).unwrap();
    assert_eq!(first.local().ask::<u64>(&Call::ClusterRevoke).unwrap(), 1);
    assert!(refusal(join_cluster(&open, &newcomer("late"))).message.contains("no such token"));
    assert_eq!((first.members(), first.local().ask::<u64>(&Call::ClusterRevoke).unwrap()), (2, 0));
}

fn order(uid: u32, checked: bool, number: u64, call: FileCall) -> Call {
    let (groups, gid) = if uid == 4711 { (vec![4712], 4711) } else { (Vec::new(), uid) };
    let who = Speaks { uid, gid, groups, checked };
    Call::FileFor(Box::new(FileOrder { who, number, answered: 1, open: vec![], call }))
}

#[test]
fn nodes_speak_for_users_in_sessions_and_clients_for_their_user_only() {
    let first = Host::founder();
    let (second, client) = (first.with_second(), first.with_client());
    let look = || FileCall::GetAttr(Ino::ROOT);
    let mkdir = |name: &str| FileCall::Mkdir { parent: Ino::ROOT, name: name.into(), mode: 0o755 };
    for (who, order) in [(&client, order(0, false, 1, look())), (&client, order(4711, true, 1, look()))] {
        assert_eq!(refusal(first.asked_by(who, &order)).class, ErrorClass::Denied, "{order:?}");
    }
    first.asked_by(&client, &order(4711, false, 1, look())).unwrap();
    let no_session = refusal(first.asked_by(&second.own(), &order(0, true, 1, look())));
    assert_eq!(no_session.class, ErrorClass::Denied);
    // Who does not hold the namespace has none to offer.
    assert_eq!(refusal(second.asked_by(&first.own(), &Call::Session(7))).class, ErrorClass::Invalid);

    let line_of = |who: &Credentials| {
        let remote = Remote::new(&first.address, who).unwrap();
        let mut line = Connection::open_remote(remote, Duration::ZERO).unwrap();
        let begun: u64 = line.ask(&Call::Session(7)).unwrap();
        (line, begun)
    };
    let line = || line_of(&second.own());
    let ((mut a, begun), (mut b, again)) = (line(), line());
    assert_eq!(begun, again);
    // Rights are checked here unless the other host's kernel has.
    let refused = refusal(a.call(&order(1000, false, 1, mkdir("d"))));
    assert_eq!(refused.fs, Some(types::FsError::AccessDenied));
    a.call(&order(1000, true, 2, mkdir("d"))).unwrap();
    let Reply::Attr(attr) = a.call(&order(1000, true, 2, mkdir("d"))).unwrap().0 else {
        panic!("no attributes")
    };
    assert_eq!(attr.uid, 1000, "asked twice, done once");
    assert_eq!(refusal(a.call(&order(1000, true, 3, mkdir("d")))).fs, Some(types::FsError::Exists));
    // What one connection has open the others use, also one that comes when the others are gone; the removed host's none.
    let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
    let create = FileCall::CreateAs { parent: Ino::ROOT, name: b"f".to_vec(), mode: 0o600, flags };
    let Reply::OpenedAt { handle, resident: true, layout: None, .. } =
        a.call(&order(1000, true, 4, create)).unwrap().0
    else {
        panic!("no file without a descriptor")
    };
    let write = |data: &[u8]| FileCall::WriteAt { handle, offset: 0, data: data.to_vec() };
    b.call(&order(1000, true, 5, write(b"one"))).unwrap();
    // A client has sessions of its own, whatever number it says, and nothing in them of what others have open.
    let ((mut of_client, its), (_, again)) = (line_of(&client), line_of(&client));
    assert!(its == again && its != begun);
    let refused = refusal(of_client.call(&order(4711, false, 1, write(b"not mine"))));
    assert_eq!(refused.fs, Some(types::FsError::BadHandle));
    drop((a, b));
    let (mut c, begun_then) = line();
    assert_eq!(begun_then, begun, "a session outlives its connections for a moment");
    c.call(&order(1000, true, 6, write(b"two"))).unwrap();
    first.remove(MemberId::Node(NodeId(2))).unwrap();
    c.call(&order(1000, true, 7, look())).expect_err("a removed host speaks for nobody");
}
