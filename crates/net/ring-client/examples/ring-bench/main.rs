//! Measures rings and pipes on two cores: rates, latency, and the effect of the number of slots.
//!
//! Prints one JSON object per line: `{"key": "ring.64", "best": 23.1, "median": 21.0, "unit": "Mpps", "peer": 0.0}`.

mod bench;
mod latency;
mod pair;
mod pipe;
mod relay;
mod through;

use clap::Parser;

/// What to measure, and for how long.
#[derive(Parser)]
struct Arguments {
    /// Only keys with this prefix.
    #[arg(default_value = "")]
    key: String,
    /// Slices of each measurement; the best and the median are printed.
    #[arg(long, default_value_t = 15)]
    slices: usize,
    /// Milliseconds per slice.
    #[arg(long, default_value_t = 200)]
    millis: u64,
    /// Only moves so many frames of SIZE bytes on one thread, for callgrind: through a switch, or with the key `pipe`
    /// through a pipe.
    #[arg(long, num_args = 2, value_names = ["FRAMES", "SIZE"])]
    count: Option<Vec<usize>>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Arguments { key, slices, millis, count } = Arguments::parse();
    if let Some(&[frames, size]) = count.as_deref() {
        return if key == "pipe" { pipe::count(size, frames) } else { through::count(size, frames) };
    }
    let plan = bench::Plan { slices, slice: std::time::Duration::from_millis(millis) };
    let wanted = |name: &str| name.starts_with(&key);
    for (name, size, touch) in [
        ("ring.64", 64, true),
        ("ring.64.untouched", 64, false),
        ("ring.60", 60, true),
        ("ring.1500", 1500, true),
    ] {
        if wanted(name) {
            through::rate(size, 512, touch, &plan)?.print(name);
        }
    }
    if wanted("ring.1500.untouched") {
        through::rate(1500, 512, false, &plan)?.print("ring.1500.untouched");
    }
    for slots in [64, 128, 256, 512, 1024, 2048, 4096] {
        for size in [64, 1500] {
            let name = format!("slots.{size}.{slots}");
            if wanted(&name) {
                through::rate(size, slots, size == 64, &plan)?.print(&name);
            }
        }
    }
    for (name, touch) in [("pipe.64", false), ("pipe.64.touched", true)] {
        if wanted(name) {
            pipe::rate(64, 512, touch, &plan)?.print(name);
        }
    }
    if wanted("latency.ring.polling") {
        latency::polling(&plan)?.print("latency.ring.polling");
    }
    for (name, quantile) in [("latency.ring.sleeping", 0.5), ("latency.ring.sleeping.p99", 0.99)] {
        if wanted(name) {
            latency::sleeping(quantile, &plan)?.print(name);
        }
    }
    Ok(())
}
