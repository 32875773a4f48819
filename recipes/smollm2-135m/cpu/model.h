// What a step is given; the same order as in decoder.py.
#pragma once
#include <cstdint>

struct Layer {  // row-major [out, in] weights
    const void *attention_norm, *q, *k, *v, *o, *mlp_norm, *gate, *up, *down;
    void *keys, *values;  // [slots, kv_heads, length, head_dim]
};

struct Model {
    const Layer* layer;
    const void *embedding, *final_norm, *head;
    const float *cosine, *sine;  // [length, head_dim / 2]
    long layers, hidden, heads, kv_heads, head_dim, inner, vocab, length;
    float eps;
    int threads;
};

struct Tokens {
    const int32_t *token, *slot, *position, *row;  // [count], [count], [count], [wanted]
    long count, wanted, ragged;                    // ragged: some tokens share a slot
    float* logits;                                 // [wanted, vocab]
};
