// The C interface of models on devices, for Python (serve/native/device.py). Calls as in loop/api.hpp.
//
// A model has what each of its engines computes with. Python closes it by `dragoman_model_close`, and may also step the
// first engine itself.
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "cuda/model.hpp"
#include "loop/api.hpp"
#include "runtime/model.hpp"

using namespace dragoman;
using namespace dragoman::cuda;

namespace {

struct DeviceModels : Model {
  explicit DeviceModels(const DeviceConfig& config) {
    for (int64_t number = 0; number < config.engines; ++number) {
      const int64_t gpu = config.gpus == kNoGpu ? 0 : number % config.gpus;
      engines.push_back(std::make_shared<DeviceModel>(config, static_cast<int>(gpu)));
    }
  }

  std::shared_ptr<StepModel> engine(int32_t) override { return engines.at(given++); }

  std::vector<std::shared_ptr<DeviceModel>> engines;
  size_t given = 0;
};

DeviceModel& first(Model* model) { return *static_cast<DeviceModels*>(model)->engines.at(0); }

}  // namespace

// Arrays of a step of R rows, and those of its results, which are valid until the next one.
struct DeviceStep {
  const int64_t* token_ids;
  const int32_t *positions, *rows, *source_lengths, *scored_rows;
  int64_t row_count, scored_count, best_count, aligned;
  StepScores scores;
};

// Opens the sessions of all engines and allocates their memory. Returns 1 if a device has too little.
DRAGOMAN_API int32_t dragoman_device_open(const DeviceConfig* config, Model** model) {
  return guarded([&] {
    try {
      *model = new DeviceModels(*config);
      return true;
    } catch (const OutOfMemory& error) {
      last_error() = error.what();
      return false;
    }
  });
}

DRAGOMAN_API int32_t dragoman_device_prepare(Model* model) {
  return guarded([&] { first(model).prepare(); });
}

// Encodes sources; `rows` are those of all sources, and `row_counts` their number of each.
DRAGOMAN_API int32_t dragoman_device_encode(Model* model, const int64_t* ids, const int32_t* lengths,
                                            int64_t sources, const int32_t* rows, const int32_t* row_counts) {
  return guarded([&] {
    EncodeBatch batch;
    batch.lengths.assign(lengths, lengths + sources);
    batch.target_counts.assign(row_counts, row_counts + sources);
    for (int64_t source = 0; source < sources; ++source) {
      batch.ids.insert(batch.ids.end(), ids, ids + lengths[source]);
      batch.target_slots.insert(batch.target_slots.end(), rows, rows + row_counts[source]);
      ids += lengths[source];
      rows += row_counts[source];
    }
    first(model).encode(batch);
  });
}

DRAGOMAN_API int32_t dragoman_device_step(Model* model, DeviceStep* step) {
  return guarded([&] {
    StepBatch batch;
    const int64_t rows = step->row_count;
    batch.token_ids.assign(step->token_ids, step->token_ids + rows);
    batch.positions.assign(step->positions, step->positions + rows);
    batch.target_slots.assign(step->rows, step->rows + rows);
    batch.source_lengths.assign(step->source_lengths, step->source_lengths + rows);
    batch.scored_rows.assign(step->scored_rows, step->scored_rows + step->scored_count);
    batch.best_count = static_cast<int32_t>(step->best_count);
    batch.aligned = step->aligned != 0;
    step->scores = first(model).step(batch);
  });
}

// Chooses again for the first rows of the logits of the last step.
DRAGOMAN_API int32_t dragoman_device_choose(Model* model, int64_t rows, int64_t best_count, Choices* choices) {
  return guarded([&] {
    *choices = first(model).choose(static_cast<int32_t>(rows), static_cast<int32_t>(best_count));
  });
}

DRAGOMAN_API int32_t dragoman_device_branch(Model* model, int32_t from_row, int32_t to_row, int32_t positions) {
  return guarded([&] { first(model).branch(from_row, to_row, positions); });
}

// Overwrites all states, for tests.
DRAGOMAN_API int32_t dragoman_device_fill(Model* model, int64_t byte) {
  return guarded([&] { first(model).fill(static_cast<uint8_t>(byte)); });
}

DRAGOMAN_API int64_t dragoman_device_source_capacity(Model* model) {
  return first(model).source_capacity();
}
