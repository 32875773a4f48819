// One token for each of a few sequences through a whole pre-norm decoder, in one parallel region.
#include "gemv.h"
#include "math.h"
#include "pool.h"
#include "shares.h"
#include <algorithm>
#include <cmath>
#include <vector>

static Pool pool;
constexpr long kChunk = 16;  // weight rows that a thread takes at a time

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
    long count, wanted;
    float* logits;  // [wanted, vocab]
};

template <class W>
class Step {
  public:
    Step(const Model& model, const Tokens& tokens) : m(model), t(tokens), shares(5 * model.layers + 1, model.threads) {
        long q = m.heads * m.head_dim, kv = m.kv_heads * m.head_dim;
        stream.resize(t.count * m.hidden), mixed.resize(t.count * (q + 2 * kv));
        attended.resize(t.count * q), gated.resize(t.count * m.inner);
        for (long b = 0; b < t.count; ++b)
            for (long i = 0; i < m.hidden; ++i)
                stream[b * m.hidden + i] = widen(as(m.embedding)[t.token[b] * m.hidden + i]);
    }

    void run() {
        pool.run(m.threads, [](void* self, int thread) { static_cast<Step*>(self)->thread(thread); }, this);
    }

  private:
    struct Scratch {
        std::vector<float> x, plain, scores;
        int thread;
    };

    const Model& m;
    const Tokens& t;
    Shares shares;
    std::vector<float> stream, mixed, attended, gated;

    static const W* as(const void* p) { return static_cast<const W*>(p); }

    void thread(int self) {
        static thread_local Scratch s;
        long widest = std::max(std::max(m.hidden, m.inner), m.heads * m.head_dim);
        s.x.resize(kMaxRows * widest + 3 * m.head_dim), s.plain.resize(widest + m.head_dim), s.scores.resize(m.length);
        for (long l = 0; l < m.layers; ++l) {
            const Layer& layer = m.layer[l];
            long job = 5 * l;
            s.thread = self;
            normed(layer.attention_norm, s, t.count, nullptr);
            project(layer, s, job);
            pool.barrier(m.threads);
            shares.deal(job + 1, self, t.count * m.heads, 1,
                        [&](long unit, long) { attend(layer, s, unit / m.heads, unit % m.heads); });
            pool.barrier(m.threads);
            staged(attended.data(), m.heads * m.head_dim, s);
            add(layer.o, m.heads * m.head_dim, s, job + 2);
            pool.barrier(m.threads);
            normed(layer.mlp_norm, s, t.count, nullptr);
            gate(layer, s, job + 3);
            pool.barrier(m.threads);
            staged(gated.data(), m.inner, s);
            add(layer.down, m.inner, s, job + 4);
            pool.barrier(m.threads);
        }
        head(s);
    }

    void staged(const float* x, long width, Scratch& s) {
        for (long b = 0; b < t.count; ++b) stage<W>(x + b * width, width, &s.x[b * width]);
    }

    void norm(const float* x, const W* gain, long width, float* out) const {
        float scale = 1.0f / std::sqrt(squares(x, width) / width + m.eps);
        for (long i = 0; i < width; ++i) out[i] = x[i] * scale * widen(gain[i]);
    }

    // RMS-normalised rows of the residual stream, staged for the next product.
    void normed(const void* gain, Scratch& s, long count, const int32_t* row) {
        for (long b = 0; b < count; ++b) {
            norm(&stream[(row ? row[b] : b) * m.hidden], as(gain), m.hidden, s.plain.data());
            stage<W>(s.plain.data(), m.hidden, &s.x[b * m.hidden]);
        }
    }

    // Weight rows begin .. end; each sum goes to put(row of weights, sequence, sum).
    template <class F>
    void product(const void* weight, long depth, long count, Scratch& s, long begin, long end, F put) {
        float sums[kChunk * kMaxRows];
        sweep_for<W>(count)(as(weight), s.x.data(), depth, begin, end, sums);
        for (long n = begin; n < end; ++n)
            for (long b = 0; b < count; ++b) put(n, b, sums[(n - begin) * count + b]);
    }

    void project(const Layer& layer, Scratch& s, long job) {
        long q = m.heads * m.head_dim, kv = m.kv_heads * m.head_dim, all = q + 2 * kv;
        const void *weight[3] = {layer.q, layer.k, layer.v}, *bias[3] = {layer.q_bias, layer.k_bias, layer.v_bias};
        const long first[4] = {0, q, q + kv, all};
        shares.deal(job, s.thread, all, kChunk, [&](long begin, long end) {
            for (int part = 0; part < 3; ++part) {
                long from = std::max(begin, first[part]), to = std::min(end, first[part + 1]);
                if (from >= to) continue;
                const W* shift = as(bias[part]);
                product(weight[part], m.hidden, t.count, s, from - first[part], to - first[part],
                        [&](long n, long b, float sum) {
                            mixed[b * all + first[part] + n] = sum + (shift ? widen(shift[n]) : 0.0f);
                        });
            }
        });
    }

