// Shared parts of the Llama-3.2-1B decode kernels: shapes, the weight ring, and the streaming matrix-vector product.
//
// A matrix-vector product at batch 1 is a stream of weights. One producer thread copies this block's rows, which lie
// one after the other in memory, through a ring of 16 KB stages in shared memory (bulk copies that complete on an
// mbarrier). 512 consumer threads keep the activations they need in registers: thread t always multiplies the same 8
// (K = 2048) or 16 (K = 8192) columns, so a stage costs two 16-byte shared loads a thread and no activation loads.
// Sums are fp32 in a fixed order: products of a thread, then a butterfly in the warp, then the warps in order.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>

namespace llama {

constexpr int kHidden = 2048;
constexpr int kHeads = 32;
constexpr int kKvHeads = 8;
constexpr int kGroup = kHeads / kKvHeads;  // query heads that share one key/value head
constexpr int kHeadDim = 64;
constexpr int kQkvRows = (kHeads + 2 * kKvHeads) * kHeadDim;
constexpr int kInner = 8192;
constexpr int kVocab = 128256;
constexpr int kLayers = 16;

constexpr int kStageBytes = 16384;
constexpr int kConsumers = 512;
constexpr int kThreads = kConsumers + 32;  // and one producer warp
constexpr int kWarps = kConsumers / 32;

using bf16 = __nv_bfloat16;

// Pointers to one layer. `qkv` and `gate_up` are packed (see pack.py); all others lie as in the checkpoint.
struct Layer {
  const bf16 *qkv, *o, *gate_up, *down, *norm_in, *norm_post;
  bf16 *keys, *values;  // [slots][kv head][length][kHeadDim]
};

struct Model {
  const bf16 *embed, *head, *norm;
  const float2* rope;  // [length][kHeadDim / 2] (cos, sin)
  void* scratch;
  int length;  // positions per slot
  float eps;
};

// ---- mbarriers and bulk copies -------------------------------------------------------------------------------------

__device__ __forceinline__ uint32_t smem_address(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }

__device__ __forceinline__ void barrier_init(uint32_t bar, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals) : "memory");
}

__device__ __forceinline__ bool barrier_try(uint32_t bar, uint32_t parity) {
  uint32_t done;
  asm volatile(
      "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
      : "=r"(done)
      : "r"(bar), "r"(parity)
      : "memory");
  return done != 0;
}

// A wait that never ends is a bug: trap instead of hanging the device (a try is suspended for about a microsecond).
__device__ __forceinline__ void barrier_wait(uint32_t bar, uint32_t parity) {
  for (int spin = 0; !barrier_try(bar, parity); ++spin) {
    if (spin > (1 << 22)) __trap();
  }
}

__device__ __forceinline__ void barrier_arrive(uint32_t bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}

__device__ __forceinline__ void barrier_expect(uint32_t bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}

__device__ __forceinline__ uint64_t stream_policy() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

__device__ __forceinline__ void bulk_copy(uint32_t to, const void* from, uint32_t bytes, uint32_t bar, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(to),
      "l"(from), "r"(bytes), "r"(bar), "l"(policy)
      : "memory");
}

__device__ __forceinline__ void consumer_sync() { asm volatile("bar.sync 1, %0;" ::"n"(kConsumers) : "memory"); }

// ---- programmatic dependent launch -----------------------------------------------------------------------------------

__device__ __forceinline__ void dependents_launch() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
__device__ __forceinline__ void dependency_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// ---- the ring ----------------------------------------------------------------------------------------------------------

// One side's place in the ring. Producer and consumers each keep their own.
struct Cursor {
  int slot = 0;
  uint32_t parity = 0;
  bool first_round = true;
  uint32_t passes = 0;  // consumers: passes summed so far, over all products
  __device__ __forceinline__ void advance(int depth) {
    if (++slot == depth) slot = 0, parity ^= 1, first_round = false;
  }
};

struct Ring {
  uint32_t data, full, empty;  // shared-memory addresses
  int depth;
  int flight = 1 << 20;  // stages that may be on their way at once; fewer keep the latency of all other loads low

