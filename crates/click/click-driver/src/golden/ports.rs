//! The ports of a function under test: FromPort emits the frames of the test, ToPort keeps what it gets.
use super::frames::Frame;
use crate::inherited;
use ringway_click::arg::{Args, Raw};
use ringway_click::{Class, Context, Element, Failed, PacketBurst, Signal, Task, Timer};
use ringway_elements::platform::devices::{self, Naming};
use std::collections::VecDeque;

/// Attack: a configuration that multiplies frames. Largest number of frames kept of a port.
const MOST: usize = 1 << 16;

/// The classes that replace those of real ports.
pub(crate) static CLASSES: [Class; 2] = [
    devices::source(Class::new("FromPort", || Box::<Source>::default())),
    devices::sink(Class::new("ToPort", || Box::<Sink>::default())),
];
/// The classes that replace those of devices.
pub(crate) static DEVICES: [Class; devices::COUNT] = devices::classes(
    || Box::new(Source { naming: Naming::Device, ..Source::default() }),
    || Box::new(Sink { naming: Naming::Device, ..Sink::default() }),
);

/// FromPort, or a device that receives.
#[derive(Default)]
pub(crate) struct Source {
    naming: Naming,
    pub(crate) port: String,
    timestamp: bool,
    frames: VecDeque<Frame>,
    timer: Option<Timer>,
}

impl Source {
    /// Schedules frames, which are sorted by time.
    pub(crate) fn load(&mut self, frames: VecDeque<Frame>, cx: &mut Context<'_>) {
        self.frames = frames;
        self.set_timer(cx);
    }

    fn set_timer(&self, cx: &mut Context<'_>) {
        if let (Some(timer), Some(frame)) = (self.timer, self.frames.front()) {
            cx.set_timer(timer, frame.time);
        }
    }
}

impl Element for Source {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.timestamp = true;
        let mut ignored = Raw::default();
        args.read("OFFLOADS", &mut ignored);
        args.read("SPIN", &mut ignored);
        args.read("TIMESTAMP", &mut self.timestamp);
        let port = self.naming.read(args, inherited::port_of_device);
        args.complete()?;
        self.port = port.map_err(|wrong| cx.error(wrong))?;
        Ok(())
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.timer = Some(cx.new_timer());
        Ok(())
    }

    fn run_timer(&mut self, _: Timer, cx: &mut Context<'_>) {
        let now = cx.coarse_now();
        while let Some(frame) = self.frames.pop_front_if(|frame| frame.time <= now) {
            if let Some(mut packet) = cx.packet(&frame.data) {
                packet.set_timestamp(if self.timestamp { frame.time } else { 0 });
                cx.push(0, packet);
            }
        }
        self.set_timer(cx);
    }
}

/// ToPort, or a device that sends.
#[derive(Default)]
pub(crate) struct Sink {
    naming: Naming,
    pub(crate) port: String,
    pub(crate) sent: Vec<Frame>,
    /// Frames that were not kept.
    pub(crate) lost: u64,
    task: Option<Task>,
    signal: Signal,
}

impl Element for Sink {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let port = self.naming.read(args, inherited::port_of_device);
        args.complete()?;
        self.port = port.map_err(|wrong| cx.error(wrong))?;
        Ok(())
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        if cx.input_is_pull(0) {
            let task = cx.new_task(true);
            self.signal = cx.upstream_empty_signal(0, Some(task));
            self.task = Some(task);
        }
        Ok(())
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let time = cx.coarse_now();
        for packet in burst.drain() {
            if self.sent.len() < MOST {
                self.sent.push(Frame { time, data: packet.data().to_vec() });
            } else {
                self.lost += 1;
            }
        }
    }

    fn run_task(&mut self, task: Task, cx: &mut Context<'_>) -> bool {
        let mut burst = PacketBurst::default();
        cx.pull(0, cx.burst(), &mut burst);
        let worked = !burst.is_empty();
        self.push(0, &mut burst, cx);
        if worked || cx.is_active(&self.signal) {
            cx.reschedule(task);
        }
        worked
    }
}
