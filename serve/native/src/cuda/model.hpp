// The model of one engine on a device: its own sessions, and state and logits in device memory.
//
// The row of a target slot is its number. Steps run for a bucket of rows: every shape and address occurred before, and
// on a GPU a CUDA graph was captured for it. Rows of the bucket without a hypothesis compute position 0 of a source of
// one token, and the next owner of such a row writes that position first.
//
// Shapes: P rows of a bucket, C best tokens, V vocabulary, A alignment heads.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "cuda/buckets.hpp"
#include "cuda/cache.hpp"
#include "cuda/config.hpp"
#include "cuda/device.hpp"
#include "cuda/sessions.hpp"
#include "cuda/staging.hpp"
#include "loop/mapped_memory.hpp"
#include "loop/step_model.hpp"

namespace dragoman::cuda {

class DeviceModel : public StepModel {
 public:
  // Allocates all memory and opens the sessions on a GPU, or for tests on the CPU. Throws OutOfMemory if the device has
  // too little, std::runtime_error if it fails or ONNX Runtime rejects a graph, or std::invalid_argument.
  DeviceModel(const DeviceConfig& config, int gpu);
  ~DeviceModel() override;

  const ModelShape& shape() const override { return shape_; }
  // Runs a step of every size, the largest first, to capture its CUDA graph and allocate its memory.
  void prepare() override;
  void encode(const EncodeBatch& batch) override;
  StepScores step(const StepBatch& batch) override;
  bool runs_ahead() const override { return ahead_; }
  int32_t launch(const StepBatch& batch) override;
  Choices collect(int32_t number) override;
  Choices choose(int32_t rows, int32_t best_count) override;
  void branch(int32_t from_slot, int32_t to_slot, int32_t positions) override;

  // Tokens that the source caches have room for now.
  int64_t source_capacity() const { return parts_->cache.source_capacity(); }
  // Overwrites all states, to show that a step depends on no old value.
  void fill(uint8_t byte);

 private:
  // The decoder bound for a bucket and a source capacity.
  struct BoundStep {
    DeviceBinding binding;
    ort::Owned<ort::RunOptions> first, later;
  };

  // The graph of the choice bound for a bucket and a number of best tokens.
  struct BoundChoice {
    std::unique_ptr<const int64_t> count;
    DeviceBinding binding;
  };

  // What takes memory of the device.
  struct Parts {
    Parts(const DeviceConfig& config, int gpu, std::shared_ptr<Device> device, int64_t arena_bytes);

    DeviceCache cache;
    DeviceMemory logits, alignments;  // [slots, V] and [slots, A, source capacity]
    DeviceMemory inputs, results;
    // A step of `step` uses the first ones, and those of `launch` take turns.
    std::array<DeviceMemory, kMarks> pinned_inputs, pinned_results;
    DeviceMemory last_id;  // of the vocabulary
    Staging staging;
    DeviceSessions sessions;
    std::map<std::pair<int64_t, int64_t>, BoundStep> steps;
    std::map<std::pair<int64_t, int64_t>, BoundChoice> choices;
  };

  // Memory of the best tokens: those of a device in one block, then those of the rows of a step.
  struct Best {
    std::vector<float> log_sums, scores;
    std::vector<int64_t> ids;

    Choices choices() const { return {log_sums.data(), scores.data(), ids.data()}; }
  };

  // A step whose choices are not read: where its rows are, and their best tokens once they are.
  struct Launched {
    std::vector<int32_t> rows;
    int64_t bucket = 0;
    Best best;
  };

  void encode_part(const EncodeBatch& batch, size_t first, size_t count, const int64_t* ids, const int32_t* rows);
  void flush_branches();
  void make_room(const StepBatch& batch);
  void shrink(int64_t longest);
  bool is_new(int64_t bucket) const;
  int64_t bucket_of(const StepBatch& batch) const;
  void decode(int64_t bucket, const StepBatch& batch);
  void fill_inputs(const StepBatch& batch, int32_t block, int64_t free_id);
  void upload_read_tokens(int64_t bucket, int32_t block);
  void run_decoder(int64_t bucket);
  BoundStep& bound_step(int64_t bucket);
  void run_choice(int64_t bucket, int64_t count, int32_t block);
  BoundChoice bind_choice(int64_t bucket, int64_t count);
  Choices collect(Best& best, const std::vector<int32_t>& rows, int64_t bucket, int64_t count, int32_t block) const;
  void keep_candidates(const StepBatch& batch);
  void fetch_logits(const StepBatch& batch);
  void fetch_alignments(int64_t bucket);

  const int64_t begin_id_, pad_id_, shrink_steps_;
  const bool captured_, ahead_;
  const std::shared_ptr<Device> device_;
  const ModelShape shape_;
  const Buckets row_buckets_, source_buckets_, encoder_buckets_;
  std::unique_ptr<Parts> parts_;
  int64_t shorter_steps_ = 0;
  std::vector<RowCopy> branches_;
  MappedMemory logits_, alignments_;  // of the rows of a step, [M, V] and [R, A, source capacity]
  std::vector<float> fetched_alignments_;
  Best best_, changed_;
  std::array<Launched, kMarks> launched_;
  int32_t next_launch_ = 0;
};

}  // namespace dragoman::cuda
