//! The routers between two hosts: paths, ICMP errors, fragments, path MTU discovery.
use super::{fabric, fetches, says};
use crate::lab::net::{can_create_taps, namespace, namespace6, within};
use crate::lab::{every_isolation, until};

/// Bytes of a page.
const PAGE: u32 = 200_000;

/// A counter of a namespace's IP layer: `Ip.NAME`, `Icmp.NAME`, or a name of IPv6.
fn counter(namespace: &str, name: &str) -> u64 {
    let (snmp, snmp6) = ("/proc/net/snmp", "/proc/net/snmp6");
    let text = says(namespace, &format!("cat {snmp}; cat {snmp6}"));
    let mut lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    if let Some((layer, name)) = name.split_once('.') {
        let names = lines.find(|line| line[0].strip_suffix(':') == Some(layer)).unwrap();
        let at = names.iter().position(|one| *one == name).unwrap();
        return lines.next().unwrap()[at].parse().unwrap();
    }
    let line = lines.find(|line| line[0] == name).unwrap();
    line[1].parse().unwrap()
}

#[test]
fn hosts_reach_each_other_through_the_router() {
    if !can_create_taps() {
        return;
    }
    for isolation in every_isolation() {
        let ((_one, client), (_two, server)) = (namespace(), namespace());
        let lab = fabric("router", isolation, [&client, &server], ["10.0.1.10/24", "10.0.2.20/24"]);
        within(&client, "ip route add default via 10.0.1.1");
        within(&server, "ip route add default via 10.0.2.1");
        within(&client, "ping -c 1 -W 20 10.0.1.1");
        let passed = says(&client, "ping -c 1 -W 20 10.0.2.20");
        assert!(passed.contains("ttl=63"), "{passed}");
        fetches(&lab, [&client, &server], "10.0.2.20", "http://10.0.2.20", PAGE);

        // Traceroute; errors of the router and of the host behind it.
        let path = says(&client, "busybox traceroute -n -q 1 -w 20 10.0.2.20");
        let hops: Vec<&str> =
            path.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
        assert_eq!(hops, ["10.0.1.1", "10.0.2.20"], "{path}");
        let nowhere = says(&client, "ping -c 1 -W 20 192.0.2.9");
        assert!(nowhere.contains("From 10.0.1.1 icmp_seq=1 Destination Net Unreachable"), "{nowhere}");

        // A better next hop for a packet that leaves where it came from. The kernel follows a neighbor that it knows.
        assert_eq!(counter(&client, "Icmp.InRedirects"), 0, "{isolation}: no redirect before");
        within(&client, "ip neigh add 10.0.1.99 lladdr 02:00:00:00:00:99 dev client");
        lab.ok(&["function", "write", "router", "routes.add", "10.0.3.0/24 10.0.1.99 1"]);
        until("the client follows the redirect", || {
            says(&client, "ping -c 1 -W 0.1 10.0.3.1; ip route get 10.0.3.1").contains("via 10.0.1.99")
        });
        assert_ne!(counter(&client, "Icmp.InRedirects"), 0);

        // A packet longer than the next link is fragmented, or refused if it must not be.
        within(&client, "ip link set client mtu 4000");
        let before = counter(&client, "Ip.FragCreates");
        within(&client, "ping -c 1 -W 20 -s 3000 -M dont 10.0.2.20");
        assert_eq!(counter(&client, "Ip.FragCreates"), before, "the client sent one packet");
        assert_eq!(counter(&server, "Ip.ReasmOKs"), 1, "the router's fragments");
        let refused = says(&client, "ping -c 1 -W 20 -s 3000 -M do 10.0.2.20");
        assert!(refused.contains("From 10.0.1.1") && refused.contains("mtu = 1500"), "{refused}");
        fetches(&lab, [&server, &client], "10.0.1.10", "http://10.0.1.10", PAGE);
    }
}

#[test]
fn hosts_reach_each_other_through_the_router_for_ipv6() {
    if !can_create_taps() {
        return;
    }
    for isolation in every_isolation() {
        let ((_one, client), (_two, server)) = (namespace6(), namespace6());
        let lab = fabric("router6", isolation, [&client, &server], ["10.0.1.10/24", "10.0.2.20/24"]);
        within(&client, "ip addr add 2001:db8:1::a/64 dev client nodad");
        within(&server, "ip addr add 2001:db8:2::14/64 dev server nodad");
        within(&client, "ip -6 route add default via 2001:db8:1::1");
        within(&server, "ip -6 route add default via 2001:db8:2::1");
        let passed = says(&client, "ping -6 -c 1 -W 20 2001:db8:2::14");
        assert!(passed.contains("ttl=63"), "{passed}");
        fetches(&lab, [&client, &server], "2001:db8:2::14", "http://[2001:db8:2::14]", PAGE);

        let path = says(&client, "busybox traceroute6 -n -q 1 -w 20 2001:db8:2::14");
        let hops: Vec<&str> =
            path.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
        assert_eq!(hops, ["2001:db8:2::1", "2001:db8:2::14"], "{path}");
        let nowhere = says(&client, "ping -6 -c 1 -W 20 2001:db8:9::1");
        assert!(
            nowhere.contains("From 2001:db8:1::1 icmp_seq=1 Destination unreachable: No route"),
            "{nowhere}"
        );

        // Routers do not fragment IPv6; the sender learns the path's MTU.
        within(&client, "ip link set client mtu 4000");
        let refused = says(&client, "ping -6 -c 1 -W 20 -s 3000 -M do 2001:db8:2::14");
        assert!(refused.contains("Packet too big: mtu=1500") || refused.contains("mtu: 1500"), "{refused}");
        let fragmented = says(&client, "ping -6 -c 1 -W 20 -s 3000 2001:db8:2::14");
        assert!(fragmented.contains(" 0% packet loss"), "{fragmented}");
        assert!(counter(&client, "Ip6FragCreates") >= 2);
        fetches(&lab, [&server, &client], "2001:db8:1::a", "http://[2001:db8:1::a]", PAGE);
    }
}
