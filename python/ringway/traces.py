"""Traces of VMs that others published as databases, as the CSV that `ringway place simulate` reads.

`python3 -m ringway.traces packing_trace_zone_a_v1.sqlite > azure.csv`
"""

from __future__ import annotations

import argparse
import csv
import sqlite3
import sys
from pathlib import Path
from typing import TextIO
from urllib.parse import quote

COLUMNS = ("vmId", "core", "memory", "starttime", "endtime")

MOST = 20_000_000
"""Attack: an endless trace. Largest number of VMs."""

# A type has a row for each kind of machine; the first kind's fractions are used, as the trace has no
# machines.
AZURE = """
select vmId, core, memory, starttime, endtime
from vm join (select vmTypeId, core, memory, min(machineId) from vmType group by vmTypeId) using (vmTypeId)
order by starttime, vmId
"""


class WrongTrace(Exception):
    """The file is not such a trace; the text names the file and the error."""


def azure(file: Path, out: TextIO) -> int:
    """Writes Azure's packing trace of 2020 as CSV; returns its number of VMs."""
    if not file.is_file():
        raise WrongTrace(f"{file}: there is no such file")
    # Read-only, so that opening never creates the file.
    address = f"file:{quote(str(file.resolve()))}?mode=ro"
    writer = csv.writer(out, lineterminator="\n")
    count = 0
    try:
        connection = sqlite3.connect(address, uri=True)
        try:
            # Attack: in place of a table, a view that computes forever, or has endless rows.
            connection.execute("pragma trusted_schema = off")
            tables = connection.execute("select name from sqlite_master where type = 'table'").fetchall()
            if not {("vm",), ("vmType",)} <= set(tables):
                raise sqlite3.DatabaseError("no tables vm and vmType")
            rows = connection.execute(AZURE)
            writer.writerow(COLUMNS)
            for row in rows:
                writer.writerow(["" if value is None else value for value in row])
                count += 1
                if count > MOST:
                    raise sqlite3.DatabaseError(f"more than {MOST} VMs")
        finally:
            connection.close()
    # A damaged file may contain invalid text and too large numbers.
    except (sqlite3.Error, ValueError, OverflowError, MemoryError) as error:
        raise WrongTrace(
            f"{file}: {error}; Azure's packing trace has tables vm and vmType in an SQLite file"
        ) from None
    return count


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="ringway.traces", description=__doc__)
    parser.add_argument("file", type=Path, help="Azure's packing trace of 2020, an SQLite file")
    try:
        azure(parser.parse_args(arguments).file, sys.stdout)
    except WrongTrace as wrong:
        print(wrong, file=sys.stderr)
        return 1
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
