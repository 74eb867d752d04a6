"""Does what `serve run` of Ray Serve does, on a small local cluster, and reports the states of its applications.

Argument: the configuration. Each change of a state is a line of JSON with all states. Ends on SIGINT. The path of Ray's
files is short, because sockets are among them.
"""

import json
import sys
import threading
import time
from tempfile import TemporaryDirectory

import ray
from ray import serve
from ray.serve._private import api
from ray.serve.scripts import cli

LOOK_SECONDS = 0.1
# Ray gives its proxies a minute, by a constant. Next to other tests they have taken 51 seconds, and longer.
api.HTTP_PROXY_TIMEOUT = 600


def report() -> None:
    reported = ""
    while True:
        applications = {}
        for name, application in serve.status().applications.items():
            deployments = application.deployments.values()
            applications[name] = {
                "status": application.status,
                "running": sum(deployment.replica_states.get("RUNNING", 0) for deployment in deployments),
                "message": " ".join([application.message, *(deployment.message for deployment in deployments)]),
            }
        line = json.dumps(applications)
        if line != reported:
            print(line, flush=True)
        reported = line
        time.sleep(LOOK_SECONDS)


if __name__ == "__main__":
    with TemporaryDirectory(prefix="ray") as folder:
        ray.init(
            num_cpus=3,
            namespace="serve",
            include_dashboard=False,
            object_store_memory=80 << 20,
            log_to_driver=False,
            _temp_dir=folder,
        )
        threading.Thread(target=report, daemon=True).start()
        try:
            cli(["run", sys.argv[1]])
        finally:
            ray.shutdown()
