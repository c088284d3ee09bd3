//! Frames to trace: a worker does it between two bursts, since what it reads of ports is a worker's.

use crate::forward::{
    Forwarder, MirrorPlace, MulticastTrace, OneFrame, Retag, Served, Source, TagType, Traced, TracedCopy,
    Verdict,
};
use crate::proto;
use crate::topology::Topology;
use ringway_frame::{CountersRef, Offload, Reason};
use ringway_host::EventFd;
use ringway_mem::Turn;
use ringway_switch::{Learned, PortId, Station};
use std::sync::{Arc, Mutex, PoisonError};

/// What a worker found out about a frame, and whether it sent the frame; `None` if the worker ended before.
pub type Answer = Option<(Traced, Option<bool>)>;

/// What workers found out, by the number of the request.
#[derive(Clone)]
pub struct Answers {
    answers: Arc<Mutex<Vec<(u64, String, Answer)>>>,
    /// Signalled when there are some.
    alarm: Arc<EventFd>,
}

impl Answers {
    /// None yet.
    pub fn new(alarm: Arc<EventFd>) -> Answers {
        Answers { answers: Arc::default(), alarm }
    }

    /// Takes all of them: the number of the request, the worker's name, what it answers.
    pub fn take(&self) -> Vec<(u64, String, Answer)> {
        // The lock is held only for a push, or to take all entries.
        std::mem::take(&mut *self.answers.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A frame to trace.
pub struct TraceRequest {
    /// The number of the request.
    pub call: u64,
    /// The worker's name.
    pub worker: String,
    /// The port that it comes from.
    pub port: PortId,
    /// The counters of the port's first queue.
    pub counters: CountersRef,
    /// Its bytes and its offload metadata.
    pub frame: (Vec<u8>, Offload),
    /// What the port's switch knows besides its table.
    pub learned: Vec<(Station, PortId)>,
    /// Whether it is sent then.
    pub inject: bool,
    /// Where the answer goes.
    pub answers: Answers,
    /// The answer.
    pub answer: Answer,
}

impl TraceRequest {
    /// Traces the frame, and sends it if requested, in a worker's turn.
    #[cold]
    pub fn run(mut self, forwarder: &mut Forwarder, turn: &Turn<'_>, topology: &Topology) {
        let (bytes, offload) = &self.frame;
        let traced = forwarder.trace(turn, topology, self.port, (bytes, *offload), &self.learned);
        let sent = self.inject.then(|| self.send(forwarder, turn, topology));
        self.answer = Some((traced, sent));
    }

    /// Sends the frame, as if the port's peer did; whether it left.
    fn send(&mut self, forwarder: &mut Forwarder, turn: &Turn<'_>, topology: &Topology) -> bool {
        let (bytes, offload) = std::mem::take(&mut self.frame);
        let queue = Box::new(OneFrame::new(bytes, offload));
        let mut source = Source::new(queue, self.port, 0, self.counters.clone());
        // A frame that waits for room is not sent: it would wait in the worker, not in its peer's ring.
        (0..OneFrame::SERVED)
            .any(|_| matches!(forwarder.serve(turn, topology, &mut source), Served::Moved(_)))
    }
}

/// A request is always answered.
impl Drop for TraceRequest {
    fn drop(&mut self) {
        let answer = (self.call, std::mem::take(&mut self.worker), self.answer.take());
        self.answers.answers.lock().unwrap_or_else(PoisonError::into_inner).push(answer);
        self.answers.alarm.signal();
    }
}

/// What follows the number of a tag's VLAN in a trace.
fn suffix(of: TagType) -> &'static str {
    match of {
        TagType::Vlan => "",
        TagType::Service => " (802.1ad)",
    }
}

impl proto::Traced {
    /// With the names of ports.
    pub(crate) fn of(traced: Traced, name: impl Fn(PortId) -> String) -> proto::Traced {
        let Traced {
            lookup,
            learned,
            vlan,
            sender,
            dropped,
            held,
            flows,
            copies,
            omitted,
            mirrored,
            multicast,
        } = traced;
        let learned = learned.map(|learned| match learned {
            Learned::Known => "known",
            Learned::New => "new",
            Learned::Moved => "moved",
            Learned::Refused => "refused",
            Learned::Limited => "limited",
            Learned::Foreign => "foreign",
        });
        let copy = |copy: TracedCopy| {
            let (verdict, reason, hold) = match copy.verdict {
                Verdict::Delivered => ("delivered", None, 0),
                Verdict::Dropped(reason) => ("dropped", Some(reason), 0),
                Verdict::Waits(hold) => ("waits", Some(Reason::Full), hold),
                Verdict::Busy => ("busy", None, 0),
            };
            proto::TracedCopy {
                port: name(copy.port),
                queue: copy.queue,
                verdict: verdict.into(),
                reason: reason.map(|reason| reason.name().into()),
                hold,
                retag: match copy.retag {
                    Retag::Keep => None,
                    Retag::Insert(vlan, of) => Some(format!("inserted {vlan}{}", suffix(of))),
                    Retag::Set(vlan, of) => Some(format!("set {vlan}{}", suffix(of))),
                    Retag::Remove => Some("removed".into()),
                },
                completed: copy.completed.map(|(bytes, offload)| (bytes, offload.to_bytes())),
                frames: copy.frames,
            }
        };
        let mirrored_by = |(by, place): (PortId, MirrorPlace)| {
            let (of, leaves) = match place {
                MirrorPlace::From(port) => (port, false),
                MirrorPlace::To(port) => (port, true),
            };
            proto::TracedMirror { port: name(by), of: name(of), leaves }
        };
        proto::Traced {
            worker: String::new(),
            lookup: lookup.into(),
            learned: learned.map(Into::into),
            vlan,
            sender: sender.map(Into::into),
            dropped: dropped.map(|reason| reason.name().into()),
            held,
            flows,
            copies: copies.into_iter().map(copy).collect(),
            omitted,
            mirrored: mirrored.into_iter().map(mirrored_by).collect(),
            multicast: multicast.map(|MulticastTrace { group, ports }| proto::TracedMulticast {
                group,
                ports: ports.map(|ports| ports.into_iter().map(&name).collect()),
            }),
            sent: None,
        }
    }
}
