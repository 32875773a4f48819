// A ragged batch of tokens through a whole pre-norm decoder, in one parallel region. Weights are read where they lie, each
// matrix in two places at once (rows.h), by every thread a part; near its end a thread fetches what it reads in the next phase.
#include "math.h"
#include "model.h"
#include "pool.h"
#include "rows.h"
#include "shares.h"
#include <algorithm>
#include <cmath>
#include <vector>

static Pool pool;

enum Phase { kMixed, kOut, kGated, kDown, kPhases };  // products of a layer; the head is phase kMixed of the layer after the last
enum Job { kKept = kPhases, kAttended, kStaged, kJobs = kStaged + kPhases };  // what else threads share of a layer

template <class W>
struct Scratch {  // one thread's own
    typedef typename Line<W>::Act Act;
    std::vector<Act> x, ready;
    std::vector<float> plain, scores, head;
    Two next;
    int thread = 0;
};

template <class W>
class Step {
  public:
    Step(const Model& model, const Tokens& tokens)
        : m(model), t(tokens), q(m.heads * m.head_dim), kv(m.kv_heads * m.head_dim), all(q + 2 * kv),
          group(m.heads / m.kv_heads), shares(kJobs * (m.layers + 1), m.threads) {
        stream.resize(t.count * m.hidden), mixed.resize(t.count * all);
        attended.resize(t.count * q), gated.resize(t.count * 2 * m.inner);
        if (t.count > kMaxRows) shared.resize(t.count * widest());
        for (long b = 0; b < t.count; ++b)
            for (long i = 0; i < m.hidden; ++i)
                stream[b * m.hidden + i] = widen(as(m.embedding)[t.token[b] * m.hidden + i]);
    }

    void run() {
        pool.run(m.threads, [](void* self, int thread) { static_cast<Step*>(self)->work(thread); }, this);
    }

  private:
    typedef typename Line<W>::Act Act;
    typedef Scratch<W> Own;
    static constexpr long kChunk = 8;      // pairs of weight rows that a thread takes at a time
    static constexpr long kMost = 32 * 1024;  // bytes of each stream that a waiting thread fetches

    const Model& m;
    const Tokens& t;
    const long q, kv, all, group;  // widths of a row of queries, of keys, of both and values; queries that share a key
    Shares shares;
    std::vector<float> stream, mixed, attended, gated;
    std::vector<Act> shared;

    static const W* as(const void* p) { return static_cast<const W*>(p); }
    long widest() const { return std::max(std::max(m.hidden, m.inner), q); }

    void work(int thread) {
        static thread_local Own s;
        s.thread = thread;
        s.x.resize(kMaxRows * widest()), s.plain.resize(widest());
        s.scores.resize((m.length + 1) * group), s.head.resize((group + 1) * m.head_dim), s.ready.resize(group * m.head_dim);
        for (long l = 0; l < m.layers; ++l) layer(l, s);
        auto last = [&](long r) { return normed(&stream[t.row[r] * m.hidden], m.final_norm, s); };
        const Act* x = staged(s, m.layers, kMixed, t.wanted, m.hidden, last);
        product(s, m.layers, kMixed, x, t.wanted, [&](long n, long b, float sum) { t.logits[b * m.vocab + n] = sum; });
    }

    void layer(long l, Own& s) {
        const Layer& layer = m.layer[l];
        auto residual = [&](long n, long b, float sum) { stream[b * m.hidden + n] += sum; };
        auto before = [&](const void* gain) {
            return [&, gain](long b) { return normed(&stream[b * m.hidden], gain, s); };
        };
        const Act* x = staged(s, l, kMixed, t.count, m.hidden, before(layer.attention_norm));
        product(s, l, kMixed, x, t.count, [&](long n, long b, float sum) { mixed[b * all + n] = sum; });
        barrier(s);
        if (t.ragged) {
            one_by_one(s, l, kKept, t.count * m.kv_heads, [&](long u) { keep(layer, u / m.kv_heads, u % m.kv_heads); });
            barrier(s);
        }
        one_by_one(s, l, kAttended, t.count * m.kv_heads, [&](long u) { attend(layer, s, u / m.kv_heads, u % m.kv_heads); });
        barrier(s);
        x = staged(s, l, kOut, t.count, q, [&](long b) { return &attended[b * q]; });
        product(s, l, kOut, x, t.count, residual);
        barrier(s);
        x = staged(s, l, kGated, t.count, m.hidden, before(layer.mlp_norm));
        product(s, l, kGated, x, t.count, [&](long n, long b, float sum) { gated[b * 2 * m.inner + n] = sum; });
        barrier(s);
        x = staged(s, l, kDown, t.count, m.inner, [&](long b) { return opened(&gated[b * 2 * m.inner], s); });
        product(s, l, kDown, x, t.count, residual);
        barrier(s);
    }

