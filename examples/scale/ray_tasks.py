"""Look at a corpus in shards, each a task of Ray, then merge them into one run.

    python examples/scale/ray_tasks.py MODEL CORPUS OUT [SHARDS] [LENSES]

All nodes must see the same MODEL, CORPUS and OUT. If a worker or a node is lost, Ray gives its shard to another worker,
which continues from the states that were saved. Run the script again after a failure: finished shards return at once.
"""

import sys

import ray

import lorgnette as lo


@ray.remote(num_cpus=1, max_retries=5)
def look(model: str, corpus: str, lenses: str, shard: tuple[int, int], out: str) -> str:
    subject = lo.load(model, device="cuda" if ray.get_gpu_ids() else "cpu")
    lo.look(subject, lo.corpus(corpus), lenses, shard=shard, out=out, resume=True, progress=False)
    return out


def main(model: str, corpus: str, out: str, shards: str = "8", lenses: str = "weights,norms") -> None:
    ray.init()  # the cluster that RAY_ADDRESS names, else this machine
    of, has_gpus = int(shards), "GPU" in ray.cluster_resources()
    task = look.options(num_gpus=1 if has_gpus else 0)
    parts = [task.remote(model, corpus, lenses, (n, of), f"{out}.parts/{n}") for n in range(1, of + 1)]
    lo.merge(ray.get(parts), out=out)
    ray.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
