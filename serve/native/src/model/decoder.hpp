// One step of the decoder: each row reads its last token and gets the logits of the next one.
#pragma once

#include <vector>

#include "model/layers.hpp"
#include "model/vocabulary.hpp"

namespace dragoman {

struct DecoderLayer {
  Linear qkv;  // [3 d_model, d_model]: queries, keys, values
  Linear out;
  Norm self_norm;
  Linear query;
  Linear cross_out;
  Norm cross_norm;
  FeedForward feed_forward;
};

// Checked inputs and outputs of R rows: every id, position, slot and length is in its range, target slots are distinct.
struct StepRows {
  Index count;
  const std::int64_t* token_ids;
  const std::int32_t* positions;  // tokens that the row's cache holds already
  const std::int32_t* target_slots;
  const std::int32_t* source_slots;
  const std::int32_t* source_lengths;
  Cache target;
  Cache source;
  ScoredRows scored;
  Choices choices;
  float* alignments;  // null, or [R, alignment heads, capacity of the source cache]
};

class Decoder {
 public:
  // Throws std::invalid_argument that names a wrong weight.
  Decoder(const Config& config, std::vector<Tensor> weights, const Kernels& kernels);

  const Config& config() const { return config_; }
  const Embedding& embedding() const { return embedding_; }

  void step(const StepRows& rows, const Parallel& parallel, Workspace& workspace) const;

 private:
  struct Scratch;
  void self_attention(const StepRows& rows, Index layer, const Layers& layers, const Parallel& parallel,
                      const Scratch& scratch) const;
  void cross_attention(const StepRows& rows, Index layer, const Layers& layers, const Parallel& parallel,
                       const Scratch& scratch) const;
  void copy_alignments(const StepRows& rows, Index layer, Index row, const float* weights, Index stride) const;

  const Config config_;
  const Kernels& kernels_;
  Embedding embedding_;
  std::vector<DecoderLayer> layers_;
  Norm norm_;
  Linear vocabulary_;
};

}  // namespace dragoman
