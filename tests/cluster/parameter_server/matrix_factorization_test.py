"""Embedding tables with real processes: two equal one, a killed run continues from its checkpoint, and Python reads the checkpoint."""
import os
import signal
import subprocess
import time
import unittest

import numpy

from safetensors.numpy import load_file

from harness import BIN, ClusterTest, checkpoints, curve, result

ARGS = {"users": 400, "items": 100, "rank": 2, "examples": 12800, "validation": 2000, "width": 4}
STEPS = 50  # of an epoch of batches of 256


def tensors(model_dir, step, file="model.safetensors"):
    return load_file(model_dir / "checkpoints" / f"step-{step:08}" / file)


def state(model_dir, step):
    """All tensors of a checkpoint by name; rows of tables that are in several files are put together, sorted by key."""
    saved = {**tensors(model_dir, step), **tensors(model_dir, step, "optimizer.safetensors")}
    pieces = [load_file(path) for path in sorted((model_dir / "checkpoints" / f"step-{step:08}").glob("tables-*.safetensors"))]
    for name in pieces[0] if pieces else ():
        parts = [piece[name] for piece in pieces]
        saved[name] = numpy.concatenate(parts) if parts[0].ndim else max(parts)
    for table in "users", "items":
        order = numpy.argsort(saved[table + ".keys"])
        saved.update({name: value[order] for name, value in saved.items() if name.startswith(table) and value.ndim})
    return saved


def xxh64(text):
    """XXH64 with seed 0, as int64, of less than 32 bytes (github.com/Cyan4973/xxHash, doc/xxhash_spec.md)."""
    first, second, third, fourth, fifth = 11400714785074694791, 14029467366897019727, 1609587929392839161, 9650029242287828579, 2870177450012600261
    mask, data = 2**64 - 1, text.encode()
    assert len(data) < 32

    def turned(value, by):
        return (value << by | value >> 64 - by) & mask
    digest = fifth + len(data)
    while len(data) >= 8:
        lane, data = int.from_bytes(data[:8], "little"), data[8:]
        digest = (turned(digest ^ turned(lane * second & mask, 31) * first & mask, 27) * first + fourth) & mask
    if len(data) >= 4:
        lane, data = int.from_bytes(data[:4], "little"), data[4:]
        digest = (turned(digest ^ lane * first & mask, 23) * second + third) & mask
    for byte in data:
        digest = turned(digest ^ byte * fifth & mask, 11) * first & mask
    for shift, factor in (33, second), (29, third), (32, 1):
        digest = (digest ^ digest >> shift) * factor & mask
    return digest - 2**64 if digest >= 2**63 else digest


