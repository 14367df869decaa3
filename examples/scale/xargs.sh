#!/usr/bin/env bash
# Look at a corpus in shards on one machine, some at a time, then merge them into one run.
#
#   examples/scale/xargs.sh MODEL CORPUS OUT [SHARDS] [AT A TIME] [LENSES]
#
# Run it again after an interruption: finished shards return at once, interrupted ones continue.
set -euo pipefail
model=$1 corpus=$2 out=$3 shards=${4:-8} at_a_time=${5:-2} lenses=${6:-weights,norms}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} # processes that share the cores should not each use all of them

seq "$shards" | xargs -P "$at_a_time" -I{} \
    python -m lorgnette look "$model" -c "$corpus" --lens "$lenses" --shard "{}/$shards" --out "$out.parts/{}" --resume

python -m lorgnette merge "$out.parts"/* --out "$out"
