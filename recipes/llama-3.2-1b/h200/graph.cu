// Llama-3.2-1B, bf16, batch 1, greedy decode on one H200: five kernels a layer and a head, as one CUDA graph.
//
//   qkv     [argmax of the last head and embedding, in layer 0] RMS norm, q/k/v rows, rope, cache append
//   attend  split over the cache: block (kv head, split); the last block of a head joins many splits
//   output  join of few splits, o rows, residual
//   gate_up RMS norm, gate and up rows, SiLU product
//   down    down rows, residual
//   head    RMS norm, vocabulary rows, one (maximum, index) a block; moves the position on
//
// Every kernel is launched with programmatic stream serialization and lets its dependents start at once, so the next
// kernel's producer fills its weight ring (which depends on nothing) while this one still runs; it reads activations
// only after griddepcontrol.wait. Positions, slot and buffers of a call are read from device memory: one capture
// serves every position. Residual stream, q, attention output and logits are fp32; keys, values and the MLP's inner
// activations are bf16. No atomics on values: results are the same bits on every run.
#include <math.h>
#include <stdio.h>

#include "attention.cuh"

namespace llama {

constexpr int kAttendThreads = 256;
constexpr int kMaxBlocks = 256;
constexpr int kManySteps = 16;  // tokens of the longer of the two graphs

// What one `decode` call works on; written by `begin`, advanced by `head`.
struct Call {
  int last, slot, position, step;
  int* tokens;
  float* logits;
};

struct Scratch {
  Call call;
  float x[kHidden];  // residual stream
  float q[kHidden];  // rotated, scaled for exp2
  float part[kSplits][kHidden];
  float part_log[kSplits][kHeads];  // log2 of the sum of exp2(score)
  bf16 inner[kInner];
  float best_value[kMaxBlocks];
  int best_index[kMaxBlocks];
  int arrived[kKvHeads];
};

__device__ __forceinline__ Scratch& scratch_of(const Model& m) { return *(Scratch*)m.scratch; }

struct Block {
  Ring ring;
  Cursor at;
  Partials* partials;
};

extern __shared__ __align__(128) unsigned char shared_memory[];

constexpr int shared_bytes(int depth) { return depth * kStageBytes + depth * 16 + (int)sizeof(Partials) + 16; }

// Barriers, ring, and the producer, which starts before the dependency is met. True for consumer threads.
template <int K>
__device__ __forceinline__ bool start(Block& block, int depth, int flight, const bf16* weights, int first, int rows) {
  uint64_t* barriers = (uint64_t*)(shared_memory + depth * kStageBytes);
  block.ring.init(shared_memory, barriers, depth);
  block.ring.flight = flight;
  block.partials = (Partials*)(barriers + 2 * depth);
  if (threadIdx.x == 0) block.ring.init_barriers();
  __syncthreads();
  dependents_launch();
  if (threadIdx.x == kConsumers) {
    Cursor at;
    block.ring.produce(at, weights + (size_t)first * K, (size_t)rows * K * sizeof(bf16), stream_policy());
  }
  return threadIdx.x < kConsumers;
}

__device__ __forceinline__ void load8(const float* from, float (&x)[8]) {
  float4 a = __ldcg((const float4*)from), b = __ldcg((const float4*)from + 1);
  x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w, x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
}

__device__ __forceinline__ void scale8(float (&x)[8], uint4 by) {
  float g[8];
  unpack8(by, g);
#pragma unroll
  for (int i = 0; i < 8; ++i) x[i] *= g[i];
}

// The token of this step: the call's own, or the best of the last head's blocks. Every warp finds it for itself.
__device__ __forceinline__ int current_token(const Scratch& s, int blocks) {
  int step = *(volatile const int*)&s.call.step;
  if (step == 0) return *(volatile const int*)&s.call.last;
  Best best{-INFINITY, 0x7fffffff};
  for (int i = threadIdx.x & 31; i < blocks; i += 32) best.take(__ldcg(&s.best_value[i]), __ldcg(&s.best_index[i]));
  best.over_warp();
  return best.index;
}

template <bool kFirst>
__global__ void __launch_bounds__(kThreads, 2) qkv(Model m, Layer l, int depth, int flight) {
  const int b = blockIdx.x, n = gridDim.x, t = threadIdx.x, warp = t >> 5;
  const int first = 2 * first_unit(b, kQkvRows / 2, n), rows = 2 * first_unit(b + 1, kQkvRows / 2, n) - first;
  Block block;
  if (!start<kHidden>(block, depth, flight, l.qkv, first, rows)) return;
  const int column = Shape<kHidden>::column(t, 0);
  const uint4 gamma = __ldg((const uint4*)(l.norm_in + column));
  Scratch& s = scratch_of(m);
  dependency_wait();
  const int position = __ldcg(&s.call.position), slot = __ldcg(&s.call.slot);
  float x[8];
  if constexpr (kFirst) {
    const int token = current_token(s, n);
    unpack8(__ldg((const uint4*)(m.embed + (size_t)token * kHidden + column)), x);
    if (b == 0 && t < 256) {
#pragma unroll
      for (int i = 0; i < 8; ++i) s.x[column + i] = x[i];
      if (t == 0 && s.call.step > 0) s.call.tokens[s.call.step - 1] = token;
    }
  } else {
    load8(s.x + column, x);
  }
  share_squares(x, *block.partials);
  scale8(x, gamma);
  // Rows come in pairs (d, d + 32) of one head: packed row 2p is d, row 2p + 1 is d + 32.
  auto head_of = [](int row) { return row / kHeadDim; };
  const int my_dim = ((first + t) % kHeadDim) / 2;  // of the row that this thread finishes
  const float2 turn = warp == 0 ? __ldg(&m.rope[(size_t)position * 32 + my_dim]) : make_float2(1.f, 0.f);
  multiply<kHidden>(block.ring, block.at, rows, x, *block.partials, [&](int row, float sum) {
    float mine = sum * inverse_rms(*block.partials, m.eps), other = __shfl_xor_sync(~0u, mine, 1);
    if (row >= rows) return;
    row += first;
    const bool upper = row & 1;
    const int head = head_of(row), d = (row % kHeadDim) / 2 + (upper ? 32 : 0);
    float turned = upper ? fmaf(mine, turn.x, other * turn.y) : fmaf(mine, turn.x, -other * turn.y);
    if (head < kHeads) {
      s.q[head * kHeadDim + d] = turned * kQueryScale;
      return;
    }
    const int kv = (head - kHeads) % kKvHeads;
    size_t place = (((size_t)slot * kKvHeads + kv) * m.length + position) * kHeadDim + d;
    if (head < kHeads + kKvHeads) {
      l.keys[place] = __float2bfloat16(turned);
    } else {
      l.values[place] = __float2bfloat16(mine);
    }
  });
}

// Weights exp2(log - top) of `count` splits of one head, joined over `part`: element `at` of the output.
__device__ __forceinline__ float join_splits(const Scratch& s, int count, int head, int at) {
  float top = -1e30f, total = 0.f, out = 0.f;
  for (int i = 0; i < count; ++i) top = fmaxf(top, __ldcg(&s.part_log[i][head]));
#pragma unroll 4
  for (int i = 0; i < count; ++i) {
    float w = exp2f(__ldcg(&s.part_log[i][head]) - top);
    total += w;
    out = fmaf(w, __ldcg(&s.part[i][at]), out);
  }
  return out / total;
}

__global__ void __launch_bounds__(kAttendThreads) attend(Model m, Layer l) {
  constexpr int kAttendWarps = kAttendThreads / 32;
  __shared__ Joint<kAttendWarps> joint;
  __shared__ bool is_last;
  const int kv = blockIdx.x / kSplits, part = blockIdx.x % kSplits;
  const int t = threadIdx.x, lane = t & 31, warp = t >> 5;
  dependents_launch();
  dependency_wait();
  Scratch& s = scratch_of(m);
  const int count = __ldcg(&s.call.position) + 1, slot = __ldcg(&s.call.slot);
  const Split cut = split(count);
  if (part >= cut.count) return;
  const int to = min(count, (part + 1) * cut.size);
  const size_t base = ((size_t)slot * kKvHeads + kv) * m.length * kHeadDim;
  const bf16 *keys = l.keys + base + (lane & 7) * 8, *values = l.values + base + (lane & 7) * 8;
  Attention a;
  a.init();
  float q[kWarpHeads][8];
#pragma unroll
  for (int h = 0; h < kWarpHeads; ++h)
    load8(s.q + (kv * kGroup + (warp & 1) * kWarpHeads + h) * kHeadDim + (lane & 7) * 8, q[h]);
  constexpr int kUnroll = 4;
  for (int from = part * cut.size + (warp >> 1) * 4 * kUnroll; from < to; from += kAttendWarps / 2 * 4 * kUnroll) {
    uint4 key[kUnroll], value[kUnroll];
    bool seen[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      int at = from + u * 4 + (lane >> 3);
      seen[u] = at < to;
      key[u] = __ldcg((const uint4*)(keys + (size_t)min(at, to - 1) * kHeadDim));
      value[u] = __ldcg((const uint4*)(values + (size_t)min(at, to - 1) * kHeadDim));
    }
    a.add(q, key, value, seen);
  }
  joint.put(a, warp, lane);
  __syncthreads();
  const int h = t >> 6, d = t & 63, head = kv * kGroup + h, at = head * kHeadDim + d;
  float log, value = joint.get(h, d, log);
  s.part[part][at] = value;
  if (d == 0) s.part_log[part][head] = log;
  if (cut.count <= kJoinByReader) return;
  __threadfence();
  __syncthreads();
  if (t == 0) is_last = atomicAdd(&s.arrived[kv], 1) == cut.count - 1;
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  value = join_splits(s, cut.count, head, at);
  s.part[0][at] = value;
  if (t == 0) s.arrived[kv] = 0;
}

__global__ void __launch_bounds__(kThreads, 2) output(Model m, Layer l, int depth, int flight) {
  const int b = blockIdx.x, n = gridDim.x, t = threadIdx.x;
  const int first = first_unit(b, kHidden, n), rows = first_unit(b + 1, kHidden, n) - first;
  Block block;
  if (!start<kHidden>(block, depth, flight, l.o, first, rows)) return;
  Scratch& s = scratch_of(m);
  dependency_wait();
  const float before = t < rows ? __ldcg(&s.x[first + t]) : 0.f;
  const int column = Shape<kHidden>::column(t, 0), head = column / kHeadDim;
  const int parts = split(__ldcg(&s.call.position) + 1).count;
  float x[8];
  load8(&s.part[0][column], x);
  if (parts > 1 && parts <= kJoinByReader) {
    float log[kJoinByReader], top = -1e30f, total = 0.f;
#pragma unroll
    for (int i = 0; i < kJoinByReader; ++i) log[i] = i < parts ? __ldcg(&s.part_log[i][head]) : -INFINITY;
#pragma unroll
    for (int i = 0; i < kJoinByReader; ++i) top = fmaxf(top, log[i]);
#pragma unroll
    for (int i = 0; i < kJoinByReader; ++i) total += log[i] = exp2f(log[i] - top);
#pragma unroll
    for (int j = 0; j < 8; ++j) x[j] *= log[0] / total;
#pragma unroll
    for (int i = 1; i < kJoinByReader; ++i) {
      if (i >= parts) break;
      float y[8];
      load8(&s.part[i][column], y);
#pragma unroll
      for (int j = 0; j < 8; ++j) x[j] = fmaf(log[i] / total, y[j], x[j]);
    }
  }
  multiply<kHidden>(block.ring, block.at, rows, x, *block.partials, [&](int row, float sum) {
    if (row < rows) s.x[first + row] = before + sum;
  });
}

__global__ void __launch_bounds__(kThreads, 2) gate_up(Model m, Layer l, int depth, int flight) {
  const int b = blockIdx.x, n = gridDim.x, t = threadIdx.x;
  const int first = 2 * first_unit(b, kInner, n), rows = 2 * first_unit(b + 1, kInner, n) - first;
  Block block;
  if (!start<kHidden>(block, depth, flight, l.gate_up, first, rows)) return;
  const int column = Shape<kHidden>::column(t, 0);
  const uint4 gamma = __ldg((const uint4*)(l.norm_post + column));
  Scratch& s = scratch_of(m);
  dependency_wait();
  float x[8];
  load8(s.x + column, x);
  share_squares(x, *block.partials);
  scale8(x, gamma);
  // Rows come in pairs (gate j, up j).
  multiply<kHidden>(block.ring, block.at, rows, x, *block.partials, [&](int row, float sum) {
    float mine = sum * inverse_rms(*block.partials, m.eps), up = __shfl_xor_sync(~0u, mine, 1);
    if (row < rows && !(row & 1)) {
      s.inner[(first + row) / 2] = __float2bfloat16(mine / (1.f + __expf(-mine)) * up);
    }
  });
}

__global__ void __launch_bounds__(kThreads, 2) down(Model m, Layer l, int depth, int flight) {
  const int b = blockIdx.x, n = gridDim.x, t = threadIdx.x;
  const int first = first_unit(b, kHidden, n), rows = first_unit(b + 1, kHidden, n) - first;
  Block block;
  if (!start<kInner>(block, depth, flight, l.down, first, rows)) return;
  Scratch& s = scratch_of(m);
  dependency_wait();
  const float before = t < rows ? __ldcg(&s.x[first + t]) : 0.f;
  float x[16];
#pragma unroll
  for (int c = 0; c < 2; ++c)
    unpack8(__ldcg((const uint4*)(s.inner + Shape<kInner>::column(t, c))), *(float(*)[8])(x + 8 * c));
  multiply<kInner>(block.ring, block.at, rows, x, *block.partials, [&](int row, float sum) {
    if (row < rows) s.x[first + row] = before + sum;
  });
}

__global__ void __launch_bounds__(kThreads, 2) head(Model m, int depth, int flight) {
  __shared__ float values[kWarps];
  __shared__ int indices[kWarps];
  const int b = blockIdx.x, n = gridDim.x, t = threadIdx.x, lane = t & 31, warp = t >> 5;
  const int first = first_unit(b, kVocab, n), rows = first_unit(b + 1, kVocab, n) - first;
  Block block;
  if (!start<kHidden>(block, depth, flight, m.head, first, rows)) return;
  const int column = Shape<kHidden>::column(t, 0);
  const uint4 gamma = __ldg((const uint4*)(m.norm + column));
  Scratch& s = scratch_of(m);
  dependency_wait();
  float* logits = s.call.logits + (size_t)s.call.step * kVocab + first;
  float x[8];
  load8(s.x + column, x);
  share_squares(x, *block.partials);
  scale8(x, gamma);
  Best best{-INFINITY, 0x7fffffff};
  multiply<kHidden>(block.ring, block.at, rows, x, *block.partials, [&](int row, float sum) {
    if (row >= rows) return;
    float logit = sum * inverse_rms(*block.partials, m.eps);
    logits[row] = logit;
    best.take(logit, first + row);
  });
  best.over_warp();
  if (lane == 0) values[warp] = best.value, indices[warp] = best.index;
  consumer_sync();
  if (t != 0) return;
  for (int w = 1; w < kWarps; ++w) best.take(values[w], indices[w]);
  s.best_value[b] = best.value, s.best_index[b] = best.index;
}

// A kernel of its own, since all blocks of `head` read the step that it moves on.
__global__ void advance(Model m) {
  dependents_launch();
  dependency_wait();
  scratch_of(m).call.step += 1;
  scratch_of(m).call.position += 1;
}

__global__ void begin(Model m, const int* last, const int* slot, const int* position, int* tokens, float* logits) {
  Scratch& s = scratch_of(m);
  if (threadIdx.x == 0) s.call = {*last, *slot, *position, 0, tokens, logits};
  if (threadIdx.x < kKvHeads) s.arrived[threadIdx.x] = 0;
}

__global__ void finish(Model m, int blocks) {
  int token = current_token(scratch_of(m), blocks);
  if (threadIdx.x == 0) scratch_of(m).call.tokens[scratch_of(m).call.step - 1] = token;
}

}  // namespace llama

