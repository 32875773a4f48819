// The package's SelfSimilarBlock over one series, once for each dilation, in tiles that stay in the cache: the same operations
// on the same numbers in the same order as PyTorch 2.13 does them on an AVX-512 CPU, so every bit is the same.
//
// What that order is, found by comparing bits (native.py compares them again on the machine at hand):
//   linear    fused multiply-adds along the depth, from zero; then the bias is added
//   conv1d    fused multiply-adds from the bias, oldest tap first; padding is multiplied like any other zero
//   rms_norm  squares; eight sums of eight, each over four pairs half a row apart; those one after the other; divided; plus
//             epsilon; one over the root; times x; times the weight
//   silu      x / (1 + exp(-x)) with PyTorch's own vector exponential, whose address the caller passes
#include "pool.h"
#include <cstring>
#include <immintrin.h>
#include <vector>

#if !defined(__AVX512F__)
#error "this recipe needs AVX-512: on other processors PyTorch itself rounds in another order"
#endif

typedef __m512 Vec;
typedef Vec (*Exponential)(Vec);
constexpr long kWidth = 64, kInner = 96, kTaps = 3;  // of the stream, of the gated unit, of the filter
constexpr long kLanes = 16, kColumns = 4 * kLanes;   // one pass of a product covers 64 columns
constexpr long kTile = 48, kRows = 6;                // time steps that share a cache, and registers

struct Weights {
    const float *filter, *filter_bias;    // [taps, width], [width]
    const float *mix, *mix_bias;          // [width, width] as [in, out], [width]
    const float *up, *up_bias;            // [width, 2 inner]
    const float *down, *down_bias;        // [inner, width]
    const float *norm1, *norm2;           // [width]
    const float *last;                    // [width], the norm after the last block, or null
    const float *scale, *shift;           // [blocks, width] before each block, or null
    const long* dilation;                 // [blocks]
    long blocks;
    float epsilon;
    Exponential exponential;
};

static Pool pool;

static inline Vec load(const float* p) { return _mm512_loadu_ps(p); }
static inline void store(float* p, Vec v) { _mm512_storeu_ps(p, v); }

// out[r, 0..63] = sum over k of x[r, k] * w[k, 0..63], plus bias.
template <int R>
static void product(const float* x, long depth, const float* w, long stride, const float* bias, float* out, long out_stride) {
    Vec total[R][4];
    for (int r = 0; r < R; ++r)
        for (int c = 0; c < 4; ++c) total[r][c] = _mm512_setzero_ps();
    for (long k = 0; k < depth; ++k) {
        Vec column[4];
        for (int c = 0; c < 4; ++c) column[c] = load(w + k * stride + c * kLanes);
        for (int r = 0; r < R; ++r) {
            Vec one = _mm512_set1_ps(x[r * depth + k]);
            for (int c = 0; c < 4; ++c) total[r][c] = _mm512_fmadd_ps(one, column[c], total[r][c]);
        }
    }
    for (int r = 0; r < R; ++r)
        for (int c = 0; c < 4; ++c)
            store(out + r * out_stride + c * kLanes, _mm512_add_ps(total[r][c], load(bias + c * kLanes)));
}

// [rows, depth] times [depth, columns], for any number of rows.
static void linear(const float* x, long rows, long depth, const float* w, const float* bias, long columns, float* out) {
    for (long c = 0; c < columns; c += kColumns) {
        long r = 0;
        for (; r + kRows <= rows; r += kRows)
            product<kRows>(x + r * depth, depth, w + c, columns, bias + c, out + r * columns + c, columns);
        for (; r < rows; ++r) product<1>(x + r * depth, depth, w + c, columns, bias + c, out + r * columns + c, columns);
    }
}

static void norm(const float* x, const float* weight, float epsilon, float* out) {
    __m256 eighths[4];
    for (int i = 0; i < 4; ++i) {
        __m256 low = _mm256_loadu_ps(x + 8 * i), high = _mm256_loadu_ps(x + 32 + 8 * i);
        eighths[i] = _mm256_add_ps(_mm256_mul_ps(low, low), _mm256_mul_ps(high, high));
    }
    float sums[8];
    _mm256_storeu_ps(sums, _mm256_add_ps(_mm256_add_ps(_mm256_add_ps(eighths[0], eighths[1]), eighths[2]), eighths[3]));
    float total = 0;
    for (int i = 0; i < 8; ++i) total += sums[i];
    Vec scale = _mm512_set1_ps(1.0f / _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(total / float(kWidth) + epsilon))));
    for (int c = 0; c < 4; ++c)
        store(out + c * kLanes, _mm512_mul_ps(_mm512_mul_ps(load(x + c * kLanes), scale), load(weight + c * kLanes)));
}

