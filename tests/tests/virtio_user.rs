//! DPDK's virtio-user as front-end on both ports of a switch, in all its ring formats.
// A test that can't continue panics.
#![allow(clippy::unwrap_used, clippy::panic)]
use ringway_tests::dpdk::{Testpmd, installed};
use ringway_tests::fabric::{Fabric, connecting_port, port};
use ringway_tests::folder::Folder;
use ringway_tests::pages::Pages;
use ringway_tests::rounds;
use std::time::Duration;

const BOUND: Duration = Duration::from_secs(20);

fn two_ports(queues: u16) -> String {
    let queues = format!("queues = {queues}");
    format!("[switch.main]\n{}{}", port("left", &queues), port("right", &queues))
}

/// Frames circulate between two ports with these options.
fn goes_round(name: &str, options: &str, queues: u16, huge: bool) {
    if !installed() {
        eprintln!("dpdk-testpmd is not installed: skipped");
        return;
    }
    let folder = Folder::new(name).unwrap();
    let fabric = Fabric::up(folder.path(), name, &two_ports(queues)).unwrap();
    let (left, right) = (fabric.socket("left.sock"), fabric.socket("right.sock"));
    let mut testpmd = Testpmd::start(folder.path(), [&left, &right], options, queues, huge).unwrap();
    testpmd.forward().unwrap();
    assert!(testpmd.flows(3_000, BOUND).unwrap(), "frames do not go round with {options:?}");
}

#[test]
fn split() {
    goes_round("split", "", 1, false);
}

#[test]
fn packed() {
    goes_round("packed", "packed_vq=1", 1, false);
}

#[test]
fn split_in_order() {
    goes_round("inorder", "in_order=1,mrg_rxbuf=0", 1, false);
}

#[test]
fn split_in_order_mergeable() {
    goes_round("inordermrg", "in_order=1,mrg_rxbuf=1", 1, false);
}

#[test]
fn packed_in_order() {
    goes_round("packedinorder", "packed_vq=1,in_order=1,mrg_rxbuf=0", 1, false);
}

#[test]
fn split_without_mergeable_buffers() {
    goes_round("nomrg", "mrg_rxbuf=0,in_order=0", 1, false);
}

#[test]
fn split_with_two_queues() {
    goes_round("mq", "", 2, false);
}

#[test]
fn packed_with_two_queues() {
    goes_round("packedmq", "packed_vq=1", 2, false);
}

#[test]
fn split_in_huge_pages() {
    match Pages::take(2048, 160) {
        Some(_pages) => goes_round("huge", "", 1, true),
        None => eprintln!("no huge pages are available: skipped"),
    }
}

/// A front-end killed at any moment leaves a port usable by the next one.
#[test]
fn a_killed_front_end_leaves_a_working_port() {
    if !installed() {
        return;
    }
    let folder = Folder::new("kills").unwrap();
    let fabric = Fabric::up(folder.path(), "kills", &two_ports(1)).unwrap();
    let (left, right) = (fabric.socket("left.sock"), fabric.socket("right.sock"));
    let frames = [0, 1, 100, 1_000, 3_000];
    for round in 0..rounds(frames.len()) {
        let after = frames[round % frames.len()];
        let options = if round % 2 == 0 { "" } else { "packed_vq=1" };
        let mut testpmd = Testpmd::start(folder.path(), [&left, &right], options, 1, false).unwrap();
        if after > 0 {
            testpmd.forward().unwrap();
            assert!(testpmd.flows(after, BOUND).unwrap(), "round {round}: no frames after {round} kills");
        }
        testpmd.kill();
    }
}

/// virtio-user as server: the back-end connects, and reconnects after a restart.
#[test]
fn a_restarted_back_end_connects_again() {
    if !installed() {
        return;
    }
    let folder = Folder::new("restart").unwrap();
    let sockets = ["left", "right"].map(|name| folder.path().join(format!("{name}.fe")));
    let [left, right] =
        [("left", &sockets[0]), ("right", &sockets[1])].map(|(name, at)| connecting_port(name, at, ""));
    let text = format!("[switch.main]\n{left}{right}");
    let fabric = Fabric::up(folder.path(), "restart", &text).unwrap();
    let mut testpmd =
        Testpmd::start(folder.path(), [&sockets[0], &sockets[1]], "server=1", 1, false).unwrap();
    testpmd.forward().unwrap();
    assert!(testpmd.flows(1_000, BOUND).unwrap(), "no frames before the restart");
    fabric.crash();
    let _fabric = Fabric::up(folder.path(), "restart", &text).unwrap();
    // Frames in flight were lost with the back-end.
    let again = (0..20).any(|_| {
        let sent = testpmd.command("stop").and_then(|()| testpmd.forward());
        sent.is_ok() && testpmd.flows(1_000, Duration::from_secs(2)).unwrap()
    });
    assert!(again, "no frames after the restart");
}
