// The model of one engine: the shared sessions, or their kernels, and its own caches.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "loop/step_model.hpp"
#include "runtime/sessions.hpp"

namespace dragoman {

// The tensors of a cache, [slots, layers, blocks, 2, heads, ...], or the states of recurrent units, [slots, layers, 1,
// width]. Only pages that were written take memory.
class SlotCache {
 public:
  static constexpr int64_t kBlockTokens = 16;
  static constexpr size_t kStateAxes = 3;  // of one slot

  SlotCache(const std::vector<TensorSpec>& tensors, int32_t slots) {
    for (const TensorSpec& spec : tensors) {
      std::vector<int64_t> shape = spec.shape;
      shape.insert(shape.begin(), slots);
      auto memory = std::make_unique<MappedMemory>(spec.bytes() * static_cast<size_t>(slots));
      tensors_.push_back({spec, shape, "present_" + spec.name, std::move(memory)});
    }
  }

  // Tokens that a slot has room for; states have room for any number.
  int32_t tokens() const {
    const std::vector<int64_t>& shape = tensors_.at(0).spec.shape;
    return shape.size() == kStateAxes ? INT32_MAX : static_cast<int32_t>(shape.at(1) * kBlockTokens);
  }

  // The tensors of a kernel. Throws std::invalid_argument if their types or shapes are not those of its configuration.
  Cache cache(const Config& config) const {
    const Tensor& values = tensors_.at(0);
    const Heads heads = config.head_shape();
    float* scales = config.int8 ? reinterpret_cast<float*>(tensors_.at(1).memory->data()) : nullptr;
    const Cache cache{values.memory->data(), scales, values.shape[0], config.decoder_layers, values.shape.at(2), heads};
    require(config.int8 ? ort::ElementType::kInt8 : ort::ElementType::kFloat,
            cache_shape(cache, Cache::block_size(heads, config.int8)), values);
    if (config.int8) require(ort::ElementType::kFloat, cache_shape(cache, kLanes), tensors_[1]);
    return cache;
  }
  States states(const Config& config) const {
    const Tensor& values = tensors_.at(0);
    const States states{reinterpret_cast<float*>(values.memory->data()), values.shape[0], config.decoder_layers,
                        config.d_model};
    require(ort::ElementType::kFloat, states_shape(states), values);
    return states;
  }

  // Binds every tensor as input, and as output of the same memory if it is written.
  void bind(Binding& binding, bool written) const {
    for (const Tensor& each : tensors_) {
      binding.input(each.spec.name.c_str(), each.memory->data(), each.spec.type, each.shape);
      if (written) binding.output(each.written_name.c_str(), each.memory->data(), each.spec.type, each.shape);
    }
  }

  // Copies the first blocks of each layer of a slot, or its states, to another one.
  void copy(int32_t from_slot, int32_t to_slot, int32_t positions) {
    for (const Tensor& each : tensors_) {
      const auto layers = static_cast<size_t>(each.spec.shape[0]), blocks = static_cast<size_t>(each.spec.shape[1]);
      const size_t slot_bytes = each.spec.bytes(), layer_bytes = slot_bytes / layers;
      const auto filled = std::min(blocks, static_cast<size_t>((positions + kBlockTokens - 1) / kBlockTokens));
      const char* from = each.memory->data() + static_cast<size_t>(from_slot) * slot_bytes;
      char* to = each.memory->data() + static_cast<size_t>(to_slot) * slot_bytes;
      for (size_t layer = 0; layer < layers; ++layer)
        std::memcpy(to + layer * layer_bytes, from + layer * layer_bytes, layer_bytes / blocks * filled);
    }
  }

 private:
  struct Tensor {
    TensorSpec spec;
    std::vector<int64_t> shape;  // of all slots
    std::string written_name;
    std::unique_ptr<MappedMemory> memory;
  };

  template <class Shape>
  static void require(ort::ElementType type, const Shape& shape, const Tensor& tensor) {
    if (tensor.spec.type != type || tensor.shape != shape)
      throw std::invalid_argument(tensor.spec.name + ": another type or shape than the kernel's");
  }

