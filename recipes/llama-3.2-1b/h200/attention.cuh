// One warp's share of the attention of one key/value head: 8 lanes a key (8 dimensions each), 4 keys at a time.
// Scores are in base 2: queries come scaled by log2(e) / sqrt(head size).
#pragma once

#include "stream.cuh"

namespace llama {

constexpr float kQueryScale = 0.18033688011112042f;  // log2(e) / sqrt(64)
constexpr int kSplits = 16;
constexpr int kShortContext = 256;  // up to here: splits of 64 keys, joined by the reader
constexpr int kJoinByReader = kShortContext / 64;

struct Split {
  int count, size;
};

// How `keys` positions are cut into at most kSplits contiguous parts.
__host__ __device__ __forceinline__ Split split(int keys) {
  if (keys <= kShortContext) return {(keys + 63) / 64, 64};
  int size = ((keys + kSplits - 1) / kSplits + 15) & ~15;
  return {(keys + size - 1) / size, size};
}

struct Attention {
  float q[kGroup][8], sum[kGroup][8], top[kGroup], weight[kGroup];

  __device__ __forceinline__ void init() {
#pragma unroll
    for (int h = 0; h < kGroup; ++h) {
      top[h] = -1e30f, weight[h] = 0.f;
#pragma unroll
      for (int i = 0; i < 8; ++i) sum[h][i] = 0.f;
    }
  }

  // kUnroll keys of this lane; key i counts only if seen[i] (its value is then finite).
  template <int kUnroll>
  __device__ __forceinline__ void add(const uint4 (&key)[kUnroll], const uint4 (&value)[kUnroll], const bool (&seen)[kUnroll]) {
    float score[kUnroll][kGroup];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
      for (int h = 0; h < kGroup; ++h) {
        float dot = dot8(key[u], q[h], 0.f);
#pragma unroll
        for (int o = 1; o < 8; o <<= 1) dot += __shfl_xor_sync(~0u, dot, o);
        score[u][h] = seen[u] ? dot : -INFINITY;
      }
    }
#pragma unroll
    for (int h = 0; h < kGroup; ++h) {
      float high = top[h];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) high = fmaxf(high, score[u][h]);
      float shrink = exp2f(top[h] - high);
      top[h] = high, weight[h] *= shrink;
#pragma unroll
      for (int i = 0; i < 8; ++i) sum[h][i] *= shrink;
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        float p = exp2f(score[u][h] - high);
        weight[h] += p;
        score[u][h] = p;
      }
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      float v[8];
      unpack8(seen[u] ? value[u] : make_uint4(0, 0, 0, 0), v);
#pragma unroll
      for (int h = 0; h < kGroup; ++h)
#pragma unroll
        for (int i = 0; i < 8; ++i) sum[h][i] = fmaf(score[u][h], v[i], sum[h][i]);
    }
  }

  // Join the four keys-in-flight of the warp; lane L is left with head L >> 3, dimensions (L & 7) * 8 .. + 8.
  __device__ __forceinline__ void join(int lane, float (&out)[8], float& out_top, float& out_weight) {
#pragma unroll
    for (int h = 0; h < kGroup; ++h) {
      float high = fmaxf(top[h], __shfl_xor_sync(~0u, top[h], 8));
      high = fmaxf(high, __shfl_xor_sync(~0u, high, 16));
      float shrink = exp2f(top[h] - high);
      top[h] = high, weight[h] *= shrink;
      weight[h] += __shfl_xor_sync(~0u, weight[h], 8);
      weight[h] += __shfl_xor_sync(~0u, weight[h], 16);
#pragma unroll
      for (int i = 0; i < 8; ++i) sum[h][i] *= shrink;
    }
    const bool upper = lane & 16, odd = lane & 8;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float a = (upper ? sum[2][i] : sum[0][i]) + __shfl_xor_sync(~0u, upper ? sum[0][i] : sum[2][i], 16);
      float b = (upper ? sum[3][i] : sum[1][i]) + __shfl_xor_sync(~0u, upper ? sum[1][i] : sum[3][i], 16);
      out[i] = (odd ? b : a) + __shfl_xor_sync(~0u, odd ? a : b, 8);
    }
    out_top = upper ? (odd ? top[3] : top[2]) : (odd ? top[1] : top[0]);
    out_weight = upper ? (odd ? weight[3] : weight[2]) : (odd ? weight[1] : weight[0]);
  }
};

// The warps of a block join through shared memory.
template <int kCount>
struct Joint {
  float sums[kCount][kGroup][kHeadDim], tops[kCount][kGroup], weights[kCount][kGroup];

  __device__ __forceinline__ void put(Attention& a, int warp, int lane) {
    float out[8], top, weight;
    a.join(lane, out, top, weight);
    float4* to = (float4*)&sums[warp][lane >> 3][(lane & 7) * 8];
    to[0] = make_float4(out[0], out[1], out[2], out[3]), to[1] = make_float4(out[4], out[5], out[6], out[7]);
    if ((lane & 7) == 0) tops[warp][lane >> 3] = top, weights[warp][lane >> 3] = weight;
  }
  // Normalised output element (h, d), and log2 of the sum of exp2(score).
  __device__ __forceinline__ float get(int h, int d, float& log) const {
    float high = -1e30f, total = 0.f, value = 0.f;
#pragma unroll
    for (int w = 0; w < kCount; ++w) high = fmaxf(high, tops[w][h]);
#pragma unroll
    for (int w = 0; w < kCount; ++w) {
      float scale = exp2f(tops[w][h] - high);
      total = fmaf(scale, weights[w][h], total);
      value = fmaf(scale, sums[w][h][d], value);
    }
    log = high + log2f(total);
    return value / total;
  }
};

}  // namespace llama
