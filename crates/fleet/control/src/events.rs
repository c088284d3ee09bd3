//! What has happened in the fabric: a bounded history, which clients of the API read and follow.

use crate::api::EventView;
use ringway_scheduler::Feed;
use ringway_spec::printable_lines;
use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// Events that are kept. Attack: endless events. Those of a port's peers are limited in rate as its log lines are.
const HISTORY: usize = 1024;
/// Events of ports' peers among them, if there are others. Attack: a guest that attaches and detaches without end,
/// whose events would replace those of others.
const OF_PEERS: usize = HISTORY / 2;
/// Longest text of an event in bytes. Attack: a guest whose reason fills the history.
const TEXT: usize = 2048;
/// Clients that may follow at the same time. Attack: endless watchers, each with a task and a connection.
pub const MOST_WATCHERS: usize = 64;
/// Most events in a part of a stream.
const PART: usize = 64;
/// Time without an event after which a comment is sent, by which both sides notice that the other one is gone.
const QUIET: Duration = Duration::from_secs(15);

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// An object was added, removed or changed.
    Change,
    /// The fabric was changed to the state described by a file.
    Apply,
    /// Settings of an emulated link changed.
    LinkSet,
    /// A port has a peer.
    PeerAttached,
    /// A port lost its peer.
    PeerDetached,
    /// The data process ended.
    DataEnded,
    /// Another data process goes on.
    DataResumed,
    /// Another control process goes on, after the former one was killed or left the fabric to another program.
    ControlResumed,
    /// The configuration of a function runs.
    FunctionUp,
    /// A function ended by itself.
    FunctionEnded,
    /// A function was stopped.
    FunctionStopped,
    /// A guest has booted.
    GuestUp,
    /// A guest did not start.
    GuestFailed,
    /// A guest was stopped, or ended by itself.
    GuestEnded,
    /// An operator decided where a guest runs that was migrated to a fabric which does not answer.
    GuestResolved,
    /// A program was started.
    ProgramStarted,
    /// A program ended.
    ProgramEnded,
    /// The time of flows ended, and they were removed.
    FlowsExpired,
    /// The fabric goes down.
    Down,
}

impl EventKind {
    /// Every kind.
    pub const ALL: &[EventKind] = &[
        EventKind::Change,
        EventKind::Apply,
        EventKind::LinkSet,
        EventKind::PeerAttached,
        EventKind::PeerDetached,
        EventKind::DataEnded,
        EventKind::DataResumed,
        EventKind::ControlResumed,
        EventKind::FunctionUp,
        EventKind::FunctionEnded,
        EventKind::FunctionStopped,
        EventKind::GuestUp,
        EventKind::GuestFailed,
        EventKind::GuestEnded,
        EventKind::GuestResolved,
        EventKind::ProgramStarted,
        EventKind::ProgramEnded,
        EventKind::FlowsExpired,
        EventKind::Down,
    ];

    /// The name in the API.
    pub fn name(self) -> &'static str {
        match self {
            EventKind::Change => "change",
            EventKind::Apply => "apply",
            EventKind::LinkSet => "link-set",
            EventKind::PeerAttached => "peer-attached",
            EventKind::PeerDetached => "peer-detached",
            EventKind::DataEnded => "data-ended",
            EventKind::DataResumed => "data-resumed",
            EventKind::ControlResumed => "control-resumed",
            EventKind::FunctionUp => "function-up",
            EventKind::FunctionEnded => "function-ended",
            EventKind::FunctionStopped => "function-stopped",
            EventKind::GuestUp => "guest-up",
            EventKind::GuestFailed => "guest-failed",
            EventKind::GuestEnded => "guest-ended",
            EventKind::GuestResolved => "guest-resolved",
            EventKind::ProgramStarted => "program-started",
            EventKind::ProgramEnded => "program-ended",
            EventKind::FlowsExpired => "flows-expired",
            EventKind::Down => "down",
        }
    }
}

