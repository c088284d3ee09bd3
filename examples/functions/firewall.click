// Hosts inside may open connections that the rules allow; from outside only answers come back. ARP passes.
in :: ToPort(inside);
out :: ToPort(outside);
flows :: IPRewriter(pass 2, keep 0 1, drop);
pings :: ICMPPingRewriter(pass 2, keep 0 1, drop);

// Packets of a known flow pass, others are checked by the rules.
FromPort(inside) -> requests :: Classifier(12/0806, 12/0800, -);
requests[0] -> out;
requests[1] -> Strip(14) -> CheckIPHeader -> asked :: IPClassifier(icmp, tcp or udp, -);
asked[0] -> [0] pings;
asked[1] -> [0] flows;
asked[2] -> rules :: IPFilter(allow tcp && dst port 80 or 443, allow udp && dst port 53, allow icmp type echo, 1 all)
    -> allowed :: IPClassifier(icmp, -);
pings[2] -> rules;
flows[2] -> rules;
allowed[0] -> [1] pings;
allowed[1] -> [1] flows;
flows[0] -> Unstrip(14) -> passed :: Counter -> out;
pings[0] -> Unstrip(14) -> passed;
rules[1] -> denied :: Counter -> Discard;
requests[2] -> Discard;

FromPort(outside) -> answers :: Classifier(12/0806, 12/0800, -);
answers[0] -> in;
answers[1] -> Strip(14) -> CheckIPHeader -> known :: IPClassifier(icmp, tcp or udp, -);
known[0] -> [2] pings;
known[1] -> [2] flows;
flows[1] -> Unstrip(14) -> answered :: Counter -> in;
pings[1] -> Unstrip(14) -> answered;
known[2] -> Discard;
answers[2] -> Discard;
