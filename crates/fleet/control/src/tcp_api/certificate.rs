//! The certificate by which the API is known to its clients, and those of clients.

use super::tokens::hash;
use crate::file::ApiSettings;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use ringway_host::{OwnFile, open_own, read_file};
use ringway_wire::fields::hex;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

/// Names in the run directory of a certificate that is made, and of its key.
pub(super) const FILES: [&str; 2] = ["api.crt", "api.key"];
/// The largest file of certificates, in bytes.
const LARGEST: usize = 1 << 20;

/// Errors of certificates.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file can't be read.
    #[error("{0}: {1}")]
    File(PathBuf, io::Error),
    /// A file has no certificate or key.
    #[error("{0}: {1}; it has to be PEM")]
    Content(PathBuf, String),
    /// TLS does not take the certificate and the key.
    #[error("{0}")]
    Tls(#[from] tokio_rustls::rustls::Error),
    /// TLS does not take the authorities of clients.
    #[error("the authorities of clients: {0}")]
    Clients(#[from] VerifierBuilderError),
    /// No certificate can be made.
    #[error("none can be made: {0}")]
    Made(#[from] rcgen::Error),
    /// The operating system refused.
    #[error("{0}")]
    System(io::Error),
}

/// A certificate in use.
pub(super) struct Certificate {
    pub config: Arc<ServerConfig>,
    /// Its hash by SHA-256, as hexadecimal digits.
    pub fingerprint: String,
}

/// The certificate of the settings, or one that is made for this fabric. `again`: the one that was made stays.
pub(super) fn load(
    settings: &ApiSettings,
    at: SocketAddr,
    run: &Path,
    again: bool,
) -> Result<Certificate, CertificateError> {
    let own = FILES.map(|name| run.join(name));
    let [chain, key] = match (&settings.certificate, &settings.key) {
        (Some(chain), Some(key)) => [chain.clone(), key.clone()],
        _ => {
            if !again || !own.iter().all(|file| file.exists()) {
                make(settings, at, &own)?;
            }
            own
        }
    };
    let certificates = certificates(&chain)?;
    let secret = PrivateKeyDer::from_pem_slice(&read(&key)?);
    let secret = secret.map_err(|error| CertificateError::Content(key, error.to_string()))?;
    let fingerprint = hex(&hash(&certificates[0]));
    let provider = Arc::new(default_provider());
    let builder =
        ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
    let builder = match &settings.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for authority in self::certificates(path)? {
                roots.add(authority)?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            // A client without a certificate has a token.
            builder.with_client_cert_verifier(verifier.allow_unauthenticated().build()?)
        }
    };
    let mut config = builder.with_single_cert(certificates, secret)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    if settings.client_ca.is_some() {
        // Attack: a session that is resumed when the client's certificate has expired, which is not looked at then.
        config.send_tls13_tickets = 0;
    }
    Ok(Certificate { config: Arc::new(config), fingerprint })
}

fn read(path: &Path) -> Result<Vec<u8>, CertificateError> {
    read_file(path, LARGEST).map_err(|error| CertificateError::File(path.into(), error))
}

/// The certificates of a file, at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let text = read(path)?;
    let list: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match list {
        Ok(list) if !list.is_empty() => Ok(list),
        Ok(_) => Err(CertificateError::Content(path.into(), "it has no certificate".into())),
        Err(error) => Err(CertificateError::Content(path.into(), error.to_string())),
    }
}

/// Makes a certificate that is signed by its own key, for the names and the address of the settings.
fn make(settings: &ApiSettings, at: SocketAddr, files: &[PathBuf; 2]) -> Result<(), CertificateError> {
    let mut names = settings.hosts.clone();
    names.extend(["localhost".into(), "127.0.0.1".into(), "::1".into()]);
    if !at.ip().is_unspecified() && !at.ip().is_loopback() {
        names.push(at.ip().to_string());
    }
    let mut parameters = CertificateParams::new(names)?;
    parameters.distinguished_name = DistinguishedName::new();
    parameters.distinguished_name.push(DnType::CommonName, "ringway");
    let key = KeyPair::generate()?;
    let certificate = parameters.self_signed(&key)?;
    let texts = [(certificate.pem(), 0o644), (key.serialize_pem(), 0o600)];
    for (path, (text, mode)) in files.iter().zip(texts) {
        let written =
            open_own(path, OwnFile::Rewrite, mode).and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(|error| CertificateError::File(path.clone(), error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> ApiSettings {
        ApiSettings { hosts: vec!["lab.example".into()], ..ApiSettings::at(([127, 0, 0, 1], 0).into()) }
    }

    #[test]
    fn a_certificate_is_made_and_stays_for_the_next_process() {
        let run = std::env::temp_dir().join(format!("ringway-certificate-{}", std::process::id()));
        std::fs::create_dir_all(&run).unwrap();
        let at = ([127, 0, 0, 1], 9).into();
        let load = |settings: &ApiSettings, again| load(settings, at, &run, again);
        let first = load(&settings(), false).unwrap().fingerprint;
        assert_eq!(first.len(), 64);
        assert_eq!(load(&settings(), true).unwrap().fingerprint, first);
        assert_ne!(load(&settings(), false).unwrap().fingerprint, first);
        let [chain, key] = FILES.map(|name| run.join(name));
        let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&key).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
        // Of an operator; the certificate is not the key.
        let named = |key: &Path| ApiSettings {
            certificate: Some(chain.clone()),
            key: Some(key.into()),
            client_ca: Some(chain.clone()),
            ..settings()
        };
        assert_eq!(load(&named(&key), false).unwrap().config.send_tls13_tickets, 0);
        assert!(matches!(load(&named(&chain), false), Err(CertificateError::Content(..))));
        assert!(matches!(load(&named(&run.join("none")), false), Err(CertificateError::File(..))));
        std::fs::remove_dir_all(run).unwrap();
    }
}