// ---- host ----------------------------------------------------------------------------------------------------------------

using namespace llama;

#define CHECK(call)                                                                              \
  do {                                                                                           \
    cudaError_t error = (call);                                                                      \
    if (error != cudaSuccess) {                                                                    \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(error)); \
      return (int)error;                                                                             \
    }                                                                                            \
  } while (0)

// Ring depths, in stages. Two kernels that follow one another must fit on an SM together (227 KB).
struct Depths {
  int qkv = 6, output = 4, gate_up = 9, down = 4, head = 7, flight = 100;
};

struct Engine {
  Model model;
  Layer layers[kLayers];
  int layer_count, blocks;
  Depths depths;
  cudaStream_t stream;
  cudaGraphExec_t one, many;
};

template <class... Parameters, class... Arguments>
static cudaError_t launch(cudaStream_t stream, void (*kernel)(Parameters...), int blocks, int threads, int shared,
                          Arguments... arguments) {
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(blocks), config.blockDim = dim3(threads), config.dynamicSmemBytes = shared;
  config.stream = stream, config.attrs = &attribute, config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

static int one_step(const Engine& e, cudaStream_t stream) {
  const Model& m = e.model;
  const Depths& d = e.depths;
  for (int i = 0; i < e.layer_count; ++i) {
    const Layer& l = e.layers[i];
    CHECK(launch(stream, i ? qkv<false> : qkv<true>, e.blocks, kThreads, shared_bytes(d.qkv), m, l, d.qkv, d.flight));
    CHECK(launch(stream, attend, kKvHeads * kSplits, kAttendThreads, 0, m, l));
    CHECK(launch(stream, output, e.blocks, kThreads, shared_bytes(d.output), m, l, d.output, d.flight));
    CHECK(launch(stream, gate_up, e.blocks, kThreads, shared_bytes(d.gate_up), m, l, d.gate_up, d.flight));
    CHECK(launch(stream, down, e.blocks, kThreads, shared_bytes(d.down), m, l, d.down, d.flight));
  }
  CHECK(launch(stream, head, e.blocks, kThreads, shared_bytes(d.head), m, d.head, d.flight));
  CHECK(launch(stream, advance, 1, 1, 0, m));
  return 0;
}

static int capture(const Engine& e, int steps, cudaGraphExec_t* exec) {
  cudaGraph_t graph;
  CHECK(cudaStreamBeginCapture(e.stream, cudaStreamCaptureModeThreadLocal));
  int failed = 0;
  for (int i = 0; i < steps && !failed; ++i) failed = one_step(e, e.stream);
  CHECK(cudaStreamEndCapture(e.stream, &graph));
  if (failed) return failed;
  CHECK(cudaGraphInstantiate(exec, graph, 0));
  CHECK(cudaGraphDestroy(graph));
  return 0;
}

extern "C" {

size_t engine_scratch_bytes() { return sizeof(Scratch); }

// Make an engine; the captured graphs hold the pointers in `model` and `layers`. 0, or a CUDA error code.
int engine_create(const Model* model, const Layer* layers, int layer_count, const Depths* tuning, Engine** out) {
  Engine* e = new Engine{};
  e->model = *model, e->layer_count = layer_count;
  if (tuning) e->depths = *tuning;
  const Depths* depths = &e->depths;
  for (int i = 0; i < layer_count; ++i) e->layers[i] = layers[i];
  int device;
  CHECK(cudaGetDevice(&device));
  CHECK(cudaDeviceGetAttribute(&e->blocks, cudaDevAttrMultiProcessorCount, device));
  if (e->blocks > kMaxBlocks) e->blocks = kMaxBlocks;
  CHECK(cudaFuncSetAttribute(qkv<true>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes(depths->qkv)));
  CHECK(cudaFuncSetAttribute(qkv<false>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes(depths->qkv)));
  CHECK(cudaFuncSetAttribute(output, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes(depths->output)));
  CHECK(cudaFuncSetAttribute(gate_up, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes(depths->gate_up)));
  CHECK(cudaFuncSetAttribute(down, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes(depths->down)));
  CHECK(cudaFuncSetAttribute(head, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes(depths->head)));
  CHECK(cudaStreamCreateWithFlags(&e->stream, cudaStreamNonBlocking));
  if (int failed = capture(*e, 1, &e->one)) return failed;
  if (int failed = capture(*e, kManySteps, &e->many)) return failed;
  *out = e;
  return 0;
}

// `steps` greedy steps in stream order; reads and writes device memory only.
int engine_decode(Engine* e, const int* last, const int* slot, const int* position, int steps, int* tokens, float* logits,
                 cudaStream_t stream) {
  begin<<<1, 32, 0, stream>>>(e->model, last, slot, position, tokens, logits);
  CHECK(cudaGetLastError());
  for (; steps >= kManySteps; steps -= kManySteps) CHECK(cudaGraphLaunch(e->many, stream));
  for (; steps > 0; --steps) CHECK(cudaGraphLaunch(e->one, stream));
  finish<<<1, 32, 0, stream>>>(e->model, e->blocks);
  CHECK(cudaGetLastError());
  return 0;
}

int engine_destroy(Engine* e) {
  CHECK(cudaGraphExecDestroy(e->one));
  CHECK(cudaGraphExecDestroy(e->many));
  CHECK(cudaStreamDestroy(e->stream));
  delete e;
  return 0;
}

}  // extern "C"
