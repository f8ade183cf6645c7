"""`muster report` on real runs: its numbers equal those of TensorBoard, it shows losses and damage, and the page works in a browser."""
import base64
import html.parser
import json
import math
import re
import shutil
import subprocess

import browser
from harness import BIN, ClusterTest, events, main, result

LINEAR = {"program": "linear", "global_batch_size": 5, "max_steps": 60}
FASHION = {"program": "fashion_mnist", "program_args": {"train_examples": 512, "validation": 128, "hidden": 8}, "global_batch_size": 64, "epochs": 2}
SPLITS = "train", "validation", "test", "eval"


class Page(html.parser.HTMLParser):
    """Tables by the id of their section, as rows of texts; the data of the curves; what would be loaded from elsewhere."""
    def __init__(self, text):
        super().__init__()
        self.tables, self.outside, self.pictures, self.data = {}, [], [], ""
        self.section = self.cell = self.script = None
        self.feed(text)
        self.data = json.loads(self.data)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag == "section":
            self.section = attributes["id"]
        elif tag == "tr":
            self.tables.setdefault(self.section, []).append([])
        elif tag in ("td", "th"):
            self.cell = ""
        elif tag == "script":
            self.script = attributes.get("id", "code")
        elif tag == "img":
            self.pictures.append(attributes)
        self.outside += [value for name, value in attributes.items() if name in ("src", "href", "srcset", "action") and not value.startswith("data:")]
        self.outside += ["link"] if tag in ("link", "iframe", "object", "embed", "base") else []

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self.tables[self.section][-1].append(self.cell)
            self.cell = None
        elif tag == "script":
            self.script = None

    def handle_data(self, data):
        if self.cell is not None:
            self.cell += data
        if self.script == "data":
            self.data += data

    def rows(self, section):
        """{first cell: {title: text}}"""
        head, *rows = self.tables[section]
        return {row[0]: dict(zip(head[1:], row[1:])) for row in rows}


def number(value):
    return float(value) if isinstance(value, str) else value  # "nan"


