//! The common part of elements that store packets and emit them repeatedly.
use core::mem::take;
use ringway_click::BEHIND;
use ringway_click::arg::{KEYWORD, POSITIONAL, parse_int};
use ringway_click::prelude::*;

/// Stores the packets of its inputs, merged by timestamp, and emits them repeatedly.
#[derive(Debug)]
pub(super) struct Replay {
    /// Whether packets are emitted on the output with the number of their input, instead of output 0.
    several: bool,
    /// Remaining repetitions; negative for unlimited.
    stop: i32,
    stop_time: u32,
    limit: u32,
    burst: usize,
    active: bool,
    /// Whether an input ends only by its signal.
    use_signal: bool,
    verbose: bool,
    /// Replay speed in percent of the recorded timing; 0 to emit as fast as possible.
    timing: u32,
    inputs: Vec<(Option<Packet>, Signal)>,
    /// Stored packets, each with its input.
    kept: Vec<(Packet, usize)>,
    started: bool,
    loaded: bool,
    next: usize,
    loops: u64,
    /// Start of this repetition.
    began: Option<u64>,
    first: Option<u64>,
    task: Option<Task>,
    timer: Option<Timer>,
}

impl Default for Replay {
    fn default() -> Self {
        Self::new(false)
    }
}

impl Replay {
    /// `several`: as many outputs as inputs, instead of one.
    pub(super) fn new(several: bool) -> Self {
        Self {
            several,
            stop: -1,
            stop_time: 0,
            limit: 1 << 20,
            burst: 0,
            active: true,
            use_signal: false,
            verbose: false,
            timing: 0,
            inputs: Vec::new(),
            kept: Vec::new(),
            started: false,
            loaded: false,
            next: 0,
            loops: 0,
            began: None,
            first: None,
            task: None,
            timer: None,
        }
    }

    /// The input with the earliest packet, after pulling from each that has none; or the one that has ended.
    fn earliest(&mut self, cx: &mut Context<'_>) -> Result<usize, usize> {
        for port in 0..self.inputs.len() {
            if self.inputs[port].0.is_none() {
                let packet = cx.lend(self, |cx| cx.pull_one(port));
                self.inputs[port].0 = packet;
            }
            if self.inputs[port].0.is_none() {
                return Err(port);
            }
        }
        let times = self.inputs.iter().map(|(packet, _)| packet.as_ref().map(|p| p.timestamp()));
        Ok(times.enumerate().min_by_key(|(_, time)| *time).map_or(0, |(port, _)| port))
    }

    /// Pulls and stores packets. Returns whether to continue.
    fn load(&mut self, cx: &mut Context<'_>) -> bool {
        if !self.started {
            self.started = true;
            let text = alloc::format!("Loading {} with {} inputs.", cx.name(), self.inputs.len());
            cx.chatter(format_args!("{text}"));
        }
        for _ in 0..cx.burst() {
            let dry = match self.earliest(cx) {
                Ok(port) => {
                    let packet = self.inputs.get_mut(port).and_then(|(packet, _)| packet.take());
                    self.kept.extend(packet.map(|packet| (packet, port)));
                    // Attack: a source that never ends; LIMIT bounds the stored packets.
                    if self.kept.len() < self.limit as usize {
                        continue;
                    }
                    -1
                }
                Err(port) => {
                    let active = self.inputs.get(port).is_some_and(|(_, signal)| cx.is_active(signal));
                    if self.kept.is_empty() || self.use_signal && active {
                        return active;
                    }
                    port as i64
                }
            };
            self.inputs.iter_mut().for_each(|(packet, _)| *packet = None);
            self.loaded = true;
            let text = alloc::format!(
                "{} : Successfully loaded {} packets. Input {dry} dried out.",
                cx.name(),
                self.kept.len()
            );
            cx.chatter(format_args!("{text}"));
            return true;
        }
        true
    }

    /// The time at which the next packet is due, if in the future.
    fn due(&mut self, cx: &mut Context<'_>) -> Option<u64> {
        if self.timing == 0 {
            return None;
        }
        let (first, next) = (self.kept.first()?, self.kept.get(self.next)?);
        let now = cx.steady();
        let began = *self.began.get_or_insert(now);
        let offset = next.0.timestamp().saturating_sub(first.0.timestamp());
        let offset = u128::from(offset) * 100 / u128::from(self.timing);
        let due = began.saturating_add(u64::try_from(offset).unwrap_or(u64::MAX));
        if due < now.saturating_sub(BEHIND) {
            // The rest of the repetition is later by as much.
            self.began = Some(began.saturating_add(now - due));
        }
        (due > now).then_some(due)
    }

