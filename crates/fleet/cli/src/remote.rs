//! The API at a fabric's TCP address: TLS, and what proves who this client is.

use crate::arguments::{Command, FunctionCommand, GuestCommand, HostCommand, ProgramCommand, Target};
use crate::command_error::CommandError;
use ring::digest::{SHA256, digest};
use ringway_host::read_file;
use ringway_wire::fields::hex;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

/// Whether a command needs nothing of a fabric but its API, so that the fabric may be on another host. Others open
/// sockets and files by names that the API has, or enter namespaces of processes: on this host these could be others.
pub fn is_for(command: &Command) -> bool {
    match command {
        Command::Apply { .. }
        | Command::Save { .. }
        | Command::Down
        | Command::Ps
        | Command::Stats(_)
        | Command::Top(_)
        | Command::Graph { .. }
        | Command::Trace(_)
        | Command::Switch { .. }
        | Command::Flow { .. }
        | Command::Chain { .. }
        | Command::Worker { .. }
        | Command::Snapshot { .. }
        | Command::Token { .. }
        | Command::Audit { .. }
        | Command::Events(_)
        | Command::Link { .. }
        | Command::Port { .. }
        | Command::Place(_) => true,
        Command::Program { command } => !matches!(command, ProgramCommand::Logs { .. }),
        Command::Host { command } => matches!(command, HostCommand::List | HostCommand::Show { .. }),
        Command::Guest { command } => {
            !matches!(command, GuestCommand::Logs { .. } | GuestCommand::Migrate(_) | GuestCommand::Receive)
        }
        Command::Function { command } => matches!(
            command,
            FunctionCommand::List
                | FunctionCommand::Show { .. }
                | FunctionCommand::Read { .. }
                | FunctionCommand::Write { .. }
                | FunctionCommand::Start { .. }
                | FunctionCommand::Stop { .. }
        ),
        _ => false,
    }
}

/// The error of a command that is not for a fabric of another host.
pub fn local_only() -> CommandError {
    let how = "run it on the fabric's host, without --api";
    CommandError::Failed(format!("this needs the fabric's files or sockets; {how}"))
}

/// The largest file of a token or of certificates, in bytes.
const LARGEST: usize = 1 << 20;
/// Time limit for the connection and the handshake.
const CONNECT: Duration = Duration::from_secs(10);
/// The port of a URL without one.
const PORT: u16 = 9467;

/// The address of an API, from a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiUrl {
    /// Name or address of the host.
    host: String,
    port: u16,
}

impl ApiUrl {
    /// Reads a URL.
    pub fn read(text: &str) -> Result<ApiUrl, String> {
        let wrong = || "write a URL such as https://lab.example:9467".to_string();
        let rest = text.strip_prefix("https://").ok_or_else(wrong)?;
        let authority: hyper::http::uri::Authority =
            rest.strip_suffix('/').unwrap_or(rest).parse().map_err(|_| wrong())?;
        if authority.as_str().contains('@') || authority.host().is_empty() {
            return Err(wrong());
        }
        let host = authority.host().trim_matches(['[', ']']).to_string();
        // A port that is no number is read as none.
        let has_number = authority.port().is_some()
            == (authority.as_str().rsplit(']').next()).is_some_and(|end| end.contains(':'));
        let port = if has_number { authority.port_u16().unwrap_or(PORT) } else { return Err(wrong()) };
        Ok(ApiUrl { host, port })
    }

    /// The value of `Host`.
    pub fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

impl std::fmt::Display for ApiUrl {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "https://{}", self.authority())
    }
}

/// What proves who this client is.
enum Credentials {
    Token(String),
    Certificate(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>),
}

/// A connection, and the token to send with each request.
pub struct Connected {
    /// The connection.
    pub stream: TlsStream<TcpStream>,
    /// The value of `Authorization`.
    pub authorization: Option<String>,
}

fn file_error(path: &Path, error: impl std::fmt::Display) -> CommandError {
    CommandError::Failed(format!("{}: {error}", path.display()))
}

/// The certificates of a file, at least one.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, CommandError> {
    let text = read_file(path, LARGEST).map_err(|error| file_error(path, error))?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match read.map_err(|error| file_error(path, error))? {
        none if none.is_empty() => Err(file_error(path, "it has no certificate; it has to be PEM")),
        list => Ok(list),
    }
}

