//! Traces of frames: what would become of a frame from a port on, through functions and links.
//!
//! The engine traces it to the next ports by the code of the data path. A function behind such a port is tried with the
//! frame in a process of its own, the settings of a link say what it does; both lead to further ports.

mod offload;

use crate::api::{
    CompletionView, DestinationView, ElementPassView, ElementTraceView, FunctionTraceView, HopView,
    LinkTraceView, MirroredView, MulticastView, NewTrace, SentFrameView, TraceView,
};
use crate::engine::{EngineRequest, Failure, Inbox, NextHop, Step, TracedStep};
use crate::function::trial::{Passage, Trial, TrialAnswer};
use ringway_fabric::proto::{LearnedAddress, TracedCopy, TracedMirror, TracedMulticast};
use ringway_port::link::Settings;
use ringway_spec::{Function, MacAddress};
use ringway_wire::fields::{Described, hex};
use ringway_wire::summary::summary;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Attack: functions that pass a frame on to each other for ever, or multiply it. Most hops of a trace.
const HOPS: usize = 64;
/// Most instances of functions that a trace starts.
const TRIALS: usize = 16;
/// How long a trace may start further instances.
const LIMIT: Duration = Duration::from_secs(20);
/// Attack: traces without end, each of which has frames in memory. Most at the same time.
const TRACES: usize = 16;
static ROOM: Semaphore = Semaphore::const_new(TRACES);

/// A frame and its offload header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Frame {
    bytes: Vec<u8>,
    offload: [u8; 10],
}

impl Frame {
    /// The frame of a request, for its port.
    fn of(new: &NewTrace, port: &str) -> Result<Frame, Failure> {
        let described =
            Described::read(&new.frame).map_err(|error| Failure::wrong(format!("the frame, {error}")))?;
        if let Some((other, column)) = described.in_port.filter(|(name, _)| name != port) {
            let other = other.escape_debug();
            let what =
                format!("the frame, column {column}: in_port is \"{other}\", but the port is \"{port}\"");
            return Err(Failure::wrong(what));
        }
        let mut bytes = described.frame;
        let asked = (new.checksum_offload, new.gso_size);
        let offload = offload::leave(&mut bytes, asked).map_err(Failure::wrong)?;
        Ok(Frame { bytes, offload })
    }

    fn summary(&self) -> String {
        summary(&self.bytes, u32::try_from(self.bytes.len()).unwrap_or(u32::MAX))
    }
}

/// What a trace needs of the running fabric.
trait Traceable {
    /// Traces a frame to the next ports.
    async fn step(&self, step: Step) -> Result<TracedStep, Failure>;

    /// Tries a function with a frame.
    async fn try_function(&self, trial: Trial, arguments: Vec<OsString>) -> TrialAnswer;
}

impl Traceable for Inbox {
    async fn step(&self, step: Step) -> Result<TracedStep, Failure> {
        self.ask(|answer| EngineRequest::Trace(Box::new(step), answer)).await
    }

    async fn try_function(&self, trial: Trial, arguments: Vec<OsString>) -> TrialAnswer {
        trial.run(arguments).await
    }
}

/// Traces a frame, and sends it then if requested.
///
/// # Errors
/// There is no such port, the frame is wrong, or the data process does not answer.
pub async fn trace(inbox: &Inbox, port: String, new: &NewTrace) -> Result<TraceView, Failure> {
    let _room = ROOM
        .try_acquire()
        .map_err(|_| Failure::conflict(format!("{TRACES} frames are traced at the moment; try again")))?;
    let frame = Frame::of(new, &port)?;
    let mut walk = Walk::new(inbox);
    let mut view = walk.follow(port.clone(), frame.clone()).await?;
    if new.inject {
        let step =
            Step { port, frame: frame.bytes, offload: frame.offload, inject: true, learned: Vec::new() };
        let TracedStep { traced, .. } = inbox.step(step).await?;
        view.sent = traced.sent;
        let verdicts = |hop: &HopView| -> Vec<(String, String)> {
            let each = |to: &DestinationView| (to.port.clone(), to.verdict.clone());
            hop.destinations.iter().map(each).collect()
        };
        let now: Vec<_> =
            traced.copies.iter().map(|copy| (copy.port.clone(), copy.verdict.clone())).collect();
        view.changed =
            view.hops.first().is_some_and(|hop| verdicts(hop) != now || hop.dropped != traced.dropped);
    }
    Ok(view)
}

/// A frame that enters the fabric.
struct Entry {
    /// The hop before, and what the frame passed since.
    after: Option<(usize, String)>,
    port: String,
    frame: Frame,
}

struct Walk<'w, T> {
    fabric: &'w T,
    entries: VecDeque<Entry>,
    /// Number of entries so far.
    entered: usize,
    trials: usize,
    end: Instant,
    omitted: usize,
    /// What the frames so far make switches learn.
    learned: Vec<(String, LearnedAddress)>,
}

