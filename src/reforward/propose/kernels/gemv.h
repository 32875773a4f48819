// Rows of weights against a few staged activations: one pass over the weights, prefetched, summed in fp32.
#pragma once
#include "vector.h"

constexpr long kMaxRows = 8;      // activations that share one pass over the weights
constexpr long kPrefetch = 4096;  // bytes ahead of the current load, at least

// out[r * M + m] = sum over k of w[r * k + i] * x[m * k + i], for R rows of weights and M activations.
template <int R, int M, class W>
static inline void dots(const W* w, const float* x, long k, float* out, long ahead) {
    constexpr int parts = Row<W>::parts;
    Vec acc[R][M] = {};
    long i = 0;
    for (; i + Row<W>::step <= k; i += Row<W>::step) {
        Vec wide[R][parts];
        for (int r = 0; r < R; ++r) {
            __builtin_prefetch(reinterpret_cast<const char*>(w + r * k + i) + ahead, 0, 2);
            Row<W>::read(w + r * k + i, wide[r]);
        }
        for (int p = 0; p < parts; ++p)
            for (int m = 0; m < M; ++m) {
                Vec at = load(x + m * k + i + p * kLanes);
                for (int r = 0; r < R; ++r) acc[r][m] += wide[r][p] * at;
            }
    }
    for (int r = 0; r < R; ++r)
        for (int m = 0; m < M; ++m) {
            float total = sum(acc[r][m]);
            for (long j = i; j < k; ++j) total += widen(w[r * k + j]) * x[m * k + j];
            out[r * M + m] = total;
        }
}

// Weight rows begin .. end against M activations; out[(n - begin) * M + m]. `ahead`: bytes to prefetch ahead, at least.
template <int M, class W>
static void sweep(const W* w, const float* x, long k, long begin, long end, float* out, long ahead) {
    constexpr int R = M <= 2 ? 1 : kLanes == 16 ? 3 : 2;  // as many sums as fit into registers
    long n = begin, block = R * k * long(sizeof(W));
    if (ahead < block) ahead = block;
    for (; n + R <= end; n += R) dots<R, M>(w + n * k, x, k, out + (n - begin) * M, ahead);
    for (; n < end; ++n) dots<1, M>(w + n * k, x, k, out + (n - begin) * M, ahead);
}

template <class W>
using Sweep = void (*)(const W* w, const float* x, long k, long begin, long end, float* out, long ahead);

template <class W>
static inline Sweep<W> sweep_for(long m) {
    static constexpr Sweep<W> table[kMaxRows] = {sweep<1, W>, sweep<2, W>, sweep<3, W>, sweep<4, W>,
                                                 sweep<5, W>, sweep<6, W>, sweep<7, W>, sweep<8, W>};
    return table[m - 1];
}
