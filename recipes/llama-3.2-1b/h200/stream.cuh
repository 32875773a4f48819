// Shared parts of the Llama-3.2-1B decode kernel: shapes, the weight ring, and the streaming matrix-vector product.
//
// A matrix-vector product at batch 1 is a stream of weights. One producer thread copies this block's rows, which lie
// one after the other in memory, through a ring of 16 KB stages in shared memory (bulk copies that complete on an
// mbarrier). 16 consumer warps multiply on the tensor cores, not for their rate but because they need a fifth of the
// instructions: a warp owns a sixteenth of the columns, and the weights are packed in the order of the matrix
// fragments (pack.py), so that 8 rows x 32 columns are one 16-byte shared load a lane. The vector is the other operand,
// split in two bf16 rows, v = high + low, which keeps 16 bits of its mantissa. Sums are fp32 in a fixed order.
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

// Pointers to one layer. Matrices are packed (pack.py).
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

__device__ __forceinline__ uint32_t pack2(float a, float b) {
  __nv_bfloat162 v = __floats2bfloat162_rn(a, b);
  return *(uint32_t*)&v;
}

// sum[16 x 8] += a[16 x 16] b[16 x 8]; rows 8 .. 15 of a are zero. Lane (g, t) = (lane >> 2, lane & 3) holds columns 2t,
// 2t + 1 (a0) and 2t + 8, 2t + 9 (a2) of row g of a, and the same rows (b0, b1) of column g of b.
__device__ __forceinline__ void multiply_tile(float (&sum)[4], uint32_t a0, uint32_t a2, uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a0), "r"(0), "r"(a2), "r"(0), "r"(b0), "r"(b1));
}

// ---- streaming matrix-vector product -----------------------------------------------------------------------------------

constexpr int kTileRows = 8;
constexpr int kTileColumns = 32;
constexpr int kPassRows = 64;  // rows between two barriers

struct Partials {
  // [row of the pass][warp that summed it], padded against bank conflicts. Two passes in flight: who writes a buffer
  // again has passed the barrier after the one that its readers waited at.
  float row[2][kPassRows][kWarps + 1];
  float square[kWarps];  // sums of squares of the input, for the RMS norm
};

// The vector, in shared memory: its high parts and, if there is room (K = 2048), its low parts.
struct alignas(16) Vector {
  bf16 high[kHidden], low[kInner - kHidden];
};

template <int K>
struct Shape {
  static constexpr int kColumns = K / kWarps;  // of a warp
  static constexpr bool kHasLow = K == kHidden;
  static constexpr int kStagePairs = K * kTileRows * 2 / kStageBytes / 2;  // of a tile row: 1 for 2048, 4 for 8192
};

// Lane `lane` of warp `warp` puts its four columns, warp * kColumns + part * 128 + lane * 4 .. + 4.
template <int K>
__device__ __forceinline__ void put(Vector& to, int warp, int lane, int part, const float* x) {
  const int at = warp * Shape<K>::kColumns + part * 128 + lane * 4;
  const uint32_t a = pack2(x[0], x[1]), b = pack2(x[2], x[3]);
  *(uint2*)(to.high + at) = make_uint2(a, b);
  if constexpr (Shape<K>::kHasLow)
    *(uint2*)(to.low + at) = make_uint2(pack2(x[0] - low(a), x[1] - high(a)), pack2(x[2] - low(b), x[3] - high(b)));
}

// Multiply `rows` streamed rows (a multiple of 8) with the vector, of which each warp has put its own columns. After
// each pass of up to 64 rows, thread r of the first warps calls done(row, sum) for row r of the pass; whole warps take
// part, so `row` may be past the end.
template <int K, class Done>
__device__ __forceinline__ void multiply(const Ring& ring, Cursor& at, int rows, const Vector& vector, Partials& partials,
                                         Done done) {
  using S = Shape<K>;
  const int t = threadIdx.x, lane = t & 31, warp = t >> 5;
  __syncwarp();
  // Lanes 0 .. 3 hold the high row of the fragment, 4 .. 7 the low row, all others zeros.
  const bool holds = lane < (S::kHasLow ? 8 : 4);
  const uint32_t mine = smem_address(lane < 4 ? vector.high : vector.low) + (warp * S::kColumns + (lane & 3) * 8) * 2;
  auto fragment = [&](int tile) { return holds ? shared_load(mine + tile * kTileColumns * 2) : make_uint4(0, 0, 0, 0); };
  uint4 kept[4];  // the whole of the warp's columns if K = 2048
  if constexpr (S::kStagePairs == 1) {
#pragma unroll
    for (int i = 0; i < 4; ++i) kept[i] = fragment(i);
  }
  for (int base = 0; base < rows; base += kPassRows) {
    const int in_pass = min(kPassRows, rows - base);
    float(*out)[kWarps + 1] = partials.row[at.passes++ & 1];
    for (int row = 0; row < in_pass; row += kTileRows) {
      float sum[2][4] = {};
#pragma unroll
      for (int pair = 0; pair < S::kStagePairs; ++pair) {
        const uint32_t place = ring.data + warp * 1024 + lane * 16;
        const int slot = at.slot;
        barrier_wait(ring.full + 8 * slot, at.parity);
        at.advance(ring.depth);
        const int next = at.slot;
        barrier_wait(ring.full + 8 * next, at.parity);
        at.advance(ring.depth);
        uint4 w[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) w[i] = shared_load(place + (i < 2 ? slot : next) * kStageBytes + (i & 1) * 512);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const uint4 x = S::kStagePairs == 1 ? kept[i] : fragment(pair * 4 + i);
          multiply_tile(sum[0], x.x, x.y, w[i].x, w[i].y);
          multiply_tile(sum[1], x.z, x.w, w[i].z, w[i].w);
        }
        __syncwarp();
        if (lane == 0) barrier_arrive(ring.empty + 8 * slot), barrier_arrive(ring.empty + 8 * next);
      }
      float a = sum[0][0] + sum[1][0], b = sum[0][1] + sum[1][1];
      if constexpr (S::kHasLow) a += __shfl_xor_sync(~0u, a, 4), b += __shfl_xor_sync(~0u, b, 4);
      if (lane < 4) out[row + lane * 2][warp] = a, out[row + lane * 2 + 1][warp] = b;
    }
    consumer_sync();
    if (warp * 32 < in_pass) {
      float all = 0.f;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) all += out[t][w];
      done(base + t, all);
    }
  }
}

// Reciprocal root mean square of the vector whose squares `share_squares` left in `partials`.
__device__ __forceinline__ float inverse_rms(const Partials& partials, float eps) {
  float all = 0.f;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) all += partials.square[w];
  return rsqrtf(all / kHidden + eps);
}

__device__ __forceinline__ void share_squares(const float (&x)[4], Partials& partials) {
  const float sum = warp_sum(fmaf(x[0], x[0], x[1] * x[1]) + fmaf(x[2], x[2], x[3] * x[3]));
  if ((threadIdx.x & 31) == 0) partials.square[threadIdx.x >> 5] = sum;
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
