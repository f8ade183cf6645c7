"""k8s/components/metrics: each pod serves /metrics where the PodMonitor and the NetworkPolicy look for it, in each form of a run."""
import json
import unittest

import jsonschema

from manifests import BASE, PARAMETER_SERVER
from operators import POD_MONITOR, check
from operators_test import SUFFIX, overlay

PORT = 9400
FORMS = [(base, [*form]) for base in (BASE, PARAMETER_SERVER) for form in ([], [f"tfjob{SUFFIX[base]}"], [f"jobset{SUFFIX[base]}"])]


class Metrics(unittest.TestCase):
    def test_each_form(self):
        for base, form in FORMS:
            with self.subTest(base=base.name, form=form):
                manifests = overlay(base, "metrics", *form)
                check(manifests.objects)
                self.check_tasks(manifests.pods())
                self.check_monitor(manifests)

    def check_tasks(self, pods):
        self.assertGreaterEqual(len(pods), 4)
        for pod in pods:
            command = pod.command()
            for value in f"status.metrics_port={PORT}", "status.address=0.0.0.0":
                self.assertEqual(command[command.index(value) - 1], "--set")
            ports = {port["name"]: port["containerPort"] for port in pod.container["ports"]}
            self.assertEqual(ports["metrics"], PORT)
            # The task then has the first port of its host.
            config = json.loads(pod.environment()["TF_CONFIG"])
            self.assertTrue(config["task"]["type"] in config["cluster"] or config.get("environment") == "cloud", config)

    def check_monitor(self, manifests):
        (monitor,) = manifests.kind("PodMonitor").values()
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        self.assertEqual((endpoint["port"], endpoint["path"]), ("metrics", "/metrics"))
        policy = manifests.kind("NetworkPolicy")["muster-metrics"]["spec"]
        self.assertEqual(policy["ingress"][0]["ports"], [{"port": PORT, "protocol": "TCP"}])
        self.assertEqual(policy["podSelector"], monitor["spec"]["selector"])

    def test_a_misspelt_monitor_is_noticed(self):
        (monitor,) = overlay(BASE, "metrics").kind("PodMonitor").values()
        monitor["spec"]["podMetricsEndpoints"][0]["bearerToken"] = "x"
        with self.assertRaises(jsonschema.ValidationError):
            jsonschema.validate(monitor, POD_MONITOR)


if __name__ == "__main__":
    unittest.main(verbosity=2)
