// Port knocker: SSH is open only to a source that sent UDP packets to ports 7000, 8000 and 9000 in this order.
define($STEP 10s, $OPEN 1h);

// Rewriters that change nothing remember sources: a packet to input 0 adds its source, input 1 drops those of others.
first :: IPAddrRewriter(keep 0 0, drop, TIMEOUT $STEP, GUARANTEE 0, REAP_INTERVAL 1s);
second :: IPAddrRewriter(keep 0 0, drop, TIMEOUT $STEP, GUARANTEE 0, REAP_INTERVAL 1s);
open :: IPAddrRewriter(keep 0 0, drop, TIMEOUT $OPEN, GUARANTEE 0, REAP_INTERVAL 1s);

FromPort(outside) -> kind :: Classifier(12/0800, -) -> Strip(14) -> CheckIPHeader
    -> what :: IPClassifier(dst udp port 7000, dst udp port 8000, dst udp port 9000, dst tcp port 22, -);
what[0] -> Paint(0) -> [0] first;
what[1] -> Paint(1) -> [1] first;
what[2] -> Paint(2) -> [1] second;
what[3] -> ssh :: Counter -> Paint(3) -> [1] open;
first -> CheckPaint(1) -> [0] second;
second -> CheckPaint(2) -> opened :: Counter -> [0] open;
open -> CheckPaint(3) -> admitted :: Counter -> back :: Unstrip(14) -> in :: ToPort(inside);
what[4] -> back;
kind[1] -> in;
FromPort(inside) -> ToPort(outside);
