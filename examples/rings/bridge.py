"""Passes frames between two ports until one is closed: bridge.py PORT PORT"""

import select
import sys

from ringway.rings import RX, Ring, RingClosed

with Ring(sys.argv[1]) as one, Ring(sys.argv[2]) as two:
    try:
        while True:
            for source, target in ((one, two), (two, one)):
                for frame in source.frames():
                    target.send(frame)
                target.sync()
            if one.arm(RX) and two.arm(RX):
                select.select([one, two], [], [])
    except RingClosed as error:
        sys.exit(f"bridge: {error}")
