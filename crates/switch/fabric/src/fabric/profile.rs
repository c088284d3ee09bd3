//! Where the time of workers and their functions goes.

use super::Fabric;
use crate::proto::{FunctionProfile, Profile, WorkerProfile};
use std::sync::atomic::Ordering::Relaxed;

impl Fabric {
    /// Where time went so far; workers measure their stages for `time` nanoseconds from now on, at least.
    pub fn profile(&self, time: u64) -> Profile {
        let now = self.clock.now();
        let workers = self.workers.iter().map(|worker| {
            let gauges = &worker.handle.gauges;
            let profile = &gauges.profile;
            profile.until.fetch_max(now.saturating_add(time), Relaxed);
            let [functions_busy, functions_alone] =
                profile.functions.each_ref().map(|time| time.load(Relaxed));
            WorkerProfile {
                name: worker.spec.name.clone(),
                busy: gauges.busy.load(Relaxed),
                slept: profile.slept(now),
                functions_busy,
                functions_alone,
                stages: profile.stages(),
            }
        });
        let functions = self.functions.values().map(|record| FunctionProfile {
            name: record.name.clone(),
            worker: self.workers[record.worker].spec.name.clone(),
            time: record.gauges.time.load(Relaxed),
            turns: record.gauges.turns.load(Relaxed),
        });
        Profile { now, workers: workers.collect(), functions: functions.collect() }
    }

    /// Workers measure their stages no longer.
    pub fn end_profile(&self) {
        self.workers.iter().for_each(|worker| worker.handle.gauges.profile.until.store(0, Relaxed));
    }
}
