//! Pings and iperf3 between guests, with parsed results.
use ringway_linux_guests::{Guest, Output};
use serde_json::Value;
use std::time::Duration;

/// Runs shell commands in a guest.
pub trait Runs {
    /// Runs a command for at most `bound`.
    fn run(&self, command: &str, bound: Duration) -> Result<Output, String>;
}

impl Runs for Guest {
    fn run(&self, command: &str, bound: Duration) -> Result<Output, String> {
        Guest::run(self, command, bound).map_err(|error| error.to_string())
    }
}

/// Round trips.
#[derive(Debug, Default, Clone)]
pub struct Pings {
    /// Requests sent.
    pub sent: usize,
    /// Round trip times in milliseconds, shortest first.
    pub times: Vec<f64>,
}

impl Pings {
    /// The quantile `part` (0 to 1) of the round-trip times.
    pub fn quantile(&self, part: f64) -> f64 {
        let last = self.times.len().saturating_sub(1);
        let index = (last as f64 * part).round() as usize;
        self.times.get(index).copied().unwrap_or(f64::NAN)
    }

    /// Requests without an answer.
    pub fn lost(&self) -> usize {
        self.sent.saturating_sub(self.times.len())
    }
}

/// Sends `count` pings of `size` bytes, `interval` seconds apart.
pub fn ping(from: &impl Runs, to: &str, count: usize, size: usize, interval: f64) -> Result<Pings, String> {
    let bound = Duration::from_secs_f64(count as f64 * interval + 20.0);
    let command = format!("busybox ping -c {count} -i {interval} -s {size} {to}");
    let mut times = times(&from.run(&command, bound)?.text);
    times.sort_by(f64::total_cmp);
    Ok(Pings { sent: count, times })
}

/// Whether one ping is answered within a second: without the limit, a lost one takes ten.
pub fn answered(from: &impl Runs, to: &str) -> bool {
    let one = from.run(&format!("busybox ping -c 1 -W 1 {to}"), Duration::from_secs(20));
    one.is_ok_and(|output| output.status == 0)
}

/// The times in the output of ping.
fn times(text: &str) -> Vec<f64> {
    let after = text.split("time=").skip(1);
    after.filter_map(|rest| rest.split_whitespace().next()?.parse().ok()).collect()
}

/// Results of iperf3.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Transfer {
    /// Received, in Gb/s.
    pub rate: f64,
    /// UDP datagrams received.
    pub datagrams: f64,
    /// Lost UDP datagrams in percent.
    pub lost: f64,
}

/// Runs iperf3 for `seconds` with more `options`, such as `-u -b 100M`.
pub fn iperf(from: &impl Runs, to: &str, seconds: u64, options: &str) -> Result<Transfer, String> {
    measured(from, &format!("-c {to} -t {seconds} {options}"), Duration::from_secs(seconds + 25))
}

/// Sends `amount` bytes, such as `4M`, by iperf3 with more `options`.
pub fn send(from: &impl Runs, to: &str, amount: &str, options: &str) -> Result<Transfer, String> {
    measured(from, &format!("-c {to} -n {amount} {options}"), Duration::from_secs(25))
}

fn measured(from: &impl Runs, options: &str, bound: Duration) -> Result<Transfer, String> {
    let output = from.run(&format!("iperf3 -J {options}"), bound)?;
    transfer(&output.text).map_err(|text| format!("iperf3: {text}"))
}

fn transfer(text: &str) -> Result<Transfer, String> {
    let tail = || text.chars().rev().take(300).collect::<Vec<_>>().into_iter().rev().collect::<String>();
    // The program may print a warning first.
    let json = text.find('{').and_then(|at| text.get(at..)).unwrap_or(text);
    let value: Value = serde_json::from_str(json).map_err(|_| tail())?;
    if let Some(error) = value.get("error").and_then(Value::as_str) {
        return Err(error.to_string());
    }
    let end = value.get("end").ok_or_else(tail)?;
    let number = |sum: &str, key: &str| end.get(sum).and_then(|sum| sum.get(key)).and_then(Value::as_f64);
    let seconds = number("sum_received", "seconds").or(number("sum", "seconds")).unwrap_or(1.0);
    match (number("sum", "packets"), number("sum", "lost_packets")) {
        // UDP: the rate in `sum` is the sender's.
        (Some(packets), Some(lost)) => {
            let bytes = number("sum", "bytes").unwrap_or(0.0);
            let part = if packets > 0.0 { (packets - lost) / packets } else { 0.0 };
            let percent = number("sum", "lost_percent").unwrap_or(0.0);
            Ok(Transfer { rate: bytes * part * 8e-9 / seconds, datagrams: packets - lost, lost: percent })
        }
        _ => {
            let bits = number("sum_received", "bits_per_second").ok_or_else(tail)?;
            Ok(Transfer { rate: bits * 1e-9, datagrams: 0.0, lost: 0.0 })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pings_are_read() {
        let text = "64 bytes from 10.0.0.2: seq=0 ttl=64 time=0.386 ms\n64 bytes: time=1.5 ms\n";
        let pings = Pings { sent: 3, times: times(text) };
        assert_eq!(pings.times, [0.386, 1.5]);
        assert_eq!((pings.lost(), pings.quantile(0.0), pings.quantile(1.0)), (1, 0.386, 1.5));
    }

    #[test]
    fn transfers_are_read() {
        let tcp = r#"{"end":{"sum_received":{"seconds":1,"bits_per_second":2500000000}}}"#;
        assert_eq!(transfer(tcp), Ok(Transfer { rate: 2.5, datagrams: 0.0, lost: 0.0 }));
        let udp = r#"{"end":{"sum":
            {"seconds":2,"bytes":1000000000,"packets":100,"lost_packets":50,"lost_percent":50}}}"#;
        assert_eq!(transfer(udp), Ok(Transfer { rate: 2.0, datagrams: 50.0, lost: 50.0 }));
        let warned = "iperf3: warning: UDP block size 1458 exceeds TCP MSS 1448\n".to_string() + udp;
        assert_eq!(transfer(&warned), transfer(udp));
        assert_eq!(transfer(r#"{"error":"refused"}"#), Err("refused".to_string()));
        assert_eq!(transfer("nonsense"), Err("nonsense".to_string()));
    }
}
