//! Members of a cluster understand each other over loopback; everybody else is refused, at the end that should refuse, and
//! is told why.

use ident::{
    Acceptor, Authority, Connector, Credentials, IdentError, Key, Places, Role, TlsStream, Token, Uuid,
    Validity, YEAR, digest, read_places, read_withdrawn,
};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use types::{ClientId, NodeId};

const NODE: Role = Role::Node(NodeId(1));
const CLIENT: Role = Role::Client(ClientId(1));

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn cluster() -> Authority {
    of_cluster(Uuid::new_v4())
}

fn of_cluster(cluster: Uuid) -> Authority {
    Authority::create(cluster, Key::generate().unwrap(), now()).unwrap()
}

fn member(of: &Authority, role: Role) -> Credentials {
    lasting(of, role, Validity::of_member(now(), YEAR))
}

fn lasting(of: &Authority, role: Role, validity: Validity) -> Credentials {
    let key = Key::generate().unwrap();
    let certificate = of.sign(&key.request().unwrap(), role, validity).unwrap();
    Credentials::new(certificate.to_vec(), key, of.certificate().to_vec()).unwrap()
}

fn gone() -> Validity {
    Validity { from: now() - 7200, until: now() - 3600 }
}

/// What both ends make of each other. The caller's result is that of its first read, because that is when it learns that it
/// is refused.
fn meet(
    node: &Credentials,
    caller: &Connector,
) -> (Result<TlsStream, IdentError>, Result<TlsStream, String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let acceptor = Acceptor::new(node, Arc::default()).unwrap();
    std::thread::scope(|scope| {
        let accepting = scope.spawn(move || {
            let mut stream = acceptor.accept(listener.accept().unwrap().0)?;
            stream.write_all(b"!")?;
            Ok(stream)
        });
        let called = caller.connect(&address).map_err(|e| e.to_string()).and_then(|mut stream| {
            stream.read_exact(&mut [0]).map_err(|e| e.to_string())?;
            Ok(stream)
        });
        (accepting.join().unwrap(), called)
    })
}

fn told(result: Result<TlsStream, String>) -> String {
    result.expect_err("the caller must be refused")
}

#[test]
fn members_know_each_other() {
    let authority = cluster();
    let (node, client) = (member(&authority, NODE), member(&authority, CLIENT));
    for caller in [&node, &client] {
        let (accepted, called) = meet(&node, &Connector::member(caller).unwrap());
        let seen = accepted.unwrap().peer();
        assert_eq!(seen, Some((caller.identity, digest(&caller.certificate))));
        assert_eq!(called.unwrap().peer().map(|(who, _)| who), Some(node.identity));
    }
}

#[test]
fn the_bearer_of_a_token_is_nobody_yet_and_knows_whom_it_talks_to() {
    let authority = cluster();
    let node = member(&authority, NODE);
    let token = |cluster, of: &[u8]| Token::create(cluster, digest(of), now() + 60, Vec::new()).unwrap();
    let good = token(node.identity.cluster, &node.authority);
    let (accepted, called) = meet(&node, &Connector::bearer(&good).unwrap());
    assert_eq!(accepted.unwrap().peer(), None);
    assert_eq!(called.unwrap().peer().map(|(who, _)| who), Some(node.identity));

    // Somebody in the middle with an authority of his own, even one that calls itself the same.
    let forger = member(&of_cluster(node.identity.cluster), NODE);
    let (accepted, called) = meet(&forger, &Connector::bearer(&good).unwrap());
    assert!(accepted.is_err());
    assert!(told(called).contains("not from the authority"));

    // A client of the cluster that poses as a node of it.
    let (accepted, called) = meet(&member(&authority, CLIENT), &Connector::bearer(&good).unwrap());
    assert!(accepted.is_err());
    assert!(told(called).contains("a node is due"));

    // A token for another cluster of the same authority's certificate cannot be.
    let other = token(Uuid::new_v4(), &node.authority);
    let (_, called) = meet(&node, &Connector::bearer(&other).unwrap());
    assert!(told(called).contains("another cluster"));
}

