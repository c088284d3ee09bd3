//! Functions in VMs, each on a port that is patched to a program's.

use super::frames::patched;
use super::{Lab, api};
use ringway_ring_client::{Ring, Wait};
use std::time::{Duration, Instant};

const BOUND: Duration = Duration::from_secs(30);

/// Ports of these names for functions, each patched to `NAME-far` for a program.
pub fn fabric(names: &[&str], more: &str) -> String {
    let pair = |name: &&str| patched(&[[*name, format!("{name}-far").as_str()]]);
    format!("{}{more}", names.iter().map(pair).collect::<String>())
}

/// A function on a port, which counts and returns frames.
pub fn mirror(name: &str, more: &str) -> String {
    format!(
        "[function.{name}]\nisolation = \"vm\"\nmemory = \"32MB\"\nport = \"{name}\"\n{more}\
         click = \"FromPort({name}) -> c :: Counter -> ToPort({name});\"\n"
    )
}

pub fn program(lab: &Lab, name: &str) -> Ring {
    Ring::connect(&lab.socket(&format!("{name}-far.sock"))).unwrap()
}

/// Sends frames until one comes back.
pub fn exchange(ring: &mut Ring) {
    let (end, mut frame) = (Instant::now() + BOUND, [0; 2048]);
    loop {
        assert!(Instant::now() < end, "no frame comes back");
        ring.tx.push(&[2; 60]).unwrap();
        ring.sync().unwrap();
        ring.wait(Wait::RX, Some(Duration::from_millis(100))).unwrap();
        if ring.rx.pop(&mut frame).unwrap().is_some() {
            break;
        }
    }
    while ring.rx.pop(&mut frame).unwrap().is_some() {}
    ring.rx.sync().unwrap();
}

pub fn count(lab: &Lab, name: &str) -> u64 {
    lab.ok(&["function", "read", name, "c.count"]).trim().parse().unwrap()
}

/// Process ID of the fabric's `control`.
pub fn control(lab: &Lab) -> u64 {
    api::fabric(lab)["pid"].as_u64().unwrap()
}
