#!/usr/bin/env bash
# Runs the sample workloads and those of docs/measurements/workloads one after the other, and keeps each verdict
# as JSON. With names, only those; OPTIONS are further options of cgate run, such as --quick. Usage, from the
# repository's root:
#   [OPTIONS=...] docs/measurements/collect.sh OUTPUT_FOLDER [NAME...]
set -u
out=${1:?usage: docs/measurements/collect.sh OUTPUT_FOLDER [NAME...]}
shift
mkdir -p "$out"
samples=sample_workloads
others=docs/measurements/workloads
shim=$PWD/docs/measurements/numpy_shim
while read -r name workload; do
    [ $# -eq 0 ] || [[ " $* " == *" $name "* ]] || continue
    path=${PYTHONPATH:-}
    [[ $name == numba_* ]] && path=$shim${path:+:$path}
    # shellcheck disable=SC2086  (a workload may stand with its shapes)
    PYTHONPATH=$path ${CGATE:-cgate} run $workload ${OPTIONS:-} --json > "$out/$name.json" 2> "$out/$name.log" < /dev/null
    echo "$name: exit code $?"
done <<LIST
launch_bound_chain $samples/launch_bound_chain.py
explicit_chain $samples/explicit_chain.py
own_graph_chain $samples/own_graph_chain.py
whole_request_chain $samples/whole_request_chain.py
traffic_mix $samples/traffic_mix.py --shapes
compute_bound_gemm $samples/compute_bound_gemm.py
sync_inside $samples/sync_inside.py
cuda_core_explicit $samples/cuda_core_explicit.py
torch_gpt2 $samples/torch_gpt2.py --shapes
torch_decode $samples/torch_decode.py --shapes
torch_training $samples/torch_training.py
torch_compile $samples/torch_compile.py --shapes
torch_mixed $samples/torch_mixed.py
torch_moe $samples/torch_moe.py
torch_bert $samples/torch_bert.py
torch_resnet50 $samples/torch_resnet50.py
torch_resnet50_b1 $samples/torch_resnet50.py --shapes b1=1x3x224x224
torch_huge_input $samples/torch_huge_input.py
cupy_jacobi $samples/cupy_jacobi.py --shapes
numba_stencil $samples/numba_stencil.py --shapes
mlp64 $others/mlp64.py
gemm_8192 $others/gemm_8192.py
LIST
