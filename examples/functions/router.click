// A router between two networks: a packet's path of RFC 1812, with ARP, ICMP errors and fragmentation.
AddressInfo(left 10.0.1.1/24 02:00:00:00:01:01, right 10.0.2.1/24 02:00:00:00:02:01);

// Input 0 gets frames, input 1 packets to send. Output 0 emits frames, output 1 packets to route.
elementclass Side { $own |
    input -> HostEtherFilter($own) -> kind :: Classifier(12/0806 20/0001, 12/0806 20/0002, 12/0800, -);
    kind[0] -> ARPResponder($own) -> output;
    kind[1] -> [1] query :: ARPQuerier($own);
    kind[2] -> Strip(14) -> CheckIPHeader -> [1] output;
    kind[3] -> Discard;
    input[1] -> DropBroadcasts -> options :: IPGWOptions($own) -> FixIPSrc($own) -> ttl :: DecIPTTL
        -> fragment :: IPFragmenter(1500) -> query -> output;
    options[1] -> ICMPError($own, parameterproblem) -> [1] output;
    ttl[1] -> ICMPError($own, timeexceeded) -> [1] output;
    fragment[1] -> ICMPError($own, unreachable, needfrag, PMTU 1500) -> [1] output;
}

routes :: RadixIPLookup(left:ip/32 0, right:ip/32 0, left:ipnet 1, right:ipnet 2, 0.0.0.0/0 3);
FromPort(inside) -> one :: Side(left) -> ToPort(inside);
FromPort(outside) -> two :: Side(right) -> ToPort(outside);
one[1] -> routes;
two[1] -> routes;
routes[0] -> ping :: ICMPPingResponder -> routes;
routes[1] -> to_left :: Counter -> [1] one;
routes[2] -> to_right :: Counter -> [1] two;
routes[3] -> nowhere :: Counter -> ICMPError(left:ip, unreachable, host) -> routes;
ping[1] -> Discard;