class Report(ClusterTest):
    def report(self, *arguments, code=0):
        done = subprocess.run([BIN / "muster", "report", *map(str, arguments)], capture_output=True, text=True, timeout=60, cwd=self.dir)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def page(self, *arguments):
        self.report(*arguments, "-o", self.dir / "page.html")
        text = (self.dir / "page.html").read_text()
        self.assertLess(len(text), 3e6)
        page = Page(text)
        self.assertEqual(page.outside, [])
        return page

    def launch(self, name, job, *arguments):
        model_dir = self.dir / name
        path = self.job(**{**job, "model_dir": str(model_dir), "summary": {"every_steps": 1}})
        self.run_launch("--job", path, *arguments)
        return model_dir

    def with_a_killed_worker(self):
        return self.launch("lossy", LINEAR, "--workers", "2", "--restart", "on-failure", "--fault", "kill@worker:1:step=30")

    def check_curves(self, run, model_dir):
        """All scalars, by TensorBoard's reader."""
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        got = {(curve["folder"], curve["tag"]): curve for curve in run["curves"]}
        seen = 0
        for split in (*SPLITS, "system"):
            if not (model_dir / split).is_dir():
                continue
            witness = EventAccumulator(str(model_dir / split), size_guidance={"scalars": 0, "tensors": 0, "images": 0})
            witness.Reload()
            for tag in witness.Tags()["scalars"]:
                points, curve = witness.Scalars(tag), got.pop((split, tag))
                self.assertEqual(curve["steps"], [point.step for point in points], f"{split} {tag}")
                self.assertEqual(curve["all"], len(points))
                for point, value in zip(points, curve["values"]):
                    self.assertTrue(math.isclose(point.value, number(value), rel_tol=1e-6) or math.isnan(point.value), f"{split} {tag}: {point}, {value}")
                    seen += 1
        self.assertEqual(list(got), [], "curves that TensorBoard does not know")
        self.assertGreater(seen, 50)

    def test_two_runs(self):
        lossy, fashion = self.with_a_killed_worker(), self.launch("fashion", FASHION, "--workers", "1")
        page = self.page(lossy, fashion, "--price-per-hour", "7.5")
        runs = page.data["runs"]
        self.assertEqual([run["name"] for run in runs], ["lossy", "fashion"])
        for run, model_dir in zip(runs, (lossy, fashion)):
            self.check_curves(run, model_dir)
        self.check_table(page, lossy, fashion)
        self.check_loss(page, runs[0], lossy)
        self.check_pictures(page, fashion)
        self.assertIn("program", page.rows("jobs"))
        self.assertEqual(page.rows("jobs")["program"], {"lossy": "linear", "fashion": "fashion_mnist"})
        if browser.CHROMIUM:
            self.in_a_browser(len({re.sub(r"/(chief|worker)_\d+$", "", curve["tag"]) for run in runs for curve in run["curves"]}))

    def check_table(self, page, lossy, fashion):
        comparison = json.loads(self.report("--json", lossy, fashion, "--price-per-hour", "7.5").stdout)
        self.assertFalse((self.dir / "report.html").exists(), "--json alone writes no page")
        want = result(fashion)
        row = comparison["runs"][1]
        for key in "status", "steps", "epochs", "world_size", "num_replicas", "examples_per_second", "input_wait_share", "hardware", "step_seconds":
            self.assertEqual(row[key], want[key], key)
        self.assertEqual(row["metrics"]["test"], want["metrics"]["test"])
        # The events begin a little after the chief and end a little before it.
        self.assertAlmostEqual(row["seconds"], want["wall_seconds"], delta=0.2)
        self.assertAlmostEqual(row["cost"], 7.5 * 2 * row["seconds"] / 3600)
        shown = page.rows("runs")["fashion"]
        self.assertEqual(shown["test accuracy"], f"{want['metrics']['test']['accuracy']:.5g}")
        self.assertEqual(shown["cost"], f"{row['cost']:.2g}")
        self.assertEqual((shown["program"], shown["world size"], page.rows("runs")["lossy"]["losses"]), ("fashion_mnist", "2", "1"))
        self.assertIn("cores", shown["hardware of the chief"])

    def check_loss(self, page, run, model_dir):
        (loss,) = result(model_dir)["recovery"]["last_losses"]
        (mark,) = [mark for mark in run["marks"] if mark["kind"] == "loss"]
        self.assertEqual((mark["step"], mark["text"]), (loss["step"], loss["cause"]))
        self.assertIn("worker:1 was lost", mark["text"])
        # Within the run, and where the flight record says.
        self.assertGreater(mark["seconds"], 0)
        written = json.loads((model_dir / "flight" / "0001-000001" / "chief-0.json").read_text())
        (aborted,) = [event["wall"] for event in written["events"] if event["kind"] == "aborted"]
        first = min(event.wall_time for split in SPLITS if (model_dir / split).is_dir() for event in events(model_dir / split))
        self.assertAlmostEqual(mark["seconds"], aborted - first, delta=0.02)
        self.assertEqual(page.rows("losses")["lossy"]["kind"], "loss")
        tasks = {row[1]: row for row in page.tables["steps"][1:] if row[0] == "lossy"}
        self.assertLessEqual({"rank 0", "chief:0", "worker:0"}, set(tasks))
        for name, row in tasks.items():
            self.assertGreater(float(row[2]), 0, f"{name} computed")

    def check_pictures(self, page, model_dir):
        want = {bytes(file) for split in ("validation", "test") for event in events(model_dir / split) for value in event.summary.value
                if value.metadata.plugin_data.plugin_name == "images" for file in value.tensor.string_val[2:]}
        self.assertGreater(len(page.pictures), 4)
        for picture in page.pictures:
            self.assertIn(base64.b64decode(picture["src"].removeprefix("data:image/png;base64,")), want)
            self.assertRegex(picture["alt"], r"^(test|validation) input of fashion, picture \d+$")

    def in_a_browser(self, charts):
        with browser.Browser() as page:
            for dark, width in ((False, 1200), (True, 1200), (False, 380)):
                page.open((self.dir / "page.html").as_uri(), dark=dark, width=width)
                self.assertEqual((page.complaints, len(page.requests)), ([], 1), f"nothing but the page is loaded: {page.requests}")
                self.assertEqual(page.evaluate("document.documentElement.dataset.ready"), str(charts))
                self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth"), width)
                back = page.evaluate("getComputedStyle(document.body).backgroundColor")
                self.assertEqual(back, "rgb(13, 17, 23)" if dark else "rgb(255, 255, 255)")
            self.check_controls(page)

    def check_controls(self, page):
        def lines():
            return page.evaluate("[...document.querySelectorAll('.chart')].find(c => c.querySelector('h3').textContent == 'loss').querySelectorAll('path.line').length")
        self.assertEqual(lines(), 2, "a curve for each run")
        self.assertEqual(page.evaluate("[...document.querySelectorAll('.chart')].find(c => c.querySelector('h3').textContent.includes('rss_bytes')).innerText.split('\\n').filter(t => t.startsWith('fashion'))"),
                         ["fashion chief_0", "fashion worker_0"], "one chart for all tasks")
        label = page.evaluate("document.querySelector('.plot').getAttribute('aria-label')")
        self.assertRegex(label, r"^loss by step: lossy from [\d.]+ to [\d.e-]+; fashion from [\d.]+ to [\d.]+\. The table below has the values\.$")
        page.evaluate("document.querySelector('#legend button').click()")
        self.assertEqual(lines(), 1, "the legend hides a run")
        page.evaluate("document.querySelector('#legend button').click()")
        page.evaluate("s = document.getElementById('smoothing'); s.value = 0.9; s.dispatchEvent(new Event('input'))")
        self.assertEqual(lines(), 4, "smoothed curves, and the raw ones behind them")
        page.evaluate("s.value = 0; s.dispatchEvent(new Event('input')); document.querySelector('.chart .head input').click()")
        self.assertEqual(lines(), 2)
        page.evaluate("document.querySelector('.chart details').open = true; new Promise(done => setTimeout(done, 50))")
        self.assertEqual(page.evaluate("document.querySelectorAll('.chart')[0].querySelectorAll('tbody tr').length"), 60)
        page.evaluate("document.querySelector('.plot').focus()")
        page.press("ArrowRight")
        page.press("ArrowRight")
        self.assertRegex(page.evaluate("document.querySelector('.read').textContent"), r"^lossy [\d.]+ at 2; fashion [\d.]+ at 2$")
        page.evaluate("a = document.getElementById('axis'); a.value = 'seconds'; a.dispatchEvent(new Event('change'))")
        self.assertIn("loss by time", page.evaluate("document.querySelector('.plot').getAttribute('aria-label')"))
        box = page.evaluate("document.querySelector('.plot').scrollIntoView({block: 'center'}); b = document.querySelector('.plot').getBoundingClientRect(); [b.x, b.y, b.width]")
        page.drag((box[0] + box[2] * 0.4, box[1] + 60), (box[0] + box[2] * 0.7, box[1] + 60))
        self.assertFalse(page.evaluate("document.getElementById('reset').hidden"), "a drag selects a range")
        page.press("Escape")
        self.assertTrue(page.evaluate("document.getElementById('reset').hidden"))
        self.assertEqual(page.complaints, [])

    if not browser.CHROMIUM:
        def test_in_a_browser(self):
            self.skipTest(browser.WHY_NOT)

    def test_damaged_and_partial_runs_have_a_row_that_says_so(self):
        whole = self.with_a_killed_worker()
        broken = self.dir / "broken"
        shutil.copytree(whole, broken)
        (broken / "result.json").write_text((whole / "result.json").read_text()[:100])
        (file,) = (broken / "train").glob("events*")
        data = file.read_bytes()
        file.write_bytes(data[:len(data) // 2])
        (broken / "flight" / "0001-000001" / "chief-0.json").write_text("{")
        running = self.dir / "running"
        shutil.copytree(whole, running)
        (running / "result.json").unlink()
        page = self.page(whole, broken, running)
        rows = page.rows("runs")
        self.assertEqual([rows[name]["status"] for name in ("lossy", "broken", "running")], ["completed", "no result", "no result"])
        self.assertEqual(rows["running"]["steps"], "60")
        self.assertEqual(rows["running"]["losses"], "1", "from recovery.json")
        self.assertTrue(0 < int(rows["broken"]["steps"]) < 60)
        problems_of = {row["name"]: row["problems"] for row in json.loads(self.report("--json", whole, broken, running).stdout)["runs"]}
        self.assertEqual(problems_of["lossy"], [])
        self.assertEqual(problems_of["running"], ["it has no result.json: it has not ended, or its chief was killed"])
        parts = "result.json is damaged", f"train/{file.name}: the last", "chief-0.json is damaged"
        for problem, part in zip(problems_of["broken"], parts, strict=True):
            self.assertIn(part, problem)

    def test_what_is_refused(self):
        self.assertEqual(self.report(self.dir / "none", code=2).stderr, f"muster report: {self.dir}/none is not there\n")
        (self.dir / "empty").mkdir()
        self.assertIn("empty is not a run: it has neither job.json nor event files; name a model_dir", self.report(self.dir / "empty", code=2).stderr)
        run = self.dir / "run"
        run.mkdir()
        (run / "job.json").write_text("{}")
        self.assertIn("name each run once", self.report(run, self.dir / "." / "run", code=2).stderr)
        self.assertIn("cannot write", self.report(run, "-o", self.dir / "none" / "x.html", code=2).stderr)
        self.assertIn("is a folder", self.report(run, "-o", run, code=2).stderr)
        self.assertIn("must be a number of at least 0", self.report(run, "--price-per-hour", "-1", code=2).stderr)
        self.report(run)
        self.assertIn("no result", (self.dir / "report.html").read_text())


if __name__ == "__main__":
    main()