  std::vector<Tensor> tensors_;
};

class SessionModel : public StepModel {
 public:
  SessionModel(std::shared_ptr<const Sessions> sessions, int32_t slots)
      : sessions_(std::move(sessions)),
        source_cache_(sessions_->source_cache, slots),
        target_cache_(sessions_->target_cache, slots),
        shape_{slots, sessions_->vocabulary, sessions_->alignment_heads, source_cache_.tokens(),
               target_cache_.tokens(), sessions_->step_kernel != nullptr, true},
        encoding_(*sessions_, sessions_->encoder),
        token_ids_(static_cast<size_t>(slots)),
        candidate_ranges_(2 * static_cast<size_t>(slots)),
        constants_(static_cast<size_t>(std::min(2 * slots, shape_.vocabulary) + 1)),
        logits_(float_bytes(slots, shape_.vocabulary)),
        alignments_(float_bytes(slots, shape_.alignment_heads) * static_cast<size_t>(shape_.source_capacity)),
        best_(static_cast<size_t>(slots), constants_.size()),
        changed_(static_cast<size_t>(slots), constants_.size()) {
    for (auto& input : inputs_) input.resize(static_cast<size_t>(slots));
    std::iota(constants_.begin(), constants_.end(), 0);
    source_cache_.bind(encoding_, true);
    if (sessions_->encode_kernel != nullptr) sources_.cache = source_cache_.cache(sessions_->encode_kernel->config());
    if (sessions_->step_kernel != nullptr) rows_ = kernel_rows(sessions_->step_kernel->config());
  }

  const ModelShape& shape() const override { return shape_; }

  void encode(const EncodeBatch& batch) override {
    const auto tokens = static_cast<int64_t>(batch.ids.size()), sources = static_cast<int64_t>(batch.slots.size());
    if (sessions_->encode_kernel != nullptr) {
      sources_ = {batch.ids.data(), batch.lengths.data(), batch.slots.data(), sources, sources_.cache};
      sessions_->encode_kernel->compute(sources_, tokens);
      return;
    }
    encoding_.input("source_ids", writable(batch.ids), ElementType::kInt64, {tokens});
    encoding_.input("source_lengths", writable(batch.lengths), ElementType::kInt32, {sources});
    encoding_.input("source_slots", writable(batch.slots), ElementType::kInt32, {sources});
    encoding_.run();
  }

  StepScores step(const StepBatch& batch) override {
    if (sessions_->step_kernel != nullptr) run_kernel(*sessions_->step_kernel, batch);
    else run_session(batch);
    return {logits(), best_.choices(), alignments()};
  }

  Choices choose(int32_t rows, int32_t best_count) override {
    Binding binding(*sessions_, sessions_->choose);
    binding.input("logits", logits_.data(), ElementType::kFloat, {rows, shape_.vocabulary});
    binding.input("best_count", &constants_.at(static_cast<size_t>(best_count)), ElementType::kInt32, {1});
    changed_.bind(binding, rows, best_count);
    binding.run();
    return changed_.choices();
  }

  void branch(int32_t from_slot, int32_t to_slot, int32_t positions) override {
    target_cache_.copy(from_slot, to_slot, positions);
  }

 private:
  using ElementType = ort::ElementType;
  // Rows, scored rows, best tokens, alignments and rows that may have a shortlist: what the shapes of a step depend on.
  using Key = std::array<int32_t, 5>;
  static constexpr size_t kMaxBindings = 512;  // that are kept
  static constexpr const char* kInputs[] = {"positions", "target_slots", "source_slots", "source_lengths",
                                            "scored_rows"};

  // Memory of the best tokens of all slots.
  struct Best {
    std::vector<float> log_sums, scores;
    std::vector<int64_t> ids;

    Best(size_t rows, size_t most) : log_sums(rows), scores(rows * most), ids(rows * most) {}
    void bind(Binding& binding, int32_t rows, int32_t count) {
      binding.output("log_sums", log_sums.data(), ElementType::kFloat, {rows});
      binding.output("best_scores", scores.data(), ElementType::kFloat, {rows, count});
      binding.output("best_ids", ids.data(), ElementType::kInt64, {rows, count});
    }
    Choices choices() const { return {log_sums.data(), scores.data(), ids.data()}; }
  };

  static size_t float_bytes(int32_t rows, int32_t columns) {
    return sizeof(float) * static_cast<size_t>(rows) * static_cast<size_t>(columns);
  }

  template <class T>
  static T* writable(const std::vector<T>& values) {
    return const_cast<T*>(values.data());  // ONNX Runtime does not write to inputs
  }

  float* logits() { return reinterpret_cast<float*>(logits_.data()); }
  float* alignments() { return reinterpret_cast<float*>(alignments_.data()); }

  // Returns what the rows of all steps have in common if a kernel computes them.
  StepRows kernel_rows(const Config& config) const {
    if (config.vocabulary != shape_.vocabulary ||
        static_cast<int64_t>(config.alignment_heads.size()) != shape_.alignment_heads)
      throw std::invalid_argument("decoder: another vocabulary or other alignment heads than the kernel's");
    StepRows rows{};
    if (config.recurrent) rows.states = target_cache_.states(config);
    else rows.target = target_cache_.cache(config);
    rows.source = source_cache_.cache(config);
    return rows;
  }