/// The fingerprint of a certificate: its hash by SHA-256, as hexadecimal digits.
pub fn fingerprint(certificate: &CertificateDer<'_>) -> String {
    hex(digest(&SHA256, certificate).as_ref())
}

fn credentials(path: &Path) -> Result<Credentials, CommandError> {
    let text = read_file(path, LARGEST).map_err(|error| file_error(path, error))?;
    if text.windows(11).any(|part| part == b"-----BEGIN ") {
        let key = PrivateKeyDer::from_pem_slice(&text).map_err(|error| file_error(path, error))?;
        return Ok(Credentials::Certificate(certificates(path)?, key));
    }
    let text = String::from_utf8(text).map_err(|error| file_error(path, error))?;
    match text.trim() {
        token if !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()) => {
            Ok(Credentials::Token(token.into()))
        }
        _ => Err(file_error(path, "it has no token; `ringway token add` prints one")),
    }
}

/// How the fabric's certificate is checked.
fn config(target: &Target, own: Option<&Credentials>) -> Result<ClientConfig, CommandError> {
    let provider = Arc::new(default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone());
    let builder = builder.with_safe_default_protocol_versions().map_err(CommandError::because)?;
    let Some(ca) = &target.ca else {
        let how = "a file of certificates, or sha256: and the fingerprint that the fabric's log has";
        return Err(CommandError::Failed(format!("say by --ca what the fabric is known by: {how}")));
    };
    let builder = match ca.to_str().and_then(|text| text.strip_prefix("sha256:")) {
        Some(text) => {
            let expected = text.to_ascii_lowercase();
            if expected.len() != 64 || !expected.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                let what = "a fingerprint has 64 hexadecimal digits after sha256:";
                return Err(CommandError::Failed(what.into()));
            }
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Pinned { expected, provider }))
        }
        None => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(ca)? {
                roots.add(certificate).map_err(|error| file_error(ca, error))?;
            }
            builder.with_root_certificates(roots)
        }
    };
    let mut config = match own {
        Some(Credentials::Certificate(chain, key)) => {
            builder.with_client_auth_cert(chain.clone(), key.clone_key()).map_err(CommandError::because)?
        }
        _ => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Connects to the API at its TCP address.
pub async fn connect(url: &ApiUrl, target: &Target) -> Result<Connected, CommandError> {
    let own = target.token_file.as_deref().map(credentials).transpose()?;
    let connector = TlsConnector::from(Arc::new(config(target, own.as_ref())?));
    let name = ServerName::try_from(url.host.clone()).map_err(CommandError::because)?;
    let reach = async {
        let stream = TcpStream::connect((&*url.host, url.port)).await?;
        stream.set_nodelay(true)?;
        connector.connect(name, stream).await
    };
    let failed =
        |error: &dyn std::fmt::Display| CommandError::NotUp(format!("no fabric answers at {url}: {error}"));
    let stream = match timeout(CONNECT, reach).await {
        Ok(reached) => reached.map_err(|error| failed(&error))?,
        Err(_) => return Err(failed(&format!("not within {} s", CONNECT.as_secs()))),
    };
    let authorization = match own {
        Some(Credentials::Token(token)) => Some(format!("Bearer {token}")),
        _ => None,
    };
    Ok(Connected { stream, authorization })
}

/// Knows a fabric by the fingerprint of its certificate.
#[derive(Debug)]
struct Pinned {
    expected: String,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match fingerprint(own) == self.expected {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, own, signature, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, own, signature, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read() {
        let read = |text: &str| ApiUrl::read(text).map(|url| url.to_string());
        for (text, read_as) in [
            ("https://lab.example", "https://lab.example:9467"),
            ("https://lab.example:443/", "https://lab.example:443"),
            ("https://[::1]:9", "https://[::1]:9"),
            ("https://[::1]", "https://[::1]:9467"),
            ("https://10.0.0.1:9467", "https://10.0.0.1:9467"),
        ] {
            assert_eq!(read(text).as_deref(), Ok(read_as));
        }
        for wrong in [
            "lab.example",
            "http://lab.example",
            "https://",
            "https://a@b",
            "https://a/b",
            "https://a:b",
            "https://a:99999",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
