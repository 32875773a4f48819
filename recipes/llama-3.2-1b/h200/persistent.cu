// Llama-3.2-1B, bf16, batch 1, greedy decode on one H200: one cooperative kernel, one block an SM, for all tokens of a call.
//
// Each block owns fixed rows of every matrix (schedule.py). Its producer thread streams them, layer after layer and token
// after token, through the ring of shared memory; it never waits for activations, so memory stays busy while the
// consumers exchange a vector. Phases of a layer, each separated by one exchange among all blocks:
//
//   qkv      RMS norm, q/k/v rows, rope, cache append                                -> `pairs`
//   attend   block (kv head, split): old keys and values come through the ring       -> `part` (and, if long, `mixed`)
//   output   o rows, residual                                                        -> `middle`
//   gate_up  RMS norm, gate and up rows, SiLU product                                -> `inner`
//   down     down rows, residual                                                     -> `hidden`
//
// and after the last layer the vocabulary rows; every block finds the next token for itself from `best`.
//
// An exchange is a table of 8-byte words, each a value (two bf16, or one fp32) and the epoch of its (token, layer). A
// reader polls the words it needs until all carry the epoch: no flag, no fence, no reset, and stale or foreign bytes do not
// match. A table is written again only one layer later, when its readers have provably finished: no block passes
// `hidden` of a layer before all blocks have published their part of it, and a block publishes only after all of its threads
// have read every earlier table. Sums are fp32 in a fixed order, so results are the same bits on every run. All waits
// trap after a bounded number of tries.
#include <math.h>
#include <stdio.h>

#include "attention.cuh"

namespace llama {

constexpr int kDepth = 12;
// Copies in flight: few while the blocks exchange small vectors, whose latency grows with the queues of the memory
// system; more in the long phases between, for full bandwidth.
constexpr int kFew = 2, kMany = 3, kManyHead = kDepth;
constexpr int kQuietStages = 16;  // of gate_up: streamed ahead while the attention output is exchanged
constexpr int kSpinLimit = 1 << 22;
constexpr int kMaxBlocks = 160;
constexpr int kStageKeys = kStageBytes / (2 * kHeadDim * (int)sizeof(bf16));

// What one block owns in one layer: first packed row and count of rows, multiples of 8.
struct Share {
  int qkv, qkv_rows, x, x_rows, inner, inner_rows, head, head_rows;
};

using Word = unsigned long long;  // low half: the value; high half: the epoch

struct Scratch {
  Word pairs[kQkvRows / 2];                     // (d, d + 32) of a head, bf16
  Word part[kJoinByReader][kHidden / 2];        // short contexts: normalised outputs of the splits, bf16
  Word part_log[kJoinByReader][kHeads];         // and their weights, fp32
  Word wide[kSplits][kHidden];                  // long contexts: the same in fp32
  Word wide_log[kSplits][kHeads];
  Word mixed[kHidden / 2];                      // and joined
  Word middle[kHidden / 2], hidden[kHidden / 2];  // residual stream after attention, after the MLP
  Word inner[kInner / 2];
  Word best[kMaxBlocks][2];                     // (largest logit, its index)
};

struct Work {
  Model model;
  Layer layers[kLayers];
  const Share* shares;
  int layer_count;
  const int *last, *slot, *position;
  int* tokens;
  float* logits;
  int steps;
  uint32_t epoch;  // of the first layer of the first token
};

struct Shared {
  uint64_t barriers[2 * kDepth];
  Share own[kLayers];
  Vector vector;
  Partials partials;
  Joint<kWarps> joint;
  alignas(16) float q[kGroup][kHeadDim];
  alignas(16) bf16 key[kHeadDim], value[kHeadDim];  // of the new token
  float residual[16];
  float best[kWarps], next[kMaxBlocks / 32];
  int best_index[kWarps], next_index[kMaxBlocks / 32];
};

constexpr int kSharedBytes = kDepth * kStageBytes + (int)sizeof(Shared);
static_assert(kSharedBytes <= 232448, "an SM of Hopper gives a block 227 KB");

extern __shared__ __align__(128) unsigned char shared_memory[];

// ---- exchange ------------------------------------------------------------------------------------------------------------

__device__ __forceinline__ void publish(Word* to, uint32_t value, uint32_t epoch) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"((Word)epoch << 32 | value) : "memory");
}

