"""Parsers: properties' expressions, printed results, the search language."""

import random
import unittest

from ringway.placement import properties
from ringway.plugin_host import printed
from ringway.plugin_host.failure import place
from ringway.plugin_host.ovirtsdk.search import RequestError, compile_query, ids_of


class PropertiesTest(unittest.TestCase):
    def test_expressions(self):
        def parsed(text):
            return {name: expression.pattern for name, expression in properties.parse(text).items()}

        self.assertEqual(parsed(""), {})
        self.assertEqual(parsed("a=[0-9]*;b=True|False"), {"a": "[0-9]*", "b": "True|False"})
        self.assertEqual(parsed("a=x;y;b=z"), {"a": "x;y", "b": "z"})
        self.assertEqual(parsed("a=b=c;"), {"a": "b=c"})
        self.assertEqual(parsed("{ cpu = [0-9]  }"), {"cpu": "[0-9]"})
        for wrong in ("a", "a-b=c", "a=[", "=x"):
            with self.subTest(wrong), self.assertRaises(properties.WrongProperty):
                properties.parse(wrong)

    def test_values(self):
        allowed = properties.parse("n=[0-9]+")
        properties.check({"n": "12", "other": "x"}, allowed)
        with self.assertRaisesRegex(properties.WrongProperty, "n: '1x' is not"):
            properties.check({"n": "1x"}, allowed)


class PrintedTest(unittest.TestCase):
    def test_results(self):
        self.assertEqual(printed.filter_result("['a', 'b']\n"), (["a", "b"], ""))
        self.assertEqual(printed.filter_result("[]"), ([], ""))
        self.assertEqual(printed.filter_result("{'a'}"), None)
        self.assertEqual(printed.score_result("[('a', 3), ('b', 1.5)]"), ([("a", 3), ("b", 1.5)], ""))
        self.assertEqual(printed.score_result("[['a', -3]]"), ([("a", -3)], ""))
        self.assertEqual(printed.balance_result("('v', ['h1'])"), (("v", ["h1"]), ""))
        self.assertEqual(printed.balance_result("v0 ['h1']\n"), (("v0", ["h1"]), ""))
        self.assertEqual(printed.balance_result("('', [])"), (("", []), ""))
        self.assertEqual(printed.balance_result("(None, [])"), (("", []), ""))
        self.assertEqual(printed.filter_result("""["it's", 'b']"""), (["it's", "b"], ""))

    def test_stray_prints_are_reported(self):
        self.assertEqual(printed.filter_result("hello\n['a']\nbye (now)\n"), (["a"], "hello\nbye (now)"))
        self.assertEqual(printed.filter_result("['a']\n['b']"), (["b"], "['a']"))
        self.assertEqual(printed.filter_result("['a',\n 'b']"), (["a", "b"], ""))

    def test_garbage_is_none(self):
        for text in (
            "",
            "None",
            "[1]",
            "['a'",
            "os.system('x')]",
            "[" * 9999 + "]",
            "[('a', True)]",
            "('a', 'b')]",
        ):
            for read in (printed.filter_result, printed.score_result, printed.balance_result):
                with self.subTest(text[:20]):
                    self.assertIsNone(read(text))

    def test_the_fast_way_reads_what_the_slow_one_does(self):
        import ast

        chance = random.Random(2)
        letters = "ab0-._ '\\\"(),é\n"
        for _ in range(500):
            ids = [
                "".join(chance.choices(letters, k=chance.randrange(6))) for _ in range(chance.randrange(4))
            ]
            pairs = [(id, chance.choice([0, -1, 2.5, 1e20, 10**20])) for id in ids]
            self.assertEqual(printed.filter_result(repr(ids)), (ids, ""))
            self.assertEqual(printed.score_result(repr(pairs)), (ast.literal_eval(repr(pairs)), ""))


class SearchTest(unittest.TestCase):
    FIELDS = {"name": lambda it: it["name"], "load": lambda it: it["load"], "id": lambda it: it["id"]}
    ENTRIES = [{"id": str(index), "name": f"web{index}", "load": index * 10} for index in range(5)]

    def found(self, query):
        test = compile_query(query, self.FIELDS)
        return [entry["id"] for entry in self.ENTRIES if test(entry)]

    def test_queries(self):
        self.assertEqual(self.found("name=WEB1"), ["1"])
        self.assertEqual(self.found("name=web* and load>20"), ["3", "4"])
        self.assertEqual(self.found("id=0 or id=4 and load>=40"), ["0", "4"])
        self.assertEqual(self.found('name != "web2" and load <= 20'), ["0", "1"])
        self.assertEqual(self.found("load<10 sortby name asc"), ["0"])
        for wrong in ("name", "name=a b", "colour=red", "load>much", "name=a xor id=1"):
            with self.subTest(wrong), self.assertRaises(RequestError):
                self.found(wrong)

    def test_lists_of_ids(self):
        self.assertEqual(ids_of("id=a or id=b"), ["a", "b"])
        for other in ("id=a and id=b", "name=a", "id=a*", "", "id="):
            with self.subTest(other):
                self.assertIsNone(ids_of(other))


if __name__ == "__main__":
    unittest.main()


class PlaceTest(unittest.TestCase):
    def test_a_second_alarm_hides_no_place(self):
        unit = compile("def hang():\n    raise TimeoutError\n", "/plugins/units.py", "exec")
        names = {}
        exec(unit, names)
        with self.assertRaises(TimeoutError) as caught:
            try:
                names["hang"]()
            finally:
                raise TimeoutError
        self.assertEqual(place(caught.exception, "/plugins"), "units.py:2")