#[test]
fn expired_and_early_certificates_are_refused_by_either_end() {
    let authority = cluster();
    let (node, client) = (member(&authority, NODE), member(&authority, CLIENT));
    let old = lasting(&authority, CLIENT, gone());
    let (accepted, called) = meet(&node, &Connector::member(&old).unwrap());
    assert!(matches!(accepted, Err(IdentError::Expired)), "{accepted:?}");
    assert!(told(called).contains("expired"));

    let old = lasting(&authority, NODE, gone());
    let (_, called) = meet(&old, &Connector::member(&client).unwrap());
    assert!(told(called).contains("expired"));

    let early = lasting(&authority, CLIENT, Validity { from: now() + 3600, until: now() + 7200 });
    let (accepted, _) = meet(&node, &Connector::member(&early).unwrap());
    assert!(matches!(accepted, Err(IdentError::NotYetValid)), "{accepted:?}");
}

#[test]
fn one_whose_certificate_has_ended_is_known_to_get_another_one_and_for_nothing_else() {
    let authority = cluster();
    let node = member(&authority, NODE);
    for caller in [lasting(&authority, CLIENT, gone()), member(&authority, CLIENT)] {
        let (accepted, called) = meet(&node, &Connector::renewing(&caller).unwrap());
        let stream = accepted.unwrap();
        // Who forgets to ask for what it is takes it for nobody.
        assert_eq!(stream.peer(), None);
        assert_eq!(stream.renewing(), Some((caller.identity, digest(&caller.certificate))));
        called.unwrap();
    }
    assert_eq!(
        meet(&node, &Connector::member(&member(&authority, CLIENT)).unwrap()).0.unwrap().renewing(),
        None
    );
    let renewing = |who: &Credentials| meet(&node, &Connector::renewing(who).unwrap()).0;
    let mut stranger = lasting(&cluster(), CLIENT, gone());
    stranger.authority = authority.certificate().to_vec();
    stranger.identity.cluster = node.identity.cluster;
    assert!(matches!(renewing(&stranger), Err(IdentError::Foreign)));
    let early = lasting(&authority, CLIENT, Validity { from: now() + 3600, until: now() + 7200 });
    assert!(matches!(renewing(&early), Err(IdentError::NotYetValid)));
    let list = authority.withdraw(&[CLIENT].into()).unwrap();
    node.removed.add(read_withdrawn(&list, node.identity.cluster, authority.certificate()).unwrap());
    assert!(matches!(renewing(&lasting(&authority, CLIENT, gone())), Err(IdentError::Removed)));
}

#[test]
fn a_node_that_is_known_by_its_certificate_is_believed_after_its_end_and_nobody_else_is() {
    let authority = cluster();
    let (caller, node) = (member(&authority, CLIENT), lasting(&authority, NODE, gone()));
    let call = |node: &Credentials, known: &[ident::Digest]| {
        meet(node, &Connector::member_knowing(&caller, known).unwrap()).1
    };
    let certificate = digest(&node.certificate);
    assert_eq!(call(&node, &[certificate]).unwrap().peer(), Some((node.identity, certificate)));
    let before = lasting(&authority, NODE, gone()); // another certificate of the same node
    assert!(told(call(&before, &[certificate])).contains("expired"));
    assert!(told(call(&node, &[])).contains("expired"));
    let early = lasting(&authority, NODE, Validity { from: now() + 3600, until: now() + 7200 });
    assert!(!told(call(&early, &[digest(&early.certificate)])).is_empty());
    let client = lasting(&authority, CLIENT, gone());
    assert!(told(call(&client, &[digest(&client.certificate)])).contains("a node is due"));
    let list = authority.withdraw(&[NODE].into()).unwrap();
    caller.removed.add(read_withdrawn(&list, node.identity.cluster, authority.certificate()).unwrap());
    assert!(told(call(&node, &[certificate])).contains("removed"));
}