__device__ __forceinline__ uint2 halves(Word w) { return make_uint2((uint32_t)w, (uint32_t)(w >> 32)); }

__device__ __forceinline__ uint4 peek2(const Word* from) {  // two words; each is read whole
  Word a, b;
  asm volatile("ld.relaxed.gpu.global.v2.u64 {%0,%1}, [%2];" : "=l"(a), "=l"(b) : "l"(from) : "memory");
  return make_uint4(halves(a).x, halves(a).y, halves(b).x, halves(b).y);
}

__device__ __forceinline__ uint2 peek(const Word* from) {
  Word a;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(a) : "l"(from) : "memory");
  return halves(a);
}

__device__ __forceinline__ uint32_t await(const Word* from, uint32_t epoch) {
  uint2 v = peek(from);
  for (int spin = 0; v.y != epoch; ++spin) {
    if (spin > kSpinLimit) __trap();
    v = peek(from);
  }
  return v.x;
}

// Two consecutive words, each of two bf16.
__device__ __forceinline__ void await4(const Word* from, uint32_t epoch, float* out) {
  uint4 v = peek2(from);
  for (int spin = 0; v.y != epoch || v.w != epoch; ++spin) {
    if (spin > kSpinLimit) __trap();
    v = peek2(from);
  }
  out[0] = low(v.x), out[1] = high(v.x), out[2] = low(v.z), out[3] = high(v.z);
}

// ---- producer ------------------------------------------------------------------------------------------------------------

struct KeyRange {
  int from, to;  // old keys of this block; the new one is not among them
  bool active, newest;
  int count;  // splits
};

__device__ __forceinline__ KeyRange key_range(int block, int position) {
  const Split cut = split(position + 1);
  const int part = block % kSplits;
  KeyRange r;
  r.count = cut.count;
  r.active = block < kKvHeads * kSplits && part < cut.count;
  r.newest = part == cut.count - 1;
  r.from = part * cut.size;
  r.to = r.active ? min(position, r.from + cut.size) : r.from;
  return r;
}

__device__ __forceinline__ void produce_cache(const Ring& ring, Cursor& at, const Layer& l, size_t base, KeyRange keys) {
  uint64_t policy = stream_policy();
  for (int from = keys.from; from < keys.to; from += kStageKeys) {
    const uint32_t size = min(kStageKeys, keys.to - from) * kHeadDim * sizeof(bf16);
    const uint32_t stage = ring.data + at.slot * kStageBytes, full = ring.full + 8 * at.slot;
    ring.claim(at);
    barrier_expect(full, 2 * size);
    bulk_copy(stage, l.keys + base + (size_t)from * kHeadDim, size, full, policy);
    bulk_copy(stage + kStageBytes / 2, l.values + base + (size_t)from * kHeadDim, size, full, policy);
    at.advance(kDepth);
  }
}

__device__ __forceinline__ void produce_rows(const Ring& ring, Cursor& at, const bf16* matrix, int columns, int first, int rows) {
  ring.produce(at, matrix + (size_t)first * columns, (size_t)rows * columns * sizeof(bf16), stream_policy());
}

