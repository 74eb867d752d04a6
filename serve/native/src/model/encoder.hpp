// The encoder, and the keys and values of its outputs that decoder layers attend to.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "model/layers.hpp"

namespace dragoman {

struct EncoderLayer {
  AttentionPart attention;
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

inline Index blocks_of(Index length) { return round_up(length, kLanes) / kLanes; }

class Encoder {
 public:
  // Throws std::invalid_argument that names a wrong weight.
  Encoder(const Config& config, std::vector<Tensor> weights, const Kernels& kernels)
      : config_(config), kernels_(kernels) {
    WeightReader reader(config_, std::move(weights));
    embedding_ = reader.embedding();
    for (Index i = 0; i < config_.layers; ++i) {
      const std::string name = "encoder layer " + std::to_string(i);
      layers_.push_back({reader.attention(name + " attention", 3), reader.feed_forward(name)});
    }
    if (config_.pre_norm) norm_ = reader.norm("final norm");
    for (Index i = 0; i < config_.decoder_layers; ++i)
      keys_values_.push_back(reader.linear("decoder layer " + std::to_string(i) + " keys and values",
                                           2 * config_.d_model, config_.d_model));
    reader.finish();
  }

  const Config& config() const { return config_; }
  const Embedding& embedding() const { return embedding_; }

  void encode(const Sources& sources, const Parallel& parallel, Workspace& workspace) const {
    Sources part = sources;
    for (Index first = 0; first < sources.count; first += part.count) {
      part.lengths = sources.lengths + first;
      part.slots = sources.slots + first;
      Index tokens = part.lengths[0];
      for (part.count = 1; first + part.count < sources.count; tokens += part.lengths[part.count++])
        if (tokens + part.lengths[part.count] > kTokensTogether) break;
      encode_together(part, parallel, workspace);
      part.token_ids += tokens;
    }
  }

 private:
  // Activations of more tokens leave the caches of a processor.
  static constexpr Index kTokensTogether = 256;

  void encode_together(const Sources& sources, const Parallel& parallel, Workspace& workspace) const {
    std::vector<Index>& row_sources = workspace.row_sources;
    workspace.first_rows.clear();
    row_sources.clear();
    for (Index source = 0; source < sources.count; ++source) {
      workspace.first_rows.push_back(static_cast<Index>(row_sources.size()));
      row_sources.insert(row_sources.end(), static_cast<std::size_t>(sources.lengths[source]), source);
    }
    const Layers layers(config_, kernels_, parallel, workspace, static_cast<Index>(row_sources.size()));
    for_tokens(sources, parallel, workspace, [&](Index, Index position, Index row) {
      layers.embed(embedding_, row, sources.token_ids[row], position);
    });
    for (const EncoderLayer& layer : layers_) {
      layers.attention(layer.attention, [&] { attend(sources, layers, parallel, workspace); });
      layers.feed_forward(layer.feed_forward);
    }
    const Input outputs = layers.before(norm_);
    for (Index layer = 0; layer < config_.decoder_layers; ++layer) {
      layers.project(keys_values_[static_cast<std::size_t>(layer)], outputs);
      for_tokens(sources, parallel, workspace, [&](Index source, Index position, Index row) {
        const float* key = layers.wide() + row * layers.wide_stride();
        layers.write(sources.cache, sources.slots[source], layer, position, key, key + config_.d_model);
      });
    }
  }

  // Calls f(source, position, row) for all tokens. A source belongs to one thread, because its positions share bytes.
  template <class F>
  static void for_tokens(const Sources& sources, const Parallel& parallel, const Workspace& workspace, F f) {
    parallel.split(sources.count, 1, [&](Index, Index first, Index last) {
      for (Index source = first; source < last; ++source) {
        const Index first_row = workspace.first_rows[static_cast<std::size_t>(source)];
        for (Index t = 0; t < sources.lengths[source]; ++t) f(source, t, first_row + t);
      }
    });
  }

  // Self-attention in float, over keys and values in scratch memory: a cache of one layer for each source.
  void attend(const Sources& sources, const Layers& layers, const Parallel& parallel, Workspace& workspace) const {
    const Heads heads = config_.head_shape();
    const Index d = config_.d_model, block = 2 * heads.count * Cache::block_size(heads, false);
    Index blocks = 0;
    for (Index source = 0; source < sources.count; ++source) blocks += blocks_of(sources.lengths[source]);
    float* memory = workspace.cache.fit(blocks * block);
    workspace.source_caches.clear();
    for (Index source = 0; source < sources.count; ++source) {
      workspace.source_caches.push_back({memory, block});
      memory += blocks_of(sources.lengths[source]) * block;
    }
    const FloatCache* caches = workspace.source_caches.data();
    for_tokens(sources, parallel, workspace, [&](Index source, Index position, Index row) {
      const float* key = layers.wide() + row * layers.wide_stride() + d;
      kernels_.write_float(heads, caches[source], position, key, key + d);
    });
    const Index scratch = round_up(attention_scratch(heads, blocks * kLanes), kLanes);
    float* scratches = workspace.attention.fit(parallel.threads() * scratch);
    parallel.split(static_cast<Index>(workspace.row_sources.size()), 1, [&](Index task, Index first, Index last) {
      for (Index row = first; row < last; ++row) {
        const Index source = workspace.row_sources[static_cast<std::size_t>(row)];
        kernels_.attend_float(heads, caches[source],
                              {layers.wide() + row * layers.wide_stride(), sources.lengths[source],
                               layers.attended() + row * layers.row_size(), scratches + task * scratch, nullptr, 0});
      }
    });
  }

  const Config config_;
  const Kernels& kernels_;
  Embedding embedding_;
  std::vector<EncoderLayer> layers_;
  Norm norm_;
  std::vector<Linear> keys_values_;  // of each decoder layer: [2 d_model, d_model]
};

}  // namespace dragoman
