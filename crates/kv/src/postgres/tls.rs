//! TLS by rustls for addresses that ask for it. The server's certificate is always verified.

use std::error::Error;
use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream as RustlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{self, AlertDescription, ClientConfig, RootCertStore};

use super::address::TlsFiles;

/// Where Debian and its kin keep the authorities that the system believes.
const SYSTEM_ROOTS: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Makes TLS connections.
#[derive(Clone)]
pub(super) struct Tls(Arc<ClientConfig>);

impl Tls {
    pub(super) fn new(files: &TlsFiles) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        let path = files.roots.as_deref().unwrap_or(Path::new(SYSTEM_ROOTS));
        for cert in certificates(path)? {
            roots.add(cert).map_err(|e| format!("{}: {e}", path.display()))?;
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|e| e.to_string())?
            .with_root_certificates(roots);
        let config = match &files.own {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => {
                let secret =
                    PrivateKeyDer::from_pem_file(key).map_err(|e| format!("{}: {e}", key.display()))?;
                builder
                    .with_client_auth_cert(certificates(cert)?, secret)
                    .map_err(|e| format!("{}: {e}", cert.display()))?
            }
        };
        Ok(Self(Arc::new(config)))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let fail = |e| format!("{}: {e}", path.display());
    let found: Vec<_> =
        CertificateDer::pem_file_iter(path).map_err(fail)?.collect::<Result<_, _>>().map_err(fail)?;
    if found.is_empty() {
        Err(format!("{}: there is no certificate in it", path.display()))
    } else {
        Ok(found)
    }
}

/// Whether a connection failed because one side does not believe the certificate of the other.
pub(super) fn is_disbelief(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let inner = inner.map_or(error, |inner| inner as &(dyn Error + 'static));
        match inner.downcast_ref::<rustls::Error>() {
            Some(rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented) => {
                return true;
            }
            Some(rustls::Error::AlertReceived(alert)) => return is_of_certificates(*alert),
            _ => next = inner.source(),
        }
    }
    false
}

/// Alerts by which a server refuses the certificate of a client, or that it has none (RFC 8446, section 6.2).
fn is_of_certificates(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
            | AlertDescription::CertificateRequired
            // a signature that somebody else of the same name has made
            | AlertDescription::DecryptError
    )
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for Tls {
    type Stream = Stream<S>;
    type TlsConnect = Connect;
    type Error = io::Error;

    fn make_tls_connect(&mut self, domain: &str) -> io::Result<Connect> {
        let name = ServerName::try_from(domain.to_owned()).map_err(io::Error::other)?;
        Ok(Connect { tls: TlsConnector::from(self.0.clone()), name })
    }
}

/// One connection to be made.
pub(super) struct Connect {
    tls: TlsConnector,
    name: ServerName<'static>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Connect {
    type Stream = Stream<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Stream<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move { self.tls.connect(self.name, stream).await.map(Box::new).map(Stream) })
    }
}

/// An encrypted stream.
pub(super) struct Stream<S>(Box<RustlsStream<S>>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Stream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
