// The model of one engine: the shared sessions and its own caches.
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

// The tensors of a cache, [slots, layers, blocks, 2, heads, ...]. Only pages that were written take memory.
class SlotCache {
 public:
  static constexpr int64_t kBlockTokens = 16;

  SlotCache(const std::vector<TensorSpec>& tensors, int32_t slots) {
    for (const TensorSpec& spec : tensors) {
      std::vector<int64_t> shape = spec.shape;
      shape.insert(shape.begin(), slots);
      auto memory = std::make_unique<MappedMemory>(spec.bytes() * static_cast<size_t>(slots));
      tensors_.push_back({spec, shape, "present_" + spec.name, std::move(memory)});
    }
  }

  int32_t tokens() const { return static_cast<int32_t>(tensors_.at(0).spec.shape.at(1) * kBlockTokens); }

  // Binds every tensor as input, and as output of the same memory if it is written.
  void bind(Binding& binding, bool written) const {
    for (const Tensor& each : tensors_) {
      binding.input(each.spec.name.c_str(), each.memory->data(), each.spec.type, each.shape);
      if (written) binding.output(each.written_name.c_str(), each.memory->data(), each.spec.type, each.shape);
    }
  }

  // Copies the first blocks of each layer of a slot to another one.
  void copy(int32_t from_slot, int32_t to_slot, int32_t positions) {
    for (const Tensor& each : tensors_) {
      const auto layers = static_cast<size_t>(each.spec.shape[0]), blocks = static_cast<size_t>(each.spec.shape[1]);
      const size_t slot_bytes = each.spec.bytes(), layer_bytes = slot_bytes / layers;
      const auto filled = static_cast<size_t>((positions + kBlockTokens - 1) / kBlockTokens);
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
  std::vector<Tensor> tensors_;
};

class SessionModel : public StepModel {
 public:
  SessionModel(std::shared_ptr<const Sessions> sessions, int32_t slots)
      : sessions_(std::move(sessions)),
        source_cache_(sessions_->source_cache, slots),
        target_cache_(sessions_->target_cache, slots),
        shape_{slots, sessions_->vocabulary, sessions_->alignment_heads, source_cache_.tokens(),
               target_cache_.tokens()},
        encoding_(*sessions_, sessions_->encoder),
        token_ids_(static_cast<size_t>(slots)),
        constants_(static_cast<size_t>(std::min(2 * slots, shape_.vocabulary) + 1)),
        logits_(float_bytes(slots, shape_.vocabulary)),
        alignments_(float_bytes(slots, shape_.alignment_heads) * static_cast<size_t>(shape_.source_capacity)),
        best_(static_cast<size_t>(slots), constants_.size()),
        changed_(static_cast<size_t>(slots), constants_.size()) {
    for (auto& input : inputs_) input.resize(static_cast<size_t>(slots));
    std::iota(constants_.begin(), constants_.end(), 0);
    source_cache_.bind(encoding_, true);
  }

  const ModelShape& shape() const override { return shape_; }

  void encode(const EncodeBatch& batch) override {
    const auto tokens = static_cast<int64_t>(batch.ids.size()), sources = static_cast<int64_t>(batch.slots.size());
    encoding_.input("source_ids", writable(batch.ids), ElementType::kInt64, {tokens});
    encoding_.input("source_lengths", writable(batch.lengths), ElementType::kInt32, {sources});
    encoding_.input("source_slots", writable(batch.slots), ElementType::kInt32, {sources});
    encoding_.run();
  }

  StepScores step(const StepBatch& batch) override {
    std::copy(batch.token_ids.begin(), batch.token_ids.end(), token_ids_.begin());
    const std::vector<int32_t>* given[] = {&batch.positions, &batch.target_slots, &batch.source_slots,
                                           &batch.source_lengths, &batch.scored_rows};
    for (size_t index = 0; index < inputs_.size(); ++index)
      std::copy(given[index]->begin(), given[index]->end(), inputs_[index].begin());
    const Key key{static_cast<int32_t>(batch.rows()), static_cast<int32_t>(batch.scored_rows.size()), batch.best_count,
                  batch.aligned ? 1 : 0};
    auto found = bindings_.find(key);
    if (found == bindings_.end()) {
      if (bindings_.size() == kMaxBindings) bindings_.clear();
      found = bindings_.emplace(key, bind_step(key)).first;
    }
    found->second.run();
    return {reinterpret_cast<float*>(logits_.data()), best_.choices(),
            reinterpret_cast<const float*>(alignments_.data())};
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
  // Rows, scored rows, best tokens and alignments: what the shapes of a step depend on.
  using Key = std::array<int32_t, 4>;
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

  Binding bind_step(const Key& key) {
    const auto [rows, scored, best_count, aligned] = key;
    Binding binding(*sessions_, sessions_->decoder);
    binding.input("token_ids", token_ids_.data(), ElementType::kInt64, {rows});
    for (size_t index = 0; index < inputs_.size(); ++index) {
      const int32_t count = index + 1 < inputs_.size() ? rows : scored;
      binding.input(kInputs[index], inputs_[index].data(), ElementType::kInt32, {count});
    }
    binding.input("best_count", &constants_.at(static_cast<size_t>(best_count)), ElementType::kInt32, {1});
    binding.input("aligned", &constants_.at(static_cast<size_t>(aligned)), ElementType::kInt32, {1});
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
  // 0, 1, ...: the numbers of best tokens and the flags that bindings refer to.
  std::vector<int32_t> constants_;
  MappedMemory logits_, alignments_;
  Best best_, changed_;
};

}  // namespace dragoman
