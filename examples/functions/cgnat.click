// Carrier-grade NAT: subscribers of 100.64.0.0/26 share 192.0.2.1. Each gets a block of ports with its first flow, and
// returns it after the last one; both are reported. With DETERMINISTIC, blocks are known beforehand (RFC 7422). An
// instance of a function that multiplies has a share of the ports, INSTANCE_PORTS.
AddressInfo(lan 100.64.0.1/24 02:00:00:00:01:01, wan 192.0.2.1/24 02:00:00:00:02:01);
define($SUBSCRIBERS 100.64.0.0/26, $BLOCK 1000, $DETERMINISTIC false, $RANDOM true, $INSTANCE_PORTS 1024-65535);

// Input 0 gets frames, input 1 packets to send. Output 0 emits frames, output 1 packets.
elementclass Side { $own |
    input -> HostEtherFilter($own) -> kind :: Classifier(12/0806 20/0001, 12/0806 20/0002, 12/0800, -);
    kind[0] -> ARPResponder($own) -> output;
    kind[1] -> [1] query :: ARPQuerier($own) -> output;
    kind[2] -> Strip(14) -> CheckIPHeader -> [1] output;
    kind[3] -> Discard;
    input[1] -> query;
}

blocks :: PortBlockMapper($SUBSCRIBERS, wan:ip, 0, 1, PORTS $INSTANCE_PORTS, BLOCK $BLOCK, DETERMINISTIC $DETERMINISTIC,
    RANDOM $RANDOM);
flows :: IPRewriter(blocks, blocks, REAP_INTERVAL 10);
pings :: ICMPPingRewriter(blocks, drop, REAP_INTERVAL 10);
errors :: ICMPRewriter(flows pings);
gateway :: StaticIPLookup(wan:ipnet 0, 0.0.0.0/0 192.0.2.254 0);

FromPort(inside) -> one :: Side(lan) -> ToPort(inside);
FromPort(outside) -> two :: Side(wan) -> ToPort(outside);

// FTP's clients announce ports of the subscriber's block.
one[1] -> ttl :: DecIPTTL -> from_inside :: IPClassifier(not src net $SUBSCRIBERS, dst tcp port 21, tcp or udp,
    icmp type echo, -);
ttl[1] -> ICMPError(lan:ip, timeexceeded) -> [1] one;
from_inside[0] -> unknown :: Counter -> Discard;
from_inside[1] -> FTPPortMapper(flows, flows, 0) -> [0] flows;
from_inside[2] -> [0] flows;
from_inside[3] -> [0] pings;
from_inside[4] -> Discard;
flows[0] -> translated :: Counter -> to_outside :: IPClassifier(dst host wan:ip, -);
pings[0] -> translated;

// Packets to the shared address turn round: they come back as if from outside.
to_outside[0] -> turned :: Counter -> from_outside :: IPClassifier(tcp or udp, icmp type echo-reply, icmp type echo,
    icmp, -);
to_outside[1] -> gateway -> [1] two;
two[1] -> from_outside;
from_outside[0] -> [1] flows;
from_outside[1] -> [1] pings;
from_outside[2] -> ICMPPingResponder -> to_outside;
from_outside[3] -> errors;
from_outside[4] -> Discard;
flows[1] -> returned :: Counter -> [1] one;
pings[1] -> returned;
errors -> returned;