#[test]
fn places_are_believed_of_whoever_brings_them_if_the_authority_has_signed_them() {
    let id = Uuid::new_v4();
    let authority = of_cluster(id);
    let all = ["mds1.example:7430".to_owned(), "[2001:db8::1]:7430".to_owned()];
    let read = |list: &[u8], of: &Authority| read_places(list, id, of.certificate());
    for (turn, some) in [(0, &all[..]), (7, &all[..1]), (u64::MAX, &[])] {
        let places = Places { turn, addresses: some.to_vec() };
        let list = authority.place(&places).unwrap();
        assert_eq!(read(&list, &authority).unwrap(), places);
        assert!(read(&list, &cluster()).is_err());
        assert!(read_places(&list, Uuid::new_v4(), authority.certificate()).is_err());
        // Not a list of another kind, nor one that has changed or ends early.
        assert!(read_withdrawn(&list, id, authority.certificate()).is_err());
        for at in 0..list.len() {
            let mut changed = list.clone();
            changed[at] ^= 1;
            assert!(read(&changed, &authority).is_err() && read(&list[..at], &authority).is_err(), "{at}");
        }
    }
    assert!(read(&authority.withdraw(&[NODE].into()).unwrap(), &authority).is_err());

    // Who has heard of a later turn knows what is of an earlier one, also when it is started anew.
    let (dir, own) = (tempfile::tempdir().unwrap(), member(&authority, NODE));
    let bring = |turn, n: usize| {
        let list = authority.place(&Places { turn, addresses: all[n..=n].to_vec() }).unwrap();
        let (said, latest) = own.keep_places(dir.path(), &list).unwrap();
        assert_eq!(said, all[n..=n]);
        latest
    };
    assert!(bring(3, 0) && bring(3, 1) && !bring(2, 0) && bring(4, 0));
    assert!(own.keep_places(dir.path(), b"thermo-places-v1").is_err());
    assert!(!bring(3, 1));
}

#[test]
fn forged_and_foreign_certificates_are_refused_by_either_end() {
    let authority = cluster();
    let (node, client) = (member(&authority, NODE), member(&authority, CLIENT));
    // Of another cluster, and of an authority that only calls itself the same.
    for other in [cluster(), of_cluster(node.identity.cluster)] {
        let mut stranger = member(&other, CLIENT);
        // He takes the node for his own, so that it is the node that has to refuse.
        stranger.authority = authority.certificate().to_vec();
        stranger.identity.cluster = node.identity.cluster;
        let (accepted, called) = meet(&node, &Connector::member(&stranger).unwrap());
        assert!(matches!(accepted, Err(IdentError::Foreign)), "{accepted:?}");
        told(called);

        let (accepted, called) = meet(&member(&other, NODE), &Connector::member(&client).unwrap());
        assert!(told(called).contains("not from the authority"));
        // The refused node hears it.
        assert!(matches!(accepted, Err(IdentError::Refused(_))), "{accepted:?}");
    }
    // The same authority's key, used for another cluster.
    let elsewhere = Key::generate().unwrap();
    let der = elsewhere.to_der();
    let here = Authority::create(Uuid::new_v4(), elsewhere, now()).unwrap();
    let there = Authority::load(Uuid::new_v4(), here.certificate(), Key::from_der(&der).unwrap()).unwrap();
    let (node, mut stranger) = (member(&here, NODE), member(&there, CLIENT));
    stranger.identity.cluster = node.identity.cluster;
    let (accepted, _) = meet(&node, &Connector::member(&stranger).unwrap());
    assert!(matches!(accepted, Err(IdentError::OtherCluster(_))), "{accepted:?}");
}

#[test]
fn removed_members_are_refused_by_either_end() {
    let authority = cluster();
    let (node, client) = (member(&authority, NODE), member(&authority, CLIENT));
    let list = authority.withdraw(&[CLIENT].into()).unwrap();
    let all = read_withdrawn(&list, node.identity.cluster, authority.certificate()).unwrap();
    // A connector or acceptor that is there already hears of it too.
    let (before, caller) = (member(&authority, NODE), Connector::member(&client).unwrap());
    meet(&node, &caller).0.unwrap();
    node.removed.add(all);
    let (accepted, called) = meet(&node, &caller);
    assert!(matches!(accepted, Err(IdentError::Removed)), "{accepted:?}");
    assert!(told(called).contains("removed from the cluster"));
    // Whatever certificate it has.
    let (accepted, _) = meet(&node, &Connector::member(&member(&authority, CLIENT)).unwrap());
    assert!(matches!(accepted, Err(IdentError::Removed)), "{accepted:?}");
    meet(&before, &caller).0.unwrap();

    client.removed.add([NODE]);
    let (_, called) = meet(&before, &caller);
    assert!(told(called).contains("removed from the cluster"));
}

