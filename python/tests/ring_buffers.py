"""Buffers of a ring: `ring_buffers.py PORT`, whose slots have 256 bytes.

Another program sends a hundred frames back, with its own header. A test of the C library runs this,
since it needs that library and a fabric.
"""

from __future__ import annotations

import select
import sys
import unittest

from ringway.rings import RX, TX, Ring

PORT = sys.argv[1]
HEADER = bytes([3, 0, 0, 0, 0, 8, 2, 0, 0, 0, 0, 7, 0x88, 0xB5])
BACK = bytes([3, 0, 0, 0, 0, 7, 2, 0, 0, 0, 0, 8, 0x88, 0xB5])


def frame(number: int) -> bytes:
    """As the other program expects it."""
    size = 60 + number * 97 % 1455
    body = bytes((number + at) & 0xFF for at in range(18, size))
    return HEADER + number.to_bytes(4, "little") + body


class Buffers(unittest.TestCase):
    def test_frames_come_back(self) -> None:
        with Ring(PORT) as ring:
            for number in range(100):
                sent = frame(number)
                slot = ring.slot() if number % 2 and len(sent) <= 256 else None
                if slot is None:
                    while not ring.send(memoryview(sent)):
                        ring.wait(TX)
                else:
                    self.assertEqual((len(slot), slot.readonly), (256, False))
                    slot[: len(sent)] = sent
                    self.assertTrue(ring.commit(len(sent)))
                self.assertEqual(self.returned(ring), BACK + sent[14:])
            self.assertEqual(list(ring.frames()), [])
            self.assertEqual(ring.wait(RX, 0.01), 0)
            ring.flush()
            self.assertRaises(OSError, ring.send, bytes(ring.longest + 1))
            self.assertRaises(OSError, ring.commit, 257)
        self.assertRaises(ValueError, ring.receive)
        self.assertRaises(OSError, Ring, "/nowhere/a.sock")

    def returned(self, ring: Ring) -> bytes:
        """The next frame of the other program; by a poll of our own, or by that of the library."""
        poll = select.poll()
        poll.register(ring, select.POLLIN)
        while True:
            while ring.arm(RX):
                poll.poll()
            for view in ring.frames():
                if view[:6] != BACK[:6]:
                    continue
                self.assertTrue(view.readonly)
                part, whole = view[14:18], bytes(view)
                ring.sync()
                if len(whole) <= 256:
                    # Its slot is the other side's; what is left of it is still memory.
                    self.assertRaises(ValueError, bytes, view)
                self.assertEqual(len(part), 4)
                return whole


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
