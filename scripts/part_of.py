"""Instructions that were executed within a function, inlined or not, by callgrind's file.

`part_of.py OUTPUT SOURCE FUNCTION...`: OUTPUT is what `valgrind --tool=callgrind` wrote, of a program
with its lines (`debug = "line-tables-only"`); the functions are found in the file SOURCE. Prints the
number of the instructions of their lines.
"""

import re
import sys
from pathlib import Path


def lines_of(source, function):
    """The numbers of a function's lines, from its first one to the brace that ends it."""
    text = Path(source).read_text().splitlines()
    begin = re.compile(rf"^(\s*)(pub(\([^)]*\))? )?fn {re.escape(function)}\b")
    for number, line in enumerate(text, 1):
        found = begin.match(line)
        if found:
            end = next(at for at in range(number, len(text)) if text[at] == found[1] + "}")
            return range(number, end + 2)
    sys.exit(f"there is no function {function} in {source}")


def costs(output):
    """The file, the line and the cost of each row of callgrind's file."""
    names, file, line, is_call = {}, "", 0, False
    for row in Path(output).read_text().splitlines():
        named = re.match(r"f[lie]=\((\d+)\)(?: (.*))?$", row)
        if named:
            if named[2]:
                names[named[1]] = named[2]
            file = names.get(named[1], "")
        elif re.match(r"cf[li]=\((\d+)\) ", row):
            # A file that is named where it is called first.
            called = re.match(r"cf[li]=\((\d+)\) (.*)$", row)
            names[called[1]] = called[2]
        elif row.startswith("calls="):
            is_call = True
        elif re.match(r"[+*\-\d]", row):
            at, *cost = row.split()
            if at[0] in "+-":
                line += int(at)
            elif at != "*":
                line = int(at)
            # The row behind a call is that of all that was called.
            if cost and not is_call:
                yield file, line, int(cost[0])
            is_call = False


def main():
    output, source, *functions = sys.argv[1:]
    lines = {line for function in functions for line in lines_of(source, function)}
    found = (cost for file, line, cost in costs(output) if file.endswith(source) and line in lines)
    print(sum(found))


main()
