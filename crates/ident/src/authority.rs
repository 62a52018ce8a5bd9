//! The authority of a cluster: one self-signed certificate, and what it signs.

use crate::{IdentError, Identity, Role};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData,
    SanType, SigningKey, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, CertificateSigningRequestDer, PrivatePkcs8KeyDer};
use std::time::Duration;
use uuid::Uuid;
use webpki::EndEntityCert;

/// Clocks of hosts may differ by this much (seconds): a certificate is valid from so long ago.
const CLOCK_SKEW: u64 = 3600;
/// A year (seconds).
pub const YEAR: u64 = 365 * 24 * 3600;
/// Last second that a certificate of ours may name: 9999-12-31, the last that X.509 can.
const LAST: u64 = 253_402_300_799;

/// From when until when, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// First second.
    pub from: u64,
    /// Last second.
    pub until: u64,
}

impl Validity {
    /// Of nodes and clients: good for so many seconds.
    pub fn of_member(now: u64, life: u64) -> Self {
        Self { from: now.saturating_sub(CLOCK_SKEW), until: now + life }
    }

    /// Of a certificate (DER).
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn of_certificate(certificate: &[u8]) -> Result<Self, IdentError> {
        let unread = |_| IdentError::Nameless("it cannot be read".into());
        let (_, read) = x509_parser::parse_x509_certificate(certificate).map_err(unread)?;
        let second = |at: i64| u64::try_from(at).unwrap_or(0);
        let valid = read.validity();
        Ok(Self { from: second(valid.not_before.timestamp()), until: second(valid.not_after.timestamp()) })
    }

    /// For how long it was good when it was signed (seconds).
    pub fn life(self) -> u64 {
        self.until.saturating_sub(self.from).saturating_sub(CLOCK_SKEW)
    }

    /// Whether so much of it has gone (two thirds) that a new certificate is due.
    pub fn is_ending(self, now: u64) -> bool {
        now >= self.until.saturating_sub(self.life() / 3)
    }

    /// Whether it is good no more.
    pub fn has_ended(self, now: u64) -> bool {
        now > self.until
    }

    /// Of the authority: longer than anything that it signs.
    fn of_authority(now: u64) -> Self {
        Self { from: now.saturating_sub(CLOCK_SKEW), until: now + 30 * YEAR }
    }

    fn put(self, params: &mut CertificateParams) {
        let at = |second: u64| date_time_ymd(1970, 1, 1) + Duration::from_secs(second.min(LAST));
        params.not_before = at(self.from);
        params.not_after = at(self.until);
    }
}

/// A private key (ECDSA P-256), as it is kept and as it asks to be signed.
pub struct Key(KeyPair);

impl Key {
    /// A new one.
    ///
    /// # Errors
    /// No random numbers.
    pub fn generate() -> Result<Self, IdentError> {
        Ok(Self(KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?))
    }

    /// From its PKCS #8 bytes.
    ///
    /// # Errors
    /// Not such a key.
    pub fn from_der(der: &[u8]) -> Result<Self, IdentError> {
        Ok(Self(KeyPair::from_pkcs8_der_and_sign_algo(
            &PrivatePkcs8KeyDer::from(der),
            &PKCS_ECDSA_P256_SHA256,
        )?))
    }

    /// PKCS #8 bytes: to be kept with mode 0600, never sent.
    pub fn to_der(&self) -> Vec<u8> {
        self.0.serialize_der()
    }

    /// Whether a certificate (DER) is for this key.
    pub(crate) fn is_of(&self, certificate: &[u8]) -> bool {
        let der = CertificateDer::from(certificate);
        EndEntityCert::try_from(&der)
            .is_ok_and(|shown| shown.subject_public_key_info().as_ref() == self.0.subject_public_key_info())
    }

    /// A signing request (PKCS #10), which proves that its sender has the key. It asks for no name: that is the authority's to give.
    ///
    /// # Errors
    /// The library.
    pub fn request(&self) -> Result<Vec<u8>, IdentError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        Ok(params.serialize_request(&self.0)?.der().to_vec())
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(not shown)")
    }
}

/// The authority of a cluster.
#[derive(Debug)]
pub struct Authority {
    cluster: Uuid,
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// A new one for a cluster.
    ///
    /// # Errors
    /// No random numbers.
    pub fn create(cluster: Uuid, key: Key, now: u64) -> Result<Self, IdentError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, format!("Thermocline cluster {cluster}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Validity::of_authority(now).put(&mut params);
        let certificate = params.self_signed(&key.0)?.der().clone();
        Ok(Self { cluster, certificate, issuer: Issuer::new(params, key.0) })
    }

    /// As it was kept.
    ///
    /// # Errors
    /// Certificate or key cannot be read.
    pub fn load(cluster: Uuid, certificate: &[u8], key: Key) -> Result<Self, IdentError> {
        let certificate = CertificateDer::from(certificate.to_vec());
        let issuer = Issuer::from_ca_cert_der(&certificate, key.0)?;
        Ok(Self { cluster, certificate, issuer })
    }

    pub(crate) fn cluster(&self) -> Uuid {
        self.cluster
    }

    /// Signs something that is no certificate (ECDSA P-256 with SHA-256, DER).
    pub(crate) fn signature(&self, of: &[u8]) -> Result<Vec<u8>, IdentError> {
        Ok(self.issuer.key().sign(of)?)
    }

    /// Its certificate (DER).
    pub fn certificate(&self) -> &[u8] {
        &self.certificate
    }

    /// Signs the key of a request. Of the request nothing but the key is taken; its signature has proved that the sender has it.
    ///
    /// # Errors
    /// [`IdentError::Request`]: not a signing request, or signed with another key.
    pub fn sign(
        &self,
        request: &[u8],
        role: Role,
        validity: Validity,
    ) -> Result<CertificateDer<'static>, IdentError> {
        let der = CertificateSigningRequestDer::from(request);
        let mut asked = CertificateSigningRequestParams::from_der(&der)
            .map_err(|e| IdentError::Request(e.to_string()))?;
        let identity = Identity { cluster: self.cluster, role };
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, role.to_string());
        let name = identity.to_string().try_into().map_err(IdentError::Making)?;
        params.subject_alt_names = vec![SanType::URI(name)];
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        if identity.is_node() {
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        }
        validity.put(&mut params);
        asked.params = params;
        Ok(asked.signed_by(&self.issuer)?.der().clone())
    }
}
