"""deploy/prometheus/alerts.yml: promtool accepts it, each alert fires when it should, and each says what to do."""
import pathlib
import re
import sys
import unittest

import yaml

from promtool import ALERTS, PROMTOOL, SOURCE, WHY_NOT, complaints

sys.path.insert(0, str(SOURCE / "tests" / "cluster" / "base"))
import harness  # noqa: E402

CASES = pathlib.Path(__file__).with_name("alerts_test.yml")
SEVERITIES = {"critical", "warning", "info"}


def rules():
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


class Alerts(unittest.TestCase):
    def test_each_says_what_it_is_and_what_to_do(self):
        for rule in rules():
            with self.subTest(rule["alert"]):
                self.assertLessEqual({"expr", "for", "labels", "annotations"}, set(rule))
                self.assertIn(rule["labels"]["severity"], SEVERITIES)
                self.assertLessEqual({"summary", "description"}, set(rule["annotations"]))
                self.assertTrue(re.search(r"\{\{ \$labels\.", rule["annotations"]["summary"]), "the summary names no label")

    def test_each_is_documented_with_its_severity(self):
        page = (SOURCE / "docs" / "operating.md").read_text()
        listed = dict(re.findall(r"^\| `(Muster\w+)` \| (\w+) \|", page, re.MULTILINE))
        self.assertEqual(listed, {rule["alert"]: rule["labels"]["severity"] for rule in rules()})

    def test_each_has_a_case(self):
        cases = CASES.read_text()
        self.assertEqual([rule["alert"] for rule in rules() if f'alertname="{rule["alert"]}"' not in cases], [])

    @unittest.skipIf(PROMTOOL is None, WHY_NOT)
    def test_promtool_accepts_them(self):
        self.assertEqual(complaints("check", "rules", ALERTS), "")
        self.assertEqual(complaints("test", "rules", CASES), "")


if __name__ == "__main__":
    harness.main()
