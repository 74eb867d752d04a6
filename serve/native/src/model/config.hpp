// The shape of a Transformer, as the attributes of its operators give it.
#pragma once

#include <cmath>
#include <stdexcept>
#include <string>
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

constexpr Index kMaxWidth = 65536;  // the sum of 8-bit products of so many inputs fits into 32 bits
constexpr Index kMaxLayers = 1024;
constexpr Index kMaxVocabulary = Index{1} << 28;

inline void check_range(const char* name, Index value, Index smallest, Index largest) {
  if (value < smallest || value > largest)
    throw std::invalid_argument(std::string(name) + ": expected " + std::to_string(smallest) + " to " +
                                std::to_string(largest) + ", got " + std::to_string(value));
}

// Throws std::invalid_argument that names the value if one is out of its range.
inline void check(const Config& config) {
  check_range("layers", config.layers, 0, kMaxLayers);
  check_range("decoder_layers", config.decoder_layers, 0, kMaxLayers);
  check_range("d_model", config.d_model, 1, kMaxWidth);
  check_range("d_ff", config.d_ff, 1, kMaxWidth);
  check_range("heads", config.heads, 1, config.d_model);
  check_range("vocabulary", config.vocabulary, 0, kMaxVocabulary);
  if (config.d_model % config.heads != 0)
    throw std::invalid_argument("d_model: expected a multiple of heads = " + std::to_string(config.heads) + ", got " +
                                std::to_string(config.d_model));
  if (!std::isfinite(config.embedding_scale)) throw std::invalid_argument("embedding_scale: expected a finite number");
  if (!std::isfinite(config.epsilon) || config.epsilon < 0)
    throw std::invalid_argument("epsilon: expected a finite number of at least 0");
  for (const AlignmentHead& head : config.alignment_heads) {
    check_range("alignment_heads: layer", head.layer, 0, config.decoder_layers - 1);
    check_range("alignment_heads: head", head.head, 0, config.heads - 1);
  }
}

}  // namespace dragoman
