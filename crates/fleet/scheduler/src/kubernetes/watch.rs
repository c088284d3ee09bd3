//! Lists a kind of objects and watches changes: a lost connection continues at the last revision, or with a
//! new list if that revision has expired.

use super::api::{AnyObject, List, Status, WatchEvent, Watched};
use super::client::{Client, ClientError};
use super::health::Health;
use hyper::Method;
use hyper::body::Bytes;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

/// Objects per page of a list.
const PAGE: usize = 500;
/// Attack: an endless list. Largest number of objects.
const OBJECTS: usize = 1_000_000;
/// Time limit of a watch, and the time after which the API server is assumed to have dropped it.
const WATCH: u64 = 240;
const SILENT: Duration = Duration::from_secs(WATCH + 60);

/// Delay before the next attempt: doubled each time, up to a maximum.
#[derive(Clone, Copy, Debug)]
pub struct BackOff {
    /// The first delay.
    pub first: Duration,
    /// The longest delay.
    pub most: Duration,
}

impl Default for BackOff {
    /// As in client-go's reflectors.
    fn default() -> BackOff {
        BackOff { first: Duration::from_millis(800), most: Duration::from_secs(30) }
    }
}

/// Updates of objects.
#[derive(Debug, PartialEq)]
pub enum Update<T> {
    /// The complete list.
    All(Vec<T>),
    /// An object is new or changed.
    One(T),
    /// An object was deleted, with its last state.
    Gone(T),
}

/// Watches all objects of a kind until the receiver is gone.
pub struct Watcher<T> {
    pub client: Arc<Client>,
    pub health: Arc<Health>,
    pub updates: mpsc::Sender<Update<T>>,
    pub back_off: BackOff,
}

impl<T: Watched> Watcher<T> {
    /// Watches; ends when the receiver is gone.
    pub async fn run(self) {
        let feed = self.health.feed(T::NAME);
        let mut wait = self.back_off.first;
        let mut from: Option<String> = None;
        while !self.updates.is_closed() {
            let done = match from {
                None => self.list().await.map(|revision| from = Some(revision)),
                Some(ref mut revision) => {
                    let done = self.follow(revision, &mut wait).await;
                    // After an expired revision, everything is listed again.
                    done.map(|()| from = None)
                }
            };
            if from.is_some() && done.is_ok() {
                continue;
            }
            if let Err(error) = done {
                feed.failures.fetch_add(1, Relaxed);
                if feed.fail(&error.to_string()) {
                    tracing::warn!("{} of {}: {error}; trying again", T::NAME, self.client.address());
                }
            }
            // With jitter, since several clients may have lost the same server.
            sleep(wait + jitter(wait)).await;
            wait = (wait * 2).min(self.back_off.most);
        }
    }

    /// Lists everything; returns the list's revision.
    async fn list(&self) -> Result<String, ClientError> {
        let feed = self.health.feed(T::NAME);
        feed.lists.fetch_add(1, Relaxed);
        let (mut items, mut rest) = (Vec::new(), String::new());
        loop {
            let path = format!("{}limit={PAGE}&continue={}", T::PATH, escaped(&rest));
            let body = match self.client.exchange(Method::GET, &path, Bytes::new()).await {
                // The revision expired while listing in pages: list everything at once.
                Err(error) if error.is_gone() && !rest.is_empty() => {
                    items.clear();
                    let path = T::PATH.trim_end_matches(['?', '&']);
                    self.client.exchange(Method::GET, path, Bytes::new()).await?
                }
                body => body?,
            };
            let page: List<T> = serde_json::from_slice(&body)?;
            items.extend(page.items.into_iter().flatten());
            if items.len() > OBJECTS {
                return Err(ClientError::TooMany(OBJECTS));
            }
            rest = page.metadata.rest;
            if rest.is_empty() {
                // If the receiver is gone, this task ends soon.
                let _ = self.updates.send(Update::All(items)).await;
                return Ok(page.metadata.resource_version);
            }
        }
    }

    /// Watches from a revision, which is advanced, until it expires or the receiver is gone.
    async fn follow(&self, from: &mut String, wait: &mut Duration) -> Result<(), ClientError> {
        let feed = self.health.feed(T::NAME);
        loop {
            let path = format!(
                "{}watch=1&allowWatchBookmarks=true&timeoutSeconds={WATCH}&resourceVersion={}",
                T::PATH,
                escaped(from)
            );
            let mut stream = match self.client.stream(&path).await {
                Err(error) if error.is_gone() => return Ok(()),
                stream => stream?,
            };
            feed.good();
            let mut is_empty = true;
            loop {
                let line = timeout(SILENT, stream.line()).await;
                let Some(line) = line.unwrap_or(Err(ClientError::Late(SILENT)))? else { break };
                if line.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                if !self.event(line, from).await? {
                    return Ok(());
                }
                is_empty = false;
                *wait = self.back_off.first;
                feed.good();
            }
            if is_empty {
                // Avoids a busy loop with a server that ends watches at once.
                sleep(*wait).await;
                *wait = (*wait * 2).min(self.back_off.most);
            }
        }
    }

    /// Handles a line of a watch. Returns whether to continue.
    async fn event(&self, line: &[u8], from: &mut String) -> Result<bool, ClientError> {
        let WatchEvent { kind, object } = serde_json::from_slice::<WatchEvent<AnyObject>>(line)?;
        if kind == "ERROR" {
            let status = serde_json::from_slice::<WatchEvent<Status>>(line).unwrap_or_default();
            let Status { code, message } = status.object.unwrap_or_default();
            let error = ClientError::Refused { code, message };
            return if error.is_gone() { Ok(false) } else { Err(error) };
        }
        let revision = object.unwrap_or_default().metadata.resource_version;
        if !revision.is_empty() {
            *from = revision;
        }
        if kind == "BOOKMARK" {
            return Ok(true);
        }
        self.health.feed(T::NAME).events.fetch_add(1, Relaxed);
        let Some(object) = serde_json::from_slice::<WatchEvent<T>>(line)?.object else { return Ok(true) };
        let update = if kind == "DELETED" { Update::Gone(object) } else { Update::One(object) };
        Ok(self.updates.send(update).await.is_ok())
    }
}

/// A random addition of up to half the delay, derived from the clock.
fn jitter(wait: Duration) -> Duration {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    wait.mul_f64(f64::from(now.map_or(0, |now| now.subsec_nanos()) % 1000) / 2000.0)
}

/// A value escaped for a query.
fn escaped(text: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(byte);
    let escape = |byte: u8| if plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(escape).collect()
}
