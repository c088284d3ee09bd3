"""Counts cache lines that move between two cores, in a trace of `valgrind --tool=lackey`.

The traced program runs on one thread and prints `second core: ADDRESS` first: what the function
there executes counts as the second core's, the rest as the first's. Both have caches of any size: a
line moves if a core accesses one that the other has changed since, or changes one that the other
holds (MESI). A file that is mapped twice is the same lines twice. Lines of the stack are left out,
since two threads would have one each. Prints their number.
"""

import sys
from pathlib import Path

LINE = 64
PAGE = 4096
STACK = 1 << 20


def shared(pid):
    """Where a page of a shared mapping is mapped first, by its number."""
    first, at = {}, {}
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        span, permissions, offset, device, inode = line.split()[:5]
        if "s" not in permissions:
            continue
        start, end = (int(address, 16) for address in span.split("-"))
        for page in range(start, end, PAGE):
            place = (device, inode, int(offset, 16) + page - start)
            at[page // PAGE] = first.setdefault(place, page // PAGE)
    return at


def begins(trace):
    """The text of an instruction at the second core's function, and the program's mappings."""
    pid = None
    for line in trace:
        if line.startswith("=="):
            pid = line.split("==")[1]
        # The trace is written in pieces: the program's line may begin within one of valgrind's.
        if "second core: " in line:
            # The program goes on, but waits soon until this trace is read.
            return f"{int(line.split()[-1], 16):08x},", shared(pid)
    sys.exit("lines: the program names no function of the second core")


def moved(trace):
    entry, pages = begins(trace)
    core, back, last_store, count, calls = 0, None, 0, 0, 0
    # Which cores hold a line: one bit each.
    held = {}
    for line in trace:
        kind = line[:2]
        if kind == "I ":
            if core == 0 and line.startswith(entry, 3):
                # The call has stored the address to which the function returns.
                core, back, calls = 1, last_store, calls + 1
            continue
        if kind not in (" L", " S", " M"):
            continue
        address, size = line[3:].split(",")
        address, size = int(address, 16), int(size)
        if kind == " S":
            last_store = address
        elif core == 1 and address == back:
            core = 0
        if back is not None and abs(address - back) < STACK:
            continue
        page = address // PAGE
        address += (pages.get(page, page) - page) * PAGE
        own, other = 1 << core, 2 >> core
        for at in range(address // LINE, (address + size - 1) // LINE + 1):
            holders = held.get(at, own)
            # Without the own bit, the other changed it. A change needs the line alone.
            count += not holders & own or (kind != " L" and holders & other != 0)
            held[at] = own if kind != " L" else holders | own
    if calls == 0:
        sys.exit("lines: the function of the second core is never called")
    return count


if __name__ == "__main__":
    print(moved(sys.stdin))
