//! The driver's run time, as printed by `-t`.
use std::time::Instant;

/// Clock ticks per second in `/proc`: the same on every relevant Linux machine (proc(5), `USER_HZ`).
const TICKS: u64 = 100;

/// Measures time from its creation.
pub(super) struct Stopwatch {
    start: Instant,
    /// Processor time of the program at its creation, user and system, in milliseconds.
    processor: [u64; 2],
}

impl Default for Stopwatch {
    fn default() -> Self {
        Self { start: Instant::now(), processor: processor() }
    }
}

impl Stopwatch {
    /// Click's line: user time, system time, elapsed time.
    pub(super) fn line(&self) -> String {
        let now = processor();
        let [user, system] = [0, 1].map(|at| now[at].saturating_sub(self.processor[at]));
        line(user, system, self.start.elapsed().as_millis() as u64)
    }
}

fn line(user: u64, system: u64, wall: u64) -> String {
    let text = |time: u64| format!("{}.{:03}", time / 1000, time % 1000);
    let hundredths = (wall + 5) / 10;
    let (minutes, seconds) = (hundredths / 6000, hundredths / 100 % 60);
    format!("{}u {}s {minutes}:{seconds:02}.{:02}\n", text(user), text(system), hundredths % 100)
}

fn processor() -> [u64; 2] {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    times(&text)
}

/// The two times in a line of `/proc/PID/stat`. The name in it may contain spaces and parentheses.
fn times(stat: &str) -> [u64; 2] {
    let behind = stat.rsplit_once(')').map_or("", |(_, behind)| behind);
    let mut fields = behind.split_ascii_whitespace().skip(11);
    let mut next = || fields.next().and_then(|field| field.parse::<u64>().ok()).unwrap_or(0) * 1000 / TICKS;
    [next(), next()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stopwatch_lines_equal_clicks() {
        assert_eq!(line(1234, 50, 61_239), "1.234u 0.050s 1:01.24\n");
        let stat = "7 (a ) b) S 1 2 3 4 5 6 7 8 9 10 123 4 0 0 20";
        assert_eq!(times(stat), [1230, 40]);
        assert_eq!(times(""), [0, 0]);
    }
}