    void add(const void* weight, long depth, Scratch& s, long job) {
        shares.deal(job, s.thread, m.hidden, kChunk, [&](long begin, long end) {
            product(weight, depth, t.count, s, begin, end,
                    [&](long n, long b, float sum) { stream[b * m.hidden + n] += sum; });
        });
    }

    void gate(const Layer& layer, Scratch& s, long job) {
        shares.deal(job, s.thread, m.inner, kChunk, [&](long begin, long end) {
            float open[kChunk * kMaxRows];
            product(layer.gate, m.hidden, t.count, s, begin, end,
                    [&](long n, long b, float sum) { open[(n - begin) * t.count + b] = sum; });
            each(open, (end - begin) * t.count, [](Vec x) { return x / (1.0f + exponential(-x)); });
            product(layer.up, m.hidden, t.count, s, begin, end, [&](long n, long b, float sum) {
                gated[b * m.inner + n] = sum * open[(n - begin) * t.count + b];
            });
        });
    }

    void head(Scratch& s) {
        normed(m.final_norm, s, t.wanted, t.row);
        shares.deal(5 * m.layers, s.thread, m.vocab, kChunk, [&](long begin, long end) {
            product(m.head, m.hidden, t.wanted, s, begin, end,
                    [&](long n, long b, float sum) { t.logits[b * m.vocab + n] = sum; });
        });
    }

    // x normalised per head if the model does, then rotated by its position.
    void rotated(float* x, const void* gain, long position, float* plain) const {
        long half = m.head_dim / 2;
        if (gain) norm(x, as(gain), m.head_dim, plain), memcpy(x, plain, m.head_dim * sizeof(float));
        const float *c = m.cosine + position * half, *n = m.sine + position * half;
        for (long i = 0; i < half; ++i) {
            float low = x[i], high = x[i + half];
            x[i] = low * c[i] - high * n[i], x[i + half] = high * c[i] + low * n[i];
        }
    }

    void attend(const Layer& layer, Scratch& s, long b, long head);
    void weigh(const W* values, const float* weight, long count, float* out) const;
};

// out[d] = sum over p of weight[p] * values[p, d].
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

// One head of one sequence. The token's own key and value come from `mixed`; the first head of a group stores them.
template <class W>
void Step<W>::attend(const Layer& layer, Scratch& s, long b, long head) {
    long d = m.head_dim, group = m.heads / m.kv_heads, kv = head / group, position = t.position[b];
    const float* row = &mixed[b * (m.heads + 2 * m.kv_heads) * d];
    float *q = &s.x[0], *k = &s.x[d], *staged_q = &s.x[2 * d], *out = &attended[(b * m.heads + head) * d];
    const float* v = row + (m.heads + m.kv_heads + kv) * d;
    memcpy(q, row + head * d, d * sizeof(float));
    memcpy(k, row + (m.heads + kv) * d, d * sizeof(float));
    rotated(q, layer.q_norm, position, s.plain.data());
    rotated(k, layer.k_norm, position, s.plain.data());
    long plane = (t.slot[b] * m.kv_heads + kv) * m.length * d;
    W *keys = static_cast<W*>(layer.keys) + plane, *values = static_cast<W*>(layer.values) + plane;
    if (head % group == 0)
        for (long i = 0; i < d; ++i) {
            narrow(k[i], keys + position * d + i);
            narrow(v[i], values + position * d + i);
        }
    for (long i = 0; i < d; ++i) q[i] *= 1.0f / std::sqrt(float(d));
    stage<W>(q, d, staged_q);
    long first = m.window && position >= m.window ? position - m.window + 1 : 0, past = position - first;
    float* weight = s.scores.data();
    sweep<1, W>(keys + first * d, staged_q, d, 0, past, weight);
    weight[past] = product_of(q, k, d);
    float top = largest(weight, past + 1);
    each(weight, past + 1, [top](Vec x) { return exponential(x - top); });
    float scale = 1.0f / sum_of(weight, past + 1);
    weigh(values + first * d, weight, past, out);
    for (long i = 0; i < d; ++i) out[i] = (out[i] + weight[past] * v[i]) * scale;
}

template <class W>
static void step(const Model& model, const Tokens& tokens) {
    Step<W>(model, tokens).run();
}

// First index of the largest of n numbers.
static int32_t argmax(const float* x, long n) {
    float top = largest(x, n);
    for (long i = 0; i < n; ++i)
        if (x[i] == top) return int32_t(i);
    return 0;
}

extern "C" {
int decode_max_rows() { return kMaxRows; }

void decode_f32(const Model* model, const Tokens* tokens) { step<float>(*model, *tokens); }
void decode_bf16(const Model* model, const Tokens* tokens) { step<bf16>(*model, *tokens); }

void decode_argmax(const float* logits, long rows, long vocab, int32_t* token) {
    for (long r = 0; r < rows; ++r) token[r] = argmax(logits + r * vocab, vocab);
}
}
