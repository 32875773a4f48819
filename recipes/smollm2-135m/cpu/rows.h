// Two rows of weights at a time against a few staged activations, summed in fp32, both fetched ahead.
#pragma once
#include "vector.h"

#ifndef AHEAD
#define AHEAD 2048
#endif
constexpr long kMaxRows = 8;      // activations that share one pass over the weights
constexpr long kAhead = AHEAD;    // bytes that fetching is ahead of the arithmetic in each of the two streams
constexpr long kLine = 64;

static inline void fetch(const void* line) { __builtin_prefetch(line, 0, 2); }

// The two places that a thread reads next: rows of weights, or where to fetch.
struct Two {
    const char *a, *b;
};

// out[m] = sum over k of a[i] * x[m * k + i], out[M + m] the same of b; k is a multiple of Line<W>::step. Fetches as much from
// `ahead` meanwhile.
template <int M, class W>
static void dots(const W* a, const W* b, const typename Line<W>::Act* x, long k, float* out, Two ahead) {
    constexpr long stride = Line<W>::step * sizeof(W);
    Vec first[M] = {}, second[M] = {};
    for (long i = 0, line = 0; i < k; i += Line<W>::step, line += stride) {
        fetch(ahead.a + line);
        fetch(ahead.b + line);
        auto held = Line<W>::hold(a + i), other = Line<W>::hold(b + i);
        for (int m = 0; m < M; ++m) {
            Line<W>::add(first[m], held, x + m * k + i);
            Line<W>::add(second[m], other, x + m * k + i);
        }
    }
    for (int m = 0; m < M; ++m) out[m] = sum(first[m]), out[M + m] = sum(second[m]);
}

template <class W>
using Dots = void (*)(const W* a, const W* b, const typename Line<W>::Act* x, long k, float* out, Two ahead);

template <class W>
static inline Dots<W> dots_for(long m) {
    static constexpr Dots<W> table[kMaxRows] = {dots<1, W>, dots<2, W>, dots<3, W>, dots<4, W>,
                                                dots<5, W>, dots<6, W>, dots<7, W>, dots<8, W>};
    return table[m - 1];
}
