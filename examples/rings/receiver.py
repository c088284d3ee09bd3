"""Receives frames, and prints the number and the length of each: receiver.py PORT COUNT"""

import sys
from itertools import islice

from ringway.rings import RX, Ring

with Ring(sys.argv[1]) as ring:
    left = int(sys.argv[2])
    while left > 0:
        ring.wait(RX)
        for frame in islice(ring.frames(), left):
            print(f"{int.from_bytes(frame[14:18], 'little')}: {len(frame)} bytes")
            left -= 1
