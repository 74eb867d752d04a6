// The encoder, and the keys and values of its outputs that decoder layers attend to.
#pragma once

#include <vector>

#include "model/layers.hpp"

namespace dragoman {

struct EncoderLayer {
  Linear qkv;  // [3 d_model, d_model]: queries, keys, values
  Linear out;
  Norm norm;
  FeedForward feed_forward;
};

// Checked inputs: every token, length and slot is in its range, and slots are distinct.
struct Sources {
  const std::int64_t* token_ids;  // [sum of lengths]: all sources one after the other
  const std::int32_t* lengths;    // [count]
  const std::int32_t* slots;      // [count]
  Index count;
  Cache cache;
};

class Encoder {
 public:
  // Throws std::invalid_argument that names a wrong weight.
  Encoder(const Config& config, std::vector<Tensor> weights, const Kernels& kernels);

  const Config& config() const { return config_; }
  const Embedding& embedding() const { return embedding_; }

  void encode(const Sources& sources, const Parallel& parallel, Workspace& workspace) const;

 private:
  void encode_together(const Sources& sources, const Parallel& parallel, Workspace& workspace) const;
  void attend(const Sources& sources, const Layers& layers, const Parallel& parallel, Workspace& workspace) const;

  const Config config_;
  const Kernels& kernels_;
  Embedding embedding_;
  std::vector<EncoderLayer> layers_;
  Norm norm_;
  std::vector<Linear> keys_values_;  // of each decoder layer: [2 d_model, d_model]
};

}  // namespace dragoman
