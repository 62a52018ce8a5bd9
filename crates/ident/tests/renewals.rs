//! Members that change: new certificates in the place of old ones, and lists of removed members.

use ident::{Authority, Credentials, IdentError, Key, Role, Uuid, Validity, YEAR, read_withdrawn};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use types::{ClientId, NodeId};

const NODE: Role = Role::Node(NodeId(2));
const NOW: u64 = 1_800_000_000;

fn authority() -> Authority {
    Authority::create(Uuid::new_v4(), Key::generate().unwrap(), NOW).unwrap()
}

fn member(of: &Authority) -> Credentials {
    let key = Key::generate().unwrap();
    let certificate = of.sign(&key.request().unwrap(), NODE, Validity::of_member(NOW, YEAR)).unwrap();
    Credentials::new(certificate.to_vec(), key, of.certificate().to_vec()).unwrap()
}

fn keep(member: &Credentials, dir: &Path) {
    member.prepare(dir).unwrap();
    Credentials::commit(dir).unwrap();
}

fn load(dir: &Path) -> Credentials {
    Credentials::load(dir).unwrap().expect("it is there")
}

#[test]
fn a_certificate_says_when_it_ends_and_when_the_next_is_due() {
    let valid = member(&authority()).valid;
    assert_eq!(valid, Validity::of_member(NOW, YEAR));
    let year = 365 * 24 * 3600;
    assert!(!valid.is_ending(NOW + year / 2));
    assert!(valid.is_ending(NOW + year * 2 / 3 + 1));
    assert!(valid.is_ending(NOW + 2 * year));
    // Clocks may differ by more than a short life.
    let short = Validity::of_member(NOW, 60);
    assert!(short.life() == 60 && !short.is_ending(NOW + 39) && short.is_ending(NOW + 40));
    assert!(!short.has_ended(NOW + 60) && short.has_ended(NOW + 61));
}

#[test]
fn a_replaced_certificate_always_has_its_key() {
    let (authority, dir) = (authority(), tempfile::tempdir().unwrap());
    let path = dir.path().join("cluster");
    let (old, new) = (member(&authority), member(&authority));
    keep(&old, &path);
    // Not of the same key: nothing changes.
    assert!(Credentials::replace(&path, &new.certificate, &old.key).is_err());
    assert_eq!(load(&path).certificate, old.certificate);

    // Power fails when the new key is there, and once more when the certificate is, too.
    let put = |name: &str, bytes: &[u8]| {
        fs::write(path.join(name), bytes).unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(path.join(name), private).unwrap();
    };
    put("key-next.der", &new.key.to_der());
    assert_eq!(load(&path).certificate, old.certificate);
    put("certificate.der", &new.certificate);
    assert_eq!(load(&path).key.to_der(), new.key.to_der());
    assert!(!path.join("key-next.der").exists(), "it is in its place now");
    assert_eq!(load(&path).certificate, new.certificate);

    let third = member(&authority);
    Credentials::replace(&path, &third.certificate, &third.key).unwrap();
    let read = load(&path);
    assert_eq!((read.certificate, read.key.to_der()), (third.certificate, third.key.to_der()));
    let mut left: Vec<_> = fs::read_dir(&path).unwrap().map(|e| e.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["addresses", "authority.der", "certificate.der", "key.der"]);

    put("key.der", &old.key.to_der());
    let refused = Credentials::load(&path).unwrap_err().to_string();
    assert!(refused.contains("not the key of certificate.der"), "{refused}");
}

#[test]
fn a_list_of_removed_members_is_believed_if_the_authority_signed_it() {
    let authority = authority();
    let member = member(&authority);
    let cluster = member.identity.cluster;
    let named: BTreeSet<Role> = [NODE, Role::Client(ClientId(u32::MAX)), Role::Client(ClientId(0))].into();
    for named in [named.clone(), BTreeSet::new()] {
        let list = authority.withdraw(&named).unwrap();
        assert_eq!(read_withdrawn(&list, cluster, &member.authority).unwrap(), named);
        for at in 0..list.len() {
            let mut changed = list.clone();
            changed[at] ^= 1;
            for bad in [&changed[..], &list[..at]] {
                let refused = read_withdrawn(bad, cluster, &member.authority);
                assert!(matches!(refused, Err(IdentError::List(_))), "{at}: {refused:?}");
            }
        }
        let other = Authority::create(cluster, Key::generate().unwrap(), NOW).unwrap();
        let forged = other.withdraw(&named).unwrap();
        assert!(read_withdrawn(&forged, cluster, &member.authority).is_err());
        assert!(read_withdrawn(&list, Uuid::new_v4(), &member.authority).is_err());
    }
}

#[test]
fn what_is_removed_stays_so_and_is_kept() {
    let (authority, dir) = (authority(), tempfile::tempdir().unwrap());
    let path = dir.path().join("cluster");
    keep(&member(&authority), &path);
    let one = Role::Node(NodeId(7));
    let both: BTreeSet<Role> = [one, Role::Client(ClientId(1))].into();
    let (shorter, longer) = (authority.withdraw(&[one].into()).unwrap(), authority.withdraw(&both).unwrap());

    let own = load(&path);
    assert_eq!(own.keep_removed(&path, &longer).unwrap(), both.iter().copied().collect::<Vec<_>>());
    // An old list that is brought again takes nobody back.
    assert_eq!(own.keep_removed(&path, &shorter).unwrap(), []);
    assert_eq!((own.removed.all(), Credentials::kept_removed(&path).unwrap()), (both.clone(), longer));
    assert_eq!(load(&path).removed.all(), both);
    assert!(own.keep_removed(&path, b"thermo-removed-1").is_err());
    fs::write(path.join("removed"), b"damaged").unwrap();
    let refused = Credentials::load(&path).unwrap_err().to_string();
    assert!(refused.contains("removed") && refused.contains("backup"), "{refused}");
}
