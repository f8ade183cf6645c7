"""Metrics against scikit-learn, and AUC's binning against Keras: `metrics_test.py PRINT_METRICS`."""

import itertools
import json
import math
import subprocess
import sys
import unittest

import numpy as np
from keras import metrics as keras_metrics
from sklearn import metrics as sk

EXAMPLES, CLASSES = 53, 4
TOLERANCE = 1e-6
# The same examples on one member in one step; on three in steps whose slices are short, and empty.
ALONE = [[[0, EXAMPLES]]]
THREE = [[[0, 10], [10, 20], [20, 29]], [[29, 29], [29, 30], [30, 30]], [[30, 43], [43, 43], [43, 52]], [[52, 53], [53, 53],
                                                                                                       [53, 53]]]


def tensor(values):
    return None if values is None else {"shape": list(values.shape), "values": values.flatten().tolist()}


class Metrics(unittest.TestCase):
    def setUp(self):
        rng = np.random.default_rng(7)
        self.labels = rng.integers(0, CLASSES, EXAMPLES)
        self.logits = (rng.normal(size=(EXAMPLES, CLASSES)) + 1.2 * np.eye(CLASSES)[self.labels]).astype(np.float32)
        self.predicted = self.logits.argmax(1)
        self.binary = rng.integers(0, 2, EXAMPLES)
        self.scores = np.clip(rng.normal(0.35 + 0.3 * self.binary, 0.25), 0, 1).astype(np.float32)
        self.output = rng.normal(size=(EXAMPLES, 3)).astype(np.float32)
        self.target = (self.output + rng.normal(size=(EXAMPLES, 3))).astype(np.float32)
        weights = rng.uniform(0.1, 3, EXAMPLES).astype(np.float32)
        weights[[3, 17, 30]] = 0
        self.weights = weights

    def ask(self, metric, output, target, weights=None, steps=None, logits=False):
        asked = {"metric": metric, "logits": logits, "output": tensor(output), "target": tensor(target),
                 "weights": tensor(weights), "steps": steps or ALONE}
        print_metrics.stdin.write(json.dumps(asked) + "\n")
        print_metrics.stdin.flush()
        line = print_metrics.stdout.readline()
        self.assertTrue(line, "print_metrics has ended: its message is above")
        return json.loads(line)

    def compare(self, metric, output, target, reference, **more):
        """`reference(weights)`, None for none, is what ours must give, however examples are spread."""
        for weights, steps in itertools.product((None, self.weights), (ALONE, THREE)):
            with self.subTest(metric=metric, weighted=weights is not None, members=len(steps[0])):
                value = self.ask(metric, output, target, weights, steps, **more)["value"]
                expected = float(reference(weights))
                self.assertAlmostEqual(value, expected, delta=TOLERANCE * max(1, abs(expected)))

    def test_accuracies(self):
        self.compare("accuracy", self.logits, self.labels,
                     lambda w: sk.accuracy_score(self.labels, self.predicted, sample_weight=w))
        self.compare({"name": "top_k_accuracy", "k": 2}, self.logits, self.labels,
                     lambda w: sk.top_k_accuracy_score(self.labels, self.logits, k=2, sample_weight=w))
        self.compare({"name": "binary_accuracy", "threshold": 0.4}, self.scores, self.binary,
                     lambda w: sk.accuracy_score(self.binary, self.scores > np.float32(0.4), sample_weight=w))

    def test_precision_and_recall(self):
        for name, score in (("precision", sk.precision_score), ("recall", sk.recall_score)):
            self.compare(name, self.scores, self.binary,
                         lambda w: score(self.binary, self.scores > 0.5, sample_weight=w))
            self.compare({"name": name, "threshold": 0.25}, self.scores[:, None], self.binary,
                         lambda w: score(self.binary, self.scores > 0.25, sample_weight=w))
            self.compare(name, self.scores - np.float32(0.5), self.binary,
                         lambda w: score(self.binary, self.scores - np.float32(0.5) > 0, sample_weight=w), logits=True)
            self.compare({"name": name, "top_k": 1}, self.logits, self.labels,
                         lambda w: score(self.labels, self.predicted, average="micro", sample_weight=w))
            for c in range(CLASSES):
                self.compare({"name": name, "top_k": 1, "class_id": c}, self.logits, self.labels,
                             lambda w: score(self.labels == c, self.predicted == c, sample_weight=w))
                self.compare({"name": name, "threshold": 0.3, "class_id": c}, self.logits, np.eye(CLASSES)[self.labels],
                             lambda w: score(self.labels == c, self.logits[:, c] > np.float32(0.3), sample_weight=w))

    def test_precision_of_the_largest_two_as_keras(self):
        one_hot = np.eye(CLASSES)[self.labels]
        for name, metric in (("precision", keras_metrics.Precision), ("recall", keras_metrics.Recall)):
            def reference(weights):
                theirs = metric(top_k=2, class_id=1)
                theirs.update_state(one_hot, self.logits, sample_weight=weights)
                return theirs.result()
            self.compare({"name": name, "top_k": 2, "class_id": 1}, self.logits, self.labels, reference)

    def test_f_scores(self):
        for average in ("micro", "macro", "weighted"):
            self.compare({"name": "f1_score", "average": average, "classes": CLASSES}, self.logits, self.labels,
                         lambda w: sk.f1_score(self.labels, self.predicted, average=average, sample_weight=w))
            self.compare({"name": "fbeta_score", "beta": 0.5, "average": average, "classes": CLASSES}, self.logits,
                         np.eye(CLASSES)[self.labels],
                         lambda w: sk.fbeta_score(self.labels, self.predicted, beta=0.5, average=average, sample_weight=w))
            self.compare({"name": "f1_score", "average": average, "classes": CLASSES, "threshold": 0.4}, self.logits, self.labels,
                         lambda w: sk.f1_score(np.eye(CLASSES)[self.labels], self.logits > np.float32(0.4), average=average,
                                               sample_weight=w))
        self.compare({"name": "f1_score", "class_id": 2}, self.logits, self.labels,
                     lambda w: sk.f1_score(self.labels == 2, self.predicted == 2, sample_weight=w))
        self.compare({"name": "f1_score", "threshold": 0.5}, self.scores, self.binary,
                     lambda w: sk.f1_score(self.binary, self.scores > 0.5, sample_weight=w))

    def test_auc_as_keras_bins_it(self):
        for curve, summation, thresholds in itertools.product(("ROC", "PR"), ("interpolation", "minoring", "majoring"),
                                                              (200, 7, 2)):
            def reference(weights):
                theirs = keras_metrics.AUC(num_thresholds=thresholds, curve=curve, summation_method=summation)
                theirs.update_state(self.binary, self.scores, sample_weight=weights)
                return theirs.result()
            self.compare({"name": "auc", "curve": curve, "summation_method": summation, "num_thresholds": thresholds},
                         self.scores, self.binary, reference)

    def test_auc_of_a_score_in_each_bin(self):
        # Where no two scores share a bin, it is the whole curve's.
        scores = ((np.random.default_rng(3).permutation(EXAMPLES) + 0.5) / (EXAMPLES + 1)).astype(np.float32)
        self.compare({"name": "auc", "num_thresholds": EXAMPLES + 2}, scores, self.binary,
                     lambda w: sk.roc_auc_score(self.binary, scores, sample_weight=w))
        self.compare({"name": "auc", "curve": "PR", "summation_method": "minoring", "num_thresholds": 10001}, scores, self.binary,
                     lambda w: self.keras_pr(scores, w))

    def keras_pr(self, scores, weights):
        theirs = keras_metrics.AUC(num_thresholds=10001, curve="PR", summation_method="minoring")
        theirs.update_state(self.binary, scores, sample_weight=weights)
        return theirs.result()

    def test_auc_from_logits(self):
        logits = np.log(np.clip(self.scores, 0.01, 0.99) / (1 - np.clip(self.scores, 0.01, 0.99))).astype(np.float32)

        def reference(weights):
            theirs = keras_metrics.AUC(from_logits=True)
            theirs.update_state(self.binary, logits, sample_weight=weights)
            return theirs.result()
        self.compare("auc", logits, self.binary, reference, logits=True)
        self.compare({"name": "auc", "from_logits": True}, logits, self.binary, reference)

    def test_confusion_matrix(self):
        for weights, steps in itertools.product((None, self.weights), (ALONE, THREE)):
            found = self.ask({"name": "confusion_matrix", "classes": CLASSES}, self.logits, self.labels, weights, steps)
            theirs = sk.confusion_matrix(self.labels, self.predicted, sample_weight=weights)
            np.testing.assert_allclose(np.reshape(found["sums"], theirs.shape), theirs, rtol=TOLERANCE, atol=TOLERANCE)
            self.assertAlmostEqual(found["value"], np.trace(theirs) / theirs.sum(), delta=TOLERANCE)

    def test_errors(self):
        for name, reference in (("mean_absolute_error", sk.mean_absolute_error), ("mean_squared_error", sk.mean_squared_error)):
            self.compare(name, self.output, self.target, lambda w: reference(self.target, self.output, sample_weight=w))
        self.compare("root_mean_squared_error", self.output, self.target,
                     lambda w: math.sqrt(sk.mean_squared_error(self.target, self.output, sample_weight=w)))

    def test_cosine_similarity(self):
        output = self.output.copy()
        output[5] = 0
        each = np.diag(sk.pairwise.cosine_similarity(output, self.target))
        self.compare("cosine_similarity", output, self.target, lambda w: np.average(each, weights=w))
        theirs = keras_metrics.CosineSimilarity()
        theirs.update_state(self.target, output)
        self.assertAlmostEqual(np.average(each), float(theirs.result()), delta=TOLERANCE)

    def test_perplexity(self):
        exponentials = np.exp(self.logits.astype(np.float64))
        probabilities = exponentials / exponentials.sum(1, keepdims=True)
        self.compare("perplexity", self.logits, self.labels,
                     lambda w: math.exp(sk.log_loss(self.labels, probabilities, sample_weight=w)))

    def test_mean(self):
        self.compare("mean", self.scores, None, lambda w: np.average(self.scores, weights=w))

    def test_nothing_at_all_is_zero(self):
        nothing = [[[0, 0], [0, 0], [0, 0]]]
        for metric in ("precision", "recall", {"name": "f1_score", "threshold": 0.5}, "auc", {"name": "auc", "curve": "PR"}):
            for weights in (None, self.weights):
                self.assertEqual(self.ask(metric, self.scores, self.binary, weights, nothing)["value"], 0)
        for metric in ("perplexity", {"name": "confusion_matrix", "classes": CLASSES}, {"name": "precision", "top_k": 1}):
            self.assertEqual(self.ask(metric, self.logits, self.labels, None, nothing)["value"], 0)
        self.assertEqual(self.ask("cosine_similarity", self.output, self.target, None, nothing)["value"], 0)


if __name__ == "__main__":
    with subprocess.Popen(sys.argv[1], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as print_metrics:
        unittest.main(argv=sys.argv[:1])
