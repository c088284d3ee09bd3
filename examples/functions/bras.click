// Broadband access server, data path: PPPoE sessions of subscribers on `inside`, IPv4 on `outside`.
AddressInfo(wan 192.0.2.1/24 02:00:00:00:02:01);

// Input 0 gets frames, input 1 packets to send. Output 0 emits frames, output 1 packets.
elementclass Side { $own |
    input -> HostEtherFilter($own) -> kind :: Classifier(12/0806 20/0001, 12/0806 20/0002, 12/0800, -);
    kind[0] -> ARPResponder($own) -> output;
    kind[1] -> [1] query :: ARPQuerier($own) -> output;
    kind[2] -> Strip(14) -> CheckIPHeader -> [1] output;
    kind[3] -> Discard;
    input[1] -> query;
}

// A session: Ethernet address, number, IP address, and optionally a rate in each direction.
bras :: PPPoEConcentrator(02:00:00:00:01:01,
    02:00:00:00:00:0a 1 198.51.100.10 8Mbps,
    02:00:00:00:00:0b 2 198.51.100.11);
gateway :: StaticIPLookup(wan:ipnet 0, 0.0.0.0/0 192.0.2.254 0);

FromPort(inside) -> [0] bras;
FromPort(outside) -> two :: Side(wan) -> ToPort(outside);

bras[0] -> CheckIPHeader -> up :: DecIPTTL -> sent :: Counter -> gateway -> [1] two;
up[1] -> ICMPError(wan:ip, timeexceeded) -> down :: IPFragmenter(1492);
two[1] -> own :: IPClassifier(dst host wan:ip and icmp type echo, dst host wan:ip, -);
own[0] -> ICMPPingResponder -> gateway;
own[1] -> Discard;
own[2] -> DecIPTTL -> down -> [1] bras;
bras[1] -> received :: Counter -> ToPort(inside);
// Discovery and PPP's control protocols, and packets without a session.
bras[2] -> other :: Counter -> Discard;