class MatrixFactorization(ClusterTest):
    def ratings(self, name, **keys):
        self.model_dir = self.dir / name
        return self.job(**{"program": "matrix_factorization", "global_batch_size": 256, "epochs": 6, "max_steps": None, "program_args": ARGS,
                           "model_dir": str(self.model_dir), "summary": {"every_steps": 1}, **keys})

    def run_to_end(self, members, job, sets=()):
        cluster = self.cluster(members, chief=False)
        self.finish(self.start_all(cluster, job, sets))

    def check_tables(self, got_dir, want_dir, step, tolerance):
        got, want = state(got_dir, step), state(want_dir, step)
        self.assertEqual(sorted(got), sorted(want))
        for name in want:
            if tolerance == 0 or want[name].dtype != numpy.float32:
                self.assertEqual(got[name].tobytes(), want[name].tobytes(), name)
            else:
                numpy.testing.assert_allclose(got[name], want[name], rtol=0, atol=tolerance, err_msg=name)

    def test_comes_near_the_noise_and_two_processes_equal_one(self):
        self.run_to_end(1, self.ratings("one"))
        one = self.model_dir
        rmse = curve(one, "validation", "epoch_rmse")
        self.assertLess(rmse[max(rmse)], 0.32)  # noise 0.25, and 32 ratings of a user for 3 numbers
        self.assertGreater(rmse[min(rmse)], 1.2 * rmse[max(rmse)])
        saved = tensors(one, 6 * STEPS)
        self.assertEqual(saved["users.keys"].tolist(), list(range(400)))
        self.assertEqual(saved["users.rows"].shape, (400, 4))
        self.assertEqual(saved["items.keys"].dtype, numpy.int64)
        slots = tensors(one, 6 * STEPS, "optimizer.safetensors")
        self.assertEqual(slots["users.sum"].shape, (400, 4))
        self.assertEqual(int(slots["users.step"]), 6 * STEPS)

        self.run_to_end(2, self.ratings("two"))
        self.check_tables(self.model_dir, one, 6 * STEPS, 2e-3)
        rmse_of_two = curve(self.model_dir, "validation", "epoch_rmse")
        for step, value in rmse.items():
            self.assertAlmostEqual(rmse_of_two[step], value, delta=1e-3)

    def test_parameter_servers_hold_tables(self):
        self.run_to_end(1, self.ratings("one"))
        one = self.model_dir
        for workers in 2, 1:
            job = self.ratings(f"served-{workers}", strategy="parameter_server")
            self.finish(self.start_all(self.cluster(workers, chief=False, ps=2), job))
            rmse = curve(self.model_dir, "validation", "epoch_rmse")
            self.assertLess(rmse[max(rmse)], 0.32)
        self.check_tables(self.model_dir, one, 6 * STEPS, 2e-3)  # of the one worker

    def served(self, ps, job, workers=1, sets=()):
        self.finish(self.start_all(self.cluster(workers, chief=False, ps=ps), job, sets))

    def test_servers_write_their_rows_and_other_numbers_of_servers_go_on_with_them(self):
        job = self.ratings("whole", epochs=4, strategy="parameter_server")
        self.served(2, job)
        whole = self.model_dir
        job = self.ratings("parts", epochs=2, strategy="parameter_server")
        self.served(2, job)
        parts = self.model_dir
        folder = parts / "checkpoints" / f"step-{2 * STEPS:08}"
        self.assertEqual([path.name for path in sorted(folder.glob("tables-*"))],
                         ["tables-00001-of-00002.safetensors", "tables-00002-of-00002.safetensors"])
        self.assertNotIn("users.rows", tensors(parts, 2 * STEPS))
        self.assertEqual(state(parts, 2 * STEPS)["users.keys"].tolist(), list(range(400)))
        self.served(3, job, sets=("epochs=3",))
        self.served(1, job, sets=("epochs=4",))
        self.check_tables(parts, whole, 4 * STEPS, 1e-6)
        # The same rows, wherever they are wanted.
        for strategy, members in ("parameter_server", 1), ("multi_worker_mirrored", 2):
            job = self.ratings(strategy, epochs=5, restore=str(parts), strategy=strategy)
            self.finish(self.start_all(self.cluster(members, chief=False, ps=2 if strategy == "parameter_server" else 0), job))
        self.check_tables(self.dir / "multi_worker_mirrored", self.dir / "parameter_server", 5 * STEPS, 2e-3)
        exported = self.dir / "exported.safetensors"
        subprocess.run([BIN / "muster", "export", "--checkpoint", parts, "--output", exported], check=True, timeout=60)
        self.assertEqual(sorted(load_file(exported)["items.keys"].tolist()), list(range(100)))
        subprocess.run([BIN / "muster", "export", "--checkpoint", parts, "--table", "users", "--output", exported], check=True, timeout=60)
        self.assertEqual(load_file(exported)["rows"].tobytes(), state(parts, 4 * STEPS)["users.rows"].tobytes())

    def test_keys_of_a_file_that_are_text(self):
        """A CSV file whose columns of names are hashed: learned under either strategy, and what is saved has the hashes for keys."""
        generator = numpy.random.default_rng(4)
        users, items = [f"user {i}, Zürich" for i in range(60)], [f"item-{i}" for i in range(30)]
        of_user, of_item = generator.normal(size=60), generator.normal(size=30)
        drawn = [(generator.integers(60), generator.integers(30)) for _ in range(4096)]
        rows = [f'"{users[u]}",{items[i]},{of_user[u] + of_item[i] + 0.1 * generator.normal():.5f}' for u, i in drawn]
        (self.dir / "ratings.csv").write_text("who,what,rating\n" + "\n".join(rows) + "\n")
        columns = {"users": {"from": "who", "hash": "xxh64"}, "items": {"from": "what", "hash": "xxh64"}, "ratings": "rating"}
        file = {"format": "csv", "path": "ratings.csv", "columns": columns}
        data = {"train": {**file, "skip": 512}, "validation": {**file, "take": 512, "shuffle": False}}
        for name, keys in ("synchronous", {}), ("served", {"strategy": "parameter_server"}):
            with self.subTest(name):
                job = self.ratings(name, data=data, program_args={"width": 4}, global_batch_size=64, epochs=4, **keys)
                self.finish(self.start_all(self.cluster(2, chief=False, ps=2 if keys else 0), job))
                rmse = curve(self.model_dir, "validation", "epoch_rmse")
                self.assertLess(rmse[max(rmse)], 0.3)  # noise 0.1; without the right rows 1.4
                saved = state(self.model_dir, result(self.model_dir)["steps"])
                self.assertEqual(saved["users.keys"].tolist(), sorted(map(xxh64, users)))
                self.assertEqual(saved["items.keys"].tolist(), sorted(map(xxh64, items)))

    def peaks(self, processes, timeout=100):
        """The most memory, in bytes, that each of them had when it has ended by itself."""
        deadline, peaks = time.monotonic() + timeout, {}
        for process in processes:
            while True:
                pid, status, usage = os.wait4(process.popen.pid, os.WNOHANG)
                if pid:
                    break
                self.assertLess(time.monotonic(), deadline, f"{process.name} did not end; it printed:\n{process.output()}")
                time.sleep(0.02)
            process.popen.returncode = os.waitstatus_to_exitcode(status)
            self.assertEqual(process.popen.returncode, 0, process.output())
            peaks[process.name] = usage.ru_maxrss * 1024
        return peaks

    def test_chief_and_workers_need_no_memory_for_a_table(self):
        """A table that is four times as large as all that it costs them is trained, saved, and restored."""
        peaks = {}
        for users in 1000, 500_000:
            args = {"users": users, "items": 100, "rank": 2, "examples": 800_000, "validation": 0, "width": 256}
            job = self.ratings(f"of-{users}", epochs=1, strategy="parameter_server", program_args=args, global_batch_size=8192,
                               checkpoint={"every_steps": 100}, summary={"every_steps": 50}, embeddings={"*": {"initializer": "uniform"}})
            # An epoch, which brings all rows, and a few steps more; each start also saves before its last step.
            for sets, steps in (("epochs=1",), 196), (("epochs=2", "max_steps=220"), 220):
                processes = self.start_all(self.cluster(2, ps=2), job, sets)
                for name, peak in self.peaks(processes).items():
                    peaks.setdefault(name, {}).setdefault(users, []).append(peak)
                self.assertEqual(result(self.model_dir)["steps"], steps)
        table = sum(path.stat().st_size for path in (self.model_dir / "checkpoints").glob(f"step-{result(self.model_dir)['steps']:08}/tables-*"))
        self.assertGreater(table, 800e6)
        for name in "chief:0", "worker:0", "worker:1":
            for small, large in zip(*peaks[name].values()):
                self.assertLess(4 * (large - small), table, f"{name}: {peaks}")

    def test_the_chief_needs_memory_for_parameters_alone(self):
        """Adam's slots, twice as large as a dense model, are trained, saved, and restored on another number of servers."""
        peaks = {}
        for hidden in 64, 6000:
            args = {"hidden": hidden, "validation": 0, "train_examples": 64}
            keys = {"program": "fashion_mnist", "strategy": "parameter_server", "program_args": args, "data": {"train": "program"}, "optimizer": "adam",
                    "learning_rate": 1e-4, "global_batch_size": 16, "epochs": 100, "checkpoint": {"every_steps": 2}}
            for ps, steps in (2, 4), (3, 6):
                job = self.ratings(f"of-{hidden}", max_steps=steps, **keys)
                peaks.setdefault(hidden, []).append(self.peaks(self.start_all(self.cluster(1, ps=ps), job))["chief:0"])
        saved = self.model_dir / "checkpoints" / "step-00000006"
        parameters, slots = ((saved / name).stat().st_size for name in ("model.safetensors", "optimizer.safetensors"))
        self.assertGreater(parameters, 120e6)
        self.assertGreater(slots, 1.9 * parameters)
        steps = {name: value for name, value in load_file(saved / "optimizer.safetensors").items() if name.endswith(".step")}
        self.assertEqual({value.item() for value in steps.values()}, {6})
        for small, large in zip(*peaks.values()):
            self.assertLess(large - small, 2.5 * parameters, peaks)  # with the slots it would be 3, and more

    def test_a_capped_table_stays_below_its_cap(self):
        """Under either strategy; `result.json` and TensorBoard say what went."""
        limits = {"users": {"max_rows": 160, "eviction": "least_frequent", "dtype": "bfloat16"}, "*": {"admit_after": 2}}
        keys = {"epochs": 2, "embeddings": limits, "optimizer": {"users": "rowwise_adagrad", "items": {"name": "adagrad", "clipnorm": 1.0}}}
        for name, ps in ("synchronous", 0), ("served", 2):
            with self.subTest(name):
                job = self.ratings(name, **keys, **({"strategy": "parameter_server", "parameter_server": {"copies": 2}} if ps else {}))
                self.finish(self.start_all(self.cluster(2, chief=False, ps=ps), job))
                tables = result(self.model_dir)["embeddings"]
                self.assertEqual(sorted(tables), ["items", "users"])
                users = tables["users"]
                steps = result(self.model_dir)["steps"]
                saved = state(self.model_dir, steps)
                self.assertEqual(users["rows"], len(saved["users.keys"]))
                self.assertLessEqual(users["rows"], 160)
                self.assertGreater(users["rows"], 80)
                self.assertEqual(saved["users.rows"].dtype, numpy.float32)
                self.assertEqual(users["bytes"], users["rows"] * (4 * 2 + 4 + 16))
                for count in "evictions", "refused", "hits":
                    self.assertGreater(users[count], 0, count)
                self.assertGreater(users["lookups"], users["hits"])
                self.assertEqual((tables["items"]["rows"], tables["items"]["evictions"]), (100, 0))
                slots = saved
                self.assertEqual(slots["users.sum"].shape, (users["rows"], 1))
                for column in "updated_at", "update_count":
                    self.assertEqual((slots[f"users.{column}"].dtype, slots[f"users.{column}"].shape), (numpy.int64, (users["rows"],)))
                self.assertGreater(slots["users.update_count"].min(), 0)
                rows = curve(self.model_dir, "train", "embeddings/users/rows")
                self.assertLessEqual(max(rows.values()), 160)
                self.assertEqual(max(rows), steps)
        # On another number of servers chunks have other parts of the cap, and a lower one holds from the start.
        before = {key: row for key, row in zip(saved["users.keys"], saved["users.rows"].tolist())}
        sets = [f"max_steps={steps + 1}", "epochs=3", "learning_rate=0", "embeddings.users.max_rows=96"]
        self.finish(self.start_all(self.cluster(2, chief=False, ps=3), job, sets))
        after = state(self.model_dir, steps + 1)
        self.assertLessEqual(len(after["users.keys"]), 96)
        kept = [key for key in after["users.keys"] if key in before]
        self.assertGreater(len(kept), 48)
        for key, row in zip(after["users.keys"], after["users.rows"].tolist()):
            if key in before:
                self.assertEqual(row, before[key], key)

    def test_a_killed_run_goes_on_as_if_nothing_had_happened(self):
        self.run_to_end(1, self.ratings("whole", epochs=4))
        whole = self.model_dir
        job = self.ratings("killed", epochs=4, checkpoint={"every_steps": 30})
        cluster = self.cluster(1, chief=False)
        # The delay holds the run in the middle of an epoch until it is killed.
        process = self.start_all(cluster, job, faults=["delay=600s@worker:0:step=130"])[0]
        process.wait_for("fault 1: delay for 600 s at step 130", 60)
        process.wait_for("saved step", 60)
        process.signal(signal.SIGKILL)
        self.finish([process], code=-signal.SIGKILL)
        saved = checkpoints(self.model_dir)[-1]  # a save that is due during another save is skipped
        self.assertIn(saved, [30, 50, 60, 90, 100, 120])
        again = self.start_all(cluster, job)
        self.finish(again)
        self.assertRegex(again[0].output(), rf"going on after step {saved} ")
        self.assertEqual(result(self.model_dir)["steps"], 4 * STEPS)
        self.check_tables(self.model_dir, whole, 4 * STEPS, 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
