//! The state of one connection against time.

mod svg;

use crate::congestion::State as CaState;
use crate::stack::SocketId;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;
use core::net::SocketAddr;

/// The state of a connection after an acknowledgment, a timeout or a retransmission. Times are in
/// nanoseconds, sizes in bytes, rates in bytes a second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracePoint {
    /// The time of the stack's calls.
    pub time: u64,
    /// Congestion window.
    pub cwnd: u64,
    /// Slow-start threshold, if there is one.
    pub ssthresh: Option<u64>,
    /// Bytes sent and neither acknowledged nor lost.
    pub in_flight: u64,
    /// Rate at which segments are released; `None`: not paced.
    pub pacing_rate: Option<u64>,
    /// The last delivery-rate sample.
    pub delivery_rate: u64,
    /// Whether the application limited that sample.
    pub app_limited: bool,
    /// The last sample of the round-trip time; 0 before the first.
    pub rtt: u64,
    /// Smoothed round-trip time.
    pub srtt: u64,
    /// Minimum round-trip time.
    pub min_rtt: u64,
    /// Delivered bytes in total.
    pub delivered: u64,
    /// Retransmitted segments in total.
    pub retransmissions: u64,
    /// Retransmission timeouts in total.
    pub timeouts: u64,
    /// State of loss recovery.
    pub ca_state: CaState,
    /// State of the congestion controller.
    pub mode: &'static str,
}

/// Records the state of a connection.
///
/// A trace has a limited number of points. When it is full, every second one is removed, and from then on points
/// are recorded half as often, except where `mode`, `ca_state` or the number of retransmissions changes. So a
/// trace always spans its connection from [`crate::Stack::set_trace`] on.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The handle of the connection when this began; it has another one once its program has closed it.
    pub(crate) id: Option<SocketId>,
    name: &'static str,
    local: SocketAddr,
    remote: SocketAddr,
    points: Vec<TracePoint>,
    most: usize,
    interval: u64,
}

impl Trace {
    /// A trace of a connection with this congestion controller.
    pub(crate) fn new(name: &'static str, local: SocketAddr, remote: SocketAddr, most: usize) -> Trace {
        Trace { id: None, name, local, remote, points: Vec::new(), most: most.max(2), interval: 0 }
    }

    /// Adds a point unless the last one is recent.
    pub(crate) fn record(&mut self, point: TracePoint) {
        if let Some(last) = self.points.last() {
            let state =
                |point: &TracePoint| (point.mode, point.ca_state, point.retransmissions, point.timeouts);
            if point.time < last.time.saturating_add(self.interval) && state(last) == state(&point) {
                return;
            }
        }
        // Attack: a peer decides how many acknowledgments it sends.
        if self.points.len() >= self.most {
            let span = point.time - self.points.first().map_or(point.time, |first| first.time);
            self.interval = (2 * span / self.most as u64).max(1);
            let mut kept = false;
            self.points.retain(|_| {
                kept = !kept;
                kept
            });
        }
        self.points.push(point);
    }

    /// The points, oldest first.
    pub fn points(&self) -> &[TracePoint] {
        &self.points
    }

    /// The name of the congestion controller.
    pub fn congestion_control(&self) -> &'static str {
        self.name
    }

    /// The local and the peer's address.
    pub fn addresses(&self) -> (SocketAddr, SocketAddr) {
        (self.local, self.remote)
    }

    /// A table with a row for each point. An empty field: there is no value.
    pub fn csv(&self) -> String {
        let mut out = String::from(
            "time_ns,cwnd,ssthresh,in_flight,pacing_rate,delivery_rate,app_limited,rtt_ns,srtt_ns,min_rtt_ns,\
             delivered,retransmissions,timeouts,ca_state,mode\n",
        );
        let optional = |value: Option<u64>| value.map_or(String::new(), |value| format!("{value}"));
        for point in &self.points {
            // Writing to a string does not fail; the same holds below.
            let _ = writeln!(
                out,
                "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}",
                point.time,
                point.cwnd,
                optional(point.ssthresh),
                point.in_flight,
                optional(point.pacing_rate),
                point.delivery_rate,
                u8::from(point.app_limited),
                point.rtt,
                point.srtt,
                point.min_rtt,
                point.delivered,
                point.retransmissions,
                point.timeouts,
                state_name(point.ca_state),
                point.mode,
            );
        }
        out
    }

    /// JSON in the schema of qlog 0.3 (draft-ietf-quic-qlog-main-schema), with the events
    /// `recovery:metrics_updated` and `recovery:congestion_state_updated` of QUIC. Fields that qlog does not
    /// have: `delivery_rate` in bits a second, `retransmissions`, `timeouts`, `ca_state`.
    pub fn qlog(&self) -> String {
        let begin = self.points.first().map_or(0, |first| first.time);
        let mut out = format!(
            "{{\"qlog_version\":\"0.3\",\"qlog_format\":\"JSON\",\"traces\":[{{\"title\":\"{} to {}, {}\",\
             \"vantage_point\":{{\"type\":\"unknown\"}},\"common_fields\":{{\"protocol_type\":[\"TCP\"],\
             \"time_format\":\"relative\",\"reference_time\":{}}},\"events\":[",
            self.local,
            self.remote,
            self.name,
            milliseconds(begin),
        );
        let mut mode = "";
        for (number, point) in self.points.iter().enumerate() {
            let time = milliseconds(point.time - begin);
            if number > 0 {
                out.push(',');
            }
            if mode != point.mode {
                let old = if number > 0 { format!("\"old\":\"{mode}\",") } else { String::new() };
                let _ = write!(
                    out,
                    "\n{{\"time\":{time},\"name\":\"recovery:congestion_state_updated\",\
                     \"data\":{{{old}\"new\":\"{}\"}}}},",
                    point.mode,
                );
                mode = point.mode;
            }
            let _ = write!(
                out,
                "\n{{\"time\":{time},\"name\":\"recovery:metrics_updated\",\"data\":{{{}}}}}",
                metrics(point)
            );
        }
        out.push_str("\n]}]}\n");
        out
    }

    /// An image: windows, rates, round-trip times and retransmissions above each other, on a background that
    /// shows the controller's states.
    pub fn svg(&self) -> String {
        svg::svg(self)
    }
}

