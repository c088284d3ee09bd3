// Intrusion prevention: TCP, UDP and other payload from `outside` that contains a pattern is reported and dropped.
FromPort(outside) -> kind :: Classifier(12/0800, -) -> MarkIPHeader(14)
    -> patterns :: IDSMatcher("/etc/passwd", "cmd.exe", "union select", \<9090909090909090>, NOCASE true, FLOWS 65536)
    -> clean :: Counter -> in :: ToPort(inside);
patterns[1] -> IPPrint(alert, TIMESTAMP false) -> alerts :: Counter -> Discard;
kind[1] -> in;
FromPort(inside) -> ToPort(outside);
