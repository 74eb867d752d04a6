// The operator Step: one step of the decoder for some rows.
#pragma once

#include "model/decoder.hpp"
#include "operators/cache_tensors.hpp"

namespace dragoman {

class StepKernel {
 public:
  static constexpr const char* kName = "Step";
  // token_ids [R], positions [R], target_slots [R], source_slots [R], source_lengths [R], scored_rows [M],
  // best_count [1], aligned [1]; target cache, source cache and weights. aligned: 0 for no alignments, 1 for those of
  // the alignment heads, 2 for those of every head, layer by layer, which the fallback body lacks.
  static constexpr ort::ElementType kInputs[] = {
      ort::ElementType::kInt64, ort::ElementType::kInt32, ort::ElementType::kInt32,
      ort::ElementType::kInt32, ort::ElementType::kInt32, ort::ElementType::kInt32,
      ort::ElementType::kInt32, ort::ElementType::kInt32, ort::ElementType::kUndefined};
  // logits [M, V], log_sums [R], best_scores [R, C], best_ids [R, C], alignments [R or 0, A, capacity]; target cache
  static constexpr ort::ElementType kOutputs[] = {ort::ElementType::kFloat, ort::ElementType::kFloat,
                                                  ort::ElementType::kFloat, ort::ElementType::kInt64,
                                                  ort::ElementType::kFloat, ort::ElementType::kUndefined};

  explicit StepKernel(const Node& node) : decoder_(make_decoder(node)), every_head_(all_heads(decoder_.config())) {}

  void compute(Context& context) {
    const Config& config = decoder_.config();
    const Index vocabulary = config.vocabulary;
    StepRows rows = read_rows(context);
    const auto best = context.input<std::int32_t>(6, "best_count", 1);
    const auto aligned = context.input<std::int32_t>(7, "aligned", 1);
    check_values("best_count", best, 0, vocabulary);
    check_values("aligned", aligned, 0, 2);
    const Index best_count = best.data[0], aligned_rows = aligned.data[0] > 0 ? rows.count : 0;
    if (aligned.data[0] == 2) rows.alignment_heads = &every_head_;
    const Index heads = static_cast<Index>(rows.alignment_heads->size());
    rows.scored.logits = context.output<float>(0, {rows.scored.count, vocabulary});
    rows.best = {best_count, context.output<float>(1, {rows.count}), context.output<float>(2, {rows.count, best_count}),
                 context.output<std::int64_t>(3, {rows.count, best_count})};
    float* alignments = context.output<float>(4, {aligned_rows, heads, rows.source.capacity()});
    rows.alignments = aligned_rows * heads > 0 ? alignments : nullptr;
    rows.target = write_cache(context, config, rows.target, kCacheOutput);
    decoder_.step(rows, context.parallel(), own_workspace());
  }

 private:
  static constexpr std::size_t kCacheInput = 8;
  static constexpr std::size_t kCacheOutput = 5;

  static Decoder make_decoder(const Node& node) {
    const Config config = node.config(true);
    const std::size_t tensors = cache_tensors(config);
    check_cache(node, config, kCacheInput);
    check_cache(node, config, kCacheInput + tensors);
    return {config, node.weights(kCacheInput + 2 * tensors), chosen_kernels()};
  }

  // Returns the cross-attention heads, layer by layer.
  static std::vector<AlignmentHead> all_heads(const Config& config) {
    std::vector<AlignmentHead> heads;
    for (Index layer = 0; layer < config.decoder_layers; ++layer)
      for (Index head = 0; head < config.heads; ++head) heads.push_back({layer, head});
    return heads;
  }

  // Returns the checked inputs, without outputs.
  StepRows read_rows(const Context& context) const {
    const Config& config = decoder_.config();
    const auto token_ids = context.input<std::int64_t>(0, "token_ids");
    const Index count = token_ids.count;
    const auto positions = context.input<std::int32_t>(1, "positions", count);
    const auto target_slots = context.input<std::int32_t>(2, "target_slots", count);
    const auto source_slots = context.input<std::int32_t>(3, "source_slots", count);
    const auto source_lengths = context.input<std::int32_t>(4, "source_lengths", count);
    const auto scored = context.input<std::int32_t>(5, "scored_rows");
    const Cache target = read_cache(context, config, kCacheInput, "target_cache");
    const Cache source = read_cache(context, config, kCacheInput + cache_tensors(config), "source_cache");
    check_values("token_ids", token_ids, 0, config.vocabulary - 1);
    check_values("positions", positions, 0, std::min(target.capacity(), decoder_.embedding().max_length) - 1);
    check_slots("target_slots", target_slots, target.slots);
    check_values("source_slots", source_slots, 0, source.slots - 1);
    check_values("source_lengths", source_lengths, 1, source.capacity());
    check_values("scored_rows", scored, 0, count - 1);
    return {count, token_ids.data, positions.data, target_slots.data, source_slots.data, source_lengths.data, target,
            source, {scored.data, scored.count, nullptr}, {}, &config.alignment_heads, nullptr};
  }

  Decoder decoder_;
  const std::vector<AlignmentHead> every_head_;
};

}  // namespace dragoman
