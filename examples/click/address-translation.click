// Network address translation: inside hosts share one outside address, and replies are translated back.

nat :: IPRewriter(pattern 192.0.2.1 1024-65535 - - 0 1, drop);
InfiniteSource(LENGTH 20, LIMIT 8) -> UDPIPEncap(10.0.0.2, 5000, 198.51.100.7, 53) -> [0] nat;
InfiniteSource(LENGTH 20, LIMIT 8) -> UDPIPEncap(10.0.0.3, 5000, 198.51.100.7, 53) -> [0] nat;

nat[0] -> out :: IPClassifier(src host 192.0.2.1, -);
out[0] -> translated :: Counter -> IPMirror -> [1] nat;
out[1] -> leaked :: Counter -> Discard;
nat[1] -> home :: IPClassifier(dst host 10.0.0.2, dst host 10.0.0.3, -);
home[0] -> first :: Counter -> Discard;
home[1] -> second :: Counter -> Discard;
home[2] -> lost :: Counter -> Discard;

DriverManager(wait 1s, print "translated $(translated.count), leaked $(leaked.count)",
    print "back $(first.count) and $(second.count), lost $(lost.count)", stop);

// prints: translated 16, leaked 0
// prints: back 8 and 8, lost 0
