//! What the machine takes from a thread that never sleeps: the lateness of a loop that only reads the clock, as the
//! peer of what our code is late by.

use crate::Failure;
use std::time::{Duration, Instant};

/// How late, in nanoseconds, a loop that does nothing but read the clock sees `count` due times, `apart` from `begin`
/// on.
pub fn late(begin: Instant, apart: Duration, count: u32) -> impl Iterator<Item = u64> {
    (1..=count).map(move |number| {
        let due = begin + apart * number;
        loop {
            let now = Instant::now();
            if now >= due {
                return (now - due).as_nanos() as u64;
            }
            std::hint::spin_loop();
        }
    })
}

/// How late loops on two cores see each of `count` due times, in nanoseconds: the sum of both.
pub fn late_on(cores: [usize; 2], begin: Instant, apart: Duration, count: u32) -> Result<Vec<u64>, Failure> {
    let on = |core| -> Result<Vec<u64>, Failure> {
        ringway_host::pin(core)?;
        Ok(late(begin, apart, count).collect())
    };
    let [one, two] = std::thread::scope(|scope| {
        cores
            .map(|core| scope.spawn(move || on(core)))
            .map(|thread| thread.join().map_err(|_| "a loop failed"))
    });
    Ok(one??.into_iter().zip(two??).map(|(one, two)| one + two).collect())
}

/// Measures how much of the machine's time the hypervisor gives to others. The kernel counts hundredths of a second.
#[derive(Clone, Copy, Debug)]
pub struct Stolen([u64; 2]);

impl Stolen {
    /// Begins to measure now.
    pub fn begin() -> Result<Stolen, Failure> {
        let stat = std::fs::read_to_string("/proc/stat")?;
        Ok(Stolen(times(&stat).ok_or("/proc/stat lacks times")?))
    }

    /// The part of all cores' time until now, in percent.
    pub fn end(self) -> Result<f64, Failure> {
        let Stolen(now) = Stolen::begin()?;
        let [all, steal] = [0, 1].map(|which| now[which].saturating_sub(self.0[which]) as f64);
        Ok(100.0 * steal / all.max(1.0))
    }
}

/// All time of all cores, and that which was stolen.
fn times(stat: &str) -> Option<[u64; 2]> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    // User, nice, system, idle, iowait, irq, softirq, steal; guests' times are counted as user too.
    let times: Vec<u64> = line.split_whitespace().take(8).map_while(|time| time.parse().ok()).collect();
    Some([times.iter().sum(), *times.get(7)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_that_of_all_cores() {
        assert_eq!(times("cpu  1 2 3 4 5 6 7 8 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\nintr 5\n"), Some([36, 8]));
        assert_eq!(times("cpu  1 2 3\n"), None);
        assert_eq!(times("intr 5\n"), None);
    }

    #[test]
    fn a_loop_sees_each_due_time_after_it() {
        let begin = Instant::now();
        assert_eq!(late(begin, Duration::from_micros(10), 100).count(), 100);
        assert!(begin.elapsed() >= Duration::from_millis(1));
    }
}