__device__ void produce(const Work& w, Ring ring, const Share* shares) {
  Cursor at;
  const int kv = blockIdx.x / kSplits;
  const size_t base = ((size_t)*w.slot * kKvHeads + kv) * w.model.length * kHeadDim;
  int position = *w.position;
  for (int step = 0; step < w.steps; ++step, ++position) {
    // Other blocks stored the keys and values of earlier tokens through the generic proxy, and fenced them there; this
    // stage of the stream is a whole token's exchanges later.
    __threadfence();
    asm volatile("fence.proxy.async.global;" ::: "memory");
    const KeyRange keys = key_range(blockIdx.x, position);
    for (int i = 0; i < w.layer_count; ++i) {
      const Layer& l = w.layers[i];
      const Share& own = shares[i];
      ring.flight = kFew;
      produce_rows(ring, at, l.qkv, kHidden, own.qkv, own.qkv_rows);
      produce_cache(ring, at, l, base, keys);
      produce_rows(ring, at, l.o, kHidden, own.x, own.x_rows);
      constexpr int kQuietRows = kQuietStages * kStageBytes / (kHidden * sizeof(bf16));
      produce_rows(ring, at, l.gate_up, kHidden, own.inner, kQuietRows);
      ring.flight = kMany;
      produce_rows(ring, at, l.gate_up, kHidden, own.inner + kQuietRows, own.inner_rows - kQuietRows);
      produce_rows(ring, at, l.down, kInner, own.x, own.x_rows);
    }
    ring.flight = kManyHead;
    produce_rows(ring, at, w.model.head, kHidden, shares[0].head, shares[0].head_rows);
  }
}

// ---- consumers -----------------------------------------------------------------------------------------------------------

struct Consumer {
  const Work& w;
  const Ring& ring;
  Shared& shared;
  Scratch& s;
  Cursor at;
  int t, lane, warp;
  int column;  // first of the four of a hidden vector that this thread handles
  int position, slot;
  uint32_t epoch;

  // Normalise `x` and multiply the rows that come next; done(row, sum).
  template <class Done>
  __device__ __forceinline__ void normed(float (&x)[4], uint2 gamma, int rows, Done done) {
    share_squares(x, shared.partials);
    x[0] *= low(gamma.x), x[1] *= high(gamma.x), x[2] *= low(gamma.y), x[3] *= high(gamma.y);
    put<kHidden>(shared.vector, warp, lane, 0, x);
    const float eps = w.model.eps;
    multiply<kHidden>(ring, at, rows, shared.vector, shared.partials,
                      [&](int row, float sum) { done(row, sum * inverse_rms(shared.partials, eps)); });
  }

  __device__ __forceinline__ uint2 gain(const bf16* norm) const { return __ldg((const uint2*)(norm + column)); }

  // `turn`: cos and sin for the row that this thread finishes.
  __device__ __forceinline__ void qkv(const Layer& l, const Share& own, float (&x)[4], uint2 gamma, float2 turn) {
    normed(x, gamma, own.qkv_rows, [&](int row, float mine) {
      const float other = __shfl_xor_sync(~0u, mine, 1);
      row += own.qkv;
      const bool upper = row & 1;
      const int head = row / kHeadDim, d = (row % kHeadDim) / 2;
      float out = upper ? fmaf(mine, turn.x, other * turn.y) : fmaf(mine, turn.x, -other * turn.y);
      if (head < kHeads) out *= kQueryScale;
      if (head >= kHeads + kKvHeads) out = mine;
      const float partner = __shfl_xor_sync(~0u, out, 1);
      if (row >= own.qkv + own.qkv_rows) return;
      if (!upper) publish(&s.pairs[row / 2], pack2(out, partner), epoch);
      if (head < kHeads) return;
      const int kv = (head - kHeads) % kKvHeads;
      bf16* cache = head < kHeads + kKvHeads ? l.keys : l.values;
      cache[(((size_t)slot * kKvHeads + kv) * w.model.length + position) * kHeadDim + d + (upper ? 32 : 0)] = __float2bfloat16(out);
      // Read by bulk copies for the next token, long after: ordered by this fence and the exchanges between.
      __threadfence();
      asm volatile("fence.proxy.async.global;" ::: "memory");
    });
  }

