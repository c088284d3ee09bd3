//! Functions that start with the first frame for them, and go away when none has passed them for a while.

use super::{Engine, Message, later};
use crate::functions::Phase;
use ringway_fabric::proto::{Reply, Request};
use ringway_spec::Function;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Times between two looks.
const LOOKS: (Duration, Duration) = (Duration::from_millis(25), Duration::from_secs(1));
/// Time within which a worker that has taken a frame before the port was held has passed it on, and counted it.
const SETTLED: Duration = Duration::from_millis(2);
/// Functions that end after one look at most, one after another: the engine does nothing else at that time.
const AT_ONCE: usize = 16;
/// What requests to `data` are about, in messages.
const WHAT: &str = "an idle function";

/// What has passed a function, and when that last changed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passed {
    count: u64,
    since: Instant,
}

impl Engine {
    /// Functions that run and may go away.
    fn may_go(&self) -> impl Iterator<Item = &Function> {
        let runs = |function: &&Function| self.functions.phase(&function.name) == Phase::Up;
        self.fabric.functions.iter().filter(|function| function.idle > 0).filter(runs)
    }

    /// Looks at functions that may go away after a while, if there are any.
    pub(super) fn look_at_idle_later(&mut self) {
        if self.looks_at_idle {
            return;
        }
        let Some(shortest) = self.may_go().map(|function| function.idle).min() else { return };
        self.looks_at_idle = true;
        let time = Duration::from_nanos(shortest / 4).clamp(LOOKS.0, LOOKS.1);
        later(&self.inbox, time, Message::LookAtIdle);
    }

    /// Looks which functions no frame has passed for a while; those go away.
    pub(super) async fn look_at_idle(&mut self) {
        self.looks_at_idle = false;
        let now = Instant::now();
        // Configurations, which may be large, are not copied.
        let what = |function: &Function| (function.name.clone(), function.idle, function.fabric_ports());
        let all: Vec<(String, u64, Vec<String>)> = self.may_go().map(what).collect();
        let names: BTreeSet<&str> = all.iter().map(|(name, ..)| &**name).collect();
        self.passed.retain(|name, _| names.contains(&**name));
        let mut gone = 0;
        for (name, idle, ports) in all {
            let Some(count) = self.count(&ports) else { continue };
            let passed = self.passed.entry(name.clone()).or_insert(Passed { count, since: now });
            if passed.count != count {
                *passed = Passed { count, since: now };
            }
            let since = self.functions.started(&name).map_or(now, |started| started.max(passed.since));
            if now.duration_since(since) >= Duration::from_nanos(idle) && gone < AT_ONCE {
                gone += 1;
                self.passed.remove(&name);
                self.put_away(&name, &ports, count).await;
            }
        }
    }

    /// Frames that were sent to these ports and by them, or lost there, since the fabric came up.
    fn count(&self, ports: &[String]) -> Option<u64> {
        let mut sum = 0_u64;
        for port in ports {
            let live = self.live.get(port)?;
            for queue in 0..u32::from(live.queues) {
                let counts = super::show::counts(&self.page.read(live.counters + queue).ok()?);
                sum = sum.wrapping_add(counts.tx_frames + counts.rx_frames + counts.drops());
            }
        }
        Some(sum)
    }

    /// Ends a function that `count` frames have passed, unless one comes just then. Frames that come later wait where
    /// they come from, and start it.
    async fn put_away(&mut self, name: &str, ports: &[String], count: u64) {
        let sends = |port: &&String| self.partner(port).is_some_and(|to| ports.contains(to));
        let held: Vec<String> =
            self.fabric.ports.iter().map(|port| &port.name).filter(sends).cloned().collect();
        let request = Request::Hold { ports: held.clone(), held: true, watched: true };
        if self.call(WHAT, request).await.is_err() {
            return;
        }
        // If it stays, they go on behind this message.
        self.held.extend(held);
        tokio::time::sleep(SETTLED).await;
        let quiet = self.call(WHAT, Request::Quiet { ports: ports.to_vec() }).await;
        if !matches!(quiet, Ok(Reply::Quiet(true))) || self.count(ports) != Some(count) {
            return;
        }
        tracing::info!(function = name, "no frame has passed it for a while");
        self.functions.rest(name);
        for port in ports {
            // Its process may leave them later than the next one is up, for which frames wait.
            self.live.get_mut(port).into_iter().for_each(|live| live.attached = false);
        }
    }
}
