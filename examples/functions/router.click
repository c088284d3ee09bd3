// A router between two networks: a packet's path of RFC 1812, with ARP, ICMP errors and fragmentation.
AddressInfo(left 10.0.1.1/24 02:00:00:00:01:01, right 10.0.2.1/24 02:00:00:00:02:01);

// Input 0 gets frames, input 1 packets to send. Output 0 emits frames, output 1 packets to route. A packet with this side's
// color that is sent on this side came from it: its sender is told the better next hop, if that is its neighbor.
elementclass Side { $own, $color |
    input -> HostEtherFilter($own) -> kind :: Classifier(12/0806 20/0001, 12/0806 20/0002, 12/0800, -);
    kind[0] -> ARPResponder($own) -> output;
    kind[1] -> [1] query :: ARPQuerier($own);
    kind[2] -> Paint($color) -> Strip(14) -> ip :: CheckIPHeader(INTERFACES left:ip/24 right:ip/24)
        -> martian :: Classifier(12/7f, 12/e0%e0, -);
    martian[0] -> Discard;
    martian[1] -> Discard;
    martian[2] -> [1] output;
    kind[3] -> Discard;
    input[1] -> DropBroadcasts -> same :: PaintTee($color) -> options :: IPGWOptions($own) -> FixIPSrc($own)
        -> ttl :: DecIPTTL -> fragment :: IPFragmenter(1500) -> query -> output;
    same[1] -> IPClassifier(src net $own:ipnet) -> ICMPError($own, redirect, host) -> [1] output;
    options[1] -> ICMPError($own, parameterproblem) -> [1] output;
    ttl[1] -> ICMPError($own, timeexceeded) -> [1] output;
    fragment[1] -> ICMPError($own, unreachable, needfrag, PMTU 1500) -> [1] output;
}

// No packet is sent to broadcast addresses of its networks, or to networks that no host is in.
routes :: RadixIPLookup(left:ip/32 0, right:ip/32 0, left:ipnet 1, right:ipnet 2, 0.0.0.0/0 3,
    left:bcast/32 4, right:bcast/32 4, 0.0.0.0/8 4, 127.0.0.0/8 4, 224.0.0.0/3 4);
FromPort(inside) -> one :: Side(left, 1) -> ToPort(inside);
FromPort(outside) -> two :: Side(right, 2) -> ToPort(outside);
one[1] -> routes;
two[1] -> routes;
routes[0] -> Paint(0) -> ping :: ICMPPingResponder -> routes;
routes[1] -> to_left :: Counter -> [1] one;
routes[2] -> to_right :: Counter -> [1] two;
routes[3] -> nowhere :: Counter -> ICMPError(left:ip, unreachable, net) -> routes;
routes[4] -> Discard;
ping[1] -> Discard;
