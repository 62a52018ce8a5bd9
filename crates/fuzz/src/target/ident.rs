//! What tells who is who: tokens as text, names in certificates, signing requests, certificates, lists of removed members and of places.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ident::{Authority, Credentials, Key, Places, Role, Token, Uuid, Validity};
use ident::{Identity, digest, read_places, read_withdrawn};
use std::sync::OnceLock;
use types::{ClientId, NodeId};

const NODE: Role = Role::Node(NodeId(7));
const VALID: Validity = Validity { from: 1_700_000_000, until: 1_800_000_000 };

/// A cluster with one node, and lists of removed members and of places.
struct World {
    authority: Authority,
    cluster: Uuid,
    key: Vec<u8>,
    request: Vec<u8>,
    certificate: Vec<u8>,
    removed: Vec<u8>,
    places: Vec<u8>,
}

fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| {
        let key = || Key::generate().expect("a key");
        let (cluster, own) = (Uuid::from_bytes([3; 16]), key());
        let authority = Authority::create(cluster, key(), VALID.from).expect("an authority");
        let request = own.request().expect("a request");
        let certificate = authority.sign(&request, NODE, VALID).expect("a certificate").to_vec();
        let removed = authority.withdraw(&[NODE, Role::Client(ClientId(9))].into()).expect("a list");
        let addresses = vec!["mds1.example:7430".into(), "mds2.example:7430".into()];
        let places = authority.place(&Places { turn: 3, addresses }).expect("a list");
        World { authority, cluster, key: own.to_der(), request, certificate, removed, places }
    })
}

pub(super) fn run(bytes: &[u8]) {
    let Some((what, bytes)) = bytes.split_first() else { return };
    let world = world();
    match what % 6 {
        0 => token(bytes),
        1 => name(&String::from_utf8_lossy(bytes)),
        2 => request(world, bytes),
        3 => certificate(world, bytes),
        4 => {
            let read = read_withdrawn(bytes, world.cluster, world.authority.certificate());
            assert!(read.is_err() || bytes == world.removed, "the authority has not signed that");
        }
        _ => {
            let read = read_places(bytes, world.cluster, world.authority.certificate());
            assert!(read.is_err() || bytes == world.places, "the authority has not signed that");
        }
    }
}

/// With the sum that belongs to the bytes: the text of a token as such is noticed to be damaged before anything of it is read.
fn token(bytes: &[u8]) {
    let _ = String::from_utf8_lossy(bytes).parse::<Token>();
    let body = [bytes, &digest(bytes)[..4]].concat();
    let text = format!("thermo1.{}", URL_SAFE_NO_PAD.encode(body));
    if let Ok(token) = text.parse::<Token>() {
        assert_eq!(token.reveal(), text, "a token has one text");
    }
}

fn name(text: &str) {
    if let Ok(identity) = text.parse::<Identity>() {
        assert_eq!(identity.to_string(), text, "one identity has one name");
    }
}

/// Whatever is asked for, the name is that which the authority gives.
fn request(world: &World, bytes: &[u8]) {
    if let Ok(certificate) = world.authority.sign(bytes, NODE, VALID) {
        assert!(holds(&certificate, &format!("thermo://{}/node/7", world.cluster)));
    }
}

fn certificate(world: &World, bytes: &[u8]) {
    let key = Key::from_der(&world.key).expect("a key");
    let authority = world.authority.certificate().to_vec();
    if let Ok(read) = Credentials::new(bytes.to_vec(), key, authority) {
        assert!(holds(bytes, &read.identity.to_string()), "the name is in the certificate");
    }
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|part| part == text.as_bytes())
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let world = world();
    let addresses = vec!["mds1.example:7430".to_owned(), "[2001:db8::1]:7430".to_owned()];
    let token = Token::create(world.cluster, [7; 32], VALID.until, addresses).expect("a token").reveal();
    let body = URL_SAFE_NO_PAD.decode(&token["thermo1.".len()..]).expect("it is base64");
    let seed = |what: u8, bytes: &[u8]| [&[what], bytes].concat();
    vec![
        seed(0, token.as_bytes()),
        seed(0, &body[..body.len() - 4]),
        seed(1, b"thermo://03030303-0303-0303-0303-030303030303/node/7"),
        seed(1, b"thermo://03030303-0303-0303-0303-030303030303/client/4294967295"),
        seed(2, &world.request),
        seed(3, &world.certificate),
        seed(3, world.authority.certificate()),
        seed(4, &world.removed),
        seed(5, &world.places),
    ]
}
