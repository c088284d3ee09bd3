//! The API at a TCP address: TLS, tokens and client certificates, roles. The UNIX socket has the same paths, for its
//! user alone.
//!
//! A request passes, in this order: the handshake of TLS (`listener.rs`); the checks of `Host`, `Origin` and
//! credentials (`gate.rs`), before its body is received; the audit log, whose entries name the token; the role that
//! its path needs (`roles.rs`). docs/remote.md describes it for operators.

mod certificate;
mod gate;
mod listener;
mod page;
mod roles;
mod routes;
mod streams;
mod tokens;

use crate::file::ApiSettings;
use axum::Router;
pub use certificate::CertificateError;
pub(crate) use gate::Caller;
use gate::{Access, ClientGate, Served};
use listener::{Arrived, Incoming, TlsListener};
pub use page::PAGE_ADDRESS;
use ringway_scheduler as place;
pub use roles::Role;
pub(crate) use routes::description;
pub use routes::{CreatedToken, NewToken, PageView, TokenView};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
pub(crate) use streams::StreamPlace;
pub use tokens::TokenError;
use tokens::TokenFile;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

/// Why the API can't be served at a TCP address.
#[derive(Debug, thiserror::Error)]
pub enum TcpApiError {
    /// The file of tokens can't be used.
    #[error("the tokens of the API: {0}")]
    Tokens(#[from] TokenError),
    /// The certificate can't be used.
    #[error("the certificate of the API: {0}")]
    Certificate(#[from] CertificateError),
}

/// The API at TCP addresses, not served yet.
pub(crate) struct TcpApi {
    access: Arc<Access>,
    listeners: Vec<(TlsListener, Served)>,
    files: OwnFiles,
}

/// The sockets of the API and of the page.
#[derive(Default)]
pub(crate) struct TcpSockets {
    /// Of the API, by TLS.
    pub api: Option<TcpListener>,
    /// Of the page and the API: without TLS at an address of this host alone.
    pub page: Option<TcpListener>,
}

impl TcpSockets {
    fn has_tls(&self) -> bool {
        let page = self.page.as_ref().and_then(|page| page.local_addr().ok());
        self.api.is_some() || page.is_some_and(|at| is_by_tls(at, true))
    }
}

/// Whether an address, of the page or of the API alone, is served by TLS.
fn is_by_tls(at: SocketAddr, page: bool) -> bool {
    !page || !at.ip().is_loopback()
}

/// Files that are made in the run directory, and go with the fabric.
struct OwnFiles(Vec<PathBuf>);

impl OwnFiles {
    /// Those that these settings do not name: what an operator made stays.
    fn of(settings: &ApiSettings, run: &Path, has_tls: bool) -> OwnFiles {
        let is_made = has_tls && settings.certificate.is_none();
        let certificate = certificate::FILES.into_iter().filter(|_| is_made);
        let tokens = settings.tokens.is_none().then_some(tokens::FILE);
        OwnFiles(certificate.chain(tokens).map(|name| run.join(name)).collect())
    }
}

impl Drop for OwnFiles {
    fn drop(&mut self) {
        for file in &self.0 {
            // There may be none.
            let _ = std::fs::remove_file(file);
        }
    }
}

/// The API while it is served.
pub(crate) struct Serving {
    close: watch::Sender<()>,
    ended: oneshot::Receiver<()>,
    _files: OwnFiles,
}

impl Serving {
    /// Ends it: answers under way have a second.
    pub async fn end(self) {
        let Serving { close, ended, _files } = self;
        drop(close);
        // The sender is dropped at the end, which is received as an error.
        let _ = tokio::time::timeout(Duration::from_secs(1), ended).await;
    }
}

/// Threads for requests that wait, such as commands in guests. Attack: endless requests, each with a thread.
const THREADS: usize = 96;

impl TcpApi {
    /// Reads the files that `settings` name; those that they do not name are in the run directory. `again`: a former
    /// process served it, whose certificate stays.
    ///
    /// # Errors
    /// One of the files can't be used.
    pub fn new(
        sockets: TcpSockets,
        settings: &ApiSettings,
        run: &Path,
        again: bool,
    ) -> Result<TcpApi, TcpApiError> {
        let has_tls = sockets.has_tls();
        // Another process may go on with them if this one can't.
        let mut files = OwnFiles(Vec::new());
        if !again {
            files = OwnFiles::of(settings, run, has_tls);
            if settings.tokens.is_none() {
                // Of a fabric that was killed; there may be none.
                let _ = std::fs::remove_file(run.join(tokens::FILE));
            }
        }
        let tokens = TokenFile::open(settings.tokens.clone().unwrap_or_else(|| run.join(tokens::FILE)))?;
        let (mut listeners, mut config, mut url) = (Vec::new(), None, None);
        for (socket, page) in [(sockets.api, false), (sockets.page, true)] {
            let Some(socket) = socket else { continue };
            let at = socket.local_addr().map_err(CertificateError::System)?;
            let is_by_tls = is_by_tls(at, page);
            if is_by_tls && config.is_none() {
                let certificate = certificate::load(settings, at, run, again)?;
                tracing::info!(%at, fingerprint = %certificate.fingerprint, "the API is served");
                config = Some(certificate.config);
            }
            let served = Served { scheme: if is_by_tls { "https" } else { "http" }, page };
            if page {
                let here = format!("{}://{at}/", served.scheme);
                tracing::info!(url = %here, "the page is served; `ringway page` prints its URL with a token");
                url = Some(here);
            }
            let own = config.clone().filter(|_| is_by_tls);
            listeners.push((TlsListener::new(socket, own).map_err(CertificateError::System)?, served));
        }
        let access = Arc::new(Access::new(tokens, settings.hosts.clone(), url));
        if again {
            files = OwnFiles::of(settings, run, has_tls);
        }
        Ok(TcpApi { access, listeners, files })
    }

    /// Adds the paths of its tokens to those of the API.
    pub fn routes(api: Option<&TcpApi>, router: Router) -> Router {
        router.merge(routes::router(api.map(|api| api.access.clone())))
    }

    /// Serves what `router` has, to those whose role allows it, on a thread of its own.
    ///
    /// # Errors
    /// The operating system's.
    pub fn serve(self, router: Router) -> io::Result<Serving> {
        let TcpApi { access, listeners, files } = self;
        let (close, closed) = watch::channel(());
        let (ended, ends) = oneshot::channel();
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().max_blocking_threads(THREADS).build()?;
        std::thread::Builder::new().name("api".into()).spawn(move || {
            runtime.block_on(async {
                let mut all = JoinSet::new();
                for (listener, served) in listeners {
                    let Ok(listener) = listener.start() else { continue };
                    let router = if served.page { page::with_files(router.clone()) } else { router.clone() };
                    all.spawn(serve_one((listener, served), router, access.clone(), closed.clone()));
                }
                while all.join_next().await.is_some() {}
            });
            drop(ended);
        })?;
        Ok(Serving { close, ended: ends, _files: files })
    }
}

/// Serves an address until the sender of `closed` is gone.
async fn serve_one(
    (listener, served): (Incoming, Served),
    router: Router,
    access: Arc<Access>,
    mut closed: watch::Receiver<()>,
) {
    let from = move |client: &Arrived| {
        let gate = ClientGate::new(access.clone(), served, client);
        (Some(client.address.ip()), Some(Arc::new(gate) as Arc<dyn place::Gate>))
    };
    let closing = async move {
        // The sender is dropped, which is received as an error.
        let _ = closed.changed().await;
    };
    place::serve_gated(listener, from, router, bounds(), closing).await;
}

/// Lets through what the role of a request's token allows.
pub(crate) fn authorised(router: Router) -> Router {
    roles::authorised(router, &crate::api::description())
}

/// Bounds of the address, which anybody may reach.
fn bounds() -> place::Bounds {
    let seconds = Duration::from_secs;
    place::Bounds {
        // The handshake of TLS is in the first.
        timeouts: place::Timeouts { first: seconds(5), idle: seconds(100), whole: seconds(60) },
        connections: 256,
        ..place::Bounds::of_api()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_an_operator_made_stay() {
        let run = std::env::temp_dir().join(format!("ringway-own-files-{}", std::process::id()));
        std::fs::create_dir_all(&run).unwrap();
        let files = ["api.crt", "api.key", "tokens"].map(|name| run.join(name));
        let default = ApiSettings::at(([127, 0, 0, 1], 0).into());
        let [certificate, key, tokens] = files.clone().map(Some);
        let named = ApiSettings { tokens, certificate, key, ..default.clone() };
        let left = |settings: &ApiSettings, has_tls| {
            files.iter().for_each(|file| std::fs::write(file, "").unwrap());
            drop(OwnFiles::of(settings, &run, has_tls));
            files.each_ref().map(|file| file.exists())
        };
        assert_eq!(left(&named, true), [true; 3]);
        assert_eq!(left(&default, true), [false; 3]);
        assert_eq!(left(&default, false), [true, true, false], "no certificate was made");
        std::fs::remove_dir_all(run).unwrap();
    }
}