fn metrics(point: &TracePoint) -> String {
    let mut out = format!(
        "\"congestion_window\":{},\"bytes_in_flight\":{},\"latest_rtt\":{},\"smoothed_rtt\":{},\
         \"min_rtt\":{}",
        point.cwnd,
        point.in_flight,
        milliseconds(point.rtt),
        milliseconds(point.srtt),
        milliseconds(point.min_rtt),
    );
    if let Some(ssthresh) = point.ssthresh {
        let _ = write!(out, ",\"ssthresh\":{ssthresh}");
    }
    if let Some(rate) = point.pacing_rate {
        let _ = write!(out, ",\"pacing_rate\":{}", rate.saturating_mul(8));
    }
    let _ = write!(
        out,
        ",\"delivery_rate\":{},\"retransmissions\":{},\"timeouts\":{},\"ca_state\":\"{}\"",
        point.delivery_rate.saturating_mul(8),
        point.retransmissions,
        point.timeouts,
        state_name(point.ca_state),
    );
    out
}

/// Milliseconds as a decimal number.
fn milliseconds(time: u64) -> String {
    format!("{}.{:06}", time / 1_000_000, time % 1_000_000)
}

/// As in Linux's `ss` and `tcp_probe`, without `TCP_CA_`.
fn state_name(state: CaState) -> &'static str {
    match state {
        CaState::Open => "open",
        CaState::Disorder => "disorder",
        CaState::Cwr => "cwr",
        CaState::Recovery => "recovery",
        CaState::Loss => "loss",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(time: u64, mode: &'static str) -> TracePoint {
        TracePoint {
            time,
            cwnd: 14_480,
            ssthresh: None,
            in_flight: 2896,
            pacing_rate: Some(1_250_000),
            delivery_rate: 1_000_000,
            app_limited: false,
            rtt: 10_500_000,
            srtt: 10_000_000,
            min_rtt: 9_000_000,
            delivered: 2896,
            retransmissions: 0,
            timeouts: 0,
            ca_state: CaState::Open,
            mode,
        }
    }

    fn trace(most: usize) -> Trace {
        Trace::new("bbr1", ([10, 0, 0, 1], 40_000).into(), ([10, 0, 0, 2], 80).into(), most)
    }

    #[test]
    fn a_full_trace_gets_coarser() {
        let mut trace = trace(100);
        for time in 0..10_000 {
            trace.record(point(time * 1000, if time < 9000 { "startup" } else { "drain" }));
        }
        let points = trace.points();
        assert!((50..=100).contains(&points.len()), "{}", points.len());
        assert_eq!(points[0].time, 0);
        assert!(points[points.len() - 1].time > 9_700_000);
        assert!(points.windows(2).all(|pair| pair[1].time - pair[0].time < 500_000), "a gap");
    }

    #[test]
    fn changes_are_recorded_in_a_coarse_trace() {
        let mut trace = trace(4);
        (0..20).for_each(|time| trace.record(point(time * 1000, "startup")));
        let last = trace.points()[trace.points().len() - 1].time;
        trace.record(point(last + 1, "startup"));
        assert_eq!(trace.points()[trace.points().len() - 1].time, last);
        trace.record(point(last + 1, "drain"));
        assert_eq!(trace.points()[trace.points().len() - 1], point(last + 1, "drain"));
        assert!(trace.points().len() <= 4);
    }

    #[test]
    fn a_row_of_csv() {
        let mut trace = trace(4);
        trace.record(point(5, "startup"));
        let csv = trace.csv();
        let row = "5,14480,,2896,1250000,1000000,0,10500000,10000000,9000000,2896,0,0,open,startup";
        assert_eq!(csv.lines().nth(1), Some(row));
        let columns = csv.lines().map(|line| line.split(',').count());
        assert!(columns.eq([15, 15]));
    }

    #[test]
    fn qlog_is_json_of_its_schema() {
        let mut trace = trace(4);
        trace.record(point(5_000_000, "startup"));
        trace.record(point(6_500_000, "drain"));
        let value: serde_json::Value = serde_json::from_str(&trace.qlog()).unwrap();
        let trace = &value["traces"][0];
        assert_eq!(
            (value["qlog_version"].as_str(), value["qlog_format"].as_str()),
            (Some("0.3"), Some("JSON"))
        );
        assert_eq!(trace["common_fields"]["reference_time"], 5.0);
        let events = trace["events"].as_array().unwrap();
        assert_eq!(events.len(), 4);
        assert_eq!(events[0]["data"], serde_json::json!({"new": "startup"}));
        assert_eq!(events[2]["name"], "recovery:congestion_state_updated");
        assert_eq!(events[2]["data"], serde_json::json!({"old": "startup", "new": "drain"}));
        assert_eq!((&events[3]["time"], &events[3]["data"]["latest_rtt"]), (&1.5.into(), &10.5.into()));
        assert_eq!(events[3]["data"]["pacing_rate"], 10_000_000);
        let empty: serde_json::Value = serde_json::from_str(&super::tests::trace(4).qlog()).unwrap();
        assert_eq!(empty["traces"][0]["events"], serde_json::json!([]));
    }
}
