"""A cluster of two hosts, started by the commands of README.md and docs/security.md as they stand there.

The hosts are network namespaces (hosts.py) with a home folder each; `ssh` and `scp` are scripts that go to the other one's. What the
test adds to the commands are a model_dir and a number of steps.
"""
import os
import re

from harness import BIN, CONFIGURATION, SOURCE, ClusterTest, main, result
from hosts import Network

SSH = """#!/bin/sh
test "$1" = host2 && shift && cd "{home}" && exec "$@"
"""
SCP = """#!/bin/sh
test "$1" = -p && exec cp -p "$2" "{home}/${{3#host2:}}"
"""
SHORT = " --set max_steps=8 --set model_dir={model_dir} --set program_args.validation=1000"


def commands(page, text):
    """The one block of a page that contains `text`, command by command."""
    (block,) = [block for block in re.findall(r"^```\n(.*?)^```$", (SOURCE / page).read_text(), re.M | re.S) if text in block]
    return block.replace("\\\n", "").strip().splitlines()


class Readme(ClusterTest):
    def setUp(self):
        self.network = Network(2)
        self.addCleanup(self.network.close)
        super().setUp()
        self.model_dir = self.dir / "model"
        for i in range(2):
            self.network.set_hosts(i, {f"host{j + 1}": address for j, address in enumerate(self.network.addresses)})
            home = self.home(i)
            home.mkdir()
            (home / "build").symlink_to(BIN.parent)
            (home / "examples").symlink_to(SOURCE / "examples")
        tools = self.dir / "tools"
        tools.mkdir()
        for name, script in ("ssh", SSH), ("scp", SCP):
            (tools / name).write_text(script.format(home=self.home(1)))
            (tools / name).chmod(0o755)

    def home(self, index):
        return self.dir / f"host{index + 1}"

    def shell(self, index, command):
        """On that host, in its home folder."""
        environment = {"HOME": str(self.home(index)), "PATH": f"{self.dir / 'tools'}:{BIN}:{os.environ['PATH']}", "TMPDIR": os.environ["TMPDIR"]}
        return self.start_process(f"host{index + 1}", ["ip", "netns", "exec", self.network.names[index], "bash", "-ec", command], environment,
                                  directory=self.home(index))

    def make_key(self, page):
        for command in commands(page, "ssh host2 mkdir"):
            self.finish([self.shell(0, command)])

    def start_both(self, more=""):
        chief, worker = commands("README.md", "build/bin/muster-worker")
        return [self.shell(index, command + SHORT.format(model_dir=self.model_dir) + more) for index, command in ((1, worker), (0, chief))]

    def trained(self, processes):
        self.finish(processes, timeout=120)
        self.assertEqual(result(self.model_dir)["steps"], 8)

    def test_with_a_key(self):
        self.make_key("README.md")
        self.trained(self.start_both())

    def test_with_the_key_of_the_security_page(self):
        self.make_key("docs/security.md")
        self.assertEqual(*[(self.home(i) / ".config/muster/run.key").read_bytes() for i in range(2)])
        self.assertEqual((self.home(1) / ".config/muster/run.key").stat().st_mode & 0o777, 0o600)

    def test_with_certificates(self):
        (self.home(0) / "cluster.json").write_text('{"chief": ["host1:2222"], "worker": ["host2:2222"]}')
        (command,) = commands("docs/security.md", "key certificates")
        self.finish([self.shell(0, command)])
        (self.home(1) / "certificates").symlink_to(self.home(0) / "certificates")
        (section,) = commands("docs/security.md", '"tls":')
        files = re.findall(r'"(\w+)": "(certificates/[^"]+)"', section)
        self.assertEqual(len(files), 3)
        self.trained(self.start_both("".join(f" --set tls.{name}=$HOME/{path}" for name, path in files)))

    def test_on_a_trusted_network(self):
        processes = self.start_both(" --set security.insecure=true")
        self.trained(processes)
        for process in processes:
            self.assertEqual(process.output().count("security.insecure: "), 1, process.output())

    def test_with_none_of_the_three(self):
        processes = self.start_both()
        self.finish(processes, code=CONFIGURATION)
        for process in processes:
            self.assertRegex(process.output(), r"the cluster has an address that is not loopback \(host[12]\).*`muster key new`.*tls\.certificate.*security\.insecure")
        self.assertFalse(self.model_dir.exists())


if __name__ == "__main__":
    main()
