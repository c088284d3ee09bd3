"""Sends numbered frames: sender.py PORT COUNT"""

import sys

from ringway.rings import TX, Ring

# To and from local addresses, with the EtherType for local experiments.
HEADER = bytes.fromhex("020000000002 020000000001 88b5")

with Ring(sys.argv[1]) as ring:
    for number in range(int(sys.argv[2])):
        while (slot := ring.slot()) is None:
            ring.wait(TX)
        slot[:60] = HEADER + number.to_bytes(4, "little") + bytes(42)
        ring.commit(60)
    ring.flush()
