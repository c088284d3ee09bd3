//! The table `[api]`: the API at a TCP address.

use ringway_spec::file::units::Wrong;
use ringway_spec::file::{Diagnostics, Section};
use ringway_spec::{addresses, names};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// The API's usual TCP address, that of this host alone.
pub const API_ADDRESS: &str = "127.0.0.1:9467";
/// The most names of a host. Attack: an endless list, which each request is compared with.
const MOST_HOSTS: usize = 64;

/// How the API is served at a TCP address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiSettings {
    /// The address.
    pub address: SocketAddr,
    /// The file of tokens; in the run directory without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<PathBuf>,
    /// The certificate and those of its authorities (PEM); one is made without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// The certificate's key (PEM).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// Authorities of clients' certificates (PEM); clients have tokens only without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_ca: Option<PathBuf>,
    /// Names by which clients may call this host, besides its addresses and `localhost`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
}

impl ApiSettings {
    /// The API at this address, with all else by default.
    pub fn at(address: SocketAddr) -> ApiSettings {
        ApiSettings {
            address,
            tokens: None,
            certificate: None,
            key: None,
            client_ca: None,
            hosts: Vec::new(),
        }
    }

    /// Makes relative paths absolute: they are relative to the folder of the fabric file.
    pub(super) fn resolve(&mut self, folder: &Path) {
        let ApiSettings { tokens, certificate, key, client_ca, .. } = self;
        for file in [tokens, certificate, key, client_ca].into_iter().flatten() {
            *file = folder.join(&file);
        }
    }
}

/// Reads the table, if there is one.
pub(super) fn api(top: &DeTable<'_>, diagnostics: &Diagnostics) -> Option<ApiSettings> {
    let (key, value) = top.get_key_value("api")?;
    let DeValue::Table(table) = value.get_ref() else {
        diagnostics.error(&key.span(), "`api` is not a table", "write [api]");
        return None;
    };
    let mut section = Section::new("api".into(), key.span(), table, diagnostics);
    let address = section.parsed("address", API_ADDRESS, addresses::endpoint);
    if address.is_none() && !section.has("address") {
        section.missing("address", &format!("add address = \"{API_ADDRESS}\""));
    }
    let tokens = section.parsed("tokens", "/etc/ringway/tokens", |text| file(text, "the tokens"));
    let certificate =
        section.parsed("certificate", "/etc/ringway/api.crt", |text| file(text, "a certificate"));
    let key = section.parsed("key", "/etc/ringway/api.key", |text| file(text, "a key"));
    let client_ca =
        section.parsed("client-ca", "/etc/ringway/clients.crt", |text| file(text, "certificates"));
    for (one, other) in [("certificate", "key"), ("key", "certificate")] {
        if section.has(one) && !section.has(other) {
            section.error(one, format!("`{one}` is there without `{other}`"), format!("add {other}"));
        }
    }
    let hosts = section.strings("hosts", "[\"lab.example\"]").unwrap_or_default();
    if hosts.len() > MOST_HOSTS {
        let what = format!("`hosts` has {} names", hosts.len());
        section.error("hosts", what, format!("use {MOST_HOSTS} at most"));
    }
    for wrong in hosts.iter().filter(|name| !is_host(name)) {
        let what = format!("{} is not the name of a host", names::shown(wrong));
        section.error("hosts", what, "write names such as \"lab.example\", without a port");
    }
    section.finish(|_| None);
    Some(ApiSettings { address: address?, tokens, certificate, key, client_ca, hosts })
}

fn is_host(name: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

/// The name of a file.
fn file(text: &str, what: &str) -> Result<PathBuf, Wrong> {
    let path = Path::new(text);
    if path.file_name().is_none() || text.ends_with('/') || text.contains('\0') {
        return Err((format!("{} can't be a file", names::shown(text)), format!("name the file of {what}")));
    }
    Ok(path.into())
}
