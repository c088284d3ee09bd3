// Load balancer: connections of clients on `outside` to 192.0.2.80 go to servers on `inside`, by consistent hashing.
AddressInfo(lan 10.0.0.1/24 02:00:00:00:01:01, wan 192.0.2.80/24 02:00:00:00:02:01);

// Input 0 gets frames, input 1 packets to send. Output 0 emits frames, output 1 packets.
elementclass Side { $own |
    input -> HostEtherFilter($own) -> kind :: Classifier(12/0806 20/0001, 12/0806 20/0002, 12/0800, -);
    kind[0] -> ARPResponder($own) -> output;
    kind[1] -> [1] query :: ARPQuerier($own) -> output;
    kind[2] -> Strip(14) -> CheckIPHeader -> [1] output;
    kind[3] -> Discard;
    input[1] -> query;
}

define($CHECK true);

// Servers and their weights. Their gateway is 10.0.0.1.
balancer :: IPLoadBalancer(wan:ip, 10.0.0.11, 10.0.0.12 2);
// Asks each server once a second whether it accepts connections on port 80.
health :: IPHealthCheck(balancer, lan:ip, 80, ACTIVE $CHECK);
gateway :: StaticIPLookup(wan:ipnet 0, 0.0.0.0/0 192.0.2.254 0);

FromPort(inside) -> one :: Side(lan) -> ToPort(inside);
FromPort(outside) -> two :: Side(wan) -> ToPort(outside);

two[1] -> [0] balancer;
balancer[0] -> DecIPTTL -> [1] one;
one[1] -> own :: IPClassifier(dst host lan:ip, -);
own[0] -> health -> [1] one;
health[1] -> IPClassifier(icmp type echo) -> ICMPPingResponder -> [1] one;
own[1] -> [1] balancer;
balancer[1] -> DecIPTTL -> gateway -> [1] two;
balancer[2] -> ping :: IPClassifier(dst host wan:ip and icmp type echo, -);
ping[0] -> ICMPPingResponder -> gateway;
ping[1] -> other :: Counter -> Discard;
