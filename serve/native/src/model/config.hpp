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
  Activation activation;
  bool gated;  // swiglu: outer(silu(gate(x)) * inner(x))
  bool int8;
  float embedding_scale;
  float epsilon;
  std::vector<AlignmentHead> alignment_heads;

  Heads head_shape() const { return {heads, d_model / heads}; }
  // Floats of a row of activations: whole blocks of outputs.
  Index row_size() const { return round_up(d_model, kLanes); }
};

// Throws std::invalid_argument that names the value if one is out of its range.
void check(const Config& config);

}  // namespace dragoman
