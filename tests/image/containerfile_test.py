"""The Containerfile fits the manifests, the Makefile and the pages. What it builds is in roots_test.py.

  containerfile_test.py   (needs no container engine, and not to be root)
"""
import pathlib
import re
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import containerfile  # noqa: E402

SOURCE = HERE.parents[1]
TEXT = (SOURCE / "Containerfile").read_text()


class Parser(unittest.TestCase):
    def test_stages_and_steps(self):
        first, second = containerfile.parse("# note\nFROM a:1 AS b\nARG X=1\nRUN one && \\\n    # between\n    two\nFROM c\nENV P=/x:/y\nENV Q=1\nCMD [\"d\"]\n")
        self.assertEqual((first.base, first.name, first.steps), ("a:1", "b", [("ARG", "X=1"), ("RUN", "one && two")]))
        self.assertEqual((second.base, second.name, second.environment()), ("c", None, {"P": "/x:/y", "Q": "1"}))
        self.assertEqual(containerfile.command_of(second), ["d"])

    def test_what_it_does_not_know_is_an_error(self):
        for text in "FROM a\nADD b c\n", "RUN a\n", "FROM a\nVOLUME /x\n":
            with self.assertRaises(ValueError):
                containerfile.parse(text)

    def test_what_is_left_out_of_the_context(self):
        patterns = (SOURCE / ".dockerignore").read_text().split()
        for path in ".git/HEAD", "build/bin/muster", "build-asan", "runs/x", "tests/k8s/__pycache__/x.pyc":
            self.assertTrue(containerfile.ignored(patterns, pathlib.Path(path)), path)
        for path in "CMakeLists.txt", "deploy/bootstrap", "common/build.h":
            self.assertFalse(containerfile.ignored(patterns, pathlib.Path(path)), path)


class Image(unittest.TestCase):
    def setUp(self):
        self.build, self.image = containerfile.parse(TEXT)

    def test_runs_as_the_user_of_the_manifests(self):
        user = re.search(r"kPodUser = (\d+)", (SOURCE / "deploy" / "manifest" / "request.h").read_text())[1]
        self.assertEqual(self.image.last("USER"), f"{user}:{user}")
        self.assertIn(f"runAsUser: {user}", (SOURCE / "k8s" / "base" / "worker.yaml").read_text())
        self.assertIn(f"install -d -o {user} -g {user} /var/lib/muster", self.image.last("RUN"))

    def test_is_stopped_as_a_task_expects_and_has_no_entry_point(self):
        self.assertEqual(self.image.last("STOPSIGNAL"), "SIGTERM")
        self.assertNotIn("ENTRYPOINT", TEXT.replace("# No ENTRYPOINT", ""))

    def test_the_programs_are_on_its_path(self):
        self.assertEqual(self.image.last("COPY"), "--from=build /opt/muster /opt/muster")
        self.assertEqual(self.image.environment()["PATH"].split(":")[0], "/opt/muster/bin")

    def test_has_the_data_of_the_base(self):
        self.assertIn("ARG DATA=dataset-fashion-mnist", TEXT)
        self.assertIn("\"fashion_mnist\"", (SOURCE / "k8s" / "base" / "job.json").read_text())

    def test_one_name_in_the_makefile_the_manifests_and_the_pages(self):
        name = re.search(r"^IMAGE \?= (\S+)$", (SOURCE / "Makefile").read_text(), re.MULTILINE)[1]
        found = {text for path in (SOURCE / "k8s").rglob("*.yaml") for text in re.findall(r"^ *image: (\S+)$", path.read_text(), re.MULTILINE)}
        self.assertIn(name, found)
        self.assertLessEqual(found, {name, "tensorboard"})
        self.assertTrue("make image" in (SOURCE / "docs" / "kubernetes.md").read_text(), "the page does not tell how the image is built")

    def test_names_no_registry(self):
        for stage in self.build, self.image:
            self.assertNotRegex(stage.base, r"[./].*/|\.")


if __name__ == "__main__":
    unittest.main()
