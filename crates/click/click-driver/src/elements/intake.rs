//! Pulling packets, for elements with push or pull inputs.
use ringway_click::{Context, PacketBurst, Signal, Task};

/// State of pulling.
#[derive(Debug, Default)]
pub struct Intake(Signal);

impl Intake {
    /// Begins to pull from input 0, if that is pull.
    pub fn new(cx: &mut Context<'_>) -> Intake {
        if !cx.input_is_pull(0) {
            return Intake::default();
        }
        let task = cx.new_task(true);
        Intake(cx.upstream_empty_signal(0, Some(task)))
    }

    /// Pulls up to `most` packets for the element's task, which runs again if there may be more.
    pub fn pull(&self, task: Task, most: usize, cx: &mut Context<'_>) -> PacketBurst {
        let mut burst = PacketBurst::new();
        cx.pull(0, most, &mut burst);
        if !burst.is_empty() || cx.is_active(&self.0) {
            cx.reschedule(task);
        }
        burst
    }
}
