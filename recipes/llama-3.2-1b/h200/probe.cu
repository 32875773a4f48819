// The ceiling: how fast this card reads weights and does nothing with them but one exclusive-or.
// One block an SM, each reading its own contiguous part through the same ring of bulk copies that the decode kernels use.
#include "stream.cuh"

using namespace llama;

extern __shared__ __align__(128) unsigned char shared_memory[];

__global__ void __launch_bounds__(kThreads, 1) read_all(const unsigned char* from, size_t bytes, int depth, uint32_t* out) {
  uint64_t* barriers = (uint64_t*)(shared_memory + depth * kStageBytes);
  Ring ring;
  Cursor at;
  ring.init(shared_memory, barriers, depth);
  if (threadIdx.x == 0) ring.init_barriers();
  __syncthreads();
  const size_t stages = bytes / kStageBytes;
  const size_t first = stages * blockIdx.x / gridDim.x, last = stages * (blockIdx.x + 1) / gridDim.x;
  if (threadIdx.x == kConsumers) {
    ring.produce(at, from + first * kStageBytes, (last - first) * kStageBytes, stream_policy());
  }
  if (threadIdx.x >= kConsumers) return;
  uint32_t all = 0;
  for (size_t i = first; i < last; ++i) {
    barrier_wait(ring.full + 8 * at.slot, at.parity);
    uint4 a = shared_load(ring.data + at.slot * kStageBytes + threadIdx.x * 16);
    uint4 b = shared_load(ring.data + at.slot * kStageBytes + (threadIdx.x + kConsumers) * 16);
    all ^= a.x ^ a.y ^ a.z ^ a.w ^ b.x ^ b.y ^ b.z ^ b.w;
    __syncwarp();
    if ((threadIdx.x & 31) == 0) barrier_arrive(ring.empty + 8 * at.slot);
    at.advance(depth);
  }
  out[blockIdx.x * kConsumers + threadIdx.x] = all;
}

// Enqueue one pass over `bytes` with `blocks` blocks. 0, or a CUDA error code.
extern "C" int probe_read(const void* from, size_t bytes, int blocks, int depth, uint32_t* out, cudaStream_t stream) {
  const int shared = depth * (kStageBytes + 16);
  cudaError_t error = cudaFuncSetAttribute(read_all, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
  if (error != cudaSuccess) return (int)error;
  read_all<<<blocks, kThreads, shared, stream>>>((const unsigned char*)from, bytes, depth, out);
  return (int)cudaGetLastError();
}
