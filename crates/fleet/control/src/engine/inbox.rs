//! The queue of messages to the engine, with a bound for each kind of message.
//!
//! A message has its place from when it is sent until the engine handles it, in the engine's backlog too.

use super::{Answer, EngineRequest, Failure, Message};
use crate::events::EventLog;
use crate::open::{PeerEvent, What};
use ringway_fabric::proto::Event;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

/// Attack: clients with endless requests. Requests that wait for the engine; senders of more wait until one is handled.
const MAX_REQUESTS: usize = 1024;
/// Attack: a peer whose port changes its state, or a pipe's programs that come and go, without end. Reports that wait;
/// more are dropped and counted. What they report is replaced by the next one, and by the state that `data` answers.
const MAX_REPORTS: usize = 1024;
/// Other events that wait. What runs causes few at a time: a port's opener waits until its peer is gone, and functions'
/// messages are limited in rate. More are refused.
const MAX_EVENTS: usize = 65_536;

/// Why a message was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undelivered {
    /// All slots for messages of its kind are taken. The message was counted.
    Full,
    /// The engine has ended.
    Down,
}

/// A message in its slot of the queue.
#[derive(Debug)]
pub struct Envelope {
    message: Message,
    slot: QueueSlot,
}

impl Envelope {
    /// The message, to look at.
    pub fn message(&self) -> &Message {
        &self.message
    }

    /// The message, whose slot is free from now on.
    pub fn into_message(self) -> Message {
        self.message
    }

    /// The message, and its slot.
    pub fn into_parts(self) -> (Message, QueueSlot) {
        (self.message, self.slot)
    }
}

/// A slot of the queue, which is free when this is dropped.
#[derive(Debug)]
pub struct QueueSlot {
    _permit: OwnedSemaphorePermit,
}

impl QueueSlot {
    /// Puts a message into the slot.
    pub fn hold(self, message: Message) -> Envelope {
        Envelope { message, slot: self }
    }
}

/// Sender of messages to the engine.
#[derive(Clone, Debug)]
pub struct Inbox {
    sender: mpsc::Sender<Envelope>,
    requests: Arc<Semaphore>,
    reports: Arc<Semaphore>,
    events: Arc<Semaphore>,
    /// Number of reports and events for which there was no slot.
    dropped: Arc<AtomicU64>,
    /// What has happened.
    log: EventLog,
}

/// Receiver of the engine's messages.
pub type Messages = mpsc::Receiver<Envelope>;

/// A queue for the engine.
pub fn inbox() -> (Inbox, Messages) {
    inbox_of(MAX_REQUESTS, MAX_REPORTS, MAX_EVENTS)
}

fn inbox_of(requests: usize, reports: usize, events: usize) -> (Inbox, Messages) {
    // Memory is taken for messages that are there.
    let (sender, messages) = mpsc::channel(requests + reports + events);
    let [requests, reports, events] =
        [requests, reports, events].map(|slots| Arc::new(Semaphore::new(slots)));
    (Inbox { sender, requests, reports, events, dropped: Arc::default(), log: EventLog::default() }, messages)
}

impl Inbox {
    /// What has happened in the fabric.
    pub fn event_log(&self) -> &EventLog {
        &self.log
    }

    /// Sends a message without waiting.
    ///
    /// # Errors
    /// There is no place for it, or the engine has ended.
    pub fn send(&self, message: Message) -> Result<(), Undelivered> {
        let Ok(slot) = self.slots(&message).clone().try_acquire_owned() else {
            let dropped = self.dropped.fetch_add(1, Ordering::Relaxed) + 1;
            if dropped.is_power_of_two() {
                tracing::warn!(dropped, "more events than the fabric can handle");
            }
            return Err(Undelivered::Full);
        };
        self.enqueue(message, slot)
    }

    /// Sends a request, once there is a place for it, and waits for the answer.
    ///
    /// # Errors
    /// The request's, or that the fabric is going down.
    pub async fn ask<T>(&self, ask: impl FnOnce(Answer<T>) -> EngineRequest) -> Result<T, Failure> {
        let slot = self.requests.clone().acquire_owned().await.map_err(|_| Failure::Down)?;
        let (answer, answered) = oneshot::channel();
        self.enqueue(Message::EngineRequest(ask(answer)), slot).map_err(|_| Failure::Down)?;
        answered.await.map_err(|_| Failure::Down)?
    }

    fn slots(&self, message: &Message) -> &Arc<Semaphore> {
        match message {
            Message::EngineRequest(_) => &self.requests,
            Message::FromData(Event::Changed(_) | Event::Pressed { .. })
            | Message::Peer(PeerEvent { what: What::Failed(_) | What::Programs(_), .. }) => &self.reports,
            _ => &self.events,
        }
    }

    fn enqueue(&self, message: Message, permit: OwnedSemaphorePermit) -> Result<(), Undelivered> {
        // A message with a place has room.
        self.sender.try_send(QueueSlot { _permit: permit }.hold(message)).map_err(|_| Undelivered::Down)
    }
}

/// Sends a message after a time.
pub fn later(inbox: &Inbox, time: Duration, message: Message) {
    let inbox = inbox.clone();
    tokio::spawn(async move {
        tokio::time::sleep(time).await;
        // Once nobody listens, the fabric is going down.
        let _ = inbox.send(message);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Message {
        Message::FromData(Event::Pressed { function: "f".into() })
    }

    #[tokio::test]
    async fn what_has_no_place_is_counted_and_leaves_the_places_of_other_kinds() {
        let (inbox, mut messages) = inbox_of(1, 2, 2);
        let sent: Vec<_> = (0..4).map(|_| inbox.send(report())).collect();
        assert_eq!(sent, [Ok(()), Ok(()), Err(Undelivered::Full), Err(Undelivered::Full)]);
        assert_eq!(inbox.dropped.load(Ordering::Relaxed), 2);
        assert_eq!([inbox.send(Message::StartData), inbox.send(Message::Down)], [Ok(()); 2]);
        assert_eq!(inbox.send(Message::CheckIdle), Err(Undelivered::Full));
        // A message that waits elsewhere keeps its place.
        let waits = messages.recv().await.unwrap();
        assert_eq!(inbox.send(report()), Err(Undelivered::Full));
        let (message, slot) = waits.into_parts();
        let waits = slot.hold(message);
        assert_eq!(inbox.send(report()), Err(Undelivered::Full));
        assert!(matches!(waits.into_message(), Message::FromData(_)));
        assert_eq!(inbox.send(report()), Ok(()));
        drop(messages);
        assert_eq!(inbox.send(report()), Err(Undelivered::Down));
    }

    #[tokio::test]
    async fn a_request_waits_for_its_place() {
        let (inbox, mut messages) = inbox_of(1, 1, 1);
        let ask = |inbox: Inbox| tokio::spawn(async move { inbox.ask(EngineRequest::Chains).await });
        let clients = [ask(inbox.clone()), ask(inbox.clone())];
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(messages.len(), 1, "the other one waits");
        for _ in 0..2 {
            let Message::EngineRequest(EngineRequest::Chains(answer)) =
                messages.recv().await.unwrap().into_message()
            else {
                unreachable!()
            };
            answer.send(Ok(Vec::new())).unwrap();
        }
        for client in clients {
            assert!(client.await.unwrap().is_ok());
        }
        let last = ask(inbox);
        tokio::task::yield_now().await;
        drop(messages);
        assert!(matches!(last.await.unwrap(), Err(Failure::Down)));
    }
}