  __device__ __forceinline__ void attend(const KeyRange& keys) {
    const int kv = blockIdx.x / kSplits, part = blockIdx.x % kSplits;
    if (t < kGroup * 32 + 64) {  // 32 words each: four query heads, the new key, the new value
      const int which = t >> 5;
      const int head = which < kGroup ? kv * kGroup + which : kHeads + (which - kGroup) * kKvHeads + kv;
      const uint32_t pair = await(&s.pairs[head * 32 + lane], epoch);
      if (which < kGroup) {
        shared.q[which][lane] = low(pair), shared.q[which][lane + 32] = high(pair);
      } else {
        bf16* row = which == kGroup ? shared.key : shared.value;
        const __nv_bfloat162 both = *(const __nv_bfloat162*)&pair;
        row[lane] = both.x, row[lane + 32] = both.y;
      }
    }
    consumer_sync();
    Attention a;
    a.init();
    const int dims = (lane & 7) * 8;
    // Queries are read again for each stage: 16 registers less.
    auto load_queries = [&](float (&q)[kWarpHeads][8]) {
#pragma unroll
      for (int h = 0; h < kWarpHeads; ++h) {
        const uint32_t at = smem_address(&shared.q[(warp & 1) * kWarpHeads + h][dims]);
        const uint4 x = shared_load(at), y = shared_load(at + 16);
        q[h][0] = __uint_as_float(x.x), q[h][1] = __uint_as_float(x.y), q[h][2] = __uint_as_float(x.z), q[h][3] = __uint_as_float(x.w);
        q[h][4] = __uint_as_float(y.x), q[h][5] = __uint_as_float(y.y), q[h][6] = __uint_as_float(y.z), q[h][7] = __uint_as_float(y.w);
      }
    };
    float q[kWarpHeads][8];
    if (keys.newest && warp >= kWarps - 2) {  // the two warps with the fewest old keys
      const uint4 key[1] = {*(const uint4*)(shared.key + dims)};
      const bool seen[1] = {lane < 8};
      load_queries(q);
      a.add<false>(q, key, seen, [&](int) { return *(const uint4*)(shared.value + dims); });
    }
    const int mine = (warp >> 1) * 8 + (lane >> 3);  // and the fourth key after it
    for (int from = keys.from; from < keys.to; from += kStageKeys) {
      barrier_wait(ring.full + 8 * at.slot, at.parity);
      const uint32_t place = ring.data + at.slot * kStageBytes + mine * kHeadDim * sizeof(bf16) + dims * sizeof(bf16);
      constexpr int kStep = 4 * kHeadDim * sizeof(bf16);
      const uint4 key[2] = {shared_load(place), shared_load(place + kStep)};
      const bool seen[2] = {from + mine < keys.to, from + mine + 4 < keys.to};
      load_queries(q);
      auto value = [&](int u) { return shared_load(place + kStageBytes / 2 + u * kStep); };
      if (from + kStageKeys <= keys.to) {
        a.add<true>(q, key, seen, value);
      } else {
        a.add<false>(q, key, seen, value);
      }
      __syncwarp();
      if (lane == 0) barrier_arrive(ring.empty + 8 * at.slot);
      at.advance(kDepth);
    }
    shared.joint.put(a, warp, lane);
    consumer_sync();
    if (t < kGroup * kHeadDim) {
      const int h = t >> 6, d = t & 63, head = kv * kGroup + h, index = head * kHeadDim + d;
      float log, value = shared.joint.get(h, d, log);
      if (keys.count <= kJoinByReader) {
        const float next = __shfl_xor_sync(~0u, value, 1);
        if (!(d & 1)) publish(&s.part[part][index / 2], pack2(value, next), epoch);
        if (d == 0) publish(&s.part_log[part][head], __float_as_uint(log), epoch);
      } else {
        publish(&s.wide[part][index], __float_as_uint(value), epoch);
        if (d == 0) publish(&s.wide_log[part][head], __float_as_uint(log), epoch);
      }
    }
  }

