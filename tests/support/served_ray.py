"""Does what `serve run` of Ray Serve does with a configuration, on a small local cluster, until SIGINT.

The path of Ray's files is short, because sockets are among them.
"""

import sys
from tempfile import TemporaryDirectory

import ray
from ray.serve._private import api
from ray.serve.scripts import cli

# Ray gives its proxies a minute, by a constant. Next to other tests they have taken 51 seconds, and longer.
api.HTTP_PROXY_TIMEOUT = 600

if __name__ == "__main__":
    with TemporaryDirectory(prefix="ray") as folder:
        own = {"include_dashboard": False, "object_store_memory": 80 << 20, "log_to_driver": False}
        ray.init(num_cpus=2, namespace="serve", _temp_dir=folder, **own)
        try:
            cli(["run", sys.argv[1]])
        finally:
            ray.shutdown()
