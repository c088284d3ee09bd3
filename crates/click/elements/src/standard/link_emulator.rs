//! `LinkEmulator([RATE, DELAY, ...])`: one direction of a link: rate, queue, loss, ECN marks, corruption, duplication
//! and delay.
//!
//! Ports: one push input, one push output. A packet passes the MTU, the queue, the transmitter (`RATE`), the wire
//! (`LOSS`, `CE`, `CORRUPT`, `DUPLICATE`) and the delay, in this order. Packets that are dropped anywhere are counted.
//! A packet of several segments counts as one: FromPort cuts such packets unless its `OFFLOADS` is set.
//!
//! Arguments:
//! - `RATE`: bandwidth, at most 4 GBps; without it packets are sent at once.
//! - `DELAY`: propagation delay; 0 by default.
//! - `JITTER`: deviation of the delay; 0 by default.
//! - `DISTRIBUTION`: of the jitter: `uniform` (`JITTER` is the largest deviation), `normal` (the standard deviation) or
//!   `pareto` (the mean of what is added to `DELAY`, of shape 3); `uniform` by default.
//! - `DELAY_TRACE`: delays separated by spaces, of one packet after the other, again and again; instead of `DELAY`.
//! - `REORDER`: whether packets with less delay overtake others; false by default.
//! - `LOSS`, `CORRUPT`, `DUPLICATE`: probabilities from 0 to 1 that a packet is lost, has one bit inverted, arrives
//!   twice.
//! - `BURST`: mean number of packets that are lost in a row (Gilbert's model); without it losses are independent.
//! - `GEMODEL`: Gilbert's and Elliott's model instead of `LOSS`: the probabilities of going from the good to the bad
//!   state and back, and of a loss in the bad (1 by default) and in the good state (0), separated by spaces.
//! - `LOSS_TRACE`: 1 for each lost packet and 0 for each other, again and again; instead of `LOSS`.
//! - `CE`: probability that a packet is marked Congestion Experienced, if its transport supports ECN.
//! - `MTU`: longer IP packets are dropped.
//! - `OVERHEAD`: bytes that each packet takes in addition on the wire, such as 24 for Ethernet.
//! - `QUEUE`: `droptail`, `red`, `codel` or `fq_codel`; `droptail` by default.
//! - `CAPACITY`: packets in the queue; 1000 by default. `BYTES`: its bytes instead. `BDP`: the same in bandwidth-delay
//!   products.
//! - `MARK`: bytes in a `droptail` queue beyond which packets are marked (ECN).
//! - `MIN`, `MAX`, `PROBABILITY`: RED's thresholds in bytes and its probability at `MAX`.
//! - `TARGET`, `INTERVAL`: CoDel's; 5 ms and 100 ms by default. `FLOWS`: queues of `fq_codel`; 1024 by default.
//! - `ECN`: whether `red`, `codel` and `fq_codel` mark packets of transports that support it, instead of dropping them;
//!   true by default.
//! - `MEMORY`: bytes for packets in the queue and under way; 64 MB by default.
//! - `SEED`: of all random decisions; by default one of the router's.
//!
//! Handlers: `sent`, `received`, `drops`, `marked`, `corrupted`, `duplicated`, `reordered` (read): counts; `reasons`
//! (read): drops by reason; `queue` (read): packets in the queue; `size` (read): packets in the queue and under way.
//! `config` may be written while it runs: packets under way arrive as before, those in the queue stay as far as the new
//! one has room, and counters go on.
use ringway_click::arg::{Arg, ArgError, Bandwidth, KEYWORD, Nanoseconds, Scope};
use ringway_click::prelude::*;
use ringway_link::{Capacity, CoDelSettings, Counters, Delay, Link, Loss, MEMORY, Profile, Queue, Reason};

pub static CLASS: Class =
    Class::new("LinkEmulator", || Box::<LinkEmulator>::default()).ports("1/1").processing("h/h").live();

#[derive(Debug, Default)]
pub struct LinkEmulator {
    link: Option<Link<Packet>>,
    /// SEED, if it is set.
    seed: Option<u64>,
    timer: Option<Timer>,
    /// When the timer fires.
    due: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Distribution {
    #[default]
    Uniform,
    Normal,
    Pareto,
}

/// Parses one of the names as the value beside it.
/// One of these names, in any case, with `-` or `_`.
fn one_of<T: Copy>(names: &'static [(&'static str, T)]) -> impl FnOnce(&str, &Scope) -> Result<T, ArgError> {
    move |text, _| match names.iter().find(|(name, _)| name.eq_ignore_ascii_case(&text.replace('-', "_"))) {
        Some((_, value)) => Ok(*value),
        None => {
            let names: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
            Err(ArgError::other(format!("expected one of {}", names.join(", "))))
        }
    }
}

/// Parses values separated by spaces.
fn several<T: Arg>(text: &str, scope: &Scope) -> Result<Vec<T>, ArgError> {
    text.split_whitespace().map(|word| T::parse(word, scope)).collect()
}

