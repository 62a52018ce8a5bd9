//! A server that is reached over TLS: who is believed, and what is said of who is not.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use kv::{DatabaseOptions, Durability, PostgresEngine};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use tempfile::TempDir;

use crate::engine::{get, put};
use crate::server::Server;

/// Longest time that a wrong certificate may take to be told: a server that is away is waited for longer.
const SOON: Duration = Duration::from_secs(20);

/// An authority with its files.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Certificate and key (PEM) of who is called so.
    fn signs(&self, name: &str, of: ExtendedKeyUsagePurpose) -> [String; 2] {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![of];
        [params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem()]
    }
}

/// A server at an address that no other test process has, and files of who may come and of who may not.
struct Site {
    server: Server,
    address: String,
    dir: TempDir,
}

impl Site {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // ids of processes have 22 bits at most
        let (pid, n) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let address = format!("127.{}.{}.{}", 64 * (1 + n) + (pid >> 16), (pid >> 8) % 256, pid % 256);
        let (ours, other) = (Authority::new("ours"), Authority::new("other"));
        let [cert, key] = ours.signs(&address, ExtendedKeyUsagePurpose::ServerAuth);
        let rules = "local all all trust\n\
                     hostssl all secret all scram-sha-256\n\
                     hostssl all certified all cert\n";
        let server = Server::start_at(&address, [&cert, &key, &ours.0.pem()], rules);
        server.sql("CREATE ROLE secret LOGIN SUPERUSER PASSWORD 'word'");
        server.sql("CREATE ROLE certified LOGIN SUPERUSER");
        let site = Self { server, address, dir: tempfile::tempdir().unwrap() };
        site.file("ours", &ours.0.pem());
        site.file("other", &other.0.pem());
        let namesake = Authority::new("ours");
        for (authority, of) in [(&ours, "own"), (&other, "foreign"), (&namesake, "forged")] {
            let [cert, key] = authority.signs("certified", ExtendedKeyUsagePurpose::ClientAuth);
            site.file(of, &cert);
            site.file(&format!("{of}.key"), &key);
        }
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn file(&self, name: &str, content: &str) {
        std::fs::write(self.path(name), content).unwrap();
    }

    /// A setting that names a file.
    fn named(&self, setting: &str, name: &str) -> String {
        let path: &Path = &self.path(name);
        format!("&{setting}={}", path.display())
    }

    fn open(&self, host: &str, user: &str, schema: &str, settings: &str) -> Result<PostgresEngine, String> {
        self.server.sql(&format!("CREATE SCHEMA IF NOT EXISTS {schema}"));
        let address = format!(
            "postgres://{user}@{host}/postgres?connections=2&options=-csearch_path%3D{schema}{settings}"
        );
        let begun = Instant::now();
        let opened = PostgresEngine::open(&address, DatabaseOptions::new("test"));
        assert!(begun.elapsed() < SOON, "{settings}: it took {:?}", begun.elapsed());
        opened.map_err(|e| e.to_string())
    }
}

#[test]
fn who_has_the_password_or_a_certificate_comes_in_and_nobody_hears_what_is_said() {
    let site = Site::new();
    let believes = format!("&sslmode=require{}", site.named("sslrootcert", "ours"));
    let own = site.named("sslcert", "own") + &site.named("sslkey", "own.key");
    for (user, schema, more) in [("secret:word", "word", ""), ("certified", "own", own.as_str())] {
        let engine = site.open(&site.address, user, schema, &format!("{believes}{more}")).unwrap();
        put(&engine, Durability::Durable, b"key", b"value").unwrap();
        assert_eq!(get(&engine, b"key").unwrap(), b"value");
        let role = user.split(':').next().unwrap();
        let open =
            "SELECT count(*), count(*) FILTER (WHERE ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)";
        let counts = site.server.sql(&format!("{open} WHERE usename = '{role}'"));
        let (all, encrypted) = counts.split_once('|').unwrap();
        assert!(all == encrypted && all != "0", "{counts}");
    }
}

#[test]
fn who_is_not_believed_is_refused_at_once_and_told_why() {
    let site = Site::new();
    let require = "&sslmode=require";
    let (ours, other) = (site.named("sslrootcert", "ours"), site.named("sslrootcert", "other"));
    let shows = |who: &str| site.named("sslcert", who) + &site.named("sslkey", &format!("{who}.key"));
    let address = site.address.as_str();
    for (host, user, settings, word) in [
        // the server is not who it should be
        (address, "secret:word", format!("{require}{other}"), "certificate"),
        (&format!("localhost&hostaddr={address}"), "secret:word", format!("{require}{ours}"), "localhost"),
        // nor is the client
        (address, "secret:wrong", format!("{require}{ours}"), "password"),
        (address, "certified", format!("{require}{ours}"), "certificate"),
        (address, "certified", format!("{require}{ours}{}", shows("foreign")), "UnknownCA"),
        (address, "certified", format!("{require}{ours}{}", shows("forged")), "DecryptError"),
        // and nobody speaks openly
        (address, "secret:word", String::new(), "encryption"),
        (address, "secret:word", format!("{require}{}", site.named("sslrootcert", "none")), "none"),
        (address, "secret:word", format!("{require}{}", site.named("sslrootcert", "own.key")), "own.key"),
    ] {
        let (host, more) =
            host.split_once('&').map_or((host, String::new()), |(host, more)| (host, format!("&{more}")));
        let error = site.open(host, user, "refused", &format!("{more}{settings}")).err();
        let error = error.unwrap_or_else(|| panic!("{user}{settings}: opened"));
        assert!(
            error.contains(word) && !error.contains("wrong") && !error.contains(":word"),
            "{settings}: {error}"
        );
    }
}
