// One step of the decoder: each row reads its last token and gets the logits of the next one.
#pragma once

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "model/candidates.hpp"
#include "model/layers.hpp"

namespace dragoman {

struct DecoderLayer {
  AttentionPart self_attention, cross_attention;
  RecurrentPart unit;  // in place of self-attention if the model is recurrent
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
  States states;  // in place of the target cache if the model is recurrent
  Cache source;
  ScoredRows scored;
  BestTokens best;
  Candidates candidates;
  const std::vector<AlignmentHead>* alignment_heads;
  float* alignments;  // null, or [R, alignment heads, capacity of the source cache]
  ForbiddenTokens forbidden{nullptr, 0};
};

class Decoder {
 public:
  // Throws std::invalid_argument that names a wrong weight.
  Decoder(const Config& config, std::vector<Tensor> weights, const Kernels& kernels)
      : config_(config), kernels_(kernels) {
    WeightReader reader(config_, std::move(weights));
    embedding_ = reader.embedding();
    for (Index i = 0; i < config_.decoder_layers; ++i) {
      const std::string name = "decoder layer " + std::to_string(i);
      DecoderLayer layer{};
      if (config_.recurrent) layer.unit = reader.recurrent(name + " recurrent unit");
      else layer.self_attention = reader.attention(name + " self-attention", 3);
      layer.cross_attention = reader.attention(name + " cross-attention", 1);
      layer.feed_forward = reader.feed_forward(name);
      layers_.push_back(layer);
    }
    if (config_.pre_norm) norm_ = reader.norm("final norm");
    vocabulary_ = reader.linear("vocabulary", config_.vocabulary, config_.d_model);
    reader.finish();
  }

  const Config& config() const { return config_; }
  const Embedding& embedding() const { return embedding_; }

  void step(const StepRows& rows, const Parallel& parallel, Workspace& workspace) const {
    if (rows.count == 0) return;
    const Layers layers(config_, kernels_, parallel, workspace, rows.count);
    for (Index row = 0; row < rows.count; ++row)
      layers.embed(embedding_, row, rows.token_ids[row], rows.positions[row]);
    Index longest = 0;
    for (Index row = 0; row < rows.count; ++row)
      longest = std::max<Index>({longest, rows.positions[row] + 1, rows.source_lengths[row]});
    Scratch scratch{};
    scratch.size = round_up(attention_scratch(config_.head_shape(), longest), kLanes);
    scratch.memory = workspace.attention.fit(parallel.threads() * scratch.size);
    if (rows.alignments != nullptr) {
      scratch.weight_stride = round_up(longest, kLanes);
      scratch.weights = workspace.weights.fit(parallel.threads() * config_.heads * scratch.weight_stride);
      const Index heads = static_cast<Index>(rows.alignment_heads->size());
      std::fill_n(rows.alignments, rows.count * heads * rows.source.capacity(), 0.0f);
    }
    for (Index i = 0; i < config_.decoder_layers; ++i) {
      const DecoderLayer& layer = layers_[static_cast<std::size_t>(i)];
      if (config_.recurrent) layers.recur(layer.unit, rows.states.rows(i, rows.target_slots, rows.positions));
      else layers.attention(layer.self_attention, [&] { self_attention(rows, i, layers, parallel, scratch); });
      layers.attention(layer.cross_attention, [&] { cross_attention(rows, i, layers, parallel, scratch); });
      layers.feed_forward(layer.feed_forward);
    }
    choose(rows, layers, parallel, workspace);
  }

 private:
  // Memory of attention for each task.
  struct Scratch {
    float* memory;
    Index size;
    float* weights;  // [heads, weight_stride]; null without alignments
    Index weight_stride;
  };

  void self_attention(const StepRows& rows, Index layer, const Layers& layers, const Parallel& parallel,
                      const Scratch& scratch) const {
    const Index d = config_.d_model;
    const auto query = [&](Index row) { return layers.wide() + row * layers.wide_stride(); };
    const auto write = [&](Index row) {
      layers.write(rows.target, rows.target_slots[row], layer, rows.positions[row], query(row) + d, query(row) + 2 * d);
    };
    parallel.split(rows.count, 1, [&](Index task, Index first, Index last) {
      write(first);
      for (Index row = first; row < last; ++row) {
        if (row + 1 < last) write(row + 1);  // it takes the processor a while until what was written can be read
        layers.attend(rows.target, rows.target_slots[row], layer,
                      {query(row), rows.positions[row] + 1, layers.attended() + row * layers.row_size(),
                       scratch.memory + task * scratch.size, nullptr, 0});
      }
    });
  }

  void cross_attention(const StepRows& rows, Index layer, const Layers& layers, const Parallel& parallel,
                       const Scratch& scratch) const {
    parallel.split(rows.count, 1, [&](Index task, Index first, Index last) {
      float* weights = scratch.weights;
      if (weights != nullptr) weights += task * config_.heads * scratch.weight_stride;
      for (Index row = first; row < last; ++row) {
        layers.attend(rows.source, rows.source_slots[row], layer,
                      {layers.wide() + row * layers.wide_stride(), rows.source_lengths[row],
                       layers.attended() + row * layers.row_size(), scratch.memory + task * scratch.size, weights,
                       scratch.weight_stride});
        if (weights != nullptr) copy_alignments(rows, layer, row, weights, scratch.weight_stride);
      }
    });
  }

  // The rows without a shortlist first.
  void choose(const StepRows& rows, const Layers& layers, const Parallel& parallel, Workspace& workspace) const {
    const Input input = layers.before(norm_);
    std::vector<RowRange> parts;
    for (const RowRange& part : rows.candidates.parts(rows.count)) {
      if (rows.candidates.count(part.first) > 0) parts.push_back(part);
      else project_and_choose(vocabulary_, layers, input, part, kernels_, parallel, workspace, rows.scored, rows.forbidden,
                              rows.best);
    }
    if (parts.empty()) return;
    const CandidateChoice choice(vocabulary_, number_, rows.candidates, layers, kernels_, rows.scored, rows.best);
    choice.choose(parts, rows.count, input, parallel, workspace);
  }

  static std::uint64_t next_number() {
    static std::atomic<std::uint64_t> last{0};
    return ++last;
  }

  void copy_alignments(const StepRows& rows, Index layer, Index row, const float* weights, Index stride) const {
    const Index count = static_cast<Index>(rows.alignment_heads->size()), capacity = rows.source.capacity();
    for (Index i = 0; i < count; ++i) {
      const AlignmentHead& head = (*rows.alignment_heads)[static_cast<std::size_t>(i)];
      if (head.layer != layer) continue;
      const float* from = weights + head.head * stride;
      std::copy(from, from + rows.source_lengths[row], rows.alignments + (row * count + i) * capacity);
    }
  }

  const Config config_;
  const Kernels& kernels_;
  const std::uint64_t number_ = next_number();  // of this process
  Embedding embedding_;
  std::vector<DecoderLayer> layers_;
  Norm norm_;
  Linear vocabulary_;
};

}  // namespace dragoman