#[test]
fn a_client_is_no_node() {
    let authority = cluster();
    let (_, called) =
        meet(&member(&authority, CLIENT), &Connector::member(&member(&authority, NODE)).unwrap());
    assert!(told(called).contains("a node is due"));
}

#[test]
fn a_member_cannot_sign_others() {
    let authority = cluster();
    let node = member(&authority, NODE);
    let as_authority =
        Authority::load(node.identity.cluster, &node.certificate, Key::from_der(&node.key.to_der()).unwrap())
            .unwrap();
    let mut made = member(&as_authority, Role::Node(NodeId(2)));
    made.authority = authority.certificate().to_vec();
    let (accepted, _) = meet(&node, &Connector::member(&made).unwrap());
    assert!(accepted.is_err(), "{accepted:?}");
}

#[test]
fn a_request_proves_its_key_and_asks_for_nothing_else() {
    let authority = cluster();
    let mut request = Key::generate().unwrap().request().unwrap();
    let last = request.len() - 1;
    request[last] ^= 1;
    for bad in [request.as_slice(), b"", b"junk"] {
        let refused = authority.sign(bad, NODE, Validity::of_member(now(), YEAR));
        assert!(matches!(refused, Err(IdentError::Request(_))), "{refused:?}");
    }
}

/// Sends bytes in the clear and says what the node makes of them, and what it answers.
fn in_the_clear(bytes: &[u8]) -> (IdentError, Vec<u8>) {
    let node = member(&cluster(), NODE);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = Acceptor::new(&node, Arc::default()).unwrap();
    std::thread::scope(|scope| {
        let accepting = scope.spawn(move || acceptor.accept(listener.accept().unwrap().0).err().unwrap());
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(bytes).unwrap();
        let error = accepting.join().unwrap();
        let mut answer = Vec::new();
        // The node closes with bytes unread: a reset is as good an end as any.
        let _ = stream.read_to_end(&mut answer);
        (error, answer)
    })
}

#[test]
fn plain_tcp_is_refused_and_not_answered() {
    let (error, answer) = in_the_clear(b"GET / HTTP/1.0\r\n\r\n");
    assert!(matches!(error, IdentError::PlainTcp) && error.counts(), "{error:?}");
    assert!(answer.is_empty());
    // The first frame of a control socket.
    let (error, _) = in_the_clear(b"\x18\0\0\0\x01\0\0\0\0\0\0\0\0THERMO\r\n");
    assert!(matches!(error, IdentError::PlainTcp), "{error:?}");
    // It begins as TLS does, and is not.
    let (error, _) = in_the_clear(&[22, 9, 9, 0, 4, 1, 2, 3, 4]);
    assert!(error.counts(), "{error:?}");
}

#[test]
fn members_are_kept_and_their_keys_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cluster");
    assert!(Credentials::load(&path).unwrap().is_none());
    let key = Key::generate().unwrap();
    let der = key.to_der();
    let authority = Authority::create(Uuid::new_v4(), key, now()).unwrap();
    let mut node = member(&authority, NODE);
    node.authority_key = Some(Key::from_der(&der).unwrap());
    node.prepare(&path).unwrap();
    assert!(Credentials::load(&path).unwrap().is_none(), "prepared is not committed");
    assert_eq!(Credentials::prepared(&path).unwrap().identity, node.identity);
    // A second attempt begins anew.
    node.prepare(&path).unwrap();
    Credentials::commit(&path).unwrap();
    let read = Credentials::load(&path).unwrap().unwrap();
    assert_eq!((read.identity, &read.certificate), (node.identity, &node.certificate));
    assert_eq!(read.signer().unwrap().unwrap().certificate(), authority.certificate());
    let (accepted, _) = meet(&read, &Connector::member(&read).unwrap());
    accepted.unwrap();

    for key in ["key.der", "authority-key.der"] {
        let file = path.join(key);
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
        let refused = Credentials::load(&path).unwrap_err().to_string();
        assert!(refused.contains(key) && refused.contains("0600"), "{refused}");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    node.prepare(&path).unwrap();
    assert!(Credentials::commit(&path).is_err(), "a member stays who it is");
}
