// Carrier-grade NAT: subscribers of 100.64.0.0/24 share 192.0.2.1. Each has a block of ports that is known beforehand
// (deterministic NAT, RFC 7422), so an address and a port name the subscriber without a log.
AddressInfo(lan 100.64.0.1/24 02:00:00:00:01:01, wan 192.0.2.1/24 02:00:00:00:02:01);
define($A 100.64.0.10, $A_PORTS 1024-3071, $B 100.64.0.11, $B_PORTS 3072-5119);

// Input 0 gets frames, input 1 packets to send. Output 0 emits frames, output 1 packets.
elementclass Side { $own |
    input -> HostEtherFilter($own) -> kind :: Classifier(12/0806 20/0001, 12/0806 20/0002, 12/0800, -);
    kind[0] -> ARPResponder($own) -> output;
    kind[1] -> [1] query :: ARPQuerier($own) -> output;
    kind[2] -> Strip(14) -> CheckIPHeader -> [1] output;
    kind[3] -> Discard;
    input[1] -> query;
}

// Output 0 emits TCP and UDP, output 1 echo requests. FTP's clients announce ports of the subscriber's block.
elementclass Subscriber { $number |
    input -> kind :: IPClassifier(dst tcp port 21, tcp or udp, icmp type echo, -);
    kind[0] -> FTPPortMapper(flows, flows, $number) -> output;
    kind[1] -> output;
    kind[2] -> [1] output;
    kind[3] -> Discard;
}

flows :: IPRewriter(pattern wan:ip $A_PORTS# - - 0 1, pattern wan:ip $B_PORTS# - - 0 1, drop);
pings :: ICMPPingRewriter(pattern wan:ip - $A_PORTS# 0 1, pattern wan:ip - $B_PORTS# 0 1, drop);
errors :: ICMPRewriter(flows pings);
gateway :: StaticIPLookup(wan:ipnet 0, 0.0.0.0/0 192.0.2.254 0);

FromPort(inside) -> one :: Side(lan) -> ToPort(inside);
FromPort(outside) -> two :: Side(wan) -> ToPort(outside);

one[1] -> ttl :: DecIPTTL -> subscribers :: IPClassifier(src host $A, src host $B, -);
ttl[1] -> ICMPError(lan:ip, timeexceeded) -> [1] one;
subscribers[0] -> a :: Subscriber(0) -> [0] flows;
a[1] -> [0] pings;
subscribers[1] -> b :: Subscriber(1) -> [1] flows;
b[1] -> [1] pings;
subscribers[2] -> unknown :: Counter -> Discard;
flows[0] -> translated :: Counter -> gateway -> [1] two;
pings[0] -> translated;

two[1] -> from :: IPClassifier(tcp or udp, icmp type echo-reply, icmp type echo, icmp, -);
from[0] -> [2] flows;
from[1] -> [2] pings;
from[2] -> ICMPPingResponder -> gateway;
from[3] -> errors;
from[4] -> Discard;
flows[1] -> returned :: Counter -> [1] one;
pings[1] -> returned;
errors -> returned;
