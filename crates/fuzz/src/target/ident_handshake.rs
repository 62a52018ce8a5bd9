//! Somebody who sends what he likes to the port where a node takes calls over TLS: he is refused, and in the clear nothing is answered.

use ident::{
    Acceptor, Authority, Connector, Credentials, IdentError, Key, Role, Token, Uuid, Validity, YEAR, digest,
};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};
use types::NodeId;

/// First byte of a TLS record that holds a handshake.
const HANDSHAKE_RECORD: u8 = 22;

fn node() -> &'static Credentials {
    static NODE: OnceLock<Credentials> = OnceLock::new();
    NODE.get_or_init(|| {
        let now =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |t| t.as_secs());
        let (key, authority) = (Key::generate().expect("a key"), Key::generate().expect("a key"));
        let authority = Authority::create(Uuid::from_bytes([3; 16]), authority, now).expect("an authority");
        let request = key.request().expect("a request");
        let signed = authority.sign(&request, Role::Node(NodeId(1)), Validity::of_member(now, YEAR));
        let certificate = signed.expect("a certificate").to_vec();
        Credentials::new(certificate, key, authority.certificate().to_vec()).expect("they belong together")
    })
}

fn acceptor() -> &'static Acceptor {
    static ACCEPTOR: OnceLock<Acceptor> = OnceLock::new();
    ACCEPTOR.get_or_init(|| Acceptor::new(node(), Arc::default()).expect("its own key"))
}

pub(super) fn run(bytes: &[u8]) {
    let (near, mut far) = UnixStream::pair().expect("a socket pair");
    // what fits into a socket's buffer need not wait for a reader
    far.write_all(bytes).expect("the buffer takes it");
    far.shutdown(Shutdown::Write).expect("the socket is open");
    // All that is done to the socket before the handshake has ended can be done to that of another family.
    let refused = acceptor().accept(TcpStream::from(OwnedFd::from(near)));
    let Err(refused) = refused else { panic!("nobody has shown a certificate") };
    let mut answer = Vec::new();
    // Closed with bytes unread: a reset is as good an end as any.
    let _ = far.read_to_end(&mut answer);
    if bytes.first().is_some_and(|first| *first != HANDSHAKE_RECORD) {
        assert!(matches!(refused, IdentError::PlainTcp) && answer.is_empty(), "{refused:?}: {answer:?}");
    }
}

/// What a caller sends first.
fn first_flight(connector: &Connector) -> Vec<u8> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let address = listener.local_addr().expect("it has one").to_string();
    std::thread::scope(|scope| {
        scope.spawn(|| connector.connect(&address).expect_err("nobody answers"));
        let (mut caller, _) = listener.accept().expect("it calls");
        let mut head = [0; 5];
        caller.read_exact(&mut head).expect("a record");
        let mut record = vec![0; usize::from(u16::from_be_bytes([head[3], head[4]]))];
        caller.read_exact(&mut record).expect("its content");
        [&head[..], &record].concat()
    })
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let token = Token::create(node().identity.cluster, digest(&node().authority), u64::MAX, Vec::new());
    let member = first_flight(&Connector::member(node()).expect("its own key"));
    let bearer = first_flight(&Connector::bearer(&token.expect("a token")).expect("a connector"));
    let change_of_cipher = [20, 3, 3, 0, 1, 1];
    vec![
        [&member[..], &change_of_cipher].concat(),
        [&bearer[..], &change_of_cipher, &[23, 3, 3, 0, 2, 1, 2]].concat(),
        member,
        bearer,
        b"GET / HTTP/1.0\r\n\r\n".to_vec(),
        b"\x18\0\0\0\x01\0\0\0\0\0\0\0\0THERMO\r\n\x05\0\0\0thermo 0.1.0".to_vec(),
        vec![22, 9, 9, 0, 4, 1, 2, 3, 4],
    ]
}