  __device__ __forceinline__ void init(unsigned char* stages, uint64_t* barriers, int stages_count) {
    data = smem_address(stages), depth = stages_count;
    full = smem_address(barriers), empty = full + 8 * depth;
  }
  __device__ __forceinline__ void init_barriers() const {
    for (int i = 0; i < depth; ++i) barrier_init(full + 8 * i, 1), barrier_init(empty + 8 * i, kWarps);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  // Producer thread: the next stage, once it is free and not too many are on their way.
  __device__ __forceinline__ void claim(const Cursor& at) const {
    barrier_wait(empty + 8 * at.slot, at.parity ^ 1);
    if (flight >= depth) return;
    const bool wrapped = at.slot < flight;  // the stage `flight` before this one lies in the round before
    if (wrapped && at.first_round) return;
    barrier_wait(full + 8 * (at.slot - flight + (wrapped ? depth : 0)), at.parity ^ (wrapped ? 1 : 0));
  }
  // Producer thread: stream `bytes` from `from`, one stage at a time.
  __device__ __forceinline__ void produce(Cursor& at, const void* from, size_t bytes, uint64_t policy) const {
    const char* source = (const char*)from;
    for (size_t done = 0; done < bytes; done += kStageBytes) {
      uint32_t size = (uint32_t)(bytes - done < kStageBytes ? bytes - done : kStageBytes);
      claim(at);
      barrier_expect(full + 8 * at.slot, size);
      bulk_copy(data + at.slot * kStageBytes, source + done, size, full + 8 * at.slot, policy);
      at.advance(depth);
    }
  }
};

// ---- arithmetic ----------------------------------------------------------------------------------------------------------

__device__ __forceinline__ float low(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }

__device__ __forceinline__ float dot8(uint4 w, const float* x, float sum) {
  sum = fmaf(low(w.x), x[0], sum), sum = fmaf(high(w.x), x[1], sum);
  sum = fmaf(low(w.y), x[2], sum), sum = fmaf(high(w.y), x[3], sum);
  sum = fmaf(low(w.z), x[4], sum), sum = fmaf(high(w.z), x[5], sum);
  return fmaf(high(w.w), x[7], fmaf(low(w.w), x[6], sum));
}

__device__ __forceinline__ void unpack8(uint4 w, float* x) {
  x[0] = low(w.x), x[1] = high(w.x), x[2] = low(w.y), x[3] = high(w.y);
  x[4] = low(w.z), x[5] = high(w.z), x[6] = low(w.w), x[7] = high(w.w);
}

__device__ __forceinline__ uint4 shared_load(uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(address));
  return v;
}

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
  return v;
}

// Sum each of 8 values over the warp; lane L returns value (L >> 2). 9 shuffles instead of 40.
__device__ __forceinline__ float warp_sum8(const float (&v)[8], int lane) {
  float a[4], b[2];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float keep = lane & 16 ? v[i + 4] : v[i], give = lane & 16 ? v[i] : v[i + 4];
    a[i] = keep + __shfl_xor_sync(~0u, give, 16);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float keep = lane & 8 ? a[i + 2] : a[i], give = lane & 8 ? a[i] : a[i + 2];
    b[i] = keep + __shfl_xor_sync(~0u, give, 8);
  }
  float keep = lane & 4 ? b[1] : b[0], give = lane & 4 ? b[0] : b[1];
  float c = keep + __shfl_xor_sync(~0u, give, 4);
  c += __shfl_xor_sync(~0u, c, 2);
  return c + __shfl_xor_sync(~0u, c, 1);
}

// First of the units (rows, or pairs of rows) that belong to block `b` of `n`: contiguous, sizes differ by at most one.
__host__ __device__ __forceinline__ int first_unit(int b, int units, int n) { return (int)((long long)b * units / n); }

// ---- streaming matrix-vector product -----------------------------------------------------------------------------------

constexpr int kPassRows = 128;  // rows between two barriers

struct Partials {
  // [row of the pass][warp that summed it], padded against bank conflicts. Two passes in flight: who writes a buffer
  // again has passed the barrier after the one that its readers waited at.
  float row[2][kPassRows * 9];
  float square[8];  // sums of squares of the input, for the RMS norm
};

template <int K>
struct Shape {
  static constexpr int kRowsAtOnce = kConsumers * 8 / K > 0 ? kConsumers * 8 / K : 1;  // 2 for 2048, 1 for 8192
  static constexpr int kChunks = K / (kConsumers / kRowsAtOnce * 8);                    // 1 for 2048, 2 for 8192
  static constexpr int kStageRows = kStageBytes / (2 * K);
  static constexpr int kGroupStages = 8 * kRowsAtOnce / kStageRows;  // a thread sums 8 rows at a time
  static constexpr int kWarpsPerRow = kWarps / kRowsAtOnce;
  static constexpr int kStride = kWarpsPerRow + 1;
  static constexpr int kMaxRows = kPassRows * 9 / kStride < kPassRows ? 64 : kPassRows;  // of a pass
  // First column of chunk `c` of consumer thread `t`.
  static __device__ __forceinline__ int column(int t, int c) { return (t % (kConsumers / kRowsAtOnce) + c * kConsumers) * 8; }
};

