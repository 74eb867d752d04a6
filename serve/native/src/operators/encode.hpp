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

  explicit EncodeKernel(const Node& node) : encoder_(make_encoder(node)) {}

  void compute(Context& context) {
    const Config& config = encoder_.config();
    const Embedding& embedding = encoder_.embedding();
    const auto token_ids = context.input<std::int64_t>(0, "source_ids");
    const auto lengths = context.input<std::int32_t>(1, "source_lengths");
    const auto slots = context.input<std::int32_t>(2, "source_slots", lengths.count);
    const Cache input = read_cache(context, config, kCacheInput, "source_cache");
    check_values("source_ids", token_ids, 0, embedding.table.outputs - 1);
    check_values("source_lengths", lengths, 1, std::min(input.capacity(), embedding.max_length));
    check_slots("source_slots", slots, input.slots);
    Index tokens = 0;
    for (Index i = 0; i < lengths.count; ++i) tokens += lengths.data[i];
    if (tokens != token_ids.count)
      throw std::invalid_argument("source_ids: expected the sum of source_lengths, " + std::to_string(tokens) +
                                  " elements, got " + std::to_string(token_ids.count));
    const Cache cache = write_cache(context, config, input, 0);
    encoder_.encode({token_ids.data, lengths.data, slots.data, lengths.count, cache}, context.parallel(),
                    own_workspace());
  }

 private:
  static constexpr std::size_t kCacheInput = 3;

  static Encoder make_encoder(const Node& node) {
    const Config config = node.config(false);
    check_cache(node, config, kCacheInput);
    return {config, node.weights(kCacheInput + cache_tensors(config)), chosen_kernels()};
  }

  Encoder encoder_;
};

}  // namespace dragoman
