// A ragged batch of tokens through a whole pre-norm decoder, in one parallel region. Weights are read where they lie.
#include "gemv.h"
#include "math.h"
#include "pool.h"
#include "shares.h"
#include <algorithm>
#include <cmath>
#include <vector>

static Pool pool;
constexpr long kChunk = 24;  // weight rows that a thread takes at a time
constexpr long kJobs = 10;   // pieces of work per layer that threads share

struct Layer {  // row-major [out, in] weights; biases and head norms may be null
    const void *attention_norm, *q, *k, *v, *q_bias, *k_bias, *v_bias, *q_norm, *k_norm, *o;
    const void *mlp_norm, *gate, *up, *down;
    void *keys, *values;  // [slots, kv_heads, length, head_dim]
};

struct Model {
    const Layer* layer;
    const void *embedding, *final_norm, *head;
    const float *cosine, *sine;  // [length, head_dim / 2]
    long layers, hidden, heads, kv_heads, head_dim, inner, vocab, length, window;  // window 0: all
    float eps;
    int threads;
};

struct Tokens {
    const int32_t *token, *slot, *position, *row;  // [count], [count], [count], [wanted]
    long count, wanted, ragged;                    // ragged: some tokens share a slot
    float* logits;                                 // [wanted, vocab]
};

struct Scratch {  // one thread's own
    std::vector<float> x, plain, scores, head;
    int thread = 0;
};

template <class W>
class Step {
  public:
    Step(const Model& model, const Tokens& tokens)
        : m(model), t(tokens), q(m.heads * m.head_dim), kv(m.kv_heads * m.head_dim), all(q + 2 * kv),
          shares(kJobs * m.layers + 2, m.threads) {
        stream.resize(t.count * m.hidden), mixed.resize(t.count * all);
        attended.resize(t.count * q), gated.resize(t.count * m.inner);
        if (t.count > kMaxRows) shared.resize(t.count * widest());
        for (long b = 0; b < t.count; ++b)
            for (long i = 0; i < m.hidden; ++i)
                stream[b * m.hidden + i] = widen(as(m.embedding)[t.token[b] * m.hidden + i]);
    }

    void run() {
        pool.run(m.threads, [](void* self, int thread) { static_cast<Step*>(self)->work(thread); }, this);
    }

  private:
    const Model& m;
    const Tokens& t;
    const long q, kv, all;  // widths of a row of queries, of keys, of both and values
    Shares shares;
    std::vector<float> stream, mixed, attended, gated, shared;

    static const W* as(const void* p) { return static_cast<const W*>(p); }
    long widest() const { return std::max(std::max(m.hidden, m.inner), q); }

    void work(int thread) {
        static thread_local Scratch s;
        s.thread = thread;
        s.x.resize(kMaxRows * widest()), s.plain.resize(std::max(m.hidden, m.head_dim));
        s.scores.resize(m.length), s.head.resize(3 * m.head_dim);
        for (long l = 0; l < m.layers; ++l) layer(m.layer[l], kJobs * l, s);
        auto last = [&](long r) { return normed(&stream[t.row[r] * m.hidden], m.final_norm, s); };
        const float* x = staged(s, kJobs * m.layers, t.wanted, m.hidden, last);
        product(s, kJobs * m.layers + 1, m.head, x, m.vocab, m.hidden, t.wanted,
                [&](long n, long b, float sum) { t.logits[b * m.vocab + n] = sum; });
    }

    void layer(const Layer& layer, long job, Scratch& s) {
        auto residual = [&](long n, long b, float sum) { stream[b * m.hidden + n] += sum; };
        auto before = [&](const void* gain) {
            return [&, gain](long b) { return normed(&stream[b * m.hidden], gain, s); };
        };
        const float* x = staged(s, job, t.count, m.hidden, before(layer.attention_norm));
        project(layer, x, s, job + 1);
        pool.barrier(m.threads);
        if (t.ragged) {
            shares.deal(job + 2, s.thread, t.count * m.kv_heads, 4, [&](long begin, long end) {
                for (long u = begin; u < end; ++u) keep(layer, u / m.kv_heads, u % m.kv_heads, s);
            });
            pool.barrier(m.threads);
        }
        shares.deal(job + 3, s.thread, t.count * m.heads, 1,
                    [&](long u, long) { attend(layer, s, u / m.heads, u % m.heads); });
        pool.barrier(m.threads);
        x = staged(s, job + 4, t.count, q, [&](long b) { return &attended[b * q]; });
        product(s, job + 5, layer.o, x, m.hidden, q, t.count, residual);
        pool.barrier(m.threads);
        x = staged(s, job + 6, t.count, m.hidden, before(layer.mlp_norm));
        gate(layer, x, s, job + 7);
        pool.barrier(m.threads);
        x = staged(s, job + 8, t.count, m.inner, [&](long b) { return &gated[b * m.inner]; });
        product(s, job + 9, layer.down, x, m.hidden, m.inner, t.count, residual);
        pool.barrier(m.threads);
    }

