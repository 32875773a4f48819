// Vectors of the widest kind that the compiler was told of, and loads from float and bfloat16.
#pragma once
#include <cstdint>
#include <cstring>

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

// One cache-friendly step over a row of weights: kStep<W> elements become kParts<W> vectors.
template <class W>
struct Row;

template <>
struct Row<float> {
    static constexpr long step = kLanes, parts = 1;
    static inline void read(const float* p, Vec* out) { out[0] = load(p); }
};

template <>
struct Row<bf16> {  // elements 0, 2, 4, ... in the first vector, 1, 3, 5, ... in the second
    static constexpr long step = 2 * kLanes, parts = 2;
    static inline void read(const bf16* p, Vec* out) {
        Bits pair = *reinterpret_cast<const BitsAny*>(p);
        out[0] = Vec(pair << 16);
        out[1] = Vec(pair & 0xffff0000u);
    }
};

// Copy k activations into the order that Row<W>::read delivers weights in; the tail keeps its own order.
template <class W, class X>
static inline void stage(const X* x, long k, float* out) {
    long i = 0;
    for (; i + Row<W>::step <= k; i += Row<W>::step)
        for (long j = 0; j < Row<W>::step; ++j)
            out[i + (j % Row<W>::parts) * kLanes + j / Row<W>::parts] = widen(x[i + j]);
    for (; i < k; ++i) out[i] = widen(x[i]);
}