    /// Emits a burst of stored packets. Returns whether to continue.
    fn replay(&mut self, cx: &mut Context<'_>) -> bool {
        if self.first.is_none() {
            self.first = Some(cx.steady());
        }
        for _ in 0..self.burst {
            if let (Some(due), Some(timer)) = (self.due(cx), self.timer) {
                cx.set_timer(timer, due);
                return false;
            }
            let Some((packet, port)) = self.kept.get(self.next).cloned() else { break };
            self.next += 1;
            let output = if self.several { port } else { 0 };
            cx.lend(self, |cx| cx.push(output, packet));
        }
        self.next < self.kept.len() || self.end_loop(cx)
    }

    /// Ends a repetition. Returns whether to continue.
    fn end_loop(&mut self, cx: &mut Context<'_>) -> bool {
        (self.next, self.began, self.loops) = (0, None, self.loops + 1);
        self.stop -= i32::from(self.stop > 0);
        if self.stop_time > 0 {
            let passed = cx.steady().saturating_sub(self.first.unwrap_or(0)) / SECOND;
            if passed >= u64::from(self.stop_time) {
                self.stop = 0;
            }
        }
        if self.verbose {
            let (name, left) = (cx.declaration(), self.stop);
            cx.chatter(format_args!("{name}: Replay loop ({left} loops left)"));
        }
        if self.stop == 0 {
            cx.flush();
            self.active = false;
            cx.stop();
        }
        self.active
    }

    /// Restarts the timing of the repetition, and reschedules if active.
    fn restart(&mut self, cx: &mut Context<'_>) {
        self.began = None;
        self.go_on(cx);
    }

    /// Reschedules if active.
    fn go_on(&mut self, cx: &mut Context<'_>) {
        if let Some(task) = self.task.filter(|_| self.active) {
            cx.reschedule(task);
        }
    }
}

impl Element for Replay {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let mut ignored = false;
        let how = if self.several { KEYWORD } else { POSITIONAL };
        self.burst = cx.burst();
        args.read_with("STOP", how, &mut self.stop, |text, _| {
            parse_int(text, i32::MIN.into(), i32::MAX.into())
        });
        args.read("STOP_TIME", &mut self.stop_time);
        args.read("LIMIT", &mut self.limit);
        args.read("BURST", &mut self.burst);
        args.read("ACTIVE", &mut self.active);
        args.read("USE_SIGNAL", &mut self.use_signal);
        args.read("VERBOSE", &mut self.verbose);
        args.read("QUICK_CLONE", &mut ignored);
        args.read("FREEONTERMINATE", &mut ignored);
        if !self.several {
            args.read("TIMING", &mut self.timing);
        }
        args.complete()?;
        if self.limit == 0 || self.stop == 0 || self.burst == 0 {
            return Err(cx.error("STOP, LIMIT and BURST must not be 0"));
        }
        Ok(())
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        let task = cx.new_task(self.active);
        self.inputs =
            (0..cx.ninputs()).map(|port| (None, cx.upstream_empty_signal(port, Some(task)))).collect();
        (self.task, self.timer) = (Some(task), Some(cx.new_timer()));
        Ok(())
    }

    fn run_task(&mut self, task: Task, cx: &mut Context<'_>) -> bool {
        if !self.active {
            return false;
        }
        let go_on = if self.loaded { self.replay(cx) } else { self.load(cx) };
        if go_on {
            cx.reschedule(task);
        }
        go_on
    }

    fn run_timer(&mut self, _: Timer, cx: &mut Context<'_>) {
        self.go_on(cx);
    }

    fn take_state(&mut self, from: &mut dyn Element, cx: &mut Context<'_>) {
        let Some(from) = from.downcast_mut::<Self>() else { return };
        for ((own, _), (old, _)) in self.inputs.iter_mut().zip(&mut from.inputs) {
            *own = old.take();
        }
        self.kept = take(&mut from.kept);
        (self.started, self.loaded, self.next, self.loops) =
            (from.started, from.loaded, from.next, from.loops);
        (self.began, self.first) = (from.began, from.first);
        self.go_on(cx);
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("count", |e: &Self| e.kept.len()),
            Handler::read("loops", |e: &Self| e.loops),
            Handler::read("loaded", |e: &Self| e.loaded),
            Handler::field("stop", |e: &mut Self| &mut e.stop),
            Handler::field("timing", |e: &mut Self| &mut e.timing).then(Self::restart),
            Handler::field("active", |e: &mut Self| &mut e.active).checkbox().then(Self::restart),
            Handler::button("reset", |e: &mut Self, cx| {
                drop(take(&mut e.kept));
                (e.next, e.loaded, e.started) = (0, false, false);
                e.restart(cx);
            }),
        ]
        .into()
    }
}
