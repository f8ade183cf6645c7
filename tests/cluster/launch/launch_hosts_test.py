"""`muster launch --hosts` through real sshds: trains what `muster launch` trains, survives a lost task and a lost connection, stops as it
does, says what is wrong, and leaves nothing running on any host.
"""
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

from harness import BIN, PREEMPTED, RETRYABLE, SOURCE, checkpoints, curve, inherited, losses, main, result
from hosts import Network
from launch_case import FAULT, LaunchTest
from ssh_hosts import Hosts, processes, require


class LaunchHosts(LaunchTest):
    count = 2

    def setUp(self):
        require()
        super().setUp()
        (self.dir / "ssh").mkdir()
        self.make_hosts()
        self.addCleanup(self.hosts.close)

    def make_hosts(self):
        self.hosts = Hosts(self.dir / "ssh", self.count)

    def prefix(self):
        return []

    def launch(self, *arguments, hosts="h1:2,h2", directory=None):
        command = [*self.prefix(), BIN / "muster", "launch", "--hosts", hosts, "--ssh", self.hosts.ssh, *arguments]
        environment = inherited()
        environment.pop("MUSTER_RUN_KEY_FILE", None)
        return self.start_process("launch", command, environment, directory=directory)

    def ends(self, launch, code, timeout=90):
        self.finish([launch], timeout, code)
        self.assertEqual(self.hosts.wait_until_nothing_runs(), [], launch.output())
        return launch.output()

    @contextlib.contextmanager
    def run_tasks(self, *messages):
        """A `muster run-tasks` that has got the messages, and hears nothing more."""
        self.count_of_run_tasks = getattr(self, "count_of_run_tasks", 0) + 1
        with subprocess.Popen([BIN / "muster", "run-tasks", f"test-{os.getpid()}-{self.count_of_run_tasks}"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            try:
                process.stdin.write(b"".join(json.dumps(message).encode() + b"\n" for message in messages))
                process.stdin.flush()
                yield process
            finally:
                process.kill()


class Loopback(LaunchHosts):
    def test_trains_what_launch_trains(self):
        job, model_dir = self.short_job(), self.dir / "model"
        launch = self.launch("--workers", 2, "--job", job, "--set", f"model_dir={model_dir}")
        output = self.ends(launch, 0)
        self.assertEqual(losses(model_dir), self.launched())
        self.assertIn("muster: h1: chief 0, worker 0\n", output)
        self.assertIn("muster: h2: worker 1\n", output)
        self.assertRegex(output, r"muster: completed in .*, exit code 0\n")
        self.assertIn(f"muster: result in {model_dir}/result.json", output)
        self.assertIn("[worker 1] ", output)
        self.assertEqual(sorted(path.name for path in (model_dir / "logs").iterdir()), ["chief-0.log", "worker-0.log", "worker-1.log"])
        self.assertEqual(result(model_dir)["world_size"], 3)

    def test_long_messages_come_whole(self):
        model_dir, bin_dir = self.dir / "model", self.dir / "bin"
        bin_dir.mkdir()
        (bin_dir / "muster").symlink_to(BIN / "muster")
        (self.dir / "long.json").write_text(json.dumps({"status": "completed", "program": "x" * 200_000}))
        chief = bin_dir / "muster-chief"
        chief.write_text(f'#!/bin/sh\nmkdir -p {model_dir}\n[ ${{#LONG}} = 100000 ] && cp {self.dir / "long.json"} {model_dir}/result.json\n')
        chief.chmod(0o755)
        launch = self.launch("--workers", 0, "--job", self.job(), "--set", f"model_dir={model_dir}", "--bin-dir", bin_dir, "--env",
                             f"LONG={'x' * 100_000}", hosts="h1")
        self.assertIn(f"muster: result in {model_dir}/result.json", self.ends(launch, 0, timeout=20))

    def test_keys_of_files_and_none(self):
        for arguments in (["--key-file", self.run_key()], ["--set", f"security.key_file={self.run_key()}"], ["--set", "security.insecure=true"]):
            with self.subTest(arguments=arguments):
                output = self.ends(self.launch("--workers", 1, "--job", self.job(), *arguments, hosts="h1,h2"), 0)
                self.assertEqual("security.insecure" in output, "security.insecure=true" in arguments)

    def test_auto_fills_the_slots_and_servers_take_none(self):
        (self.dir / "hosts.txt").write_text("h1 slots=2\nh2 slots=1 # two hosts\n")
        job, model_dir = self.short_job(strategy="parameter_server"), self.dir / "model"
        launch = self.launch("--workers", "auto", "--ps", 2, "--evaluator", "--job", job, "--set", f"model_dir={model_dir}",
                             hosts=self.dir / "hosts.txt")
        output = self.ends(launch, 0)
        self.assertIn("muster: h1: chief 0, worker 0, ps 0\n", output)
        self.assertIn("muster: h2: worker 1, ps 1, evaluator 0\n", output)
        self.assertEqual(result(model_dir)["status"], "completed")

    def test_a_killed_worker_is_started_again(self):
        job, model_dir = self.short_job(), self.dir / "model"
        launch = self.launch("--workers", 2, "--job", job, "--set", f"model_dir={model_dir}", "--restart", "on-failure", "--fault",
                             f"kill@worker:1:step={FAULT}")
        output = self.ends(launch, 0)
        self.assertIn("muster: worker 1 was killed by SIGKILL\n", output)
        self.assertIn("muster: starting worker 1 again (1 of at most 10 times)\n", output)
        self.assertEqual(result(model_dir)["generations"], 2)
        self.assertEqual(curve(model_dir), self.launched())

    def test_a_signal_stops_the_job_at_a_step_and_no_command_line_has_the_key(self):
        model_dir = self.dir / "model"
        launch = self.launch("--workers", 2, "--job", self.long_job(), "--set", f"model_dir={model_dir}", "--restart", "on-failure")
        launch.wait_for("saved step 200:")
        shown = b"".join(pathlib.Path(f"/proc/{pid}/{name}").read_bytes() for pid in [launch.popen.pid, *self.hosts.all()]
                         for name in ("cmdline", "environ"))
        self.assertIn(b"MUSTER_RUN_KEY_FD", shown)
        self.assertIsNone(re.search(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])", shown))
        launch.signal(signal.SIGINT)
        output = self.ends(launch, PREEMPTED)
        self.assertIn("muster: SIGINT: asked all tasks to stop; a second SIGINT ends them at once\n", output)
        self.assertEqual(result(model_dir)["status"], "preempted")
        # The same command continues the run.
        steps = checkpoints(model_dir)[-1] + 10
        self.ends(self.launch("--workers", 2, "--job", self.long_job(), "--set", f"model_dir={model_dir}", "--set", f"max_steps={steps}"), 0)
        self.assertEqual(result(model_dir)["steps"], steps)

    def test_a_second_signal_and_the_death_of_the_launcher_end_all_tasks(self):
        launch = self.launch("--workers", 2, "--job", self.long_job(), "--fault", "stop@worker:1:step=50")
        launch.wait_for("fault 1: stop at step 50")
        launch.signal(signal.SIGINT)
        launch.wait_for("asked all tasks to stop")
        launch.signal(signal.SIGINT)
        self.assertIn("received a second request to stop", self.ends(launch, 137, timeout=20))
        launch = self.launch("--workers", 2, "--job", self.long_job())
        launch.wait_for("epoch 1/")
        self.assertGreaterEqual(len(self.hosts.all()), 5)  # two run-tasks and three tasks
        launch.signal(signal.SIGKILL)
        launch.wait(10)
        self.assertEqual(self.hosts.wait_until_nothing_runs(), [])

    def test_a_signal_ends_a_launch_that_still_connects(self):
        launch = self.start_launch("--hosts", "h1", "--ssh", "sh -c 'exec sleep 60'", "--workers", 0, "--job", self.job())
        time.sleep(1)
        launch.signal(signal.SIGINT)
        self.assertIn("asked to stop before any task had started", self.ends(launch, PREEMPTED, timeout=3))

    def test_suspended_tasks_go_on(self):
        model_dir = self.dir / "model"
        launch = self.launch("--workers", 2, "--job", self.long_job(), "--set", f"model_dir={model_dir}")
        launch.wait_for("epoch 1/")
        launch.signal(signal.SIGTSTP)
        launch.wait_for("this launcher and all tasks are suspended")
        deadline = time.monotonic() + 10
        stopped = []
        while len(stopped) < 3 and time.monotonic() < deadline:
            stopped = [pid for pid in self.hosts.all() if " T " in pathlib.Path(f"/proc/{pid}/stat").read_text()]
            time.sleep(0.05)
        self.assertEqual(len(stopped), 3)  # the tasks, and nothing of ssh's
        launch.signal(signal.SIGCONT)
        launch.signal(signal.SIGTERM)
        self.ends(launch, PREEMPTED)
        self.assertEqual(result(model_dir)["status"], "preempted")

    def test_a_host_without_a_task_waits_for_a_suspended_launcher(self):
        launch = self.launch("--workers", 1, "--job", self.long_job(), hosts="h1:2,h2")
        launch.wait_for("epoch 1/")
        launch.signal(signal.SIGTSTP)
        launch.wait_for("this launcher and all tasks are suspended")
        time.sleep(28)  # More than the silence that a host takes for a lost launcher.
        launch.signal(signal.SIGCONT)
        time.sleep(1)
        launch.signal(signal.SIGTERM)
        self.assertNotIn("the connection to", self.ends(launch, PREEMPTED))

    def test_the_limit_of_a_suspended_launcher(self):
        with self.run_tasks({"suspend": {"seconds": 2}}) as silent, self.run_tasks({"suspend": {"seconds": 2}}, {"ping": {}}) as resumed:
            self.assertEqual(silent.wait(15), 0)
            self.assertEqual(silent.stderr.read(), b"muster run-tasks: the launcher was silent for too long\n")
            self.assertIsNone(resumed.poll())
            resumed.stdin.close()
            self.assertEqual(resumed.wait(15), 0)

    def marked(self):
        """The ports that are marked as reserved on this host."""
        return set(re.findall(r"@muster-port-(\d+)", pathlib.Path("/proc/net/unix").read_text()))

    def test_a_new_connection_reserves_the_ports_again(self):
        before = self.marked()
        launch = self.launch("--workers", 1, "--job", self.long_job(), "--restart", "on-failure", hosts="h1,h2")
        launch.wait_for("epoch 1/")
        reserved = self.marked() - before
        self.hosts.cut(1)
        launch.wait_for("connecting to h2 again")
        deadline = time.monotonic() + 20
        while not (again := reserved <= self.marked()) and time.monotonic() < deadline:
            time.sleep(0.1)
        self.assertTrue(again)
        launch.signal(signal.SIGTERM)
        self.ends(launch, PREEMPTED)

    def test_a_lost_connection_is_made_again(self):
        job, want = self.short_job(), self.launched()
        # On h2 is worker 1; on h1 are the chief and worker 0, and worker 1 keeps the state.
        for host, frozen, lost in (1, "worker:1", ["worker 1"]), (0, "worker:0", ["chief 0", "worker 0"]):
            with self.subTest(host=host):
                model_dir = self.dir / f"model-{host}"
                launch = self.launch("--workers", 2, "--job", job, "--set", f"model_dir={model_dir}", "--restart", "on-failure", "--fault",
                                     f"stop@{frozen}:step={FAULT}")
                launch.wait_for(f"fault 1: stop at step {FAULT}")
                before = self.hosts.on(host)
                self.hosts.cut(host)
                output = self.ends(launch, 0)
                name = f"h{host + 1}"
                self.assertIn(f"muster: the connection to {name} ended: ", output)
                for task in lost:
                    self.assertIn(f"muster: {task} was lost with the connection to {name}\n", output)
                self.assertEqual(output.count(f"muster: connecting to {name} again\n"), 1)
                self.assertFalse(set(before) & set(processes()))  # a zombie may wait for the init of this host
                self.assertEqual(result(model_dir)["generations"], 2)
                self.assertEqual(curve(model_dir), want)

    def test_a_frozen_worker_is_killed_on_its_host_and_replaced(self):
        job, model_dir = self.short_job(timeouts={"heartbeat": 3}), self.dir / "model"
        launch = self.launch("--workers", 2, "--job", job, "--set", f"model_dir={model_dir}", "--restart", "on-failure", "--fault",
                             f"stop@worker:1:step={FAULT}")
        output = self.ends(launch, 0)
        self.assertRegex(output, r"muster: killing worker 1 \(pid \d+\), which is lost to the job")
        self.assertEqual(curve(model_dir), self.launched())

    def test_without_restarts_a_lost_connection_ends_the_job(self):
        launch = self.launch("--workers", 2, "--job", self.long_job())
        launch.wait_for("epoch 1/")
        self.hosts.cut(1, refuse=True)
        output = self.ends(launch, RETRYABLE, timeout=60)
        self.assertIn("muster: worker 1 was lost with the connection to h2\n", output)

    def test_a_host_that_cannot_be_reached_is_named(self):
        job = self.job()
        config = self.dir / "ssh" / "config"
        whole = config.read_text()
        # Another key than the host knows; another key of the host; nobody listens.
        config.write_text(whole.replace(str(self.dir / "ssh" / "user"), str(self.dir / "ssh" / "stranger")))
        output = self.ends(self.launch("--workers", 2, "--job", job), 2)
        self.assertRegex(output, r"muster launch: h\d: ssh cannot connect: .*Permission denied \(publickey\)")
        config.write_text(whole)
        known = self.dir / "ssh" / "known"
        lines = known.read_text().splitlines(keepends=True)
        known.write_text(lines[0])
        output = self.ends(self.launch("--workers", 2, "--job", job), 2)
        self.assertIn("muster launch: h2: ssh cannot connect: Host key verification failed.\n", output)
        known.write_text("".join([lines[0], lines[1].split()[0] + " " + lines[0].split(maxsplit=1)[1]]))
        output = self.ends(self.launch("--workers", 2, "--job", job), 2)
        self.assertRegex(output, r"muster: h2: .*REMOTE HOST IDENTIFICATION HAS CHANGED")
        self.assertIn("muster launch: h2: ssh cannot connect: Host key verification failed.\n", output)
        known.write_text("".join(lines))
        self.hosts.stop(1)
        output = self.ends(self.launch("--workers", 2, "--job", job), RETRYABLE)
        self.assertRegex(output, r"muster launch: h2: ssh cannot connect: .*Connection refused")
        self.assertEqual(output.count("muster launch:"), 1)

    def test_copies_what_the_hosts_need_once_and_compares_versions(self):
        folder = self.dir / "project"
        (folder / "bin").mkdir(parents=True)
        for name in "muster", "muster-chief", "muster-worker":
            (folder / "bin" / name).symlink_to(BIN / name)
        self.job(max_steps=12).rename(folder / "job.json")
        arguments = ["--workers", 1, "--copy", "bin", "--copy", "job.json", "--bin-dir", "bin", "--job", "job.json", "--set", "model_dir=model"]
        output = self.ends(self.launch(*arguments, hosts="h1,h2", directory=folder), 0)
        self.assertIn("completed in", output)
        self.assertIn("result in model/result.json", output)
        (first,), (second,) = ([*(self.hosts.cache(i) / "muster" / "hosts").iterdir()] for i in range(2))
        self.assertEqual(first.name, second.name)
        self.assertEqual(result(first / "model")["steps"], 12)
        self.assertFalse((second / "model").exists())
        # The second launch finds the folder, and continues in it.
        (first / "here").touch()
        output = self.ends(self.launch(*arguments, "--set", "max_steps=24", hosts="h1,h2", directory=folder), 0)
        self.assertTrue((first / "here").exists())
        self.assertEqual(result(first / "model")["steps"], 24)
        # A copy that nobody has used for long is removed from both hosts by the next launch; on the first one it has a model.
        (folder / "note").write_text("of a later launch")
        later = ["--copy", "note", *arguments]
        for copied in first, second:
            os.utime(copied / ".muster-copy", (0, 0))
        self.ends(self.launch(*later, hosts="h1,h2", directory=folder), 0)
        self.assertEqual([(self.hosts.cache(i) / "muster" / "hosts" / first.name).exists() for i in range(2)], [True, False])
        self.assertEqual(result(first / "model")["steps"], 24)
        self.ends(self.launch(*arguments, hosts="h1,h2", directory=folder), 0)
        self.assertTrue(second.exists(), "it is copied again")
        (second / "bin" / "muster").unlink()
        output = self.ends(self.launch(*arguments, hosts="h1,h2", directory=folder), 2)
        self.assertIn("muster launch: h2: the program bin/muster is missing: install Muster there", output)
        (second / "bin" / "muster").write_text("#!/bin/sh\necho 0.0.9\n")
        (second / "bin" / "muster").chmod(0o755)
        output = self.ends(self.launch(*arguments, hosts="h1,h2", directory=folder), 2)
        self.assertRegex(output, r"muster launch: h2: bin/muster is version 0\.0\.9, and this is [0-9.]+: install the same version on all hosts\n")
        # The folder of the logs cannot be made here: a file is in its place.
        (folder / "taken").touch()
        output = self.ends(self.launch(*arguments, "--set", "model_dir=taken", "--remote-folder", self.dir / "other", hosts="h1,h2",
                                       directory=folder), 0)
        self.assertEqual(output.count("this output is the only log"), 1)
        self.assertIn("muster: result in taken/result.json\n", output)
        self.assertEqual(result(self.dir / "other" / "taken")["steps"], 12)
        # In a named folder, the files of the user's are written over.
        named = self.dir / "named"
        self.ends(self.launch(*arguments, "--remote-folder", named, hosts="h1,h2", directory=folder), 0)
        self.assertEqual(result(named / "model")["steps"], 12)
        # Both hosts have this folder: the second one replaces what the first one has unpacked, and neither starts it before both are done.
        tools = self.dir / "tools"
        tools.mkdir()
        (tools / "tar").write_text(f'''#!/bin/sh
PATH=${{PATH#*:}}
if test -e {tools}/unpacked; then
  rm {named}/bin/muster; touch {tools}/replaced; sleep 1; exec tar "$@"
fi
tar "$@" && touch {tools}/unpacked
''')
        (tools / "tar").chmod(0o755)
        (self.dir / "ssh" / ".bashrc").write_text(f"PATH={tools}:$PATH\n")
        self.ends(self.launch(*arguments, "--remote-folder", named, "--set", "max_steps=24", hosts="h1,h2", directory=folder), 0)
        self.assertEqual(result(named / "model")["steps"], 24)
        self.assertTrue((tools / "replaced").exists(), "the hosts' shell has not read .bashrc")

    def test_wrong_options_are_refused(self):
        job = self.job()
        for hosts, arguments, said in (
                ("h1,h2", ["--workers", 2], "3 members need as many slots, and --hosts has 2: give the hosts more, as in h1:2, or start fewer workers"),
                ("h1,h2,h1", ["--workers", 1], 'names h1 twice: give it once, with its slots'),
                (self.dir / "none.txt", ["--workers", 1], "which is not a file"),
                ("h1,h2", ["--workers", 1, "--copy", "/etc/passwd"], "--copy is /etc/passwd, which is outside of the current folder"),
                ("h1,h2", ["--workers", 1, "--env", "MUSTER_NOT_SET"], "--env is MUSTER_NOT_SET, which is not set here"),
                ("h1,h2", ["--workers", 1, "--remote-folder", "~/runs"], "--remote-folder is ~/runs: give an absolute path, or one relative to"),
                ("h1,h2", ["--workers", 1, "--remote-folder", self.dir / "none"], f"cd: can't cd to {self.dir / 'none'}\n")):
            with self.subTest(said=said):
                output = self.ends(self.launch("--job", job, *arguments, hosts=hosts), 2)
                self.assertIn(said, output)
        done = subprocess.run([BIN / "muster", "launch", "--workers", "1", "--job", job, "--copy", "x"], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--copy is given without --hosts", done.stderr)


class Page(LaunchHosts):
    """The commands of docs/hosts.md and README.md as they stand there, on hosts of the names that they have; with fewer slots and steps."""

    def make_hosts(self):
        self.hosts = Hosts(self.dir / "ssh", 2, alias="gpu")
        config = self.dir / "ssh" / "config"
        config.write_text(re.sub(r"Host gpu(\d)", r"Host gpu\1 host\1", config.read_text()))

    def run_as_it_stands(self, page, text, folder):
        whole = (SOURCE / page).read_text()
        blocks = re.findall(r"^```\n(.*?)^```$", whole, re.M | re.S)
        inline = re.findall(r"`([^`\n]+)`", re.sub(r"^```\n(.*?)^```$", "", whole, flags=re.M | re.S))
        (command,) = {found for found in [*blocks, *inline] if text in found}
        tools = self.dir / "tools"
        tools.mkdir(exist_ok=True)
        # A host may greet before it runs a command.
        (tools / "ssh").write_text(f"#!/bin/sh\necho Welcome\necho Maintenance on Sunday >&2\nexec {shutil.which('ssh')} -F {self.dir / 'ssh' / 'config'} \"$@\"\n")
        (tools / "ssh").chmod(0o755)
        environment = {"HOME": str(self.dir), "PATH": f"{tools}:{BIN}:{os.environ['PATH']}", "TMPDIR": os.environ["TMPDIR"]}
        command = re.sub(r"(gpu\d|host\d):\d", r"\1:2", command.strip()).replace("/shared", str(self.dir))
        return self.ends(self.start_process("launch", ["bash", "-ec", command], environment, directory=folder), 0)

    def test_the_commands_of_the_pages_train(self):
        folder = self.dir / "project"
        (folder / "muster" / "bin").mkdir(parents=True)
        for name in "muster", "muster-chief", "muster-worker":
            (folder / "muster" / "bin" / name).symlink_to(BIN / name)
        (folder / "data").mkdir()
        self.job(max_steps=12).rename(folder / "job.json")
        output = self.run_as_it_stands("docs/hosts.md", "--restart on-failure --job", folder)
        self.assertIn("muster: gpu1: chief 0, worker 0\nmuster: gpu2: worker 1, worker 2\n", output)
        self.assertEqual(result(self.dir / "runs" / "a")["world_size"], 4)
        output = self.run_as_it_stands("docs/hosts.md", "--copy muster --bin-dir", folder)
        self.assertRegex(output, r"muster: the files of --copy \([0-9.]+ MB\) are in ~/\.cache/muster/hosts/[0-9a-f]+ on each host\n")
        self.assertIn("completed in", output)
        self.run_as_it_stands("README.md", "--hosts host1:4,host2:4 --workers auto", folder)


class Namespaces(LaunchHosts):
    """Two hosts with addresses of their own, and a launcher on the first one."""

    def make_hosts(self):
        self.network = Network(2)
        self.addCleanup(self.network.close)
        self.hosts = Hosts(self.dir / "ssh", 2, [(["ip", "netns", "exec", name], address)
                                                 for name, address in zip(self.network.names, self.network.addresses)])

    def prefix(self):
        return ["ip", "netns", "exec", self.network.names[0]]

    def test_a_dead_link_ends_the_tasks_behind_it_and_is_made_again(self):
        job, model_dir = self.short_job(timeouts={"rejoin": 200}), self.dir / "model"
        launch = self.launch("--workers", 2, "--job", job, "--set", f"model_dir={model_dir}", "--restart", "on-failure", "--fault",
                             f"stop@worker:1:step={FAULT}")
        launch.wait_for(f"fault 1: stop at step {FAULT}")
        before = self.hosts.on(1)
        self.assertTrue(before)
        self.network.set_cut(self.network.between(0, 1))
        # The host ends its tasks by itself, before anybody reaches it.
        deadline = time.monotonic() + 40
        while self.hosts.on(1) and time.monotonic() < deadline:
            time.sleep(0.2)
        self.assertEqual(self.hosts.on(1), [])
        launch.wait_for("worker 1 was lost with the connection to h2", timeout=60)
        self.network.set_cut(self.network.between(0, 1), False)
        self.ends(launch, 0, timeout=120)
        got, want = curve(model_dir), self.launched()
        self.assertEqual(sorted(got), sorted(want))
        # Across hosts the sums are taken in another order.
        self.assertLess(max(abs(got[step] - want[step]) for step in want), 1e-6)


if __name__ == "__main__":
    main()
