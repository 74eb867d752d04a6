// The shape of a Transformer, as the attributes of its operators give it.
#pragma once

#include <vector>

#include "kernels/kernels.hpp"

namespace dragoman {

struct AlignmentHead {
  Index layer;
  Index head;
};

struct Config {
  Index layers;  // of the encoder or the decoder
  Index decoder_layers;
  Index heads;
  Index d_model;
  Index d_ff;
  Index vocabulary;  // 0 in the encoder
  Norm::Kind norm;
  bool pre_norm;
  bool embedding_norm;  // of embeddings with their positions
  bool packed_vectors;  // all vectors of a type are one weight
  Activation activation;
  bool gated;  // swiglu: outer(silu(gate(x)) * inner(x))
  bool shortlists;  // a row may choose from a part of the vocabulary
  bool recurrent;  // decoder layers have recurrent units in place of self-attention
  bool int8;
  float embedding_scale;
  float epsilon;
  std::vector<AlignmentHead> alignment_heads;

  Heads head_shape() const { return {heads, d_model / heads}; }
  // Floats of a row of activations: whole blocks of outputs.
  Index row_size() const { return round_up(d_model, kLanes); }
};

constexpr Index kMaxWidth = 65536;  // the sum of 8-bit products of this many inputs fits into 32 bits
constexpr Index kMaxLayers = 1024;
constexpr Index kMaxVocabulary = Index{1} << 28;

}  // namespace dragoman
