// Intrusion prevention: packets from `outside` are searched by rules in Snort's language; what a `drop` rule matches is
// dropped. The handler `rules.rules` replaces the rules by those of a file.
FromPort(outside) -> kind :: Classifier(12/0800, 12/86dd, -);
kind[0] -> MarkIPHeader(14) -> rules :: IDSRules(
    drop tcp any any -> any any (msg:"password file"; content:"/etc/passwd"; nocase; sid:1000001; rev:1;),
    drop tcp any any -> any 80:90 (msg:"command shell"; content:"cmd.exe"; nocase; sid:1000002; rev:1;),
    drop tcp any any -> any any (msg:"SQL injection"; content:"union select"; nocase; sid:1000003; rev:1;),
    drop ip any any -> any any (msg:"no operations"; content:"|90 90 90 90 90 90 90 90|"; sid:1000004; rev:1;),
    alert udp any any -> any 53 (msg:"long name"; content:"|3f|"; offset:12; depth:1; sid:1000005; rev:1;),
    FLOWS 65536)
    -> clean :: Counter -> in :: ToPort(inside);
rules[1] -> dropped :: Counter -> Discard;
kind[1] -> MarkIP6Header(14) -> rules;
kind[2] -> in;
FromPort(inside) -> ToPort(outside);
