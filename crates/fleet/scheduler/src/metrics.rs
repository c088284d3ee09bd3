//! `/metrics` in Prometheus' format, and `/healthz`, served beside the extender.

use super::{Failed, Placer, Service};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// Upper bounds of the duration histogram's buckets, in seconds.
const ENDS: [f64; 10] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5];

/// The extender's calls.
#[derive(Clone, Copy)]
pub enum Verb {
    Filter,
    Best,
    Prioritize,
    Bind,
}

const VERBS: [(Verb, &str); 4] =
    [(Verb::Filter, "filter"), (Verb::Best, "best"), (Verb::Prioritize, "prioritize"), (Verb::Bind, "bind")];

/// Number of calls, and their durations.
#[derive(Default)]
struct CallStats {
    failed: AtomicU64,
    /// By [`ENDS`]; the last one counts longer durations.
    took: [AtomicU64; ENDS.len() + 1],
    micros: AtomicU64,
}

/// Statistics of the extender.
#[derive(Default)]
pub struct Metrics([CallStats; VERBS.len()]);

impl Metrics {
    /// Records an answer to a call received at `began`.
    pub fn answered(&self, verb: Verb, began: Instant, failed: bool) {
        let (asked, took) = (&self.0[verb as usize], began.elapsed());
        let at = ENDS.partition_point(|end| *end < took.as_secs_f64());
        asked.took[at].fetch_add(1, Relaxed);
        asked.micros.fetch_add(took.as_micros() as u64, Relaxed);
        asked.failed.fetch_add(failed.into(), Relaxed);
    }

    fn write(&self, into: &mut String) {
        // Writing to a string can't fail.
        let _ = into.write_str(
            "# HELP ringway_extender_failures_total Answers to kube-scheduler that were errors.\n\
             # TYPE ringway_extender_failures_total counter\n",
        );
        for (verb, name) in VERBS {
            let failed = self.0[verb as usize].failed.load(Relaxed);
            let _ = writeln!(into, "ringway_extender_failures_total{{verb=\"{name}\"}} {failed}");
        }
        let family = "ringway_extender_duration_seconds";
        let _ = write!(
            into,
            "# HELP {family} How long answers to kube-scheduler took.\n# TYPE {family} histogram\n"
        );
        for (verb, name) in VERBS {
            let asked = &self.0[verb as usize];
            let mut count = 0;
            let ends = ENDS.iter().map(f64::to_string).chain(["+Inf".to_string()]);
            for (end, took) in ends.zip(&asked.took) {
                count += took.load(Relaxed);
                let _ = writeln!(into, "{family}_bucket{{verb=\"{name}\",le=\"{end}\"}} {count}");
            }
            let seconds = asked.micros.load(Relaxed) as f64 / 1e6;
            let _ = writeln!(into, "{family}_sum{{verb=\"{name}\"}} {seconds}");
            let _ = writeln!(into, "{family}_count{{verb=\"{name}\"}} {count}");
        }
    }
}

/// Metrics of placed VMs.
fn placed(service: &Service, into: &mut String) -> Result<(), Failed> {
    let (hosts, running, pending) = service.engine.view(|model| {
        let running = model.vm_slots().filter(|slot| slot.vm.runs()).count();
        (model.host_names().count(), running, model.pendings().len())
    })?;
    let newest = service.engine.decisions(1)?.first().map_or(0, |decision| decision.id);
    let gauges = [
        ("ringway_hosts", "gauge", "Hosts, such as Kubernetes' nodes.", hosts as u64),
        ("ringway_vms", "gauge", "VMs that run, such as bound pods.", running as u64),
        ("ringway_reservations", "gauge", "VMs that are reserved for and do not run yet.", pending as u64),
        ("ringway_decisions_total", "counter", "Decisions that were stored.", newest),
    ];
    for (name, kind, help, value) in gauges {
        let _ = write!(into, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n");
    }
    if let Some(kubernetes) = service.kubernetes.get() {
        kubernetes.write_metrics(into);
    }
    Ok(())
}

/// Metrics in Prometheus' format.
#[utoipa::path(get, tag = "metrics", path = "/metrics",
    security(("token" = ["read"])), responses((status = 200, body = String)))]
pub async fn metrics(State(place): State<Placer>) -> Response {
    let mut text = String::new();
    place.metrics.write(&mut text);
    let task = tokio::task::spawn_blocking(move || {
        place.service().and_then(|service| placed(&service, &mut text)).map(|()| text)
    });
    match task.await {
        Ok(Ok(text)) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response(),
        Ok(Err(failed)) => failed.into_response(),
        Err(error) => Failed::Conflict(error.to_string()).into_response(),
    }
}

/// The health: errors, one per line, if any.
#[utoipa::path(get, tag = "metrics", path = "/healthz", security(("token" = ["read"])),
    responses((status = 200, body = String), (status = 503, body = String)))]
pub async fn healthz(State(place): State<Placer>) -> Response {
    let task = tokio::task::spawn_blocking(move || match place.service() {
        Ok(service) => service.kubernetes.get().map_or(Vec::new(), |kubernetes| kubernetes.troubles()),
        Err(failed) => vec![failed.to_string()],
    });
    match task.await.unwrap_or_else(|error| vec![error.to_string()]) {
        none if none.is_empty() => "ok\n".into_response(),
        troubles => (StatusCode::SERVICE_UNAVAILABLE, troubles.join("\n") + "\n").into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn histogram_buckets_are_cumulative() {
        let metrics = Metrics::default();
        let ago = |millis| Instant::now().checked_sub(Duration::from_millis(millis)).unwrap();
        metrics.answered(Verb::Bind, ago(0), false);
        metrics.answered(Verb::Bind, ago(200), true);
        metrics.answered(Verb::Bind, ago(9000), true);
        let mut text = String::new();
        metrics.write(&mut text);
        for line in [
            "ringway_extender_failures_total{verb=\"bind\"} 2",
            "ringway_extender_duration_seconds_bucket{verb=\"bind\",le=\"0.1\"} 1",
            "ringway_extender_duration_seconds_bucket{verb=\"bind\",le=\"0.5\"} 2",
            "ringway_extender_duration_seconds_bucket{verb=\"bind\",le=\"+Inf\"} 3",
            "ringway_extender_duration_seconds_count{verb=\"bind\"} 3",
            "ringway_extender_duration_seconds_count{verb=\"filter\"} 0",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} is not in {text}");
        }
    }
}
