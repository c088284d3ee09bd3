// Broadband access server: PPPoE sessions of subscribers on `inside`, IPv4 on `outside`. Users are named below, read from
// a file by the handler `server.users`, or known to a RADIUS server on `outside`.
AddressInfo(wan 192.0.2.1/24 02:00:00:00:02:01);
define($POOL 198.51.100.0/24, $GATEWAY 198.51.100.1, $DNS 192.0.2.53, $AUTH "chap pap", $ECHO 30s, $RECHALLENGE 0,
    $RADIUS 0.0.0.0, $SECRET "", $LAX false, $INTERIM 0, $RATE 0);

// Input 0 gets frames, input 1 packets to send. Output 0 emits frames, output 1 packets.
elementclass Side { $own |
    input -> HostEtherFilter($own) -> kind :: Classifier(12/0806 20/0001, 12/0806 20/0002, 12/0800, -);
    kind[0] -> ARPResponder($own) -> output;
    kind[1] -> [1] query :: ARPQuerier($own) -> output;
    kind[2] -> Strip(14) -> CheckIPHeader -> [1] output;
    kind[3] -> Discard;
    input[1] -> query;
}

bras :: PPPoEConcentrator(02:00:00:00:01:01);
server :: PPPoEServer(bras, $GATEWAY, $POOL, USER alice:wonderland, USER bob:builder, DNS $DNS, AUTH $AUTH,
    RATE $RATE, ECHO $ECHO, RECHALLENGE $RECHALLENGE, RADIUS $RADIUS, SRC wan:ip, SECRET $SECRET, LAX $LAX,
    INTERIM $INTERIM);
gateway :: StaticIPLookup(wan:ipnet 0, 0.0.0.0/0 192.0.2.254 0);

FromPort(inside) -> [0] bras;
FromPort(outside) -> two :: Side(wan) -> ToPort(outside);

bras[0] -> CheckIPHeader -> to :: IPClassifier(dst host $GATEWAY and icmp type echo, dst host $GATEWAY, -);
to[0] -> ICMPPingResponder -> down :: IPFragmenter(1492);
to[1] -> Discard;
to[2] -> up :: DecIPTTL -> sent :: Counter -> gateway -> [1] two;
up[1] -> ICMPError(wan:ip, timeexceeded) -> down;
two[1] -> own :: IPClassifier(dst host wan:ip and icmp type echo, dst host wan:ip and udp, dst host wan:ip, -);
own[0] -> ICMPPingResponder -> gateway;
own[1] -> [1] server;
own[2] -> Discard;
own[3] -> DecIPTTL -> down -> [1] bras;
bras[1] -> received :: Counter -> subscribers :: ToPort(inside);

// Discovery, PPP's control protocols and RADIUS.
bras[2] -> [0] server;
server[0] -> subscribers;
server[1] -> gateway;
server[2] -> other :: Counter -> Discard;
