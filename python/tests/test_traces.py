"""Traces published as databases."""

from __future__ import annotations

import contextlib
import io
import random
import sqlite3
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from ringway.traces import WrongTrace, azure


class Azure(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = Path(folder.name) / "trace zone?a.sqlite"

    def make(self) -> None:
        connection = sqlite3.connect(self.file)
        connection.executescript(
            """
            create table vmType (id integer, vmTypeId integer, machineId integer, core real, memory real);
            create table vm (vmId integer, tenantId integer, vmTypeId integer, priority integer,
                             starttime real, endtime real);
            insert into vmType values (1, 7, 16, 0.5, 0.25), (2, 7, 17, 0.9, 0.9), (3, 8, 16, 0.125, 0.1);
            insert into vm values (1, 1, 7, 0, 2.5, null), (2, 1, 8, 1, -0.5, 3.0), (3, 1, 9, 0, 1.0, 2.0);
            """
        )
        connection.close()

    def test_tables_are_joined(self) -> None:
        self.make()
        out = io.StringIO()
        self.assertEqual(azure(self.file, out), 2)
        self.assertEqual(
            out.getvalue(),
            "vmId,core,memory,starttime,endtime\n2,0.125,0.1,-0.5,3.0\n1,0.5,0.25,2.5,\n",
        )

    def test_a_view_is_no_table(self) -> None:
        endless = "with recursive n(i) as (select 1 union all select i + 1 from n) select i"
        connection = sqlite3.connect(self.file)
        connection.executescript(
            f"""
            create view vm as {endless} as vmId, 1 as vmTypeId, 0.0 as starttime, null as endtime from n;
            create table vmType (id integer, vmTypeId integer, machineId integer, core real, memory real);
            """
        )
        connection.close()
        with self.assertRaisesRegex(WrongTrace, "no tables vm and vmType"):
            azure(self.file, io.StringIO())

    def test_a_damaged_file_is_read_or_refused(self) -> None:
        self.make()
        whole = self.file.read_bytes()
        dice = random.Random(5)
        for _ in range(150):
            damaged = bytearray(whole[: dice.choice((len(whole), dice.randrange(len(whole))))])
            for _ in range(dice.randrange(1, 40)):
                if damaged:
                    damaged[dice.randrange(len(damaged))] = dice.randrange(256)
            self.file.write_bytes(damaged)
            with contextlib.suppress(WrongTrace):
                azure(self.file, io.StringIO())
        values = ("x'00ff'", "'text, with commas'", "1e999", "-9223372036854775808", "cast(x'ff' as text)")
        for value in values:
            self.file.unlink()
            self.make()
            connection = sqlite3.connect(self.file)
            connection.execute(f"update vmType set core = {value}")
            connection.commit()
            connection.close()
            with contextlib.suppress(WrongTrace):
                azure(self.file, io.StringIO())

    def test_invalid_files_are_reported(self) -> None:
        with self.assertRaisesRegex(WrongTrace, "there is no such file"):
            azure(self.file, io.StringIO())
        self.file.write_text("no database at all, for sure")
        with self.assertRaisesRegex(WrongTrace, "tables vm and vmType"):
            azure(self.file, io.StringIO())
        done = subprocess.run(
            [sys.executable, "-m", "ringway.traces", str(self.file)], capture_output=True, text=True
        )
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("SQLite", done.stderr)


if __name__ == "__main__":
    unittest.main()
