// A script changes a source's rate: half a second on, half a second off.

s :: RatedSource(RATE 1000) -> c :: Counter -> Discard;
Script(TYPE ACTIVE, init x 0, wait 0.5s, set x $(sub 1000 $x), write s.rate $x, loop);
DriverManager(wait 10.25s, print "about half: $(and $(gt $(c.count) 4000) $(lt $(c.count) 6500))", stop);

// prints: about half: true
