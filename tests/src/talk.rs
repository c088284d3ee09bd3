//! Two Linux guests that communicate without losing data.
// A test that can't continue panics.
#![allow(clippy::unwrap_used, clippy::panic)]
use crate::eventually;
use crate::traffic::{answered, ping, send};
use ringway_linux_guests::Guest;
use std::time::Duration;

/// Time limit of a command in a guest.
pub const BOUND: Duration = Duration::from_secs(40);

/// Runs a command that must succeed; returns its output.
pub fn ran(guest: &Guest, command: &str) -> String {
    let output = guest.run(command, BOUND).unwrap();
    assert_eq!(output.status, 0, "{}: {command}:\n{}", guest.spec().name, output.text);
    output.text.trim().to_string()
}

/// Checks that no ping is lost, TCP and UDP work, and a large file is transferred unchanged.
pub fn talk(one: &Guest, other: &Guest, to: [&str; 2]) {
    for (from, to) in [(one, to[1]), (other, to[0])] {
        for size in [18, 56, 1472] {
            let pings = ping(from, to, 10, size, 0.05).unwrap();
            assert_eq!(pings.lost(), 0, "{size} bytes from {} to {to}: {pings:?}", from.spec().name);
        }
        let tcp = send(from, to, "8M", "").unwrap_or_else(|error| panic!("TCP to {to}: {error}"));
        assert!(tcp.rate > 0.0, "{tcp:?}");
        let udp = send(from, to, "500K", "-u -b 20M -l 1400")
            .unwrap_or_else(|error| panic!("UDP to {to}: {error}"));
        assert!(udp.datagrams > 0.0, "{udp:?}");
    }
    let (receiver, address) = (other, to[1]);
    // With a closed input it would close the connection before the file has arrived.
    ran(
        receiver,
        "mkfifo /tmp/open; (nc -l -p 7000 <>/tmp/open >/tmp/file; touch /tmp/whole) >/dev/null 2>&1 &",
    );
    ran(one, "dd if=/dev/urandom of=/tmp/file bs=64k count=64 2>/dev/null");
    ran(
        one,
        &format!("for i in 1 2 3 4 5 6 7 8; do nc {address} 7000 </tmp/file && break; usleep 200000; done"),
    );
    let whole = eventually(BOUND, || {
        receiver.run("test -e /tmp/whole", BOUND).is_ok_and(|output| output.status == 0)
    });
    assert!(whole, "the file does not arrive");
    assert_eq!(
        ran(one, "sha256sum </tmp/file"),
        ran(receiver, "sha256sum </tmp/file"),
        "the file arrives changed"
    );
    ran(one, "rm /tmp/file");
    ran(receiver, "rm /tmp/file /tmp/whole /tmp/open");
}

/// Whether a ping is answered soon.
pub fn reaches(from: &Guest, to: &str) -> bool {
    eventually(BOUND, || answered(from, to))
}
