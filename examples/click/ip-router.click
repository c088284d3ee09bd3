// A router between two networks, as in Click's paper, with sources and sinks instead of devices. Packets go to a host
// on the other network, to the router itself, and to an unknown address; some have a TTL that expires here.

AddressInfo(left 10.0.1.1/24 02:00:00:00:01:01, right 10.0.2.1/24 02:00:00:00:02:01);

elementclass Out { $own, $color |
    input -> DropBroadcasts -> tee :: PaintTee($color) -> options :: IPGWOptions($own) -> FixIPSrc($own)
        -> ttl :: DecIPTTL -> fragment :: IPFragmenter(1500) -> output;
    tee[1] -> ICMPError($own, redirect, host) -> [1] output;
    options[1] -> ICMPError($own, parameterproblem) -> [1] output;
    ttl[1] -> ICMPError($own, timeexceeded) -> [1] output;
    fragment[1] -> ICMPError($own, unreachable, needfrag) -> [1] output;
}

routes :: RadixIPLookup(left:ip/32 0, right:ip/32 0, left:ipnet 1, right:ipnet 2, 0.0.0.0/0 3);
routes[0] -> mine :: Counter -> Discard;
routes[1] -> one :: Out(left:ip, 1) -> to_left :: Counter -> Discard;
routes[2] -> two :: Out(right:ip, 2) -> to_right :: Counter -> Discard;
routes[3] -> nowhere :: Counter -> ICMPError(left:ip, unreachable, host) -> routes;
one[1] -> routes;
two[1] -> routes;

elementclass From { $to, $ttl |
    InfiniteSource(LENGTH 64, LIMIT 10) -> IPEncap(17, 10.0.1.2, $to, TTL $ttl) -> Paint(1) -> MarkIPHeader(0) -> output;
}
From(10.0.2.9, 64) -> check :: CheckIPHeader -> routes;
From(10.0.1.1, 64) -> check;
From(10.0.2.9, 1) -> check;
From(192.0.2.1, 64) -> check;

DriverManager(wait 1s, print "for the router $(mine.count)", print "to the right $(to_right.count)",
    print "errors to the left $(to_left.count)", print "without a route $(nowhere.count)", stop);

// prints: for the router 10
// prints: to the right 10
// prints: errors to the left 20
// prints: without a route 10
