// The operator Encode: encodes sources into slots of the source cache.
#pragma once

#include "model/encoder.hpp"
#include "operators/cache_tensors.hpp"

namespace dragoman {

class EncodeKernel {
 public:
  static constexpr const char* kName = "Encode";
  // source_ids [N], source_lengths [B], source_slots [B]; source cache and weights
  static constexpr ort::ElementType kInputs[] = {ort::ElementType::kInt64, ort::ElementType::kInt32,
                                                 ort::ElementType::kInt32, ort::ElementType::kUndefined};
  static constexpr ort::ElementType kOutputs[] = {ort::ElementType::kUndefined};  // source cache

  explicit EncodeKernel(const Node& node)
      : encoder_(make_encoder(node)), names_(node.names(kCacheInput + cache_tensors(config()))) {}

  const Config& config() const { return encoder_.config(); }
  const NodeNames& names() const { return names_; }

  // Encodes sources whose memory belongs to the caller in this thread, without a run of ONNX Runtime. The bits are the
  // same. Throws std::invalid_argument that names a wrong value.
  void compute(const Sources& sources, Index tokens) const {
    check(sources, tokens);
    encoder_.encode(sources, Parallel(), own_workspace());
  }

  void compute(Context& context) {
    const Config& config = this->config();
    const auto token_ids = context.input<std::int64_t>(0, "source_ids");
    const auto lengths = context.input<std::int32_t>(1, "source_lengths");
    const auto slots = context.input<std::int32_t>(2, "source_slots", lengths.count);
    const Cache input = read_cache(context, config, kCacheInput, "source_cache");
    Sources sources{token_ids.data, lengths.data, slots.data, lengths.count, input};
    check(sources, token_ids.count);
    sources.cache = write_cache(context, config, input, 0);
    encoder_.encode(sources, context.parallel(), own_workspace());
  }

 private:
  static constexpr std::size_t kCacheInput = 3;

  static Encoder make_encoder(const Node& node) {
    const Config config = node.config(false);
    check_cache(node, config, kCacheInput);
    return {config, node.weights(kCacheInput + cache_tensors(config)), chosen_kernels()};
  }

  void check(const Sources& sources, Index tokens) const {
    const Embedding& embedding = encoder_.embedding();
    const Vector<const std::int32_t> lengths{sources.lengths, sources.count};
    check_values<std::int64_t>("source_ids", {sources.token_ids, tokens}, 0, embedding.table.outputs - 1);
    check_values("source_lengths", lengths, 1, std::min(sources.cache.capacity(), embedding.max_length));
    check_slots("source_slots", {sources.slots, sources.count}, sources.cache.slots);
    Index sum = 0;
    for (Index i = 0; i < lengths.count; ++i) sum += lengths.data[i];
    if (sum != tokens)
      throw std::invalid_argument("source_ids: expected the sum of source_lengths, " + std::to_string(sum) +
                                  " elements, got " + std::to_string(tokens));
  }

  Encoder encoder_;
  const NodeNames names_;
};

}  // namespace dragoman