    // The matrix of a phase: as many rows, each so deep. Queries, keys and values count as one, and so do gate and up.
    long width(long l, int phase) const {
        return l == m.layers ? m.vocab : phase == kMixed ? all : phase == kGated ? 2 * m.inner : m.hidden;
    }
    long depth(int phase) const { return phase == kOut ? q : phase == kDown ? m.inner : m.hidden; }
    const W* row(long l, int phase, long n) const {
        if (l == m.layers) return as(m.head) + n * m.hidden;
        const Layer& layer = m.layer[l];
        switch (phase) {
            case kMixed:
                if (n >= q + kv) return as(layer.v) + (n - q - kv) * m.hidden;
                return n >= q ? as(layer.k) + (n - q) * m.hidden : as(layer.q) + n * m.hidden;
            case kGated: return n >= m.inner ? as(layer.up) + (n - m.inner) * m.hidden : as(layer.gate) + n * m.hidden;
            case kOut: return as(layer.o) + n * q;
            default: return as(layer.down) + n * m.inner;
        }
    }

    // Row n and row n + half of a phase's matrix, as places in memory.
    Two pair(long l, int phase, long n) const {
        long wide = width(l, phase), half = (wide + 1) / 2, other = n + half;
        auto at = [&](long r) { return reinterpret_cast<const char*>(row(l, phase, r)); };
        return {at(n), at(other < wide ? other : n)};
    }

    // Where a thread begins in the phase after this one; nowhere in particular after the last.
    Two after(long l, int phase, int thread) const {
        if (l == m.layers) return pair(0, kMixed, 0);
        phase = (phase + 1) % kPhases, l += phase == kMixed;
        return pair(l, phase, shares.part(thread, (width(l, phase) + 1) / 2, kChunk).begin);
    }

    // A phase's matrix against the activations: each sum goes to put(row, activation, sum).
    template <class F>
    void product(Own& s, long l, int phase, const Act* x, long count, F put) {
        const long wide = width(l, phase), half = (wide + 1) / 2, deep = depth(phase), bytes = deep * sizeof(W);
        const Range part = shares.part(s.thread, half, kChunk);
        const Two end = pair(l, phase, std::max(part.end - 1, 0l)), next = after(l, phase, s.thread);
        auto ahead = [&](const char* at, const char* end, const char* next) {
            long over = at + kAhead - (end + bytes);
            return over < 0 || over > kAhead ? at + kAhead : next + over;
        };
        if (count) shares.deal(kJobs * l + phase, s.thread, half, kChunk, [&](Range r, bool) {
            float sums[2 * kMaxRows];
            for (long first = 0; first < count; first += kMaxRows) {
                long some = std::min(count - first, kMaxRows);
                Dots<W> dots = dots_for<W>(some);
                for (long n = r.begin; n < r.end; ++n) {
                    Two at = pair(l, phase, n), then = {ahead(at.a, end.a, next.a), ahead(at.b, end.b, next.b)};
                    dots(reinterpret_cast<const W*>(at.a), reinterpret_cast<const W*>(at.b), x + first * deep, deep, sums, then);
                    for (long b = 0; b < some; ++b) put(n, first + b, sums[b]);
                    for (long b = 0; b < some && n + half < wide; ++b) put(n + half, first + b, sums[some + b]);
                }
            }
        });
        s.next = {next.a + kAhead, next.b + kAhead};
    }

    void barrier(Own& s) {
        long done = 0;
        pool.barrier(m.threads, [&] {
            if (done < kMost) fetch(s.next.a + done), fetch(s.next.b + done), done += kLine;
        });
        s.next.a += done, s.next.b += done;
    }

    template <class F>
    void one_by_one(Own& s, long l, int job, long units, F f) {
        shares.deal(kJobs * l + job, s.thread, units, 1, [&](Range r, bool) { f(r.begin); });
    }

    // Rows ready for a product: few are staged by every thread for itself, many are shared out.
    template <class F>
    const Act* staged(Own& s, long l, int phase, long rows, long width, F row) {
        if (rows <= kMaxRows) {
            for (long r = 0; r < rows; ++r) Line<W>::stage(row(r), width, &s.x[r * width]);
            return s.x.data();
        }
        one_by_one(s, l, kStaged + phase, rows, [&](long r) { Line<W>::stage(row(r), width, &shared[r * width]); });
        barrier(s);
        return shared.data();
    }

    void norm(const float* x, const W* gain, long width, float* out) const {
        float scale = 1.0f / std::sqrt(squares(x, width) / width + m.eps);
        for (long i = 0; i < width; ++i) out[i] = x[i] * scale * widen(gain[i]);
    }

