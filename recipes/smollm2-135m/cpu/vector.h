// Vectors of the widest kind that the compiler was told of, and lines of weights against activations.
#pragma once
#include <cstdint>
#include <cstring>
#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
constexpr long kLanes = 16;
#elif defined(__AVX2__)
constexpr long kLanes = 8;
#else
constexpr long kLanes = 4;
#endif

typedef float Vec __attribute__((vector_size(kLanes * 4)));
typedef float VecAny __attribute__((vector_size(kLanes * 4), aligned(4), may_alias));
typedef uint32_t Bits __attribute__((vector_size(kLanes * 4)));
typedef uint32_t BitsAny __attribute__((vector_size(kLanes * 4), aligned(2), may_alias));

struct bf16 {
    uint16_t bits;
};

static inline Vec load(const float* p) { return *reinterpret_cast<const VecAny*>(p); }
static inline void store(float* p, Vec v) { *reinterpret_cast<VecAny*>(p) = v; }

// Half of a vector plus its other half, down to one number.
template <long n>
struct Fold {
    typedef float Wide __attribute__((vector_size(n * 4)));
    typedef float Half __attribute__((vector_size(n * 2)));
    static inline float sum(Wide v) {
        Half halves[2];
        memcpy(halves, &v, sizeof v);
        return Fold<n / 2>::sum(halves[0] + halves[1]);
    }
};
template <>
struct Fold<2> {
    typedef float Wide __attribute__((vector_size(8)));
    static inline float sum(Wide v) { return v[0] + v[1]; }
};
static inline float sum(Vec v) { return Fold<kLanes>::sum(v); }

static inline float widen(float x) { return x; }
static inline float widen(bf16 x) {
    uint32_t bits = uint32_t(x.bits) << 16;
    float out;
    memcpy(&out, &bits, 4);
    return out;
}

static inline void narrow(float x, float* out) { *out = x; }
static inline void narrow(float x, bf16* out) {  // to nearest, ties to even; NaN stays NaN
    uint32_t bits;
    memcpy(&bits, &x, 4);
    out->bits = x != x ? 0x7fc0 : uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

static inline Vec spread(const float* p) { return load(p); }
static inline Vec spread(const bf16* p) {  // as many elements as a vector has lanes, in their order
    typedef uint16_t Short __attribute__((vector_size(kLanes * 2)));
    Short narrow;
    memcpy(&narrow, p, sizeof narrow);
    return (Vec)(__builtin_convertvector(narrow, Bits) << 16);
}

// What a vector of weights is multiplied with, and how: `step` weights at a time, `Act` the kind of activations.
template <class W>
struct Line;

template <>
struct Line<float> {
    typedef float Act;
    typedef Vec Held;
    static constexpr long step = kLanes;
    static inline Held hold(const float* w) { return load(w); }
    static inline void add(Vec& total, Held w, const Act* x) { total += w * load(x); }
    static inline void stage(const float* x, long k, Act* out) { memcpy(out, x, k * sizeof(float)); }
};

#if defined(__AVX512BF16__)
template <>
struct Line<bf16> {  // pairs of products are summed in fp32 by the processor; activations are rounded as the stock forward's are
    typedef bf16 Act;
    typedef __m512bh Held;
    static constexpr long step = 2 * kLanes;
    static inline Held hold(const bf16* w) { return (__m512bh)_mm512_loadu_si512(w); }
    static inline void add(Vec& total, Held w, const Act* x) {
        total = (Vec)_mm512_dpbf16_ps((__m512)total, w, (__m512bh)_mm512_loadu_si512(x));
    }
    static inline void stage(const float* x, long k, Act* out) {
        for (long i = 0; i < k; ++i) narrow(x[i], out + i);
    }
};
#else
template <>
struct Line<bf16> {  // weights become even and odd elements in fp32; activations are kept in that order
    typedef float Act;
    struct Held {
        Vec even, odd;
    };
    static constexpr long step = 2 * kLanes;
    static inline Held hold(const bf16* w) {
        Bits pair = *reinterpret_cast<const BitsAny*>(w);
        return {Vec(pair << 16), Vec(pair & 0xffff0000u)};
    }
    static inline void add(Vec& total, Held w, const Act* x) { total += w.even * load(x) + w.odd * load(x + kLanes); }
    static inline void stage(const float* x, long k, Act* out) {
        for (long i = 0; i < k; i += step)
            for (long j = 0; j < step; ++j) out[i + (j % 2) * kLanes + j / 2] = x[i + j];
    }
};
#endif