  // Long contexts: each of the 16 blocks of a key/value head joins 16 of its 256 output columns.
  __device__ __forceinline__ void join_wide(int count) {
    const int kv = blockIdx.x / kSplits, slice = blockIdx.x % kSplits;
    const int head = kv * kGroup + slice / 4, first = head * kHeadDim + slice % 4 * 16;
    const int part = t / 16;
    float(*split)[16] = (float(*)[16])(shared.vector.low + kHidden);  // room that only the down projection uses
    float* split_log = split[kSplits];
    if (part < count) {
      split[part][t % 16] = __uint_as_float(await(&s.wide[part][first + t % 16], epoch));
      if (t % 16 == 0) split_log[part] = __uint_as_float(await(&s.wide_log[part][head], epoch));
    }
    consumer_sync();
    if (warp != 0) return;
    float top = -1e30f, total = 0.f, value = 0.f;
    for (int i = 0; i < count; ++i) top = fmaxf(top, split_log[i]);
    for (int i = 0; i < count; ++i) {
      const float scale = exp2f(split_log[i] - top);
      total += scale;
      value = fmaf(scale, split[i][lane % 16], value);
    }
    value /= total;
    const float next = __shfl_xor_sync(~0u, value, 1);
    if (lane < 16 && !(lane & 1)) publish(&s.mixed[(first + lane) / 2], pack2(value, next), epoch);
  }

  __device__ __forceinline__ void await_mixed(int count, float (&x)[4]) {
    if (count > kJoinByReader) return await4(s.mixed + column / 2, epoch, x);
    const int head = column / kHeadDim;
    await4(s.part[0] + column / 2, epoch, x);
    if (count == 1) return;
    float log[kJoinByReader], top = -1e30f, total = 0.f;
#pragma unroll
    for (int i = 0; i < kJoinByReader; ++i)
      log[i] = i < count ? __uint_as_float(await(&s.part_log[i][head], epoch)) : -INFINITY;
#pragma unroll
    for (int i = 0; i < kJoinByReader; ++i) top = fmaxf(top, log[i]);
#pragma unroll
    for (int i = 0; i < kJoinByReader; ++i) total += log[i] = exp2f(log[i] - top);
#pragma unroll
    for (int j = 0; j < 4; ++j) x[j] *= log[0] / total;
#pragma unroll
    for (int i = 1; i < kJoinByReader; ++i) {
      if (i >= count) break;
      float y[4];
      await4(s.part[i] + column / 2, epoch, y);
#pragma unroll
      for (int j = 0; j < 4; ++j) x[j] = fmaf(log[i] / total, y[j], x[j]);
    }
  }

  // Add to the fp32 residual of this block's rows and publish it. Rows come in pairs.
  __device__ __forceinline__ void residual(Word* table, const Share& own, int row, float sum) {
    const bool mine = row < own.x_rows;
    float x = mine ? shared.residual[row] + sum : 0.f;
    const float next = __shfl_xor_sync(~0u, x, 1);
    if (!mine) return;
    shared.residual[row] = x;
    if (!(row & 1)) publish(&table[(own.x + row) / 2], pack2(x, next), epoch);
  }

  __device__ __forceinline__ void output(const Share& own, int count) {
    float x[4];
    await_mixed(count, x);
    put<kHidden>(shared.vector, warp, lane, 0, x);
    multiply<kHidden>(ring, at, own.x_rows, shared.vector, shared.partials,
                      [&](int row, float sum) { residual(s.middle, own, row, sum); });
  }

  __device__ __forceinline__ void gate_up(const Share& own, uint2 gamma) {
    float x[4];
    await4(s.middle + column / 2, epoch, x);
    normed(x, gamma, own.inner_rows, [&](int row, float mine) {
      const float up = __shfl_xor_sync(~0u, mine, 1);
      const float product = mine / (1.f + __expf(-mine)) * up;  // of (gate j, up j), in even lanes
      const float next = __shfl_xor_sync(~0u, product, 2);
      if (row < own.inner_rows && !(row & 3)) publish(&s.inner[(own.inner + row) / 4], pack2(product, next), epoch);
    });
  }

