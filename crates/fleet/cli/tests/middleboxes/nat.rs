//! Hosts behind one address, and hosts with IPv6 alone: HTTP, UDP, pings and ICMP errors through both translators.
use super::cgnat::{INSIDE, OUTSIDE};
use super::{fabric, fetches, read, says};
use crate::lab::every_isolation;
use crate::lab::net::{Script, can_create_taps, namespace, namespace6, within};

#[test]
fn hosts_share_an_address() {
    if !can_create_taps() {
        return;
    }
    for isolation in every_isolation() {
        let ((_one, client), (_two, server)) = (namespace(), namespace());
        let lab = fabric("nat", isolation, [&client, &server], ["10.0.0.10/24", "192.0.2.254/24"]);
        within(&client, "ip route add default via 10.0.0.1");
        within(&client, "ping -c 1 -W 20 192.0.2.254");
        let mut far = Script::start(&server, &lab.folder, OUTSIDE, &[]);
        assert_eq!(far.line(), "ready");
        let mut near = Script::start(&client, &lab.folder, INSIDE, &[]);
        let [first, second] = [near.ask("mapped"), near.ask("mapped")];
        assert!(first.starts_with("192.0.2.1 ") && second.starts_with("192.0.2.1 "), "{first}, {second}");
        assert_ne!(first, second, "{isolation}: each has a port of its own");
        assert_eq!(near.ask("refused"), "refused", "{isolation}: ICMP errors come back");
        fetches(&lab, [&client, &server], "192.0.2.254", "http://192.0.2.254", 200_000);

        // The translator is a hop, and answers pings from outside.
        let path = says(&client, "busybox traceroute -n -q 1 -w 20 192.0.2.254");
        assert!(path.contains(" 1  10.0.0.1 ") && path.contains(" 2  192.0.2.254 "), "{path}");
        within(&server, "ping -c 1 -W 20 192.0.2.1");
        assert_eq!(read(&lab, "nat", "flows.mapping_failures"), "0", "{isolation}");
    }
}

/// Prints the address from which its datagram comes, as the host outside says.
const CALL: &str = r#"
import socket, sys
own = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
own.settimeout(20)
for line in sys.stdin:
    own.sendto(b"?", ("64:ff9b::c000:2fe", 3478))
    print(own.recv(100).decode())
"#;

#[test]
fn hosts_with_ipv6_reach_ipv4() {
    if !can_create_taps() {
        return;
    }
    for isolation in every_isolation() {
        let ((_one, client), (_two, server)) = (namespace6(), namespace());
        let lab = fabric("nat64", isolation, [&client, &server], ["10.0.1.10/24", "192.0.2.254/24"]);
        within(&client, "ip addr add 2001:db8:1::a/64 dev client nodad");
        within(&client, "ip -6 route add default via 2001:db8:1::1");
        let ping = says(&client, "ping -6 -c 1 -W 20 64:ff9b::c000:2fe");
        assert!(ping.contains(" 0% packet loss"), "{isolation}: {ping}");
        let mut far = Script::start(&server, &lab.folder, OUTSIDE, &[]);
        assert_eq!(far.line(), "ready");
        let seen = Script::start(&client, &lab.folder, CALL, &[]).ask("");
        assert!(seen.starts_with("192.0.2.1 "), "{isolation}: {seen}");
        fetches(&lab, [&client, &server], "192.0.2.254", "http://[64:ff9b::c000:2fe]", 200_000);
        let (sent, received) = (read(&lab, "nat64", "sent.count"), read(&lab, "nat64", "received.count"));
        assert!(sent.parse::<u32>().unwrap() > 5 && received.parse::<u32>().unwrap() > 100);
    }
}
