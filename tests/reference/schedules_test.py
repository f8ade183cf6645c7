"""Learning-rate schedules against those of Keras and torch, step by step: `schedules_test.py PRINT_RATES`."""

import json
import math
import subprocess
import sys
import unittest

import torch
from keras.optimizers import schedules as keras_schedules

STEPS = 200
TOLERANCE = 1e-6  # relative to the largest rate: Keras computes in float32


def rates(learning_rate, steps=STEPS, **context):
    print_rates.stdin.write(json.dumps({"learning_rate": learning_rate, "steps": steps, **context}) + "\n")
    print_rates.stdin.flush()
    line = print_rates.stdout.readline()
    assert line, "print_rates has ended: its message is above"
    return json.loads(line)


def of_keras(schedule, steps=STEPS):
    return [float(schedule(step)) for step in range(steps)]


def of_torch(make, initial, steps=STEPS):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=initial)
    schedule = make(optimizer)
    found = []
    for _ in range(steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if len(found) < steps:
            schedule.step()
    return found


class Schedules(unittest.TestCase):
    def compare(self, ours, theirs):
        self.assertEqual(len(ours), len(theirs))
        self.assertGreater(len(set(theirs)), 1, "the reference never changes")
        largest = max(map(abs, theirs))
        for step, (a, b) in enumerate(zip(ours, theirs)):
            self.assertLessEqual(abs(a - b), TOLERANCE * max(1, largest), f"after {step} steps: {a} is not {b}")

    def test_piecewise(self):
        boundaries, values = [40, 41, 90], [1.0, 0.5, 0.1, 0.01]
        self.compare(rates({"name": "piecewise", "boundary_steps": boundaries, "values": values}),
                     of_keras(keras_schedules.PiecewiseConstantDecay(boundaries, values)))

    def test_step(self):
        self.compare(rates({"name": "step", "initial": 0.5, "gamma": 0.3, "every_steps": 7}),
                     of_torch(lambda o: torch.optim.lr_scheduler.StepLR(o, 7, gamma=0.3), 0.5))

    def test_exponential(self):
        for staircase in (False, True):
            with self.subTest(staircase=staircase):
                spec = {"name": "exponential", "initial": 0.5, "decay_rate": 0.7, "decay_steps": 30, "staircase": staircase}
                theirs = of_keras(keras_schedules.ExponentialDecay(0.5, 30, 0.7, staircase=staircase))
                self.compare(rates(spec), theirs)
                self.compare(rates({**spec, "floor": 0.15}), [max(0.15, rate) for rate in theirs])

    def test_linear(self):
        linear = torch.optim.lr_scheduler.LinearLR
        for end in (0, 0.1, 1.0):
            with self.subTest(end=end):
                self.compare(rates({"name": "linear", "initial": 0.5, "end": end, "decay_steps": 120}),
                             of_torch(lambda o: linear(o, start_factor=1, end_factor=end / 0.5, total_iters=120), 0.5)
                             if end <= 0.5 else
                             of_torch(lambda o: linear(o, start_factor=0.5, end_factor=1, total_iters=120), 1.0))

    def test_polynomial(self):
        for power in (1.0, 2.0, 0.5):
            for cycle in (False, True):
                with self.subTest(power=power, cycle=cycle):
                    self.compare(rates({"name": "polynomial", "initial": 0.5, "decay_steps": 60, "end": 0.01, "power": power,
                                        "cycle": cycle}),
                                 of_keras(keras_schedules.PolynomialDecay(0.5, 60, 0.01, power=power, cycle=cycle)))
        self.compare(rates({"name": "polynomial", "initial": 0.5, "decay_steps": 60}),
                     of_keras(keras_schedules.PolynomialDecay(0.5, 60)))

    def test_cosine(self):
        for alpha in (0, 0.2):
            self.compare(rates({"name": "cosine", "initial": 0.5, "decay_steps": 150, "alpha": alpha}),
                         of_keras(keras_schedules.CosineDecay(0.5, 150, alpha=alpha)))

    def test_cosine_after_a_warm_up(self):
        self.compare(rates({"name": "cosine", "initial": 0.5, "decay_steps": 150, "warmup_steps": 20, "warmup_from": 0.1}),
                     of_keras(keras_schedules.CosineDecay(0.1, 150, warmup_target=0.5, warmup_steps=20)))

    def test_cosine_restarts(self):
        # No restart but the first is a whole number of steps with 1.5: at such a step (40 of 16 and 24) Keras' float32 logarithm
        # falls short of the restart, and gives the end of the decay before it.
        for first, t_mul, m_mul, alpha in ((16, 2.0, 1.0, 0.0), (16, 1.0, 0.8, 0.1), (17, 1.5, 0.5, 0.0), (16, 2.0, 0.9, 0.2)):
            with self.subTest(t_mul=t_mul, m_mul=m_mul, alpha=alpha):
                self.compare(rates({"name": "cosine_restarts", "initial": 0.5, "first_decay_steps": first, "t_mul": t_mul,
                                    "m_mul": m_mul, "alpha": alpha}),
                             of_keras(keras_schedules.CosineDecayRestarts(0.5, first, t_mul, m_mul, alpha)))

    def test_one_cycle(self):
        for three_phase in (False, True):
            for strategy in ("cos", "linear"):
                for pct_start in (0.3, 0.25, 0.1):
                    with self.subTest(three_phase=three_phase, strategy=strategy, pct_start=pct_start):
                        self.compare(
                            rates({"name": "one_cycle", "max": 0.5, "total_steps": STEPS, "pct_start": pct_start,
                                   "anneal_strategy": strategy, "three_phase": three_phase, "div_factor": 10,
                                   "final_div_factor": 100}),
                            of_torch(lambda o: torch.optim.lr_scheduler.OneCycleLR(
                                o, 0.5, total_steps=STEPS, pct_start=pct_start, anneal_strategy=strategy,
                                three_phase=three_phase, div_factor=10, final_div_factor=100, cycle_momentum=False), 0.5))
        self.compare(rates({"name": "one_cycle", "max": 0.5}, total_steps=STEPS),
                     of_torch(lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.5, total_steps=STEPS), 0.5))

    def test_inverse_sqrt(self):
        # Neither has it: "Attention Is All You Need", 5.3, as a factor of the highest rate.
        def factor(step, warmup=20):
            return min(step / warmup, math.sqrt(warmup / max(1, step)))
        self.compare(rates({"name": "inverse_sqrt", "initial": 0.5, "warmup_steps": 20}),
                     of_torch(lambda o: torch.optim.lr_scheduler.LambdaLR(o, factor), 0.5))

    def test_ramp_hold_decay_by_replicas(self):
        # The schedule of notebooks for TPUs on Kaggle, for keras.callbacks.LearningRateScheduler.
        start, top, least, ramp, hold, decay, steps_per_epoch = 1e-5, 5e-5, 1e-5, 5, 3, 0.8, 8
        found = {}
        for replicas in (1, 2, 4):
            def lrfn(epoch):
                peak = top * replicas
                if epoch < ramp:
                    return (peak - start) / ramp * epoch + start
                if epoch < ramp + hold:
                    return peak
                return (peak - least) * decay ** (epoch - ramp - hold) + least
            ours = rates({"name": "ramp_hold_decay", "start": start, "peak": top, "floor": least, "ramp_epochs": ramp,
                          "hold_epochs": hold, "decay_rate": decay, "scale_with_replicas": True},
                         steps_per_epoch=steps_per_epoch, num_replicas=replicas)
            theirs = [lrfn(step // steps_per_epoch) for step in range(STEPS)]
            # The rates are small: relative to them.
            for step, (a, b) in enumerate(zip(ours, theirs)):
                self.assertLessEqual(abs(a - b), TOLERANCE * b, f"after {step} steps")
            found[replicas] = ours
        self.assertAlmostEqual(max(found[4]), 4 * max(found[1]))

    def test_every_rate_scales_with_replicas(self):
        specs = [
            {"name": "constant", "initial": 0.5, "warmup_steps": 10, "warmup_from": 0.1},
            {"name": "step", "initial": 0.5, "every_steps": 30},
            {"name": "piecewise", "boundary_steps": [60], "values": [1, 0.5]},
            {"name": "exponential", "initial": 0.5, "decay_rate": 0.5, "decay_steps": 30, "floor": 0.1},
            {"name": "linear", "initial": 0.5, "end": 0.1},
            {"name": "polynomial", "initial": 0.5, "power": 2},
            {"name": "cosine", "initial": 0.5, "alpha": 0.1},
            {"name": "cosine_restarts", "initial": 0.5, "first_decay_steps": 20},
            {"name": "inverse_sqrt", "initial": 0.5, "timescale_steps": 10},
            {"name": "one_cycle", "max": 0.5},
        ]
        for spec in specs:
            with self.subTest(name=spec["name"]):
                one = rates(spec, total_steps=STEPS, num_replicas=4)
                for replicas in (1, 2, 4):
                    scaled = rates({**spec, "scale_with_replicas": True}, total_steps=STEPS, num_replicas=replicas)
                    for a, b in zip(scaled, one):
                        self.assertAlmostEqual(a, replicas * b, delta=1e-12)


if __name__ == "__main__":
    with subprocess.Popen(sys.argv[1], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as print_rates:
        unittest.main(argv=sys.argv[:1])