  __device__ __forceinline__ void down(const Share& own) {
    constexpr int kParts = Shape<kInner>::kColumns / 128;
    const Word* from = s.inner + (warp * Shape<kInner>::kColumns + lane * 4) / 2;
    float x[kParts][4];
#pragma unroll
    for (int i = 0; i < kParts; ++i) await4(from + i * 64, epoch, x[i]);
#pragma unroll
    for (int i = 0; i < kParts; ++i) put<kInner>(shared.vector, warp, lane, i, x[i]);
    multiply<kInner>(ring, at, own.x_rows, shared.vector, shared.partials,
                     [&](int row, float sum) { residual(s.hidden, own, row, sum); });
  }

  __device__ __forceinline__ void head(const Share& own, float (&x)[4], uint2 gamma, int step) {
    float* logits = w.logits + (size_t)step * kVocab + own.head;
    Best best{-INFINITY, 0x7fffffff};
    normed(x, gamma, own.head_rows, [&](int row, float logit) {
      if (row >= own.head_rows) return;
      logits[row] = logit;
      best.take(logit, own.head + row);
    });
    best.over_warp();
    if (lane == 0) shared.best[warp] = best.value, shared.best_index[warp] = best.index;
    consumer_sync();
    if (t != 0) return;
    for (int i = 1; i < kWarps; ++i) best.take(shared.best[i], shared.best_index[i]);
    publish(&s.best[blockIdx.x][0], __float_as_uint(best.value), epoch);
    publish(&s.best[blockIdx.x][1], best.index, epoch);
  }

  // The best of all blocks' best of the token before.
  __device__ __forceinline__ int chosen(uint32_t of) {
    Best best{-INFINITY, 0x7fffffff};
    if (warp < kMaxBlocks / 32) {
      if (t < gridDim.x) {
        uint4 v = peek2(s.best[t]);
        for (int spin = 0; v.y != of || v.w != of; ++spin) {
          if (spin > kSpinLimit) __trap();
          v = peek2(s.best[t]);
        }
        best.take(__uint_as_float(v.x), (int)v.z);
      }
      best.over_warp();
      if (lane == 0) shared.next[warp] = best.value, shared.next_index[warp] = best.index;
    }
    consumer_sync();
#pragma unroll
    for (int i = 0; i < kMaxBlocks / 32; ++i) best.take(shared.next[i], shared.next_index[i]);
    return best.index;
  }

  __device__ void run() {
    position = *w.position, slot = *w.slot, epoch = w.epoch;
    int token = *w.last;
    for (int step = 0;; ++step, ++position) {
      if (step > 0) {
        token = chosen(epoch - 1);
        if (blockIdx.x == 0 && t == 0) w.tokens[step - 1] = token;
      }
      if (step == w.steps) return;
      const bf16* embedding = w.model.embed + (size_t)token * kHidden;
      const uint2 row = __ldg((const uint2*)(embedding + column));
      float x[4] = {low(row.x), high(row.x), low(row.y), high(row.y)};
      const Share& first = shared.own[0];
      if (t < first.x_rows) shared.residual[t] = __bfloat162float(embedding[first.x + t]);
      const KeyRange keys = key_range(blockIdx.x, position);
      const int dim = ((first.qkv + t) % kHeadDim) / 2;
      const float2 turn = warp == 0 ? __ldg(&w.model.rope[(size_t)position * 32 + dim]) : make_float2(1.f, 0.f);
      uint2 gamma = gain(w.layers[0].norm_in);
      for (int i = 0; i < w.layer_count; ++i, ++epoch) {
        const Layer& l = w.layers[i];
        const Share& own = shared.own[i];
        if (i > 0) await4(s.hidden + column / 2, epoch - 1, x);
        qkv(l, own, x, gamma, turn);
        gamma = gain(l.norm_post);  // each a phase ahead: a load that misses L2 queues behind the stream
        if (keys.active) attend(keys);
        if (keys.count > kJoinByReader && blockIdx.x < kKvHeads * kSplits) join_wide(keys.count);
        output(own, keys.count);
        gate_up(own, gamma);
        gamma = gain(i + 1 < w.layer_count ? w.layers[i + 1].norm_in : w.model.norm);
        down(own);
      }
      --epoch;  // of the last layer: the head and its exchange belong to it
      await4(s.hidden + column / 2, epoch, x);
      head(first, x, gamma, step);
      ++epoch;
    }
  }
};

