// The operator Step: one step of the decoder for some rows.
#pragma once

#include <algorithm>
#include <functional>
#include <type_traits>

#include "model/decoder.hpp"
#include "operators/cache_tensors.hpp"

namespace dragoman {

class StepKernel {
 public:
  static constexpr const char* kName = "Step";
  // token_ids [R], positions [R], target_slots [R], source_slots [R], source_lengths [R], scored_rows [M],
  // best_count [1], aligned [1]; if it takes shortlists: candidate_ids [N] and candidate_ranges [R, 2], or both empty;
  // target cache or states, source cache and weights. aligned: 0 for no alignments, 1 for those of the alignment heads,
  // 2 for those of every head, layer by layer, which the fallback body lacks.
  static constexpr ort::ElementType kInputs[] = {
      ort::ElementType::kInt64, ort::ElementType::kInt32, ort::ElementType::kInt32,
      ort::ElementType::kInt32, ort::ElementType::kInt32, ort::ElementType::kInt32,
      ort::ElementType::kInt32, ort::ElementType::kInt32, ort::ElementType::kUndefined};
  // logits [M, V], log_sums [R], best_scores [R, C], best_ids [R, C], alignments [R or 0, A, capacity]; target cache
  static constexpr ort::ElementType kOutputs[] = {ort::ElementType::kFloat, ort::ElementType::kFloat,
                                                  ort::ElementType::kFloat, ort::ElementType::kInt64,
                                                  ort::ElementType::kFloat, ort::ElementType::kUndefined};

  explicit StepKernel(const Node& node)
      : decoder_(make_decoder(node)), every_head_(all_heads(decoder_.config())), names_(node.names(first_weight())) {}

  const Config& config() const { return decoder_.config(); }
  const NodeNames& names() const { return names_; }

  // Computes rows whose memory belongs to the caller in this thread, without a run of ONNX Runtime. The bits are the same.
  // Shortlists are not checked. Throws std::invalid_argument that names a wrong value.
  void compute(StepRows rows) const {
    check(rows);
    rows.alignment_heads = &config().alignment_heads;
    decoder_.step(rows, Parallel(), own_workspace());
  }

  void compute(Context& context) {
    const Config& config = this->config();
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
    std::vector<TokenList> lists;
    if (config.shortlists) lists = read_lists(context, rows);
    rows.candidates = {lists.empty() ? nullptr : lists.data(), rows.source_slots};
    if (config.recurrent) rows.states = write_states(context, rows.states, kCacheOutput);
    else rows.target = write_cache(context, config, rows.target, kCacheOutput);
    decoder_.step(rows, context.parallel(), own_workspace());
  }

 private:
  static constexpr std::size_t kCandidatesInput = 8;
  static constexpr std::size_t kCacheOutput = 5;

  static Decoder make_decoder(const Node& node) {
    const Config config = node.config(true);
    const std::size_t target = target_input(config), source = source_input(config);
    if (config.shortlists) check_candidates(node);
    if (config.recurrent) check_states(node, target);
    else check_cache(node, config, target);
    check_cache(node, config, source);
    return {config, node.weights(source + cache_tensors(config)), chosen_kernels()};
  }

  std::size_t first_weight() const { return source_input(config()) + cache_tensors(config()); }

  // The first input of the target cache, which may follow the candidates.
  static std::size_t target_input(const Config& config) { return kCandidatesInput + (config.shortlists ? 2 : 0); }

  // The first input of the source cache, which follows the target cache or the states.
  static std::size_t source_input(const Config& config) {
    return target_input(config) + (config.recurrent ? 1 : cache_tensors(config));
  }

  static void check_candidates(const Node& node) {
    for (const std::size_t index : {kCandidatesInput, kCandidatesInput + 1})
      if (node.inputs() <= index || node.input_type(index) != ort::ElementType::kInt32)
        throw std::invalid_argument("candidates: expected inputs of int32 ids and ranges");
  }

  // Returns the checked shortlists of rows; none: no row has one.
  std::vector<TokenList> read_lists(const Context& context, const StepRows& rows) const {
    const auto ids = context.input<std::int32_t>(kCandidatesInput, "candidate_ids");
    const auto ranges = context.input<std::int32_t>(kCandidatesInput + 1, "candidate_ranges");
    if (ranges.count == 0) return {};
    if (ranges.count != 2 * rows.count)
      throw std::invalid_argument("candidate_ranges: expected two numbers for each row, got " +
                                  std::to_string(ranges.count));
    check_values("candidate_ranges", ranges, 0, ids.count);
    std::vector<TokenList> lists;
    std::vector<Index> first(static_cast<std::size_t>(rows.source.slots), -1);  // row of each source slot with a list
    for (Index row = 0; row < rows.count; ++row) {
      const std::int32_t *begin = ids.data + ranges.data[2 * row], *end = ids.data + ranges.data[2 * row + 1];
      lists.push_back({begin, end - begin, 0});
      if (begin == end) continue;
      Index& other = first[static_cast<std::size_t>(rows.source_slots[row])];
      if (other < 0) other = row;
      const TokenList& same = lists[static_cast<std::size_t>(other)];
      if (end < begin || !std::equal(begin, end, same.ids, same.ids + same.count))
        throw std::invalid_argument("candidate_ranges: row " + std::to_string(row) + ": expected a range like that of " +
                                    "other rows of its source slot");
      if (other == row && (*begin < 0 || end[-1] >= decoder_.config().vocabulary ||
                           std::adjacent_find(begin, end, std::greater_equal<>()) != end))
        throw std::invalid_argument("candidate_ids: row " + std::to_string(row) + ": expected ascending ids of tokens");
    }
    return lists;
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
    Cache target{};
    States states{};
    if (config.recurrent) states = read_states(context, config, target_input(config), "target_cache");
    else target = read_cache(context, config, target_input(config), "target_cache");
    const Cache source = read_cache(context, config, source_input(config), "source_cache");
    const StepRows rows{count, token_ids.data, positions.data, target_slots.data, source_slots.data, source_lengths.data,
                        target, states, source, {scored.data, scored.count, nullptr}, {}, {}, &config.alignment_heads,
                        nullptr};
    check(rows);
    return rows;
  }

  void check(const StepRows& rows) const {
    const bool recurrent = config().recurrent;
    const Index length = decoder_.embedding().max_length, count = rows.count;
    const Index most = recurrent ? length : std::min(rows.target.capacity(), length);
    const auto all = [count](const auto* values) { return Vector<std::remove_pointer_t<decltype(values)>>{values, count}; };
    check_values("token_ids", all(rows.token_ids), 0, config().vocabulary - 1);
    check_values("positions", all(rows.positions), 0, most - 1);
    check_slots("target_slots", all(rows.target_slots), recurrent ? rows.states.slots : rows.target.slots);
    check_values("source_slots", all(rows.source_slots), 0, rows.source.slots - 1);
    check_values("source_lengths", all(rows.source_lengths), 1, rows.source.capacity());
    check_values<std::int32_t>("scored_rows", {rows.scored.rows, rows.scored.count}, 0, count - 1);
  }

  Decoder decoder_;
  const std::vector<AlignmentHead> every_head_;
  const NodeNames names_;
};

}  // namespace dragoman
