// Traffic shaper: each direction has a rate; voice (DSCP 46) goes first, and CoDel keeps the queue of the rest short.
define($UP 1Mbps, $DOWN 8Mbps);

elementclass Shaper { $rate |
    input -> kind :: Classifier(12/0800 15/b8%fc, -);
    kind[0] -> voice :: Queue(100) -> [0] first :: PrioSched;
    kind[1] -> SetTimestamp(FIRST true) -> rest :: Queue(1000) -> codel :: CoDel -> [1] first;
    first -> BandwidthRatedUnqueue($rate) -> passed :: Counter -> output;
}

FromPort(inside) -> up :: Shaper($UP) -> ToPort(outside);
FromPort(outside) -> down :: Shaper($DOWN) -> ToPort(inside);
