# . env.sh BUILD: programs of that build find the stand-ins, eight GPUs and NCCL; "rccl" in TUTTI_TEST_CCL: AMD's
gpu=$(cd "$1/tests/gpu" && pwd)
export TUTTI_CUDA_LIBRARY=$gpu/libcuda.so.1 TUTTI_HIP_LIBRARY=$gpu/libamdhip64.so TUTTI_NCCL_LIBRARY=$gpu/libnccl.so.2 \
  TUTTI_RCCL_LIBRARY=$gpu/librccl.so.1 STANDIN_DEVICES=8 TUTTI_TEST_CCL=nccl
