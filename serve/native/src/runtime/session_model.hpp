// The model of one engine: the shared sessions and its own caches.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "loop/step_model.hpp"
#include "runtime/sessions.hpp"

namespace dragoman {

// The tensors of a cache, [slots, layers, blocks, 2, heads, ...]. Only pages that were written take memory.
class SlotCache {
 public:
  SlotCache(const std::vector<TensorSpec>& tensors, int32_t slots);

  // Binds every tensor as input and output of the same memory.
  void bind(Binding& binding, bool written) const;
  // Copies the first blocks of each layer of a slot to another one.
  void copy(int32_t from_slot, int32_t to_slot, int32_t positions);

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
  SessionModel(std::shared_ptr<const Sessions> sessions, int32_t slots);

  const ModelShape& shape() const override { return shape_; }
  void encode(const EncodeBatch& batch) override;
  StepScores step(const StepBatch& batch) override;
  Choices choose(int32_t rows, int32_t best_count) override;
  void branch(int32_t from_slot, int32_t to_slot, int32_t positions) override {
    target_cache_.copy(from_slot, to_slot, positions);
  }

 private:
  // Bindings that are kept; there may be one for each number of rows, of scored rows and of best tokens.
  static constexpr size_t kMostBindings = 512;
  using Key = std::array<int32_t, 4>;

  // Memory of the best tokens of all slots.
  struct Best {
    std::vector<float> log_sums, scores;
    std::vector<int64_t> ids;
    void bind(Binding& binding, int32_t rows, int32_t count);
    Choices choices() const { return {log_sums.data(), scores.data(), ids.data()}; }
  };

  Binding bind_step(const Key& key);

  const std::shared_ptr<const Sessions> sessions_;
  ModelShape shape_;
  SlotCache source_cache_, target_cache_;
  Binding encoding_;
  std::map<Key, Binding> bindings_;
  // Inputs of a step, with room for all slots.
  std::vector<int64_t> token_ids_;
  std::array<std::vector<int32_t>, 5> inputs_;  // positions, target slots, source slots, source lengths, scored rows
  // The numbers of best tokens and the flags that bindings refer to.
  std::map<int32_t, int32_t> constants_;
  MappedMemory logits_, alignments_;
  Best best_, changed_;
};

}  // namespace dragoman