// Multiply `rows` streamed rows with the activations `x` of this thread. After each pass of up to 128 rows, thread r of
// the first warps calls done(row, sum) for row r of the pass; whole warps take part, so `row` may be past the end.
template <int K, class Done>
__device__ __forceinline__ void multiply(const Ring& ring, Cursor& at, int rows, const float (&x)[8 * Shape<K>::kChunks],
                                         Partials& partials, Done done) {
  using S = Shape<K>;
  const int t = threadIdx.x, lane = t & 31, warp = t >> 5;
  for (int base = 0; base < rows; base += S::kMaxRows) {
    const int in_pass = min(S::kMaxRows, rows - base);
    const int stages = (in_pass + S::kStageRows - 1) / S::kStageRows;
    float* out = partials.row[at.passes++ & 1];
    for (int first = 0; first < stages; first += S::kGroupStages) {
      float sum[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) sum[i] = 0.f;
#pragma unroll
      for (int s = 0; s < S::kGroupStages; s += 2) {  // two stages at a time: four loads in flight
        if (first + s >= stages) break;
        const bool both = first + s + 1 < stages;
        const int slot = at.slot;
        barrier_wait(ring.full + 8 * slot, at.parity);
        const uint32_t place = ring.data + t * 16;
        const uint4 a = shared_load(place + slot * kStageBytes), b = shared_load(place + slot * kStageBytes + kConsumers * 16);
        at.advance(ring.depth);
        const int next = at.slot;
        if (both) {
          barrier_wait(ring.full + 8 * next, at.parity);
          at.advance(ring.depth);
        }
        const uint4 c = shared_load(place + next * kStageBytes), d = shared_load(place + next * kStageBytes + kConsumers * 16);
        constexpr int kSums = S::kChunks == 1 ? 2 : 1;  // of a stage: two rows, or one row in two chunks
        constexpr int kLast = 8 * (S::kChunks - 1);
        sum[s * kSums] = dot8(a, x, sum[s * kSums]);
        sum[s * kSums + kSums - 1] = dot8(b, x + kLast, sum[s * kSums + kSums - 1]);
        sum[s * kSums + kSums] = dot8(c, x, sum[s * kSums + kSums]);
        sum[s * kSums + 2 * kSums - 1] = dot8(d, x + kLast, sum[s * kSums + 2 * kSums - 1]);
        __syncwarp();
        if (lane == 0) {
          barrier_arrive(ring.empty + 8 * slot);
          if (both) barrier_arrive(ring.empty + 8 * next);
        }
      }
      const float total = warp_sum8(sum, lane);
      const int row = first * S::kStageRows + (lane >> 2) * S::kRowsAtOnce + warp / S::kWarpsPerRow;
      if ((lane & 3) == 0) out[row * S::kStride + warp % S::kWarpsPerRow] = total;
    }
    consumer_sync();
    if (warp * 32 < in_pass) {
      const float* parts = out + t * S::kStride;
      float all = 0.f;
#pragma unroll
      for (int w = 0; w < S::kWarpsPerRow; ++w) all += parts[w];
      done(base + t, all);
    }
  }
}

// Reciprocal root mean square of the vector whose squares `share_squares` left in `partials`.
__device__ __forceinline__ float inverse_rms(const Partials& partials, float eps) {
  float all = 0.f;
#pragma unroll
  for (int w = 0; w < 8; ++w) all += partials.square[w];
  return rsqrtf(all / kHidden + eps);
}

__device__ __forceinline__ void share_squares(const float (&x)[8], Partials& partials) {
  float sum = 0.f;
#pragma unroll
  for (int i = 0; i < 8; ++i) sum = fmaf(x[i], x[i], sum);
  sum = warp_sum(sum);
  if (threadIdx.x < 256 && (threadIdx.x & 31) == 0) partials.square[threadIdx.x >> 5] = sum;
}

// (value, index) of the larger; the lower index wins a tie, as argmax does.
struct Best {
  float value;
  int index;
  __device__ __forceinline__ void take(float v, int i) {
    if (v > value || (v == value && i < index)) value = v, index = i;
  }
  __device__ __forceinline__ void over_warp() {
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) take(__shfl_xor_sync(~0u, value, o), __shfl_xor_sync(~0u, index, o));
  }
};

}  // namespace llama