impl<'w, T: Traceable> Walk<'w, T> {
    fn new(fabric: &'w T) -> Walk<'w, T> {
        let end = Instant::now() + LIMIT;
        Walk { fabric, entries: VecDeque::new(), entered: 0, trials: 0, end, omitted: 0, learned: Vec::new() }
    }

    /// Follows a frame that enters at a port.
    async fn follow(&mut self, port: String, frame: Frame) -> Result<TraceView, Failure> {
        let mut view = TraceView { port: port.clone(), frame: hex(&frame.bytes), ..TraceView::default() };
        self.enter(None, port, frame);
        while let Some(entry) = self.entries.pop_front() {
            let hop = self.hop(view.hops.len() + 1, entry).await?;
            view.hops.push(hop);
        }
        view.omitted = self.omitted;
        Ok(view)
    }

    /// Notes a frame that enters at a port. Returns the number of its hop, if it is followed.
    fn enter(&mut self, after: Option<(usize, String)>, port: String, frame: Frame) -> Option<usize> {
        if self.entered >= HOPS {
            self.omitted += 1;
            return None;
        }
        self.entries.push_back(Entry { after, port, frame });
        self.entered += 1;
        Some(self.entered)
    }

    /// Traces a frame to the next ports, and what is behind these.
    async fn hop(&mut self, number: usize, entry: Entry) -> Result<HopView, Failure> {
        let Entry { after, port, frame } = entry;
        let is_first = after.is_none();
        let (after, through) = after.map_or((None, String::new()), |(after, through)| (Some(after), through));
        let mut hop = HopView {
            number,
            after,
            through,
            port: port.clone(),
            frame: hex(&frame.bytes),
            length: frame.bytes.len(),
            summary: frame.summary(),
            ..HopView::default()
        };
        let (bytes, offload) = (frame.bytes.clone(), frame.offload);
        let learned = self.learned.clone();
        let step = match self.fabric.step(Step { port, frame: bytes, offload, inject: false, learned }).await
        {
            Ok(step) => step,
            Err(failure) if is_first => return Err(failure),
            // The fabric changed meanwhile, or a function sends what no port takes.
            Err(failure) => {
                hop.note = failure.reason();
                return Ok(hop);
            }
        };
        let TracedStep { traced, to, table, next_hops, arguments, fabric } = step;
        (hop.worker, hop.to, hop.table) = (traced.worker, to, table);
        (hop.lookup, hop.learned, hop.held) = (traced.lookup, traced.learned, traced.held);
        (hop.vlan, hop.flows) = (traced.vlan, traced.flows);
        hop.sender = traced.sender;
        hop.multicast = traced.multicast.map(|TracedMulticast { group, ports }| MulticastView {
            group: group.map(|group| group.to_string()),
            ports,
        });
        let mirrored = traced.mirrored.into_iter();
        hop.mirrored =
            mirrored.map(|TracedMirror { port, of, leaves }| MirroredView { port, of, leaves }).collect();
        self.learn(&mut hop, &frame);
        (hop.dropped, hop.omitted) = (traced.dropped, traced.omitted);
        for copy in traced.copies {
            let place = TracePoint {
                number,
                frame: &frame,
                next_hops: &next_hops,
                arguments: &arguments,
                fabric: &fabric,
            };
            hop.destinations.push(self.destination(copy, place).await);
        }
        Ok(hop)
    }

    /// Notes what a frame makes its switch learn: a function may send an answer to where it came from.
    fn learn(&mut self, hop: &mut HopView, frame: &Frame) {
        if !matches!(hop.learned.as_deref(), Some("new" | "moved" | "known")) {
            return;
        }
        let Some((mac, tag)) = source(&frame.bytes) else { return };
        let vlan = hop.vlan.unwrap_or(tag);
        let is_it =
            |(to, one): &&mut (String, LearnedAddress)| *to == hop.to && (one.mac, one.vlan) == (mac, vlan);
        match self.learned.iter_mut().find(is_it) {
            Some((_, before)) => {
                let how = if before.port == hop.port { "known" } else { "moved" };
                hop.learned = Some(how.into());
                before.port.clone_from(&hop.port);
            }
            None => self.learned.push((hop.to.clone(), LearnedAddress { mac, vlan, port: hop.port.clone() })),
        }
    }

    /// What happens at a destination, and behind it.
    async fn destination(&mut self, copy: TracedCopy, place: TracePoint<'_>) -> DestinationView {
        let TracedCopy { port, queue, verdict, reason, hold, retag, completed, frames, joins } = copy;
        let arrives = matches!(&*verdict, "delivered" | "waits");
        let completion = completed
            .as_ref()
            .filter(|_| retag.is_none() || frames != 1)
            .map(|(first, _)| CompletionView { frames, first: hex(first), length: first.len() });
        let frame =
            completed.map_or_else(|| place.frame.clone(), |(bytes, offload)| Frame { bytes, offload });
        let next_hop = place.next_hops.get(&port);
        let kind = next_hop.map(|next_hop| next_hop.kind.clone()).unwrap_or_default();
        let mut view = DestinationView {
            port: port.clone(),
            kind,
            queue,
            verdict,
            reason,
            hold,
            retag,
            completion,
            joins,
            ..DestinationView::default()
        };
        let Some(NextHop { function, link, .. }) = next_hop.filter(|_| arrives) else { return view };
        if let Some((function, state)) = function {
            let (traced, sent) = self.function(function, state, &port, &frame, &place).await;
            let through = format!("function {}", function.name);
            for (port, frame) in sent {
                view.next.extend(self.enter(Some((place.number, through.clone())), port, frame));
            }
            view.function = Some(traced);
        }
        if let Some(link) = link {
            let traced = link_view(link, &frame);
            if traced.dropped.is_none() {
                let through = Some((place.number, format!("link {}", traced.name)));
                view.next.extend(self.enter(through, port, frame));
            }
            view.link = Some(traced);
        }
        view
    }

    /// What a function does with a frame that one of its ports gets; the frames that it sends, with their ports.
    async fn function(
        &mut self,
        function: &Function,
        state: &str,
        port: &str,
        frame: &Frame,
        place: &TracePoint<'_>,
    ) -> (FunctionTraceView, Vec<(String, Frame)>) {
        let places = function.fabric_ports();
        let own = places.iter().position(|name| name == port).and_then(|index| function.ports.get(index));
        let input = own.cloned().unwrap_or_default();
        let mut view = FunctionTraceView {
            name: function.name.clone(),
            state: state.into(),
            input: input.clone(),
            ..FunctionTraceView::default()
        };
        let tried = if function.program.is_some() {
            Err("it is a program, which only its guest can run".into())
        } else if self.trials >= TRIALS || Instant::now() >= self.end {
            Err("the trace has tried as many functions as it may".into())
        } else {
            self.trials += 1;
            let trial = Trial::new(function, place.fabric, input, hex(&frame.bytes));
            self.fabric.try_function(trial, place.arguments.to_vec()).await
        };
        match tried {
            Err(why) => view.unknown = why,
            Ok(passage) => return passed(view, passage, function),
        }
        (view, Vec::new())
    }
}

/// The source address of a frame, and the number of the VLAN in its first tag; 0 without one.
fn source(frame: &[u8]) -> Option<(MacAddress, u16)> {
    let mac = MacAddress(*frame.get(6..)?.first_chunk()?);
    let vlan = match frame.get(12..16) {
        Some([0x81, 0, high, low] | [0x88, 0xa8, high, low]) => u16::from_be_bytes([*high, *low]) & 0xfff,
        _ => 0,
    };
    Some((mac, vlan))
}

/// What is known where a frame is traced to the next ports.
struct TracePoint<'p> {
    number: usize,
    frame: &'p Frame,
    next_hops: &'p BTreeMap<String, NextHop>,
    arguments: &'p [OsString],
    fabric: &'p str,
}