static void add(const float* x, const float* y, float* out, long n) {
    for (long i = 0; i < n; i += kLanes) store(out + i, _mm512_add_ps(load(x + i), load(y + i)));
}

class Blocks {
  public:
    Blocks(const Weights& weights, const float* x, float* out, long length, int threads)
        : w(weights), x(x), out(out), length(length), threads(threads), other(length * kWidth) {}

    void run() {
        pool.run(threads, [](void* self, int thread) { static_cast<Blocks*>(self)->work(thread); }, this);
    }

  private:
    struct Tile {
        alignas(64) float entered[kTile * kWidth], filtered[kTile * kWidth], mixed[kTile * kWidth], normed[kTile * kWidth];
        alignas(64) float wide[kTile * 2 * kInner], gated[kTile * kInner];
    };

    const Weights& w;
    const float* x;
    float* out;
    const long length;
    const int threads;
    std::vector<float> other;

    // Blocks alternate between two buffers so that the last one writes `out`.
    float* written(long block) { return (w.blocks - 1 - block) % 2 ? other.data() : out; }

    void work(int thread) {
        long tiles = (length + kTile - 1) / kTile, first = tiles * thread / threads, end = tiles * (thread + 1) / threads;
        static thread_local Tile tile;
        for (long b = 0; b < w.blocks; ++b) {
            const float* from = b ? written(b - 1) : x;
            for (long i = first; i < end; ++i)
                block(b, from, i * kTile, (i + 1) * kTile < length ? (i + 1) * kTile : length, tile);
            pool.barrier(threads, [] {});
        }
    }

    // A quarter of the stream at one time as the block sees it: zero before the beginning.
    Vec entered(long b, const float* from, long time, long at) const {
        if (time < 0) return _mm512_setzero_ps();
        Vec value = load(from + time * kWidth + at);
        if (!w.scale) return value;
        return _mm512_add_ps(_mm512_mul_ps(value, load(w.scale + b * kWidth + at)), load(w.shift + b * kWidth + at));
    }

    void filter(long b, const float* from, long begin, long end, Tile& tile) const {
        for (long t = begin; t < end; ++t)
            for (long at = 0; at < kWidth; at += kLanes) {
                Vec total = load(w.filter_bias + at), value = total;
                for (long tap = 0; tap < kTaps; ++tap) {
                    value = entered(b, from, t - (kTaps - 1 - tap) * w.dilation[b], at);
                    total = _mm512_fmadd_ps(value, load(w.filter + tap * kWidth + at), total);
                }
                store(tile.entered + (t - begin) * kWidth + at, value);
                store(tile.filtered + (t - begin) * kWidth + at, total);
            }
    }

    void gate(long rows, Tile& tile) const {
        for (long r = 0; r < rows; ++r)
            for (long c = 0; c < kInner; c += kLanes) {
                Vec gate = load(tile.wide + r * 2 * kInner + c), open = load(tile.wide + r * 2 * kInner + kInner + c);
                Vec power = w.exponential(_mm512_sub_ps(_mm512_set1_ps(-0.0f), gate));
                Vec silu = _mm512_div_ps(gate, _mm512_add_ps(_mm512_set1_ps(1.0f), power));
                store(tile.gated + r * kInner + c, _mm512_mul_ps(silu, open));
            }
    }

    void block(long b, const float* from, long begin, long end, Tile& tile) {
        const long rows = end - begin;
        float* to = written(b) + begin * kWidth;
        filter(b, from, begin, end, tile);
        linear(tile.filtered, rows, kWidth, w.mix, w.mix_bias, kWidth, tile.mixed);
        add(tile.entered, tile.mixed, tile.mixed, rows * kWidth);
        for (long r = 0; r < rows; ++r) norm(tile.mixed + r * kWidth, w.norm1, w.epsilon, tile.normed + r * kWidth);
        linear(tile.normed, rows, kWidth, w.up, w.up_bias, 2 * kInner, tile.wide);
        gate(rows, tile);
        linear(tile.gated, rows, kInner, w.down, w.down_bias, kWidth, tile.mixed);
        add(tile.normed, tile.mixed, tile.mixed, rows * kWidth);
        for (long r = 0; r < rows; ++r) norm(tile.mixed + r * kWidth, w.norm2, w.epsilon, to + r * kWidth);
        if (w.last && b == w.blocks - 1)
            for (long r = 0; r < rows; ++r) norm(to + r * kWidth, w.last, w.epsilon, to + r * kWidth);
    }
};

extern "C" {
void blocks_wake(int threads) { pool.wake(threads); }

// x [length, width] through all blocks to out [length, width].
void blocks_run(const Weights* weights, const float* x, float* out, long length, int threads) {
    Blocks(*weights, x, out, length, threads).run();
}
}
