//! Signals of the process while a router runs: those that elements requested, and those that stop the router.
use ringway_click::Router;
use signal_hook::SigId;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

struct Watched {
    signal: i32,
    arrived: Arc<AtomicBool>,
    id: SigId,
}

/// Signals that are watched.
#[derive(Default)]
pub(super) struct Signals {
    watched: Vec<Watched>,
}

impl Signals {
    /// Reports received signals to the router. If no element requested them, SIGINT and SIGTERM stop the
    /// router, and others have their default action.
    pub(super) fn look(&mut self, router: &mut Router) {
        if self.watched.is_empty() {
            [SIGINT, SIGTERM].into_iter().for_each(|signal| self.watch(signal));
        }
        let wanted: Vec<i32> = router.caught_signals().collect();
        for signal in wanted {
            if !self.watched.iter().any(|watched| watched.signal == signal) {
                self.watch(signal);
            }
        }
        let arrived: Vec<i32> = self
            .watched
            .iter()
            .filter(|watched| watched.arrived.swap(false, Ordering::AcqRel))
            .map(|watched| watched.signal)
            .collect();
        for signal in arrived {
            if router.signal_arrived(signal) {
                continue;
            }
            if signal == SIGINT || signal == SIGTERM {
                // Permanently, as in Click: a script that waits for stops gets some steps to finish.
                router.set_runcount(-i64::from(i32::MAX));
            } else {
                // This can't fail for a signal that could be watched.
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
        }
    }

    fn watch(&mut self, signal: i32) {
        let arrived = Arc::new(AtomicBool::new(false));
        if let Ok(id) = signal_hook::flag::register(signal, arrived.clone()) {
            self.watched.push(Watched { signal, arrived, id });
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for watched in &self.watched {
            signal_hook::low_level::unregister(watched.id);
        }
    }
}
