// One warp's share of the attention of one key/value head: 8 lanes a key (8 dimensions each), 4 keys at a time.
// Scores are in base 2: queries come scaled by log2(e) / sqrt(head size).
#pragma once

#include "stream.cuh"

namespace llama {

constexpr float kQueryScale = 0.18033688011112042f;  // log2(e) / sqrt(64)
constexpr int kSplits = 16;
constexpr int kShortContext = 256;  // up to here: splits of 64 keys, joined by the reader
constexpr int kJoinByReader = kShortContext / 64;

__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

struct Split {
  int count, size;
};

// How `keys` positions are cut into at most kSplits contiguous parts.
__host__ __device__ __forceinline__ Split split(int keys) {
  if (keys <= kShortContext) return {(keys + 63) / 64, 64};
  int size = ((keys + kSplits - 1) / kSplits + 15) & ~15;
  return {(keys + size - 1) / size, size};
}

constexpr int kWarpHeads = 2;  // query heads of one warp; two warps share the keys of a group of four

struct Attention {
  float sum[kWarpHeads][8], top[kWarpHeads], weight[kWarpHeads];

  __device__ __forceinline__ void init() {
#pragma unroll
    for (int h = 0; h < kWarpHeads; ++h) {
      top[h] = -1e30f, weight[h] = 0.f;
#pragma unroll
      for (int i = 0; i < 8; ++i) sum[h][i] = 0.f;
    }
  }

  // kUnroll keys of this lane; key i counts only if kAllSeen or seen[i]. value(i) loads its value: late, to keep
  // registers free.
  template <bool kAllSeen, int kUnroll, class Value>
  __device__ __forceinline__ void add(const float (&q)[kWarpHeads][8], const uint4 (&key)[kUnroll], const bool (&seen)[kUnroll],
                                      Value value) {
    float score[kUnroll][kWarpHeads];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
#pragma unroll
      for (int h = 0; h < kWarpHeads; ++h) score[u][h] = dot8(key[u], q[h], 0.f);
#pragma unroll
    for (int o = 1; o < 8; o <<= 1)
#pragma unroll
      for (int u = 0; u < kUnroll; ++u)
#pragma unroll
        for (int h = 0; h < kWarpHeads; ++h) score[u][h] += __shfl_xor_sync(~0u, score[u][h], o);
    float high[kWarpHeads];
    bool rises = false;
#pragma unroll
    for (int h = 0; h < kWarpHeads; ++h) {
      high[h] = top[h];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if constexpr (!kAllSeen) score[u][h] = seen[u] ? score[u][h] : -INFINITY;
        high[h] = fmaxf(high[h], score[u][h]);
      }
      rises |= high[h] > top[h];
    }
    if (__any_sync(~0u, rises)) {  // seldom, after the first keys
#pragma unroll
      for (int h = 0; h < kWarpHeads; ++h) {
        const float shrink = exp2_fast(top[h] - high[h]);
        top[h] = high[h], weight[h] *= shrink;
#pragma unroll
        for (int i = 0; i < 8; ++i) sum[h][i] *= shrink;
      }
    }
#pragma unroll
    for (int h = 0; h < kWarpHeads; ++h)
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) weight[h] += score[u][h] = exp2_fast(score[u][h] - top[h]);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      float v[8];
      const uint4 raw = value(u);
      unpack8(kAllSeen || seen[u] ? raw : make_uint4(0, 0, 0, 0), v);  // what lies past the end may be NaN
#pragma unroll
      for (int h = 0; h < kWarpHeads; ++h)
#pragma unroll
        for (int i = 0; i < 8; ++i) sum[h][i] = fmaf(score[u][h], v[i], sum[h][i]);
    }
  }

  // Join the four keys-in-flight of the warp; lane L is left with head L >> 4 of the warp's, and four dimensions:
  // (L & 7) * 8 + (L & 8 ? 4 : 0) .. + 4.
  __device__ __forceinline__ void join(int lane, float (&out)[4], float& out_top, float& out_weight) {
#pragma unroll
    for (int h = 0; h < kWarpHeads; ++h) {
      float high = fmaxf(top[h], __shfl_xor_sync(~0u, top[h], 8));
      high = fmaxf(high, __shfl_xor_sync(~0u, high, 16));
      const float shrink = exp2_fast(top[h] - high);
      top[h] = high, weight[h] *= shrink;
      weight[h] += __shfl_xor_sync(~0u, weight[h], 8);
      weight[h] += __shfl_xor_sync(~0u, weight[h], 16);
#pragma unroll
      for (int i = 0; i < 8; ++i) sum[h][i] *= shrink;
    }
    const bool upper = lane & 16, odd = lane & 8;
    float one[8];
#pragma unroll
    for (int i = 0; i < 8; ++i)
      one[i] = (upper ? sum[1][i] : sum[0][i]) + __shfl_xor_sync(~0u, upper ? sum[0][i] : sum[1][i], 16);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      out[i] = (odd ? one[i + 4] : one[i]) + __shfl_xor_sync(~0u, odd ? one[i] : one[i + 4], 8);
    out_top = upper ? top[1] : top[0], out_weight = upper ? weight[1] : weight[0];
  }
};

// The warps of a block join through shared memory. Warp w holds heads (w & 1) * 2 .. + 2 and keys of group w >> 1.
template <int kCount>
struct alignas(16) Joint {
  float sums[kCount / 2][kGroup][kHeadDim], tops[kCount / 2][kGroup], weights[kCount / 2][kGroup];

  __device__ __forceinline__ void put(Attention& a, int warp, int lane) {
    float out[4], top, weight;
    a.join(lane, out, top, weight);
    const int head = (warp & 1) * kWarpHeads + (lane >> 4);
    *(float4*)&sums[warp >> 1][head][(lane & 7) * 8 + (lane & 8 ? 4 : 0)] = make_float4(out[0], out[1], out[2], out[3]);
    if ((lane & 15) == 0) tops[warp >> 1][head] = top, weights[warp >> 1][head] = weight;
  }
  // Normalised output element (h, d), and log2 of the sum of exp2(score).
  __device__ __forceinline__ float get(int h, int d, float& log) const {
    float high = -1e30f, total = 0.f, value = 0.f;
#pragma unroll
    for (int w = 0; w < kCount / 2; ++w) high = fmaxf(high, tops[w][h]);
#pragma unroll
    for (int w = 0; w < kCount / 2; ++w) {
      const float scale = exp2_fast(tops[w][h] - high);
      total = fmaf(scale, weights[w][h], total);
      value = fmaf(scale, sums[w][h][d], value);
    }
    log = high + __log2f(total);
    return __fdividef(value, total);
  }
};

}  // namespace llama
