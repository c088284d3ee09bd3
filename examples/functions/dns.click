// DNS responder: answers IPv4 address queries for two names; all other names do not exist.
AddressInfo(own 10.0.0.53/24 02:00:00:00:00:53);

// Makes an answer of a query: $end is where its question ends, $record the resource record, then the lengths of the
// IP packet and of the UDP datagram.
elementclass Answer { $end, $record, $ip, $udp |
    input -> Truncate($end) -> StoreData($end, $record, GROW true) -> StoreData(2, $ip) -> StoreData(24, $udp)
        -> StoreData(30, \<8400>, MASK \<86ff>) -> StoreData(34, \<0001 0000 0000>) -> output;
}

FromPort(inside) -> HostEtherFilter(own) -> kind :: Classifier(12/0806 20/0001, 12/0800, -);
kind[0] -> ARPResponder(own) -> out :: ToPort(inside);
kind[1] -> Strip(14) -> CheckIPHeader
    -> query :: IPClassifier(dst host own and dst udp port 53 and ip hl 5 and ip unfrag, -);
kind[2] -> Discard;
query[1] -> Discard;

// One question; the mask ignores the case of letters: www.example.com and example.com of type A, then of any other type.
query[0] -> CheckUDPHeader -> name :: Classifier(
    30/00%f8 32/0001 40/03575757074558414d504c4503434f4d0000010001%ffdfdfdfffdfdfdfdfdfdfdfffdfdfdfffffffffff,
    30/00%f8 32/0001 40/074558414d504c4503434f4d0000010001%ffdfdfdfdfdfdfdfffdfdfdfffffffffff,
    30/00%f8 32/0001 40/03575757074558414d504c4503434f4d00%ffdfdfdfffdfdfdfdfdfdfdfffdfdfdfff,
    30/00%f8 32/0001 40/074558414d504c4503434f4d00%ffdfdfdfdfdfdfdfffdfdfdfff,
    30/00%f8, -);
name[0] -> Answer(61, \<c00c 0001 0001 0000012c 0004 c0000250>, \<004d>, \<0039>) -> found :: Counter -> reply :: Null;
name[1] -> Answer(57, \<c00c 0001 0001 0000012c 0004 c0000250>, \<0049>, \<0035>) -> found;
name[2] -> empty :: StoreData(30, \<8400>, MASK \<86ff>) -> others :: Counter -> reply;
name[3] -> empty;
name[4] -> StoreData(30, \<8403>, MASK \<86ff>) -> unknown :: Counter -> reply;
name[5] -> Discard;
reply -> StoreData(8, \<40>) -> IPMirror -> SetIPChecksum -> SetUDPChecksum -> Unstrip(14) -> EtherMirror -> out;
