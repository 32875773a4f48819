// y = x W^T + b for few rows of x: plain row-major weights, read once, at memory speed.
#include "gemv.h"
#include "pool.h"
#include "shares.h"
#include <vector>

static Pool pool;
constexpr long kChunk = 24;  // weight rows that a thread takes at a time

template <class W>
struct Call {
    const W* weight;
    const W* bias;  // or null
    W* out;
    const float* x;
    long rows, width, depth;
    Shares shares;
};

template <class W>
static void work(void* context, int thread) {
    Call<W>& call = *static_cast<Call<W>*>(context);
    Sweep<W> sweep = sweep_for<W>(call.rows);
    float sums[kChunk * kMaxRows];
    call.shares.deal(0, thread, call.width, kChunk, [&](long begin, long end) {
        sweep(call.weight, call.x, call.depth, begin, end, sums, kPrefetch);
        for (long m = 0; m < call.rows; ++m)
            for (long n = begin; n < end; ++n) {
                float bias = call.bias ? widen(call.bias[n]) : 0.0f;
                narrow(sums[(n - begin) * call.rows + m] + bias, call.out + m * call.width + n);
            }
    });
}

template <class W>
static void linear(const W* x, const W* weight, const W* bias, W* out, long rows, long width, long depth, int threads) {
    static thread_local std::vector<float> staged;
    staged.resize(kMaxRows * depth);
    for (long first = 0; first < rows; first += kMaxRows) {
        long count = rows - first < kMaxRows ? rows - first : kMaxRows;
        for (long m = 0; m < count; ++m) stage<W>(x + (first + m) * depth, depth, &staged[m * depth]);
        Call<W> call{weight, bias, out + first * width, staged.data(), count, width, depth, {1, threads}};
        pool.run(threads, work<W>, &call);
    }
}

extern "C" void linear_f32(const float* x, const float* w, const float* b, float* y, long m, long n, long k, int t) {
    linear(x, w, b, y, m, n, k, t);
}
extern "C" void linear_bf16(const bf16* x, const bf16* w, const bf16* b, bf16* y, long m, long n, long k, int t) {
    linear(x, w, b, y, m, n, k, t);
}
