// Two pairs of senders, each sharing 100 packets a second: one by tickets, the other with equal bytes by deficits.

InfiniteSource(LENGTH 200) -> a :: Queue(100) -> a_out :: Counter -> [0] stride :: StrideSched(3, 1);
InfiniteSource(LENGTH 200) -> b :: Queue(100) -> b_out :: Counter -> [1] stride;
stride -> RatedUnqueue(100) -> Discard;

InfiniteSource(LENGTH 1000) -> c :: Queue(100) -> c_out :: Counter -> [0] deficit :: DRRSched(1000);
InfiniteSource(LENGTH 250) -> d :: Queue(100) -> d_out :: Counter -> [1] deficit;
deficit -> RatedUnqueue(100) -> Discard;

DriverManager(wait 10s,
    print "three to one: $(le $(abs $(sub $(a_out.count) $(mul 3 $(b_out.count)))) 10)",
    print "bytes alike: $(le $(abs $(sub $(c_out.byte_count) $(d_out.byte_count))) 4000)", stop);

// prints: three to one: true
// prints: bytes alike: true
