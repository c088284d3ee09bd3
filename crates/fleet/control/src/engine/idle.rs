//! Functions that start with the first frame for them, and go away when none has passed them for a while.

use super::{Engine, Message, later};
use crate::functions::Phase;
use ringway_fabric::proto::{Reply, Request};
use ringway_spec::Function;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Shortest and longest time between two checks.
const CHECK_INTERVALS: (Duration, Duration) = (Duration::from_millis(25), Duration::from_secs(1));
/// Time within which a worker that has taken a frame before the port was held has usually passed it on, and counted it.
/// If it takes longer, `data` says that the ports are not quiet, and the function stays until the next check.
const PASS_TIME: Duration = Duration::from_millis(2);
/// Most functions that one check stops, one after another: the engine does nothing else at that time.
const MAX_STOPS: usize = 16;
/// The subject of requests to `data` in messages.
const SUBJECT: &str = "an idle function";

/// The number of frames that have passed a function, and when it last changed.
#[derive(Clone, Copy, Debug)]
pub(super) struct TrafficCount {
    count: u64,
    since: Instant,
}

impl Engine {
    /// Functions that run and stop when they are idle.
    fn stoppable(&self) -> impl Iterator<Item = &Function> {
        let runs = |function: &&Function| self.functions.phase(&function.name) == Phase::Up;
        self.fabric.functions.iter().filter(|function| function.idle > 0).filter(runs)
    }

    /// Schedules the next check of idle functions, if there are any that may stop.
    pub(super) fn schedule_idle_check(&mut self) {
        if self.has_idle_check {
            return;
        }
        let Some(shortest) = self.stoppable().map(|function| function.idle).min() else { return };
        self.has_idle_check = true;
        let time = Duration::from_nanos(shortest / 4).clamp(CHECK_INTERVALS.0, CHECK_INTERVALS.1);
        later(&self.inbox, time, Message::CheckIdle);
    }

    /// Stops the functions that no frame has passed for a while.
    pub(super) async fn check_idle(&mut self) {
        self.has_idle_check = false;
        let now = Instant::now();
        // Configurations, which may be large, are not copied.
        let what = |function: &Function| (function.name.clone(), function.idle, function.fabric_ports());
        let all: Vec<(String, u64, Vec<String>)> = self.stoppable().map(what).collect();
        let names: BTreeSet<&str> = all.iter().map(|(name, ..)| &**name).collect();
        self.traffic.retain(|name, _| names.contains(&**name));
        let mut gone = 0;
        for (name, idle, ports) in all {
            let Some(count) = self.count(&ports) else { continue };
            let passed = self.traffic.entry(name.clone()).or_insert(TrafficCount { count, since: now });
            if passed.count != count {
                *passed = TrafficCount { count, since: now };
            }
            let since = self.functions.started(&name).map_or(now, |started| started.max(passed.since));
            if now.duration_since(since) >= Duration::from_nanos(idle) && gone < MAX_STOPS {
                gone += 1;
                self.traffic.remove(&name);
                self.stop_if_idle(&name, &ports, count).await;
            }
        }
    }

    /// Frames that were sent to these ports and by them, or lost there, since the fabric came up.
    fn count(&self, ports: &[String]) -> Option<u64> {
        let mut sum = 0_u64;
        for port in ports {
            let live = self.running_ports.get(port)?;
            for queue in 0..u32::from(live.queues) {
                let counts = super::show::counts(&self.page.read(live.counters + queue).ok()?);
                sum = sum.wrapping_add(counts.tx_frames + counts.rx_frames + counts.drops());
            }
        }
        Some(sum)
    }

    /// Stops a function that `count` frames have passed, unless one comes just then. Frames that come later wait where
    /// they come from, and start it.
    async fn stop_if_idle(&mut self, name: &str, ports: &[String], count: u64) {
        let sends = |port: &&String| self.partner(port).is_some_and(|to| ports.contains(to));
        let held: Vec<String> =
            self.fabric.ports.iter().map(|port| &port.name).filter(sends).cloned().collect();
        let request = Request::Hold { ports: held.clone(), held: true, watched: true };
        if self.call(SUBJECT, request).await.is_err() {
            return;
        }
        // If the function stays, the frames go on after this message.
        self.held_ports.extend(held);
        tokio::time::sleep(PASS_TIME).await;
        let quiet = self.call(SUBJECT, Request::Quiet { ports: ports.to_vec() }).await;
        if !matches!(quiet, Ok(Reply::Quiet(true))) || self.count(ports) != Some(count) {
            return;
        }
        tracing::info!(function = name, "no frame has passed it for a while");
        self.functions.rest(name);
        for port in ports {
            // Its process may leave them later than the next one is up, for which frames wait.
            self.running_ports.get_mut(port).into_iter().for_each(|live| live.attached = false);
        }
    }
}
