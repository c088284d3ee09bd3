//! A kubeconfig: the API server's address and certificate authority, and the client's credentials.

use serde::Deserialize;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};
use yaml_rust2::{Yaml, YamlLoader};

/// Attack: an endless file in place of a kubeconfig, or of one that it names. Largest size in bytes.
const LARGEST: usize = 1 << 20;

/// Errors of a kubeconfig.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    /// A file can't be read.
    #[error("{}: {error}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        error: std::io::Error,
    },
    /// The kubeconfig can't be used.
    #[error("{}: {what}", .path.display())]
    Wrong {
        /// The kubeconfig.
        path: PathBuf,
        /// The error and the remedy.
        what: String,
    },
}

/// Address and credentials of an API server.
#[derive(Clone, Debug)]
pub struct Access {
    /// Its host name or address, from the URL.
    pub host: String,
    pub port: u16,
    /// Prefix of every path.
    pub prefix: String,
    pub tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    pub token: Option<Token>,
}

/// A bearer token.
#[derive(Clone, Debug)]
pub enum Token {
    Text(String),
    /// In a file, which is read again for each connection, since tokens of service accounts are renewed.
    File(PathBuf),
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct File {
    clusters: Vec<Named<Cluster>>,
    users: Vec<Named<User>>,
    contexts: Vec<Named<Context>>,
    current_context: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Named<T> {
    name: String,
    #[serde(alias = "cluster", alias = "user", alias = "context")]
    what: T,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Cluster {
    server: String,
    certificate_authority: Option<PathBuf>,
    certificate_authority_data: Option<String>,
    insecure_skip_tls_verify: bool,
    tls_server_name: Option<String>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct User {
    client_certificate: Option<PathBuf>,
    client_certificate_data: Option<String>,
    client_key: Option<PathBuf>,
    client_key_data: Option<String>,
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<PathBuf>,
    exec: Option<Value>,
    auth_provider: Option<Value>,
    username: Option<String>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct Context {
    cluster: String,
    user: String,
}

fn bytes(path: &Path) -> Result<Vec<u8>, KubeconfigError> {
    // Attack: a FIFO in place of a token, whose opening blocks.
    ringway_host::read_file(path, LARGEST).map_err(|error| KubeconfigError::File { path: path.into(), error })
}

/// Reads a token.
pub fn token(path: &Path) -> Result<String, KubeconfigError> {
    let text = String::from_utf8_lossy(&bytes(path)?).trim().to_string();
    let good = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    let what = "it has no token: one word of printable characters".to_string();
    if good { Ok(text) } else { Err(KubeconfigError::Wrong { path: path.into(), what }) }
}

fn json(yaml: &Yaml) -> Value {
    match yaml {
        Yaml::Real(text) | Yaml::String(text) => Value::String(text.clone()),
        Yaml::Integer(number) => (*number).into(),
        Yaml::Boolean(truth) => (*truth).into(),
        Yaml::Array(items) => items.iter().map(json).collect(),
        Yaml::Hash(hash) => {
            let entry = |(key, value): (&Yaml, &Yaml)| Some((key.as_str()?.to_string(), json(value)));
            // Empty values count as missing.
            let given = hash.iter().filter(|(_, value)| !value.is_null());
            Value::Object(given.filter_map(entry).collect::<Map<_, _>>())
        }
        _ => Value::Null,
    }
}

/// Reads a kubeconfig and formats its errors.
struct Reader<'p> {
    path: &'p Path,
}

impl Reader<'_> {
    fn wrong(&self, what: impl Into<String>) -> KubeconfigError {
        KubeconfigError::Wrong { path: self.path.into(), what: what.into() }
    }

    fn file(&self) -> Result<File, KubeconfigError> {
        let text = String::from_utf8(bytes(self.path)?).map_err(|_| self.wrong("it is not UTF-8"))?;
        let documents = YamlLoader::load_from_str(&text).map_err(|error| self.wrong(error.to_string()))?;
        let Some(first) = documents.first() else { return Err(self.wrong("it is empty")) };
        serde_json::from_value(json(first)).map_err(|error| self.wrong(error.to_string()))
    }

    fn pick<T: Clone>(&self, what: &str, all: &[Named<T>], name: &str) -> Result<T, KubeconfigError> {
        let found = all.iter().find(|named| named.name == name);
        let known = || all.iter().map(|named| named.name.as_str()).collect::<Vec<_>>().join(", ");
        let missing = || self.wrong(format!("there is no {what} \"{name}\"; it has: {}", known()));
        found.map(|named| named.what.clone()).ok_or_else(missing)
    }

    /// The value of a pair of keys: base64 data, or a file relative to the kubeconfig.
    fn pem(&self, data: Option<&String>, file: Option<&PathBuf>) -> Result<Option<Vec<u8>>, KubeconfigError> {
        use base64::Engine;
        match (data, file) {
            (Some(data), _) => {
                let compact: String = data.split_whitespace().collect();
                let decoded = base64::engine::general_purpose::STANDARD.decode(compact);
                decoded.map(Some).map_err(|error| self.wrong(format!("a `-data` key is no base64: {error}")))
            }
            (None, Some(file)) => bytes(&self.beside(file)).map(Some),
            (None, None) => Ok(None),
        }
    }

    fn beside(&self, file: &Path) -> PathBuf {
        self.path.parent().unwrap_or(Path::new(".")).join(file)
    }

    fn tls(&self, cluster: &Cluster, user: &User) -> Result<Arc<ClientConfig>, KubeconfigError> {
        if cluster.insecure_skip_tls_verify {
            return Err(self.wrong(
                "insecure-skip-tls-verify would trust any server; name the server's \
                 certificate-authority instead",
            ));
        }
        let authority = cluster.certificate_authority_data.as_ref();
        let authority = self.pem(authority, cluster.certificate_authority.as_ref())?;
        let authority =
            authority.ok_or_else(|| self.wrong("the cluster has no certificate-authority; name it"))?;
        let mut roots = RootCertStore::empty();
        let found = CertificateDer::pem_slice_iter(&authority).filter_map(Result::ok);
        if roots.add_parsable_certificates(found).0 == 0 {
            return Err(self.wrong("its certificate-authority has no certificate that can be read"));
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| self.wrong(error.to_string()))?
            .with_root_certificates(roots);
        let certificate =
            self.pem(user.client_certificate_data.as_ref(), user.client_certificate.as_ref())?;
        let key = self.pem(user.client_key_data.as_ref(), user.client_key.as_ref())?;
        let config = match (certificate, key) {
            (Some(certificate), Some(key)) => {
                let chain = CertificateDer::pem_slice_iter(&certificate).collect::<Result<_, _>>();
                let chain = chain.map_err(|error| self.wrong(format!("its client-certificate: {error}")))?;
                let key = PrivateKeyDer::from_pem_slice(&key);
                let key = key.map_err(|error| self.wrong(format!("its client-key: {error}")))?;
                let config = builder.with_client_auth_cert(chain, key);
                config.map_err(|error| self.wrong(format!("its client-certificate: {error}")))?
            }
            (None, None) => builder.with_no_client_auth(),
            _ => return Err(self.wrong("client-certificate and client-key go together; give both")),
        };
        Ok(Arc::new(config))
    }

    fn token(&self, user: &User) -> Result<Option<Token>, KubeconfigError> {
        let unusable = [
            ("exec", user.exec.is_some()),
            ("auth-provider", user.auth_provider.is_some()),
            ("username", user.username.is_some()),
        ];
        if let Some((key, _)) = unusable.iter().find(|(_, given)| *given) {
            return Err(self.wrong(format!(
                "a user with `{key}` is not known here; use a service account's token, a tokenFile or a \
                 client-certificate"
            )));
        }
        Ok(match (&user.token_file, &user.token) {
            (Some(file), _) => {
                let file = self.beside(file);
                token(&file)?;
                Some(Token::File(file))
            }
            (None, Some(text)) if text.bytes().all(|byte| byte.is_ascii_graphic()) => {
                Some(Token::Text(text.clone()))
            }
            (None, Some(_)) => return Err(self.wrong("its token is not one word of printable characters")),
            (None, None) => None,
        })
    }
}

/// Parts of a URL: whether it is https, host, port, path.
fn parts(url: &str) -> Option<(bool, String, u16, String)> {
    let uri: hyper::Uri = url.parse().ok()?;
    let tls = match uri.scheme_str()? {
        "https" => true,
        "http" => false,
        _ => return None,
    };
    let host = uri.host()?.trim_matches(['[', ']']).to_string();
    let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
    Some((tls, host, port, uri.path().trim_end_matches('/').to_string()))
}

/// Reads the kubeconfig at `path`, with the named context or its current one.
pub fn read(path: &Path, context: Option<&str>) -> Result<Access, KubeconfigError> {
    let reader = Reader { path };
    let file = reader.file()?;
    let context = reader.pick("context", &file.contexts, context.unwrap_or(&file.current_context))?;
    let cluster = reader.pick("cluster", &file.clusters, &context.cluster)?;
    let user = match context.user.as_str() {
        "" => User::default(),
        name => reader.pick("user", &file.users, name)?,
    };
    let server = &cluster.server;
    let (tls, host, port, prefix) =
        parts(server).ok_or_else(|| reader.wrong(format!("`server: {server}` is no http or https URL")))?;
    let token = reader.token(&user)?;
    let tls = match tls {
        true => {
            let name = cluster.tls_server_name.clone().unwrap_or_else(|| host.clone());
            let name = ServerName::try_from(name).map_err(|error| reader.wrong(error.to_string()))?;
            Some((reader.tls(&cluster, &user)?, name))
        }
        false => None,
    };
    Ok(Access { host, port, prefix, tls, token })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(name: &str, text: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("rw-kubeconfig-{name}-{}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        path
    }

    fn config(server: &str, cluster: &str, user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\npreferences: {{}}\ncurrent-context: lab\nclusters:\n- name: c\n  \
             cluster:\n    server: {server}\n{cluster}contexts:\n- context:\n    cluster: c\n    user: u\n  \
             name: lab\nusers:\n- name: u\n  user:\n    client-key:\n{user}"
        )
    }

    #[test]
    fn a_plain_server_and_its_token() {
        let file = written("token", "secret\n");
        let name = file.file_name().unwrap().to_str().unwrap();
        let text = config("http://127.0.0.1:8001/proxy/", "", &format!("    tokenFile: {name}\n"));
        let path = written("plain", &text);
        let access = read(&path, None).unwrap();
        assert_eq!(
            (access.host.as_str(), access.port, access.prefix.as_str()),
            ("127.0.0.1", 8001, "/proxy")
        );
        assert!(access.tls.is_none());
        // Relative names are relative to the kubeconfig.
        assert!(matches!(access.token, Some(Token::File(known)) if known == file));
        let unknown = read(&path, Some("other")).unwrap_err().to_string();
        assert!(unknown.ends_with("there is no context \"other\"; it has: lab"), "{unknown}");
        assert_eq!(parts("https://[::1]").unwrap(), (true, "::1".into(), 443, String::new()));
        assert_eq!(parts("https://k8s/x").unwrap(), (true, "k8s".into(), 443, "/x".into()));
        [file, path].iter().for_each(|path| std::fs::remove_file(path).unwrap());
    }

    #[test]
    fn unsupported_kubeconfigs_are_reported_with_a_remedy() {
        let skip = "    insecure-skip-tls-verify: true\n";
        let cases = [
            (config("https://k:6443", skip, ""), "would trust any server"),
            (config("https://k:6443", "", ""), "the cluster has no certificate-authority"),
            (config("https://k:6443", "    certificate-authority-data: '!'\n", ""), "no base64"),
            (config("https://k:6443", "    certificate-authority-data: aGk=\n", ""), "has no certificate"),
            (config("https://k", "", "    exec: {command: aws}\n"), "a user with `exec` is not known here"),
            (config("https://k", "", "    token: two words\n"), "not one word"),
            (config("ftp://k", "", ""), "no http or https URL"),
            (
                config("https://k", "    certificate-authority: /nowhere/ca\n", ""),
                "/nowhere/ca: No such file",
            ),
            ("clusters: [\n".into(), "while parsing"),
            (String::new(), "it is empty"),
            ("clusters: 7".into(), "invalid type"),
        ];
        for (text, expected) in cases {
            let path = written("wrong", &text);
            let message = read(&path, None).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
            std::fs::remove_file(&path).unwrap();
        }
        assert!(read(Path::new("/nowhere"), None).unwrap_err().to_string().starts_with("/nowhere: "));
    }
}
