#!/usr/bin/env bash
# Look at a corpus in shards on a Slurm cluster: an array with one GPU for each shard, then one job that merges them.
#
#   examples/scale/slurm.sh MODEL CORPUS OUT [SHARDS] [LENSES]
#
# All nodes must see the same MODEL, CORPUS and OUT. Submit it again after a failure: finished shards return at once.
# shellcheck disable=SC2016  # what a job runs is expanded on its node
set -euo pipefail
export MODEL=$1 CORPUS=$2 OUT=$3 SHARDS=${4:-64} LENSES=${5:-weights,norms}

array=$(sbatch --parsable --array="1-$SHARDS" --gpus-per-task=1 --ntasks=1 --wrap '
    python -m lorgnette look "$MODEL" -c "$CORPUS" --lens "$LENSES" --batch-tokens 32768 \
        --shard "$SLURM_ARRAY_TASK_ID/$SHARDS" --out "$OUT.parts/$SLURM_ARRAY_TASK_ID" --resume')

sbatch --dependency="afterok:${array%%;*}" --kill-on-invalid-dep=yes --ntasks=1 --wrap 'python -m lorgnette merge "$OUT.parts"/* --out "$OUT"'
