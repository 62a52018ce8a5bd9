//! Whether a certificate is of this cluster, valid, and of the kind that is due.

use crate::error::Stranger;
use crate::{Digest, Identity, Withdrawn, digest};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme,
};
use std::sync::Arc;
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};

/// By what the authority is known.
#[derive(Clone, Debug)]
pub(crate) enum Trust {
    /// By its certificate.
    Certificate(CertificateDer<'static>),
    /// By the digest of it, which a token holds; the other end shows the certificate.
    Digest(Digest),
}

/// Which certificates are as good as they were after their end.
#[derive(Clone, Debug)]
enum Ended {
    None,
    /// Those of callers.
    OfCallers,
    /// These of nodes that are called.
    These(Arc<[Digest]>),
}

/// Looks at certificates of one cluster.
#[derive(Clone, Debug)]
pub(crate) struct Verifier {
    cluster: uuid::Uuid,
    trust: Trust,
    withdrawn: Withdrawn,
    provider: Arc<CryptoProvider>,
    ended: Ended,
}

impl Verifier {
    pub(crate) fn new(
        cluster: uuid::Uuid,
        trust: Trust,
        withdrawn: Withdrawn,
        provider: Arc<CryptoProvider>,
    ) -> Self {
        Self { cluster, trust, withdrawn, provider, ended: Ended::None }
    }

    /// Takes certificates of callers that have ended, too.
    pub(crate) fn also_ended(self) -> Self {
        Self { ended: Ended::OfCallers, ..self }
    }

    /// Takes these certificates of nodes that are called, too, when they have ended.
    pub(crate) fn also_these(self, ended: &[Digest]) -> Self {
        Self { ended: Ended::These(ended.into()), ..self }
    }

    /// The name in a certificate, which is good now, or was good at its end if that counts.
    fn examine_at(
        &self,
        leaf: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        now: UnixTime,
        usage: KeyUsage,
        ended_counts: bool,
    ) -> Result<Identity, Error> {
        match self.examine(leaf, chain, now, usage) {
            Err(Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. }))
                if ended_counts =>
            {
                self.examine(leaf, chain, not_after, usage)
            }
            other => other,
        }
    }

    fn examine(
        &self,
        leaf: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        now: UnixTime,
        usage: KeyUsage,
    ) -> Result<Identity, Error> {
        let authority = match &self.trust {
            Trust::Certificate(certificate) => certificate.clone(),
            Trust::Digest(wanted) => {
                let found = chain.iter().find(|shown| digest(shown) == *wanted);
                found.ok_or(Error::InvalidCertificate(CertificateError::UnknownIssuer))?.clone().into_owned()
            }
        };
        let anchor = anchor_from_trusted_cert(&authority).map_err(of_webpki)?;
        let certificate = EndEntityCert::try_from(leaf).map_err(of_webpki)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        certificate
            .verify_for_usage(algorithms, &[anchor], &[], now, usage, None, None)
            .map_err(of_webpki)?;
        let identity = named(&certificate).map_err(stranger)?;
        if identity.cluster != self.cluster {
            return Err(stranger(Stranger::OtherCluster(identity.to_string())));
        }
        if self.withdrawn.contains(identity.role) {
            return Err(Error::InvalidCertificate(CertificateError::Revoked));
        }
        Ok(identity)
    }

    fn signed(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// The one name of a certificate.
fn named(certificate: &EndEntityCert<'_>) -> Result<Identity, Stranger> {
    let mut names = certificate.valid_uri_names();
    match (names.next(), names.next()) {
        (Some(name), None) => name.parse().map_err(|why| Stranger::Nameless(format!("{name:?} is {why}"))),
        (None, _) => Err(Stranger::Nameless("it has no URI".into())),
        (Some(_), Some(_)) => Err(Stranger::Nameless("it has several URIs".into())),
    }
}

/// The name in a certificate that was verified already, or is our own.
pub(crate) fn identity_of(certificate: &CertificateDer<'_>) -> Result<Identity, Error> {
    named(&EndEntityCert::try_from(certificate).map_err(of_webpki)?).map_err(stranger)
}

fn stranger(who: Stranger) -> Error {
    Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(who))))
}

fn of_webpki(error: webpki::Error) -> Error {
    use webpki::Error as W;
    Error::InvalidCertificate(match error {
        W::CertExpired { time, not_after } => CertificateError::ExpiredContext { time, not_after },
        W::CertNotValidYet { time, not_before } => CertificateError::NotValidYetContext { time, not_before },
        W::InvalidSignatureForPublicKey => CertificateError::BadSignature,
        W::UnknownIssuer => CertificateError::UnknownIssuer,
        W::RequiredEkuNotFoundContext(_) => {
            CertificateError::Other(OtherError(Arc::new(Stranger::NotANode("somebody else".into()))))
        }
        _ => CertificateError::BadEncoding,
    })
}

/// Never asked for: the configurations offer TLS 1.3 only.
fn old_tls() -> Error {
    Error::General("TLS 1.3 is due".into())
}

impl ServerCertVerifier for Verifier {
    /// Nobody is believed for his address: the name that was dialled does not matter, that it is a node does.
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let known = matches!(&self.ended, Ended::These(these) if these.contains(&digest(end_entity)));
        let identity = self.examine_at(end_entity, intermediates, now, KeyUsage::server_auth(), known)?;
        if !identity.is_node() {
            return Err(stranger(Stranger::NotANode(identity.role.to_string())));
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(old_tls())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes()
    }
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let ended_counts = matches!(self.ended, Ended::OfCallers);
        self.examine_at(end_entity, intermediates, now, KeyUsage::client_auth(), ended_counts)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(old_tls())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes()
    }
}
