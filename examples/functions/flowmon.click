// Flow monitor: frames pass unchanged; flows are counted and reported as IPFIX (RFC 7011) to a collector on `outside`.
define($FROM 192.0.2.1, $COLLECTOR 192.0.2.9, $ETHER 02:00:00:00:00:09);

out :: ToPort(outside);
FromPort(inside) -> Paint(0) -> kind :: Classifier(12/0800, 12/86dd, -);
FromPort(outside) -> Paint(1) -> kind;
kind[0] -> MarkIPHeader(14) -> flows :: FlowMonitor(CAPACITY 65536, IDLE_TIMEOUT 15s, ACTIVE_TIMEOUT 60s);
kind[1] -> MarkIP6Header(14) -> flows;
kind[2] -> direction :: PaintSwitch;
flows -> direction;
direction[0] -> out;
direction[1] -> ToPort(inside);
flows[1] -> UDPIPEncap($FROM, 4739, $COLLECTOR, 4739) -> EtherEncap(0x0800, 02:00:00:00:01:01, $ETHER)
    -> exported :: Counter -> out;