/// The history of a fabric's events; clones are the same one.
#[derive(Clone, Debug)]
pub struct EventLog(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    history: Mutex<History>,
    /// Number of the newest event; it is closed when the fabric has gone down.
    newest: watch::Sender<u64>,
    watchers: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct History {
    events: VecDeque<EventView>,
    /// Number of those of ports' peers.
    of_peers: usize,
    /// Number of the newest event.
    last: u64,
    /// Number of the newest event that is not kept any more.
    forgotten: u64,
    /// Whether there will be no more.
    is_closed: bool,
}

impl Default for EventLog {
    fn default() -> EventLog {
        let watchers = Arc::new(Semaphore::new(MOST_WATCHERS));
        EventLog(Arc::new(Shared { history: Mutex::default(), newest: watch::Sender::new(0), watchers }))
    }
}

fn is_of_peer(kind: &str) -> bool {
    [EventKind::PeerAttached, EventKind::PeerDetached].iter().any(|of_peer| of_peer.name() == kind)
}

impl History {
    /// Removes the oldest event, that of a peer if there are too many of these.
    fn forget(&mut self) {
        let index = match self.of_peers > OF_PEERS {
            true => self.events.iter().position(|event| is_of_peer(&event.kind)).unwrap_or(0),
            false => 0,
        };
        let Some(event) = self.events.remove(index) else { return };
        self.of_peers -= usize::from(is_of_peer(&event.kind));
        self.forgotten = self.forgotten.max(event.id);
    }
}

impl EventLog {
    fn history(&self) -> MutexGuard<'_, History> {
        self.0.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes an event of the object `name`, which may be empty, as may `text`.
    ///
    /// Numbers are of the clock's microseconds, so that those of another control process are larger.
    pub fn note(&self, kind: EventKind, name: &str, text: &str) {
        let now = ringway_host::since_1970();
        let mut history = self.history();
        let id = (now / 1000).max(history.last + 1);
        let text = printable_lines(&text[..text.floor_char_boundary(TEXT)]).into_owned();
        history.events.push_back(EventView {
            id,
            time: now,
            kind: kind.name().into(),
            name: name.into(),
            text,
        });
        history.last = id;
        history.of_peers += usize::from(is_of_peer(kind.name()));
        if history.events.len() > HISTORY {
            history.forget();
        }
        history.is_closed |= kind == EventKind::Down;
        drop(history);
        self.0.newest.send_replace(id);
    }

    /// The events after that of a number, of which the newest `most` are returned.
    pub fn after(&self, number: u64, most: usize) -> Vec<EventView> {
        let history = self.history();
        let first = history.events.partition_point(|event| event.id <= number);
        let first = first.max(history.events.len().saturating_sub(most));
        history.events.range(first..).cloned().collect()
    }

    /// Whether an event after that of a number was forgotten later than that of `told`.
    fn has_lost(&self, number: u64, told: u64) -> bool {
        let forgotten = self.history().forgotten;
        forgotten > told && number < forgotten
    }

    /// Number of the newest event.
    pub fn last(&self) -> u64 {
        self.history().last
    }

    /// A watcher's place, if there is one left.
    pub fn watcher(&self) -> Option<OwnedSemaphorePermit> {
        self.0.watchers.clone().try_acquire_owned().ok()
    }

    /// The next part of a stream of the events after that of a number, with the number of its last one.
    fn part(&self, number: u64) -> (String, u64) {
        let history = self.history();
        let first = history.events.partition_point(|event| event.id <= number);
        let events = history.events.range(first..).take(PART);
        let mut part = (String::new(), number);
        for event in events {
            // An event has a JSON form, without line feeds.
            let json = serde_json::to_string(event).unwrap_or_default();
            // Writing to a string can't fail.
            let _ = write!(part.0, "id: {}\nevent: {}\ndata: {json}\n\n", event.id, event.kind);
            part.1 = event.id;
        }
        part
    }

    /// Sends the events after that of a number as they come, until the client is gone, the fabric is down, or the
    /// client is so slow that an event that it has not got is not kept any more.
    pub async fn feed(self, feed: Feed, mut number: u64, _place: OwnedSemaphorePermit) {
        let mut newest = self.0.newest.subscribe();
        // A client that names an old event gets what is kept.
        let told = self.history().forgotten;
        loop {
            newest.borrow_and_update();
            if self.has_lost(number, told) {
                return self.disconnect(feed, (number, told));
            }
            let (part, last) = self.part(number);
            let is_closed = self.history().is_closed;
            if part.is_empty() {
                if is_closed {
                    return feed.end("");
                }
                tokio::select! {
                    _ = newest.changed() => {}
                    () = feed.gone() => return,
                    () = tokio::time::sleep(QUIET) => {
                        if !self.deliver(&feed, ":\n\n".into(), (number, told)).await {
                            return self.disconnect(feed, (number, told));
                        }
                    }
                }
                continue;
            }
            if !self.deliver(&feed, part, (last, told)).await {
                return self.disconnect(feed, (last, told));
            }
            number = last;
        }
    }

    /// Sends a part; `false` if the client is gone, or too slow. `number` is that of its last event, `told` as for
    /// [`EventLog::has_lost`].
    async fn deliver(&self, feed: &Feed, part: String, (number, told): (u64, u64)) -> bool {
        let mut newest = self.0.newest.subscribe();
        let mut sent = std::pin::pin!(feed.send(part));
        loop {
            tokio::select! {
                biased;
                sent = &mut sent => return sent,
                _ = newest.changed() => if self.has_lost(number, told) { return false },
            }
        }
    }

    /// Says why a client is disconnected.
    fn disconnect(&self, feed: Feed, (number, told): (u64, u64)) {
        if self.has_lost(number, told) {
            tracing::info!("a client that follows events is too slow, and is disconnected");
        }
        let why = format!(
            "read faster: more than {HISTORY} events happened meanwhile; GET /v1/events has the last"
        );
        feed.end(format!("event: lost\ndata: {}\n\n", serde_json::json!({ "error": why })));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_scheduler::Cut;

    #[test]
    fn the_history_is_bounded_and_numbers_ascend() {
        let log = EventLog::default();
        for number in 0..HISTORY + 10 {
            log.note(EventKind::Change, "", &format!("{number}"));
        }
        let all = log.after(0, usize::MAX);
        assert_eq!((all.len(), &*all[0].text), (HISTORY, "10"));
        assert!(all.windows(2).all(|pair| pair[0].id < pair[1].id));
        assert_eq!(log.after(all[HISTORY - 3].id, 100).len(), 2);
        assert_eq!(log.after(0, 5).len(), 5);
        assert!(log.has_lost(all[0].id - 1_000_000_000, 0) && !log.has_lost(all[0].id, 0));
        let long = "\u{1b}[2J".to_string() + &"ä".repeat(TEXT);
        log.note(EventKind::GuestFailed, "g", &long);
        let last = log.after(0, 1).remove(0);
        assert!(last.text.len() < 2 * TEXT && !last.text.contains('\u{1b}'), "{}", last.text);
    }

    #[test]
    fn events_of_peers_replace_none_of_others() {
        let log = EventLog::default();
        let count = |kind: EventKind| {
            log.after(0, usize::MAX).iter().filter(|event| event.kind == kind.name()).count()
        };
        (0..100).for_each(|_| log.note(EventKind::Change, "", ""));
        let first = log.last();
        (0..5 * HISTORY).for_each(|_| log.note(EventKind::PeerAttached, "left", ""));
        assert_eq!((count(EventKind::Change), count(EventKind::PeerAttached)), (100, HISTORY - 100));
        (0..OF_PEERS).for_each(|_| log.note(EventKind::Change, "", ""));
        assert_eq!((count(EventKind::Change), count(EventKind::PeerAttached)), (OF_PEERS, OF_PEERS));
        let all = log.after(0, usize::MAX);
        assert!(all.is_sorted_by_key(|event| event.id) && !log.has_lost(log.last(), 0));
        assert!(log.has_lost(first, 0), "a follower that lacks events is told");
    }

    #[test]
    fn every_kind_has_a_name_of_its_own() {
        let names: std::collections::BTreeSet<_> = EventKind::ALL.iter().map(|kind| kind.name()).collect();
        assert_eq!(names.len(), EventKind::ALL.len());
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/events.md");
        let page = std::fs::read_to_string(page).unwrap();
        for name in names {
            assert!(page.contains(&format!("`{name}`")), "docs/events.md lacks {name}");
        }
    }

    #[tokio::test]
    async fn a_client_gets_what_happens_and_the_end() {
        let log = EventLog::default();
        log.note(EventKind::Change, "", "before");
        let (feed, response) = Feed::new(Cut::default(), "text/event-stream");
        let fed = tokio::spawn(log.clone().feed(feed, 0, log.watcher().unwrap()));
        let read = tokio::spawn(axum::body::to_bytes(response.into_body(), usize::MAX));
        tokio::task::yield_now().await;
        log.note(EventKind::PeerAttached, "left", "");
        log.note(EventKind::Down, "", "");
        fed.await.unwrap();
        let text = String::from_utf8(read.await.unwrap().unwrap().to_vec()).unwrap();
        let kinds: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
        assert_eq!(kinds, ["change", "peer-attached", "down"]);
        assert_eq!(log.0.watchers.available_permits(), MOST_WATCHERS);
    }

    #[tokio::test]
    async fn a_client_that_names_an_old_event_gets_all_that_is_kept() {
        let log = EventLog::default();
        (0..3).for_each(|_| log.note(EventKind::Change, "", ""));
        (0..2 * HISTORY).for_each(|_| log.note(EventKind::PeerAttached, "left", ""));
        log.note(EventKind::Down, "", "");
        let (feed, response) = Feed::new(Cut::default(), "text/event-stream");
        let fed = tokio::spawn(log.clone().feed(feed, 1, log.watcher().unwrap()));
        let text = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        fed.await.unwrap();
        let text = String::from_utf8(text.to_vec()).unwrap();
        let count = |kind: &str| text.matches(&format!("event: {kind}\n")).count();
        assert_eq!((count("change"), count("down"), count("lost")), (3, 1, 0));
        assert_eq!(count("peer-attached"), HISTORY - 4);
    }

    #[tokio::test]
    async fn a_slow_client_is_disconnected_with_a_word() {
        let log = EventLog::default();
        let (feed, response) = Feed::new(Cut::default(), "text/event-stream");
        log.note(EventKind::Change, "", "first");
        let fed = tokio::spawn(log.clone().feed(feed, 0, log.watcher().unwrap()));
        for _ in 0..4 {
            tokio::task::yield_now().await;
        }
        for number in 0..=HISTORY + PART {
            log.note(EventKind::Change, "", &number.to_string());
            if number % 64 == 0 {
                tokio::task::yield_now().await;
            }
        }
        fed.await.unwrap();
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        let text = String::from_utf8(body.to_vec()).unwrap();
        assert!(
            text.contains("first") && text.contains("event: lost\ndata: {\"error\":\"read faster"),
            "{text}"
        );
    }

    #[test]
    fn so_many_clients_may_watch() {
        let log = EventLog::default();
        let places: Vec<_> = (0..MOST_WATCHERS).map(|_| log.watcher().unwrap()).collect();
        assert!(log.watcher().is_none());
        drop(places);
        assert!(log.watcher().is_some());
    }
}
