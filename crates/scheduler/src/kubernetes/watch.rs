//! Lists a kind of objects, and follows what changes: again from where it was when a connection ends, and from a new
//! list when the API server no longer knows that revision.

use super::api::{Kind, List, Status, WatchEvent};
use super::client::{Client, ClientError};
use super::health::Health;
use hyper::Method;
use hyper::body::Bytes;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

/// Objects a page of a list.
const PAGE: usize = 500;
/// Attack: a list without end. Objects of one.
const OBJECTS: usize = 1_000_000;
/// How long the API server lets a watch go on, and how long until we believe that it forgot it.
const WATCH: u64 = 240;
const SILENT: Duration = Duration::from_secs(WATCH + 60);

/// How long is waited before the next try: twice as long each time, up to the most.
#[derive(Clone, Copy, Debug)]
pub struct BackOff {
    /// The first wait.
    pub first: Duration,
    /// The longest.
    pub most: Duration,
}

impl Default for BackOff {
    /// As client-go's reflectors have it.
    fn default() -> BackOff {
        BackOff { first: Duration::from_millis(800), most: Duration::from_secs(30) }
    }
}

/// What became of objects.
#[derive(Debug, PartialEq)]
pub enum Update<T> {
    /// These are all there are.
    All(Vec<T>),
    /// One is new or has changed.
    One(T),
    /// One is gone, and was so.
    Gone(T),
}

/// Follows all objects of a kind until nobody listens.
pub struct Watcher<T> {
    pub client: Arc<Client>,
    pub health: Arc<Health>,
    pub updates: mpsc::Sender<Update<T>>,
    pub back_off: BackOff,
}

impl<T: Kind> Watcher<T> {
    /// Follows; ends when nobody listens.
    pub async fn run(self) {
        let feed = self.health.feed(T::NAME);
        let mut wait = self.back_off.first;
        let mut from: Option<String> = None;
        while !self.updates.is_closed() {
            let done = match from {
                None => self.list().await.map(|revision| from = Some(revision)),
                Some(ref mut revision) => {
                    let done = self.follow(revision, &mut wait).await;
                    // What it knows no longer has to be listed.
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
            // Not all at once, where several lost the same server.
            sleep(wait + jitter(wait)).await;
            wait = (wait * 2).min(self.back_off.most);
        }
    }

    /// Lists everything; the revision it is of.
    async fn list(&self) -> Result<String, ClientError> {
        let feed = self.health.feed(T::NAME);
        feed.lists.fetch_add(1, Relaxed);
        let (mut items, mut rest) = (Vec::new(), String::new());
        loop {
            let path = format!("{}limit={PAGE}&continue={}", T::PATH, escaped(&rest));
            let body = match self.client.exchange(Method::GET, &path, Bytes::new()).await {
                // The list took longer than its revision is known: all of it in one go.
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
                // Nobody listens where it can't be sent: then this ends.
                let _ = self.updates.send(Update::All(items)).await;
                return Ok(page.metadata.resource_version);
            }
        }
    }

    /// Follows from a revision, which goes on with what comes, until it is no longer known or nobody listens.
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
            let mut said_nothing = true;
            loop {
                let line = timeout(SILENT, stream.line()).await;
                let Some(line) = line.unwrap_or(Err(ClientError::Late(SILENT)))? else { break };
                if line.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                let event: WatchEvent = serde_json::from_slice(line)?;
                if !self.event(event, from).await? {
                    return Ok(());
                }
                said_nothing = false;
                *wait = self.back_off.first;
                feed.good();
            }
            if said_nothing {
                // A server that ends watches at once is not asked in a circle.
                sleep(*wait).await;
                *wait = (*wait * 2).min(self.back_off.most);
            }
        }
    }

    /// Takes a line of a watch. Whether it goes on.
    async fn event(
        &self,
        WatchEvent { kind, object }: WatchEvent,
        from: &mut String,
    ) -> Result<bool, ClientError> {
        if kind == "ERROR" {
            let status: Status = serde_json::from_value(object).unwrap_or_default();
            let error = ClientError::Refused { code: status.code, message: status.message };
            return if error.is_gone() { Ok(false) } else { Err(error) };
        }
        if let Some(revision) = object.pointer("/metadata/resourceVersion").and_then(Value::as_str) {
            *from = revision.to_string();
        }
        if kind == "BOOKMARK" {
            return Ok(true);
        }
        self.health.feed(T::NAME).events.fetch_add(1, Relaxed);
        let object: T = serde_json::from_value(object)?;
        let update = if kind == "DELETED" { Update::Gone(object) } else { Update::One(object) };
        Ok(self.updates.send(update).await.is_ok())
    }
}

/// Up to half as long again, by the clock.
fn jitter(wait: Duration) -> Duration {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    wait.mul_f64(f64::from(now.map_or(0, |now| now.subsec_nanos()) % 1000) / 2000.0)
}

/// A value in a query.
fn escaped(text: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(byte);
    let escape = |byte: u8| if plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(escape).collect()
}