    const float* normed(const float* x, const void* gain, Own& s) const {
        norm(x, as(gain), m.hidden, s.plain.data());
        return s.plain.data();
    }

    // The gated activation of SwiGLU: gates, then what they open.
    const float* opened(const float* gates, Own& s) const {
        float* out = s.plain.data();
        for (long i = 0; i < m.inner; i += kLanes) {
            Vec gate = load(gates + i);
            ::store(out + i, gate / (1.0f + exponential(-gate)) * load(gates + m.inner + i));
        }
        return out;
    }

    // x rotated by its position.
    void rotate(float* x, long position) const {
        long half = m.head_dim / 2;
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
    void keep(const Layer& layer, long b, long head) {
        float *k = &mixed[b * all + q + head * m.head_dim], *v = k + kv;
        rotate(k, t.position[b]);
        store(layer, b, head, k, v);
    }

    void attend(const Layer& layer, Own& s, long b, long shared);
    void score(const W* keys, const W* values, const Act* queries, long past, float* weights) const;
};

// weights[h * (past + 1) + p] = key p times query h, for all that share the key; values are fetched meanwhile.
template <class W>
void Step<W>::score(const W* keys, const W* values, const Act* queries, long past, float* weights) const {
    const long d = m.head_dim, half = (past + 1) / 2;
    for (long first = 0; first < group; first += kMaxRows) {
        long some = std::min(group - first, kMaxRows);
        Dots<W> dots = dots_for<W>(some);
        float sums[2 * kMaxRows];
        for (long p = 0; p < half; ++p) {
            long other = std::min(p + half, past - 1);
            Two then = {reinterpret_cast<const char*>(values + p * d), reinterpret_cast<const char*>(values + other * d)};
            dots(keys + p * d, keys + other * d, queries + first * d, d, sums, then);
            for (long h = 0; h < some; ++h) {
                float* row = weights + (first + h) * (past + 1);
                row[p] = sums[h], row[other] = sums[some + h];
            }
        }
    }
}

// out[d] = sum over p of weight[p] * values[p, d], for B vectors of a row.
template <int B, class W>
static void weigh(const W* values, const float* weight, long count, long stride, float* out) {
    Vec total[B] = {};
    for (long p = 0; p < count; ++p)
        for (int j = 0; j < B; ++j) total[j] += weight[p] * spread(values + p * stride + j * kLanes);
    for (int j = 0; j < B; ++j) store(out + j * kLanes, total[j]);
}

// The heads of one token that share a key and a value, over the past and over itself. Stores both unless `keep` has.
template <class W>
void Step<W>::attend(const Layer& layer, Own& s, long b, long shared) {
    const long d = m.head_dim, past = t.position[b];
    const float *row = &mixed[b * all], *v = row + q + kv + shared * d;
    float *query = s.head.data(), *key = query + group * d, *weights = s.scores.data();
    memcpy(query, row + shared * group * d, group * d * sizeof(float));
    memcpy(key, row + q + shared * d, d * sizeof(float));
    if (!t.ragged) rotate(key, past), store(layer, b, shared, key, v);
    for (long h = 0; h < group; ++h) rotate(query + h * d, past);
    for (long i = 0; i < group * d; ++i) query[i] *= 1.0f / std::sqrt(float(d));
    for (long h = 0; h < group; ++h) Line<W>::stage(query + h * d, d, &s.ready[h * d]);
    const W* values = held(layer.values, b, shared);
    score(held(layer.keys, b, shared), values, s.ready.data(), past, weights);
    for (long h = 0; h < group; ++h) {
        float *weight = weights + h * (past + 1), *out = &attended[b * q + (shared * group + h) * d];
        weight[past] = product_of(query + h * d, key, d);
        float top = largest(weight, past + 1);
        each(weight, past + 1, [top](Vec x) { return exponential(x - top); });
        float scale = 1.0f / sum_of(weight, past + 1);
        for (long i = 0; i < d; i += 4 * kLanes) weigh<4>(values + i, weight, past, d, out + i);
        for (long i = 0; i < d; ++i) out[i] = (out[i] + weight[past] * v[i]) * scale;
    }
}

// First index of the largest of n numbers.
static int32_t argmax(const float* x, long n) {
    float top = largest(x, n);
    for (long i = 0; i < n; ++i)
        if (x[i] == top) return int32_t(i);
    return 0;
}

extern "C" {
void step_wake(int threads) { pool.wake(threads); }
void step_f32(const Model* model, const Tokens* tokens) { Step<float>(*model, *tokens).run(); }
void step_bf16(const Model* model, const Tokens* tokens) { Step<bf16>(*model, *tokens).run(); }

void step_argmax(const float* logits, long rows, long vocab, int32_t* token) {
    for (long r = 0; r < rows; ++r) token[r] = argmax(logits + r * vocab, vocab);
}
}
