// Hosts inside share the address 192.0.2.1 (NAPT, RFC 3022). Packets to other networks go to the gateway 192.0.2.254.
// An instance of a function that multiplies has a share of the ports, INSTANCE_PORTS.
AddressInfo(lan 10.0.0.1/24 02:00:00:00:01:01, wan 192.0.2.1/24 02:00:00:00:02:01);
define($INSTANCE_PORTS 1024-65535);

// Input 0 gets frames, input 1 packets to send. Output 0 emits frames, output 1 packets.
elementclass Side { $own |
    input -> HostEtherFilter($own) -> kind :: Classifier(12/0806 20/0001, 12/0806 20/0002, 12/0800, -);
    kind[0] -> ARPResponder($own) -> output;
    kind[1] -> [1] query :: ARPQuerier($own) -> output;
    kind[2] -> Strip(14) -> CheckIPHeader -> [1] output;
    kind[3] -> Discard;
    input[1] -> query;
}

flows :: IPRewriter(pattern wan:ip $INSTANCE_PORTS# - - 0 1, drop);
pings :: ICMPPingRewriter(pattern wan:ip - $INSTANCE_PORTS# 0 1, drop);
errors :: ICMPRewriter(flows pings);
gateway :: StaticIPLookup(wan:ipnet 0, 0.0.0.0/0 192.0.2.254 0);

FromPort(inside) -> one :: Side(lan) -> ToPort(inside);
FromPort(outside) -> two :: Side(wan) -> ToPort(outside);

one[1] -> ttl :: DecIPTTL -> to :: IPClassifier(dst host lan:ip, tcp or udp, icmp type echo, -);
ttl[1] -> ICMPError(lan:ip, timeexceeded) -> [1] one;
to[0] -> ICMPPingResponder -> [1] one;
to[1] -> [0] flows;
to[2] -> [0] pings;
to[3] -> Discard;
flows[0] -> translated :: Counter -> gateway -> [1] two;
pings[0] -> translated;

two[1] -> from :: IPClassifier(tcp or udp, icmp type echo-reply, icmp type echo, icmp, -);
from[0] -> [1] flows;
from[1] -> [1] pings;
from[2] -> ICMPPingResponder -> gateway;
from[3] -> errors;
from[4] -> Discard;
flows[1] -> returned :: Counter -> [1] one;
pings[1] -> returned;
errors -> returned;