/// The view of what an instance of a function did; the frames that it sent, with their ports in the fabric.
fn passed(
    mut view: FunctionTraceView,
    passage: Passage,
    function: &Function,
) -> (FunctionTraceView, Vec<(String, Frame)>) {
    let Passage { elements, connections, sent, omitted, printed } = passage;
    let element = |(name, class, kept, has_state)| ElementTraceView { name, class, kept, has_state };
    view.elements = elements.into_iter().map(element).collect();
    let connection =
        |(from, output, to, input, packets)| ElementPassView { from, output, to, input, packets };
    view.connections = connections.into_iter().map(connection).collect();
    (view.omitted, view.printed) = (omitted, printed);
    let mut frames = Vec::new();
    let places = function.fabric_ports();
    for (port, frame, after) in sent {
        let index = function.ports.iter().position(|own| *own == port);
        if let Some(place) = index.and_then(|index| places.get(index))
            && let Ok(Described { frame: bytes, .. }) = Described::read(&frame)
        {
            frames.push((place.clone(), Frame { bytes, offload: [0; 10] }));
            view.sent.push(SentFrameView { port, frame, after });
        }
    }
    (view, frames)
}

/// What a link does with a frame.
fn link_view(
    (name, from, settings, queued): &(String, String, BTreeMap<String, String>, u64),
    frame: &Frame,
) -> LinkTraceView {
    let view = LinkTraceView {
        name: name.clone(),
        from: from.clone(),
        settings: settings.clone(),
        ..LinkTraceView::default()
    };
    // The settings were checked before the link took them.
    let Ok(preview) = Settings(settings.clone()).preview(&frame.bytes, *queued) else { return view };
    LinkTraceView {
        dropped: preview.is_long.then(|| "long".into()),
        queueing: preview.queueing,
        sending: preview.sending,
        delay: preview.delay,
        jitter: preview.jitter,
        loss: preview.loss,
        mark: preview.mark,
        corrupt: preview.corrupt,
        duplicate: preview.duplicate,
        ..view
    }
}

#[cfg(test)]
mod tests;
