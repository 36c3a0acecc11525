#!/usr/bin/env bash
# Runs the sample workloads and those of docs/measurements/workloads one after the other, and keeps each verdict
# as JSON. With names, only those. Usage, from the repository's root:
#   docs/measurements/collect.sh OUTPUT_FOLDER [NAME...]
set -u
out=${1:?usage: docs/measurements/collect.sh OUTPUT_FOLDER [NAME...]}
shift
mkdir -p "$out"
samples=sample_workloads
others=docs/measurements/workloads
while read -r name workload; do
    [ $# -eq 0 ] || [[ " $* " == *" $name "* ]] || continue
    # shellcheck disable=SC2086  (a workload may stand with its shapes)
    ${CGATE:-cgate} run $workload --json > "$out/$name.json" 2> "$out/$name.log" < /dev/null
    echo "$name: exit code $?"
done <<LIST
launch_bound_chain $samples/launch_bound_chain.py
compute_bound_gemm $samples/compute_bound_gemm.py
sync_inside $samples/sync_inside.py
torch_gpt2 $samples/torch_gpt2.py
torch_resnet50 $samples/torch_resnet50.py
torch_huge_input $samples/torch_huge_input.py
mlp64 $others/mlp64.py
torch_resnet50_b1 $samples/torch_resnet50.py --shapes b1=1x3x224x224
gemm_8192 $others/gemm_8192.py
moe_nonzero $others/moe_nonzero.py
torch_gpt2_8x512 $samples/torch_gpt2.py --shapes b8x512=8x512
bert_32x512 $others/bert_32x512.py
LIST
