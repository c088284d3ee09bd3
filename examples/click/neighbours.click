// A host resolves its neighbour's Ethernet address by IPv6 neighbour discovery, and sends packets to it.

ask :: IP6NDSolicitor(3ffe::1, 02:00:00:00:00:01);
InfiniteSource(LENGTH 40, LIMIT 5) -> UDPIP6Encap(3ffe::1, 1000, 3ffe::2, 2000) -> MarkIP6Header
    -> GetIP6Address(24) -> [0] ask;
ask -> wire :: Classifier(12/86dd 20/3a 54/87, -);
wire[0] -> asked :: Counter -> IP6NDAdvertiser(3ffe::2/128 02:00:00:00:00:02) -> [1] ask;
wire[1] -> there :: HostEtherFilter(02:00:00:00:00:02) -> arrived :: Counter -> Discard;

DriverManager(wait 1s, print "asked: $(gt $(asked.count) 0)", print "arrived: $(gt $(arrived.count) 0)", stop);

// prints: asked: true
// prints: arrived: true
