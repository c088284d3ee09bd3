//! Health and statistics, for `/healthz` and `/metrics`.

use super::api::{Node, Pod, Watched};
use std::fmt::Write;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a watch may fail before it is reported.
const WATCH_TIMEOUT: Duration = Duration::from_secs(60);
/// Largest number of characters of a message that are kept.
const LETTERS: usize = 500;

/// State of watching a kind of objects.
#[derive(Default)]
pub struct Feed {
    pub lists: AtomicU64,
    pub events: AtomicU64,
    pub failures: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Whether a complete list was applied.
    synced: bool,
    failing: Option<(Instant, String)>,
}

impl Feed {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a failure; returns whether it is a new one.
    pub fn fail(&self, why: &str) -> bool {
        let mut state = self.state();
        // Attack: an endless message.
        let why: String = why.chars().take(LETTERS).collect();
        let is_new = state.failing.as_ref().is_none_or(|(_, before)| *before != why);
        let since = state.failing.take().map_or_else(Instant::now, |(since, _)| since);
        state.failing = Some((since, why));
        is_new
    }

    /// Records success.
    pub fn good(&self) {
        self.state().failing = None;
    }

    /// Records that a complete list was applied.
    pub fn synced(&self) {
        self.state().synced = true;
    }

    fn error_body(&self, now: Instant) -> Option<String> {
        let state = self.state();
        match &state.failing {
            Some((since, why)) if !state.synced || now.duration_since(*since) > WATCH_TIMEOUT => {
                Some(why.clone())
            }
            _ if !state.synced => Some("not listed yet".into()),
            _ => None,
        }
    }
}

/// The state of following Kubernetes.
#[derive(Default)]
pub struct Health {
    nodes: Feed,
    pods: Feed,
    /// Why received updates could not be stored, if they could not.
    store: Mutex<Option<String>>,
    /// Objects that were skipped because they are invalid.
    pub skipped: AtomicU64,
    pub bound: AtomicU64,
    pub unbound: AtomicU64,
}

impl Health {
    /// State of watching a kind of objects.
    pub fn feed(&self, kind: &str) -> &Feed {
        if kind == Node::NAME { &self.nodes } else { &self.pods }
    }

    /// Records whether received updates could be stored.
    pub fn stored(&self, error_body: Option<String>) {
        *self.store.lock().unwrap_or_else(PoisonError::into_inner) = error_body;
    }

    /// Whether everything has been listed once.
    pub fn is_synced(&self) -> bool {
        [&self.nodes, &self.pods].iter().all(|feed| feed.state().synced)
    }

    /// Current errors, one per line.
    pub fn troubles(&self) -> Vec<String> {
        let now = Instant::now();
        let feeds = [(Node::NAME, &self.nodes), (Pod::NAME, &self.pods)];
        let feeds =
            feeds.into_iter().filter_map(|(name, feed)| Some(format!("{name}: {}", feed.error_body(now)?)));
        let store = self.store.lock().unwrap_or_else(PoisonError::into_inner).clone();
        feeds.chain(store).collect()
    }

    /// Its metrics in Prometheus' format.
    pub fn write(&self, into: &mut String) {
        let feeds = [(Node::NAME, &self.nodes), (Pod::NAME, &self.pods)];
        let mut family = |name: &str, kind: &str, help: &str, of: &dyn Fn(&Feed) -> u64| {
            // Writing to a string can't fail.
            let _ = write!(into, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
            for (resource, feed) in feeds {
                let _ = writeln!(into, "{name}{{resource=\"{resource}\"}} {}", of(feed));
            }
        };
        family("ringway_kubernetes_lists_total", "counter", "Lists that were asked for.", &|feed| {
            feed.lists.load(Relaxed)
        });
        family("ringway_kubernetes_events_total", "counter", "Received changes.", &|feed| {
            feed.events.load(Relaxed)
        });
        family("ringway_kubernetes_failures_total", "counter", "Lists and watches that failed.", &|feed| {
            feed.failures.load(Relaxed)
        });
        family("ringway_kubernetes_synced", "gauge", "Whether a whole list was taken over.", &|feed| {
            u64::from(feed.state().synced)
        });
        let _ = write!(
            into,
            "# HELP ringway_kubernetes_skipped_total Objects that could not be used.\n\
             # TYPE ringway_kubernetes_skipped_total counter\n\
             ringway_kubernetes_skipped_total {}\n\
             # HELP ringway_kubernetes_bindings_total Bindings that were written, and that were not.\n\
             # TYPE ringway_kubernetes_bindings_total counter\n\
             ringway_kubernetes_bindings_total{{result=\"ok\"}} {}\n\
             ringway_kubernetes_bindings_total{{result=\"error\"}} {}\n",
            self.skipped.load(Relaxed),
            self.bound.load(Relaxed),
            self.unbound.load(Relaxed)
        );
    }
}