  // Computes without ONNX Runtime, which would take a fifth of the time of one row of a small model.
  void run_kernel(const StepKernel& kernel, const StepBatch& batch) {
    lists_.clear();
    for (const CandidateList* list : batch.candidates)
      lists_.push_back({list->ids.data(), static_cast<Index>(list->ids.size()), list->number});
    rows_.count = static_cast<Index>(batch.rows());
    rows_.token_ids = batch.token_ids.data();
    rows_.positions = batch.positions.data();
    rows_.target_slots = batch.target_slots.data();
    rows_.source_slots = batch.source_slots.data();
    rows_.source_lengths = batch.source_lengths.data();
    rows_.scored = {batch.scored_rows.data(), static_cast<Index>(batch.scored_rows.size()), logits()};
    rows_.best = {batch.best_count, best_.log_sums.data(), best_.scores.data(), best_.ids.data()};
    rows_.candidates = {lists_.empty() ? nullptr : lists_.data(), rows_.source_slots};
    rows_.forbidden = {batch.forbidden.data(), static_cast<Index>(batch.forbidden.size())};
    rows_.alignments = batch.aligned && shape_.alignment_heads > 0 ? alignments() : nullptr;
    kernel.compute(rows_);
  }

  void run_session(const StepBatch& batch) {
    std::copy(batch.token_ids.begin(), batch.token_ids.end(), token_ids_.begin());
    const std::vector<int32_t>* given[] = {&batch.positions, &batch.target_slots, &batch.source_slots,
                                           &batch.source_lengths, &batch.scored_rows};
    for (size_t index = 0; index < inputs_.size(); ++index)
      std::copy(given[index]->begin(), given[index]->end(), inputs_[index].begin());
    join_candidates(batch);
    const auto rows = static_cast<int32_t>(batch.rows()), listed = batch.candidates.empty() ? 0 : rows;
    const Key key{rows, static_cast<int32_t>(batch.scored_rows.size()), batch.best_count, batch.aligned ? 1 : 0, listed};
    auto found = bindings_.find(key);
    if (found == bindings_.end()) {
      if (bindings_.size() == kMaxBindings) bindings_.clear();
      found = bindings_.emplace(key, bind_step(key)).first;
    }
    if (sessions_->shortlists)
      found->second.input("candidate_ids", writable(candidate_ids_), ElementType::kInt32,
                          {static_cast<int64_t>(candidate_ids_.size())});
    found->second.run();
  }

  // Writes the lists of all rows one after the other; rows of one source share theirs.
  void join_candidates(const StepBatch& batch) {
    candidate_ids_.clear();
    for (size_t row = 0; row < batch.candidates.size(); ++row) {
      const CandidateList& list = *batch.candidates[row];
      if (row == 0 || &list != batch.candidates[row - 1])
        candidate_ids_.insert(candidate_ids_.end(), list.ids.begin(), list.ids.end());
      const auto end = static_cast<int32_t>(candidate_ids_.size());
      candidate_ranges_[2 * row] = end - static_cast<int32_t>(list.ids.size());
      candidate_ranges_[2 * row + 1] = end;
    }
  }

  Binding bind_step(const Key& key) {
    const auto [rows, scored, best_count, aligned, listed] = key;
    Binding binding(*sessions_, sessions_->decoder);
    binding.input("token_ids", token_ids_.data(), ElementType::kInt64, {rows});
    for (size_t index = 0; index < inputs_.size(); ++index) {
      const int32_t count = index + 1 < inputs_.size() ? rows : scored;
      binding.input(kInputs[index], inputs_[index].data(), ElementType::kInt32, {count});
    }
    binding.input("best_count", &constants_.at(static_cast<size_t>(best_count)), ElementType::kInt32, {1});
    binding.input("aligned", &constants_.at(static_cast<size_t>(aligned)), ElementType::kInt32, {1});
    if (sessions_->shortlists)
      binding.input("candidate_ranges", candidate_ranges_.data(), ElementType::kInt32, {listed, 2});
    target_cache_.bind(binding, true);
    source_cache_.bind(binding, false);
    binding.output("logits", logits_.data(), ElementType::kFloat, {scored, shape_.vocabulary});
    best_.bind(binding, rows, best_count);
    binding.output("alignments", alignments_.data(), ElementType::kFloat,
                   {rows * aligned, shape_.alignment_heads, shape_.source_capacity});
    return binding;
  }

  const std::shared_ptr<const Sessions> sessions_;
  SlotCache source_cache_, target_cache_;
  const ModelShape shape_;
  Binding encoding_;
  std::map<Key, Binding> bindings_;
  // Inputs of a step, with room for all slots.
  std::vector<int64_t> token_ids_;
  std::array<std::vector<int32_t>, std::size(kInputs)> inputs_;
  std::vector<int32_t> candidate_ids_, candidate_ranges_;
  // 0, 1, ...: the numbers of best tokens and the flags that bindings refer to.
  std::vector<int32_t> constants_;
  // Inputs of kernels.
  Sources sources_{};
  StepRows rows_{};
  std::vector<TokenList> lists_;
  MappedMemory logits_, alignments_;
  Best best_, changed_;
};

}  // namespace dragoman
