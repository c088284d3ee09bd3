// An IPv6 router between two networks, with neighbor discovery and ICMPv6 errors. Packets of one link, from fe80::/10 or to
// it, are not routed.
AddressInfo(left 2001:db8:1::1/64 02:00:00:00:01:01, right 2001:db8:2::1/64 02:00:00:00:02:01);

// Input 0 gets frames, input 1 packets to send. Output 0 emits frames, output 1 packets to route.
elementclass Side { $own |
    input -> HostEtherFilter($own) -> kind :: Classifier(12/86dd 20/3aff 54/87, 12/86dd 20/3aff 54/88, 12/86dd, -);
    kind[0] -> IP6NDAdvertiser($own:ip6 $own:eth) -> output;
    kind[1] -> [1] query :: IP6NDSolicitor($own:ip6, $own:eth) -> output;
    kind[2] -> Strip(14) -> CheckIP6Header(:: ::1) -> scope :: Classifier(8/fe80%ffc0, -);
    scope[0] -> local :: Counter -> Discard;
    scope[1] -> GetIP6Address(24) -> [1] output;
    kind[3] -> Discard;
    input[1] -> limit :: DecIP6HLIM -> length :: CheckLength(1500) -> query;
    limit[1] -> ICMP6Error($own:ip6, 3, 0) -> [1] output;
    length[1] -> ICMP6Error($own:ip6, 2, 0) -> [1] output;
}

routes :: LookupIP6Route(left:ip6/128 0, right:ip6/128 0, left:ip6net 1, right:ip6net 2, ::/0 3, fe80::/10 4,
    ff00::/8 4, ::/128 4, ::1/128 4);
FromPort(inside) -> one :: Side(left) -> ToPort(inside);
FromPort(outside) -> two :: Side(right) -> ToPort(outside);
one[1] -> routes;
two[1] -> routes;
routes[0] -> own :: Counter -> Discard;
routes[1] -> to_left :: Counter -> [1] one;
routes[2] -> to_right :: Counter -> [1] two;
routes[3] -> nowhere :: Counter -> ICMP6Error(left:ip6, 1, 0) -> routes;
routes[4] -> Discard;
