"""Sockets of the stack: `stack_sockets.py PORT OWN/PREFIX SERVER`.

The server sends back what comes to its port 7. A test of the C library runs this, since it needs
that library and a pipe.
"""

from __future__ import annotations

import select
import socket as std
import sys
import threading
import time
import unittest

from ringway.sockets import Network, Socket

PORT, OWN, SERVER = sys.argv[1:4]
ADDRESS = OWN.split("/")[0]
CONTENT = bytes(at * 7 % 251 for at in range(300_000))


class Sockets(unittest.TestCase):
    network: Network

    @classmethod
    def setUpClass(cls) -> None:
        cls.network = Network(PORT, OWN, cc="bbr")
        cls.addClassCleanup(cls.network.close)

    def pair(self) -> tuple[Socket, Socket]:
        with self.network.create_server(("", 0)) as listener:
            one = self.network.create_connection((ADDRESS, listener.getsockname()[1]))
            other, peer = listener.accept()
        self.assertEqual(peer, one.getsockname())
        self.addCleanup(one.close)
        self.addCleanup(other.close)
        return one, other

    def server(self, timeout: float | None = None) -> Socket:
        """A connection to the other program, which may not listen yet."""
        while True:
            try:
                return self.network.create_connection((SERVER, 7), timeout)
            except ConnectionRefusedError:
                time.sleep(0.01)

    def test_another_program_sends_bytes_back(self) -> None:
        with self.server(timeout=300) as stream:
            self.assertEqual(stream.getpeername(), (SERVER, 7))
            self.assertEqual(stream.getsockopt(std.IPPROTO_TCP, std.TCP_CONGESTION, 16), b"bbr\0")
            sender = threading.Thread(target=stream.sendall, args=(CONTENT,))
            sender.start()
            received = b""
            while len(received) < len(CONTENT):
                part = stream.recv(10_000)
                self.assertTrue(part)
                received += part
            sender.join()
            self.assertEqual(received, CONTENT)
            stream.shutdown(std.SHUT_WR)
            self.assertEqual(stream.recv(1), b"")

    def test_files_of_a_connection(self) -> None:
        with self.server() as stream:
            writer, reader = stream.makefile("w"), stream.makefile("r", encoding="utf-8")
        # The connection stays open until its files are closed.
        writer.write("first line\nsecond line\n")
        writer.flush()
        self.assertEqual([reader.readline(), reader.readline()], ["first line\n", "second line\n"])
        stream.shutdown(std.SHUT_WR)
        self.assertEqual(reader.read(), "")
        writer.close()
        reader.close()
        with self.assertRaises(OSError):
            stream.send(b"x")

    def test_timeouts_and_modes(self) -> None:
        one, other = self.pair()
        other.settimeout(0.01)
        self.assertRaises(TimeoutError, other.recv, 1)
        other.setblocking(False)
        self.assertRaises(BlockingIOError, other.recv, 1)
        self.assertEqual((one.gettimeout(), other.gettimeout()), (None, 0.0))
        other.setblocking(True)
        one.sendall(b"hello")
        self.assertEqual(other.recv(5, std.MSG_WAITALL), b"hello")
        self.assertRaises(ValueError, one.settimeout, -1)
        self.assertRaises(ConnectionRefusedError, self.network.create_connection, (ADDRESS, 9))

    def test_a_poll_loop_with_the_kernels_descriptors(self) -> None:
        one, other = self.pair()
        poll = select.poll()
        descriptor = other.pollfd(select.POLLIN)
        poll.register(descriptor, select.POLLIN)
        self.assertEqual(poll.poll(0), [])
        one.sendall(b"x")
        self.assertEqual(poll.poll(), [(descriptor, select.POLLIN)])
        self.assertEqual(other.recv(10), b"x")
        self.assertEqual((other.pollfd(select.POLLIN), poll.poll(0)), (descriptor, []))

    def test_datagrams(self) -> None:
        made = [self.network.socket(type=std.SOCK_DGRAM) for _ in range(2)]
        with made[0] as one, made[1] as other:
            other.bind((ADDRESS, 0))
            one.bind((ADDRESS, 0))
            for size in (0, 1, 5000):
                self.assertEqual(one.sendto(CONTENT[:size], other.getsockname()), size)
                self.assertEqual(other.recvfrom(9000), (CONTENT[:size], one.getsockname()))

    def test_errors(self) -> None:
        with self.assertRaisesRegex(OSError, "write an address and prefix"):
            Network(PORT, "nonsense")
        one, _ = self.pair()
        self.assertRaises(ValueError, one.makefile, "x")
        self.assertRaises(OverflowError, one.connect, (ADDRESS, 70_000))
        one.close()
        one.close()
        with self.assertRaises(OSError):
            one.recv(1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
