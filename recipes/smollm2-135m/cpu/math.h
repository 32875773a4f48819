// Elementwise functions over vectors: exponential and the gated unit, to about one unit in the last place.
#pragma once
#include "vector.h"

typedef int32_t Ints __attribute__((vector_size(kLanes * 4)));

static inline Vec fill(float x) { return x - Vec{}; }

// e^x by 2^n * p(r): n nearest, |r| <= ln2 / 2, p of degree 6 (the coefficients of Cephes expf).
static inline Vec exponential(Vec x) {
    x = x < -87.0f ? fill(-87.0f) : x;
    x = x > 88.0f ? fill(88.0f) : x;
    Vec magic = fill(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
    Vec n = x * 1.44269504088896341f + magic;
    Ints power = (Ints)n << 23;
    n -= magic;
    Vec r = x - n * 0.693359375f + n * 2.12194440e-4f;
    Vec p = fill(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    return (Vec)((Ints)p + power);
}

// Applies f to n floats, padding the last vector.
template <class F>
static inline void each(float* x, long n, F f) {
    long i = 0;
    for (; i + kLanes <= n; i += kLanes) store(x + i, f(load(x + i)));
    if (i == n) return;
    float rest[kLanes] = {};
    memcpy(rest, x + i, (n - i) * sizeof(float));
    store(rest, f(load(rest)));
    memcpy(x + i, rest, (n - i) * sizeof(float));
}

// Sums in as many partial sums as a vector has lanes: faster and more exact than one after the other.
static inline float sum_of(const float* x, long n) {
    Vec total = {};
    long i = 0;
    for (; i + kLanes <= n; i += kLanes) total += load(x + i);
    float rest = sum(total);
    for (; i < n; ++i) rest += x[i];
    return rest;
}

static inline float product_of(const float* x, const float* y, long n) {
    Vec total = {};
    long i = 0;
    for (; i + kLanes <= n; i += kLanes) total += load(x + i) * load(y + i);
    float rest = sum(total);
    for (; i < n; ++i) rest += x[i] * y[i];
    return rest;
}

static inline float squares(const float* x, long n) { return product_of(x, x, n); }

static inline float largest(const float* x, long n) {
    float top = x[0];
    long i = 0;
    if (n >= kLanes) {
        Vec tops = load(x);
        for (; i + kLanes <= n; i += kLanes) {
            Vec at = load(x + i);
            tops = at > tops ? at : tops;
        }
        for (long j = 0; j < kLanes; ++j) top = tops[j] > top ? tops[j] : top;
    }
    for (; i < n; ++i) top = x[i] > top ? x[i] : top;
    return top;
}

