#!/usr/bin/env bash
# Runs the six sample workloads one after the other and keeps each verdict as JSON.
# Usage: docs/measurements/collect.sh OUTPUT_FOLDER   (from the repository's root)
set -u
out=${1:?usage: docs/measurements/collect.sh OUTPUT_FOLDER}
mkdir -p "$out"
for sample in launch_bound_chain compute_bound_gemm sync_inside torch_gpt2 torch_resnet50 torch_huge_input; do
    ${CGATE:-cgate} run "sample_workloads/$sample.py" --json > "$out/$sample.json" 2> "$out/$sample.log"
    echo "$sample: exit code $?"
done
