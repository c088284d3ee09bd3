"""Instructions that were executed within a function and what it calls, by callgrind's file.

`inclusive_cost.py OUTPUT FUNCTION`: OUTPUT is what `valgrind --tool=callgrind` wrote; FUNCTION is the end of
the name of a function that is not inlined. Prints the number of instructions, inlined ones included.
"""

import re
import sys
from pathlib import Path


def cost(output, function):
    """The instructions of all functions with this end of their name, and of what they call."""
    names, is_within, total = {}, False, 0
    for row in Path(output).read_text().splitlines():
        named = re.match(r"(c?fn)=\((\d+)\)(?: (.*))?$", row)
        if named:
            if named[3]:
                names[named[2]] = named[3]
            if named[1] == "fn":
                is_within = names.get(named[2], "").endswith(function)
        elif is_within and re.match(r"[+*\-\d]", row):
            # Behind `calls=`, the cost of what is called.
            total += int(row.split()[1])
    return total


def main():
    output, function = sys.argv[1:]
    print(cost(output, function))


main()