fn bits(text: &str, _: &Scope) -> Result<Vec<bool>, ArgError> {
    let bit = |byte| match byte {
        b'0' => Ok(false),
        b'1' => Ok(true),
        _ => Err(ArgError::other("expected 0 and 1")),
    };
    text.bytes().filter(|byte| !byte.is_ascii_whitespace()).map(bit).collect()
}

fn delay(args: &mut Args) -> Delay {
    const NAMES: &[(&str, Distribution)] = &[
        ("uniform", Distribution::Uniform),
        ("normal", Distribution::Normal),
        ("pareto", Distribution::Pareto),
    ];
    let (mut delay, mut jitter) = (Nanoseconds::default(), Nanoseconds::default());
    let mut distribution = Distribution::default();
    args.read_p("DELAY", &mut delay);
    args.read("JITTER", &mut jitter);
    args.read_with("DISTRIBUTION", KEYWORD, &mut distribution, one_of(NAMES));
    let mut trace: Vec<Nanoseconds> = Vec::new();
    if args.read_with("DELAY_TRACE", KEYWORD, &mut trace, several) {
        return Delay::Trace(trace.into_iter().map(|delay| delay.0).collect());
    }
    let (delay, jitter) = (delay.0, jitter.0);
    match distribution {
        _ if jitter == 0 => Delay::Constant(delay),
        Distribution::Uniform => Delay::Uniform { delay, jitter },
        Distribution::Normal => Delay::Normal { delay, jitter },
        Distribution::Pareto => Delay::Pareto { delay, jitter },
    }
}

fn loss(args: &mut Args) -> Loss {
    let (mut share, mut burst) = (0.0, 0.0);
    args.read("LOSS", &mut share);
    let (mut trace, mut model) = (Vec::new(), Vec::new());
    if args.read_with("LOSS_TRACE", KEYWORD, &mut trace, bits) {
        return Loss::Trace(trace.into());
    }
    if args.read_with("GEMODEL", KEYWORD, &mut model, several) {
        let [worse, better, rest @ ..] = &*model else {
            args.error("GEMODEL needs at least two probabilities");
            return Loss::None;
        };
        let or = |index: usize, otherwise| rest.get(index).copied().unwrap_or(otherwise);
        return Loss::GilbertElliott { worse: *worse, better: *better, bad: or(0, 1.0), good: or(1, 0.0) };
    }
    if !args.read("BURST", &mut burst) {
        return if share == 0.0 { Loss::None } else { Loss::Random(share) };
    }
    if !(burst >= 1.0 && (0.0..1.0).contains(&share)) {
        args.error("BURST must be at least 1, with LOSS below 1");
    }
    // In the long run `worse / (worse + better)` of the packets are in the bad state.
    let better = 1.0 / burst;
    Loss::GilbertElliott { worse: better * share / (1.0 - share), better, good: 0.0, bad: 1.0 }
}

fn queue(args: &mut Args) -> Queue {
    #[derive(Clone, Copy, PartialEq)]
    enum Kind {
        DropTail,
        Red,
        CoDel,
        FqCoDel,
    }
    const NAMES: &[(&str, Kind)] = &[
        ("droptail", Kind::DropTail),
        ("red", Kind::Red),
        ("codel", Kind::CoDel),
        ("fq_codel", Kind::FqCoDel),
    ];
    let (mut kind, mut frames, mut bytes, mut products) = (Kind::DropTail, 1000_u32, 0_u32, 0.0);
    args.read_with("QUEUE", KEYWORD, &mut kind, one_of(NAMES));
    args.read("CAPACITY", &mut frames);
    let mut limit = Capacity::Frames(frames as usize);
    if args.read("BYTES", &mut bytes) {
        limit = Capacity::Bytes(bytes as usize);
    }
    if args.read("BDP", &mut products) {
        limit = Capacity::BandwidthDelay(products);
    }
    let mut ecn = true;
    if kind != Kind::DropTail {
        args.read("ECN", &mut ecn);
    }
    let defaults = CoDelSettings::default();
    let (mut target, mut interval) = (Nanoseconds(defaults.target), Nanoseconds(defaults.interval));
    if matches!(kind, Kind::CoDel | Kind::FqCoDel) {
        args.read("TARGET", &mut target);
        args.read("INTERVAL", &mut interval);
    }
    let settings = CoDelSettings { target: target.0, interval: interval.0, ecn };
    match kind {
        Kind::DropTail => {
            let mut mark = 0_u32;
            let is_marked = args.read("MARK", &mut mark);
            Queue::DropTail { limit, mark: is_marked.then_some(mark as usize) }
        }
        Kind::Red => {
            let (mut min, mut max, mut probability) = (0_u32, 0_u32, 0.1);
            args.read_m("MIN", &mut min);
            args.read_m("MAX", &mut max);
            args.read("PROBABILITY", &mut probability);
            Queue::Red { min: min as usize, max: max as usize, probability, limit, ecn }
        }
        Kind::CoDel => Queue::CoDel { settings, limit },
        Kind::FqCoDel => {
            let mut flows = 1024_u16;
            args.read("FLOWS", &mut flows);
            Queue::FqCoDel { settings, limit, flows, quantum: 1514 }
        }
    }
}