    // Rows ready for a product: few are staged by every thread for itself, many are shared out.
    template <class F>
    const float* staged(Scratch& s, long job, long rows, long width, F row) {
        if (rows <= kMaxRows) {
            for (long r = 0; r < rows; ++r) stage<W>(row(r), width, &s.x[r * width]);
            return s.x.data();
        }
        shares.deal(job, s.thread, rows, 1, [&](long r, long) { stage<W>(row(r), width, &shared[r * width]); });
        pool.barrier(m.threads);
        return shared.data();
    }

    void norm(const float* x, const W* gain, long width, float* out) const {
        float scale = 1.0f / std::sqrt(squares(x, width) / width + m.eps);
        for (long i = 0; i < width; ++i) out[i] = x[i] * scale * widen(gain[i]);
    }

    const float* normed(const float* x, const void* gain, Scratch& s) const {
        norm(x, as(gain), m.hidden, s.plain.data());
        return s.plain.data();
    }

    // Weight rows begin .. end against all activations; each sum goes to put(row of weights, activation, sum).
    template <class F>
    static void rows(const void* weight, const float* x, long depth, long count, long begin, long end, F put) {
        float sums[kChunk * kMaxRows];
        for (long first = 0; first < count; first += kMaxRows) {
            long some = std::min(count - first, kMaxRows), next = first ? kChunk * depth * sizeof(W) : kPrefetch;
            sweep_for<W>(some)(as(weight), x + first * depth, depth, begin, end, sums, next);
            for (long n = begin; n < end; ++n)
                for (long b = 0; b < some; ++b) put(n, first + b, sums[(n - begin) * some + b]);
        }
    }

    template <class F>
    void product(Scratch& s, long job, const void* weight, const float* x, long width, long depth, long count, F put) {
        if (count)
            shares.deal(job, s.thread, width, kChunk,
                        [&](long begin, long end) { rows(weight, x, depth, count, begin, end, put); });
    }

    void project(const Layer& layer, const float* x, Scratch& s, long job) {
        const void *weight[3] = {layer.q, layer.k, layer.v}, *bias[3] = {layer.q_bias, layer.k_bias, layer.v_bias};
        const long first[4] = {0, q, q + kv, all};
        shares.deal(job, s.thread, all, kChunk, [&](long begin, long end) {
            for (int part = 0; part < 3; ++part) {
                long from = std::max(begin, first[part]), to = std::min(end, first[part + 1]), base = first[part];
                const W* shift = as(bias[part]);
                if (from < to)
                    rows(weight[part], x, m.hidden, t.count, from - base, to - base, [&](long n, long b, float sum) {
                        mixed[b * all + base + n] = sum + (shift ? widen(shift[n]) : 0.0f);
                    });
            }
        });
    }

    void gate(const Layer& layer, const float* x, Scratch& s, long job) {
        shares.deal(job, s.thread, m.inner, kChunk, [&](long begin, long end) {
            float open[kChunk * kMaxRows];
            for (long first = 0; first < t.count; first += kMaxRows) {
                long some = std::min(t.count - first, kMaxRows);
                const float* at = x + first * m.hidden;
                rows(layer.gate, at, m.hidden, some, begin, end,
                     [&](long n, long b, float sum) { open[(n - begin) * some + b] = sum; });
                each(open, (end - begin) * some, [](Vec v) { return v / (1.0f + exponential(-v)); });
                rows(layer.up, at, m.hidden, some, begin, end, [&](long n, long b, float sum) {
                    gated[(first + b) * m.inner + n] = sum * open[(n - begin) * some + b];
                });
            }
        });
    }

    // x normalised per head if the model does, then rotated by its position.
    void rotate(float* x, const void* gain, long position, float* plain) const {
        long half = m.head_dim / 2;
        if (gain) norm(x, as(gain), m.head_dim, plain), memcpy(x, plain, m.head_dim * sizeof(float));
        const float *c = m.cosine + position * half, *n = m.sine + position * half;
        for (long i = 0; i < half; ++i) {
            float low = x[i], high = x[i + half];
            x[i] = low * c[i] - high * n[i], x[i + half] = high * c[i] + low * n[i];
        }
    }

    W* held(void* state, long b, long head) const {
        return static_cast<W*>(state) + (t.slot[b] * m.kv_heads + head) * m.length * m.head_dim;
    }

