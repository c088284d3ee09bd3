// Who is inside may open HTTP connections, ask DNS and ping; answers come back, and so do ARP's.
inside :: FromPort(inside) -> kind :: Classifier(12/0806, 12/0800, -);
outside :: FromPort(outside) -> back :: Counter -> ToPort(inside);
out :: ToPort(outside);

kind[0] -> out;
kind[1] -> Strip(14) -> CheckIPHeader
  -> rules :: IPFilter(allow tcp && dst port 80, allow udp && dst port 53, allow icmp, 1 all)
  -> allowed :: Counter -> Unstrip(14) -> out;
rules[1] -> denied :: Counter -> Discard;
kind[2] -> Discard;