fn profile(args: &mut Args) -> Profile {
    let (mut rate, mut mtu, mut overhead, mut memory) = (Bandwidth::default(), 0_u32, 0_u32, MEMORY as u32);
    let rate = args.read_p("RATE", &mut rate).then(|| u64::from(rate.0) * 8);
    let delay = delay(args);
    let mtu = args.read("MTU", &mut mtu).then_some(mtu);
    let (mut reorder, mut mark, mut corrupt, mut duplicate) = (false, 0.0, 0.0, 0.0);
    args.read("OVERHEAD", &mut overhead);
    args.read("MEMORY", &mut memory);
    args.read("REORDER", &mut reorder);
    args.read("CE", &mut mark);
    args.read("CORRUPT", &mut corrupt);
    args.read("DUPLICATE", &mut duplicate);
    let (loss, queue, memory) = (loss(args), queue(args), memory as usize);
    Profile { rate, overhead, mtu, queue, delay, reorder, loss, mark, corrupt, duplicate, memory }
}

impl LinkEmulator {
    fn counters(&self) -> Counters {
        self.link.as_ref().map(|link| *link.counters()).unwrap_or_default()
    }

    fn backlog(&self) -> (usize, usize) {
        self.link.as_ref().map_or((0, 0), |link| {
            let (waiting, _, flying) = link.backlog();
            (waiting, waiting + flying)
        })
    }

    fn reasons(&self) -> String {
        let drops = self.counters().drops;
        let lines =
            Reason::ALL.iter().zip(drops).map(|(reason, count)| format!("{} {count}\n", reason.name()));
        lines.collect()
    }

    /// Sets the timer for the next packet.
    fn set_timer(&mut self, now: u64, cx: &mut Context<'_>) {
        if let Some(timer) = self.timer
            && let Some(due) = self.link.as_ref().and_then(Link::due)
            && self.due.is_none_or(|set| set > due || set <= now)
        {
            self.due = Some(due);
            cx.set_timer_after(timer, due.saturating_sub(now));
        }
    }

    /// Pushes what has arrived, and sets the timer for the next packet.
    fn deliver(&mut self, now: u64, cx: &mut Context<'_>) {
        let Some(link) = &mut self.link else { return };
        let mut burst = PacketBurst::default();
        while burst.len() < cx.burst()
            && let Some((packet, _)) = link.receive(now)
        {
            burst.push(packet);
        }
        self.set_timer(now, cx);
        if !burst.is_empty() {
            cx.push_burst(0, &mut burst);
        }
    }
}

impl Element for LinkEmulator {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let profile = profile(args);
        let mut seed = 0;
        self.seed = args.read("SEED", &mut seed).then_some(seed);
        args.complete()?;
        let seed = self.seed.unwrap_or_else(|| cx.own_seed());
        self.link = Some(Link::new(profile, seed).map_err(|error| cx.error(format!("{error}")))?);
        Ok(())
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.timer = Some(cx.new_timer());
        Ok(())
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let now = cx.steady();
        if let Some(link) = &mut self.link {
            burst.drain().for_each(|packet| link.send(packet, now));
        }
        self.deliver(now, cx);
    }

    fn run_timer(&mut self, _: Timer, cx: &mut Context<'_>) {
        self.due = None;
        self.deliver(cx.steady(), cx);
    }

    fn take_state(&mut self, from: &mut dyn Element, cx: &mut Context<'_>) {
        let Some(from) = from.downcast_mut::<Self>() else { return };
        let (Some(new), Some(mut link)) = (&self.link, from.link.take()) else { return };
        let now = cx.steady();
        // The profile has been checked.
        if link.change(new.profile().clone(), now).is_ok() {
            if let Some(seed) = self.seed.filter(|_| self.seed != from.seed) {
                link.reseed(seed);
            }
            self.link = Some(link);
        }
        self.set_timer(now, cx);
    }

    fn reseed(&mut self, cx: &mut Context<'_>) {
        if let Some(link) = self.link.as_mut().filter(|_| self.seed.is_none()) {
            link.reseed(cx.own_seed());
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("sent", |e: &Self| e.counters().sent),
            Handler::read("received", |e: &Self| e.counters().received),
            Handler::read("drops", |e: &Self| e.counters().drops.iter().sum::<u64>()),
            Handler::read("reasons", Self::reasons),
            Handler::read("marked", |e: &Self| e.counters().marked),
            Handler::read("corrupted", |e: &Self| e.counters().corrupted),
            Handler::read("duplicated", |e: &Self| e.counters().duplicated),
            Handler::read("reordered", |e: &Self| e.counters().reordered),
            Handler::read("queue", |e: &Self| e.backlog().0),
            Handler::read("size", |e: &Self| e.backlog().1),
        ]
        .into()
    }
}