__global__ void __launch_bounds__(kThreads, 1) decode(const __grid_constant__ Work w) {
  Shared& shared = *(Shared*)(shared_memory + kDepth * kStageBytes);
  Ring ring;
  ring.init(shared_memory, shared.barriers, kDepth);
  if (threadIdx.x == 0) ring.init_barriers();
  for (int i = threadIdx.x; i < w.layer_count; i += kThreads) shared.own[i] = w.shares[i * gridDim.x + blockIdx.x];
  __syncthreads();
  if (threadIdx.x >= kConsumers) {
    if (threadIdx.x == kConsumers) produce(w, ring, shared.own);
    return;
  }
  const int t = threadIdx.x;
  Consumer{w, ring, shared, *(Scratch*)w.model.scratch, Cursor(), t, t & 31, t >> 5, t * 4, 0, 0, 0}.run();
}

}  // namespace llama

// ---- host ----------------------------------------------------------------------------------------------------------------

using namespace llama;

#define CHECK(call)                                                                                     \
  do {                                                                                                  \
    cudaError_t error = (call);                                                                         \
    if (error != cudaSuccess) {                                                                         \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(error)); \
      return (int)error;                                                                                \
    }                                                                                                   \
  } while (0)

struct Engine {
  Work work;
  int blocks;
  uint32_t epoch;
};

extern "C" {

size_t engine_scratch_bytes() { return sizeof(Scratch); }

// `shares`: a table [layers][blocks] in device memory. 0, or a CUDA error code.
int engine_create(const Model* model, const Layer* layers, int layer_count, const int* shares, int blocks, Engine** out) {
  Engine* e = new Engine{};
  e->work.model = *model, e->work.layer_count = layer_count, e->work.shares = (const Share*)shares;
  e->blocks = blocks, e->epoch = 1;
  for (int i = 0; i < layer_count; ++i) e->work.layers[i] = layers[i];
  if (blocks > kMaxBlocks) return (int)cudaErrorInvalidConfiguration;
  CHECK(cudaFuncSetAttribute(decode, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes));
  *out = e;
  return 0;
}

// `steps` greedy steps in stream order; reads and writes device memory only.
int engine_decode(Engine* e, const int* last, const int* slot, const int* position, int steps, int* tokens, float* logits,
                  cudaStream_t stream) {
  Work work = e->work;
  work.last = last, work.slot = slot, work.position = position, work.steps = steps, work.tokens = tokens;
  work.logits = logits, work.epoch = e->epoch;
  e->epoch += steps * work.layer_count;
  if (e->epoch > 1u << 30) {  // start over; no word of the past may match
    CHECK(cudaMemsetAsync(work.model.scratch, 0, sizeof(Scratch), stream));
    work.epoch = 1, e->epoch = 1 + steps * work.layer_count;
  }
  void* arguments[] = {&work};
  CHECK(cudaLaunchCooperativeKernel((const void*)decode, dim3(e->blocks), dim3(kThreads), arguments, kSharedBytes, stream));
  return 0;
}

int engine_destroy(Engine* e) {
  delete e;
  return 0;
}

}  // extern "C"