    void store(const Layer& layer, long b, long head, const float* k, const float* v) const {
        long at = t.position[b] * m.head_dim;
        W *keys = held(layer.keys, b, head) + at, *values = held(layer.values, b, head) + at;
        for (long i = 0; i < m.head_dim; ++i) narrow(k[i], keys + i), narrow(v[i], values + i);
    }

    // Rotate one key in place and store it with its value: before any token of the same call looks at it.
    void keep(const Layer& layer, long b, long head, Scratch& s) {
        float *k = &mixed[b * all + q + head * m.head_dim], *v = k + kv;
        rotate(k, layer.k_norm, t.position[b], s.plain.data());
        store(layer, b, head, k, v);
    }

    void attend(const Layer& layer, Scratch& s, long b, long head);
    void weigh(const W* values, const float* weight, long count, float* out) const;
};

// out[d] = sum over p of weight[p] * values[p, d], for S steps of a row.
template <class W, int S>
static void weigh_block(const W* values, const float* weight, long count, long stride, float* out) {
    constexpr int parts = Row<W>::parts;
    Vec acc[S][parts] = {};
    for (long p = 0; p < count; ++p)
        for (int j = 0; j < S; ++j) {
            Vec wide[parts];
            Row<W>::read(values + p * stride + j * Row<W>::step, wide);
            for (int k = 0; k < parts; ++k) acc[j][k] += weight[p] * wide[k];
        }
    for (int j = 0; j < S; ++j)
        for (long i = 0; i < Row<W>::step; ++i) out[j * Row<W>::step + i] = acc[j][i % parts][i / parts];
}

template <class W>
void Step<W>::weigh(const W* values, const float* weight, long count, float* out) const {
    constexpr long step = Row<W>::step, block = 4 * kLanes / step;
    long d = 0;
    for (; d + block * step <= m.head_dim; d += block * step)
        weigh_block<W, block>(values + d, weight, count, m.head_dim, out + d);
    for (; d + step <= m.head_dim; d += step) weigh_block<W, 1>(values + d, weight, count, m.head_dim, out + d);
    for (; d < m.head_dim; ++d) {
        out[d] = 0;
        for (long p = 0; p < count; ++p) out[d] += weight[p] * widen(values[p * m.head_dim + d]);
    }
}

// One head of one token over the past, and over itself. Unless `keep` has run, its first head stores key and value.
template <class W>
void Step<W>::attend(const Layer& layer, Scratch& s, long b, long head) {
    long d = m.head_dim, group = m.heads / m.kv_heads, shared_by = head / group, position = t.position[b];
    const float *row = &mixed[b * all], *v = row + q + kv + shared_by * d;
    float *query = &s.head[0], *key = query + d, *ready = key + d, *out = &attended[b * q + head * d];
    memcpy(query, row + head * d, d * sizeof(float));
    memcpy(key, row + q + shared_by * d, d * sizeof(float));
    rotate(query, layer.q_norm, position, s.plain.data());
    if (!t.ragged) rotate(key, layer.k_norm, position, s.plain.data());
    if (!t.ragged && head % group == 0) store(layer, b, shared_by, key, v);
    for (long i = 0; i < d; ++i) query[i] *= 1.0f / std::sqrt(float(d));
    stage<W>(query, d, ready);
    long first = m.window && position >= m.window ? position - m.window + 1 : 0, past = position - first;
    float* weight = s.scores.data();
    sweep<1, W>(held(layer.keys, b, shared_by) + first * d, ready, d, 0, past, weight, kPrefetch);
    weight[past] = product_of(query, key, d);
    float top = largest(weight, past + 1);
    each(weight, past + 1, [top](Vec x) { return exponential(x - top); });
    float scale = 1.0f / sum_of(weight, past + 1);
    weigh(held(layer.values, b, shared_by) + first * d, weight, past, out);
    for (long i = 0; i < d; ++i) out[i] = (out[i] + weight[past] * v[i]) * scale;
}

// First index of the largest of n numbers.
static int32_t argmax(const float* x, long n) {
    float top = largest(x, n);
    for (long i = 0; i < n; ++i)
        if (x[i] == top) return int32_t(i);
    return 0;
}

extern "C" {
void step_f32(const Model* model, const Tokens* tokens) { Step<float>(*model, *tokens).run(); }
void step_bf16(const Model* model, const Tokens* tokens) { Step<bf16>(*model, *tokens).run(); }

void step_argmax(const float* logits, long rows, long vocab, int32_t* token) {
    for (long r = 0; r < rows; ++r) token[r] = argmax(logits + r * vocab, vocab);
}
}
