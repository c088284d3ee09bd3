// NAT64 (RFC 6146): hosts with IPv6 addresses on `inside` reach IPv4 hosts on `outside` as 64:ff9b::ADDRESS, from 192.0.2.1.
AddressInfo(six 2001:db8:1::1/64 02:00:00:00:01:01, four 192.0.2.1/24 02:00:00:00:02:01);

// Protocol translators use the prefix ::ffff:0:0/96 for IPv4 addresses. It and 64:ff9b::/96 add nothing to a checksum, so
// the prefix is replaced without changing checksums.
map :: AddressTranslator(0, true, true, false, ::ffff:192.0.2.1 1024 65535);
gateway :: StaticIPLookup(four:ipnet 0, 0.0.0.0/0 192.0.2.254 0);

FromPort(inside) -> HostEtherFilter(six)
    -> in :: Classifier(12/86dd 20/3aff 54/87, 12/86dd 20/3aff 54/88, 12/86dd 38/0064ff9b0000000000000000, -);
in[0] -> IP6NDAdvertiser(six:ip6 six:eth) -> inside :: ToPort(inside);
in[1] -> [1] neighbors :: IP6NDSolicitor(six:ip6, six:eth) -> inside;
in[2] -> Strip(14) -> CheckIP6Header -> out_limit :: DecIP6HLIM -> StoreData(24, \<0000000000000000 0000ffff>)
    -> [0] map [0] -> ProtocolTranslator64 -> GetIPAddress(16) -> sent :: Counter -> gateway;
in[3] -> Discard;
out_limit[1] -> ICMP6Error(six:ip6, 3, 0) -> neighbors;

FromPort(outside) -> HostEtherFilter(four) -> from :: Classifier(12/0806 20/0001, 12/0806 20/0002, 12/0800, -);
from[0] -> ARPResponder(four) -> outside :: ToPort(outside);
from[1] -> [1] query :: ARPQuerier(four) -> outside;
gateway -> query;
from[2] -> Strip(14) -> CheckIPHeader -> IPClassifier(dst host four) -> in_limit :: DecIPTTL -> ProtocolTranslator46
    -> [1] map [1] -> StoreData(8, \<0064ff9b 0000000000000000>) -> GetIP6Address(24) -> received :: Counter -> neighbors;
from[3] -> Discard;
in_limit[1] -> ICMPError(four:ip, timeexceeded) -> gateway;
