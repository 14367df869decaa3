#!/usr/bin/env bash
# Look at a corpus with several hosts at once: their processes meet over the network and write one run.
# Start it on every host, with that host's number from 0; the first host's address is HEAD, and the first host writes OUT.
#
#   examples/scale/torchrun.sh HEAD NUMBER HOSTS MODEL CORPUS OUT [PROCESSES ON EACH] [LENSES]
#
# Every host must have the same MODEL and CORPUS. Port 29500 of HEAD must be open (PORT=… for another). If a host's name
# does not lead to its own network address, set GLOO_SOCKET_IFNAME to the name of its network interface, such as eth0.
# If a host is lost, all of them end; with a shared OUT, the same commands go on from the states that were saved.
set -euo pipefail
head=$1 number=$2 hosts=$3 model=$4 corpus=$5 out=$6 processes=${7:-1} lenses=${8:-weights,norms}

exec python -m torch.distributed.run --nnodes "$hosts" --node-rank "$number" --nproc-per-node "$processes" \
    --master-addr "$head" --master-port "${PORT:-29500}" \
    -m lorgnette look "$model" -c "$corpus" --lens "$lenses" --out "$out" --resume
