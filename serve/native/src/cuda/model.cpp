#include "cuda/model.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>

#include "cuda/capture_gate.hpp"

namespace dragoman::cuda {
namespace {

// Best tokens of each row that the results have room for from the start.
constexpr size_t kUsualCount = 16;

size_t float_bytes(int64_t rows, int64_t columns) {
  return sizeof(float) * static_cast<size_t>(rows) * static_cast<size_t>(columns);
}

// Where the inputs of a step lie in their block: token ids, then positions, then source lengths, of all slots.
struct InputLayout {
  explicit InputLayout(int64_t slots)
      : positions(Staging::rounded(static_cast<size_t>(slots) * sizeof(int64_t))),
        lengths(positions + Staging::rounded(static_cast<size_t>(slots) * sizeof(int32_t))),
        bytes(lengths + static_cast<size_t>(slots) * sizeof(int32_t)) {}

  const size_t positions, lengths, bytes;
};

// Where the results of a bucket lie in their block: ids, then log-sums, then scores.
struct ResultLayout {
  ResultLayout(int64_t bucket, int64_t count)
      : log_sums(Staging::rounded(static_cast<size_t>(bucket * count) * sizeof(int64_t))),
        scores(log_sums + Staging::rounded(static_cast<size_t>(bucket) * sizeof(float))),
        bytes(scores + static_cast<size_t>(bucket * count) * sizeof(float)) {}

  const size_t log_sums, scores, bytes;
};

// Returns the bytes of the inputs of the encoder.
size_t staging_bytes(const DeviceConfig& config) {
  const auto rows = static_cast<size_t>(config.encoder_rows), tokens = static_cast<size_t>(config.max_source_tokens);
  return Staging::rounded(rows * tokens * sizeof(int64_t)) + Staging::rounded(rows * sizeof(int32_t));
}

// Returns the bytes that the states, logits and alignments of an engine take, and the room for one source state.
size_t large_bytes(const DeviceConfig& config) {
  const auto slots = static_cast<size_t>(config.slots), encoded = static_cast<size_t>(config.encoder_rows);
  size_t bytes = float_bytes(config.slots, config.vocabulary) +
                 float_bytes(config.slots, config.alignment_heads * config.max_source_tokens);
  size_t spare = 0;
  for (const TensorSpec& spec : specs_of(config.source_states)) {
    bytes += (slots + encoded) * spec.bytes();
    spare = std::max(spare, slots * spec.bytes());
  }
  for (const TensorSpec& spec : specs_of(config.target_states)) bytes += slots * spec.bytes();
  return bytes + spare;
}

// Returns the limit of ONNX Runtime's memory; 0: none. Throws OutOfMemory if nothing is left for it.
int64_t arena_bytes(const DeviceConfig& config) {
  if (config.memory_bytes <= 0) return 0;
  const int64_t left = config.memory_bytes - static_cast<int64_t>(large_bytes(config));
  if (left <= 0)
    throw OutOfMemory("the slots take " + std::to_string(config.memory_bytes - left) + " bytes of " +
                      std::to_string(config.memory_bytes));
  return left;
}

// Uses the device until the end of the scope, in this thread.
struct Use {
  explicit Use(Device& device, bool captures = false) : hold(CaptureGate::process(), captures) { device.activate(); }
  const CaptureGate::Hold hold;
};

}  // namespace

DeviceModel::Parts::Parts(const DeviceConfig& config, int gpu, std::shared_ptr<Device> device, int64_t arena_bytes)
    : cache(config, device),
      logits(device, float_bytes(config.slots, config.vocabulary)),
      alignments(device, float_bytes(config.slots, config.alignment_heads * config.max_source_tokens)),
      inputs(device, InputLayout(config.slots).bytes),
      results(device, ResultLayout(config.slots, kUsualCount).bytes),
      pinned_inputs{DeviceMemory(device, inputs.bytes(), true), DeviceMemory(device, inputs.bytes(), true)},
      pinned_results{DeviceMemory(device, results.bytes(), true), DeviceMemory(device, results.bytes(), true)},
      last_id(device, sizeof(int64_t)),
      staging(device, staging_bytes(config)),
      sessions(config, gpu, *device, arena_bytes) {}

DeviceModel::DeviceModel(const DeviceConfig& config, int gpu)
    : begin_id_(config.begin_id),
      pad_id_(config.pad_id),
      shrink_steps_(config.shrink_steps),
      captured_(config.captured != 0),
      ahead_(config.ahead != 0),
      device_(config.driver == nullptr ? open_host() : open_gpu(config.driver, gpu)),
      shape_{static_cast<int32_t>(config.slots), static_cast<int32_t>(config.vocabulary),
             static_cast<int32_t>(config.alignment_heads), static_cast<int32_t>(config.max_source_tokens),
             static_cast<int32_t>(config.max_target_tokens)},
      row_buckets_(config.slots, 1),
      source_buckets_(config.max_source_tokens, config.least_capacity),
      encoder_buckets_(config.encoder_rows, 1),
      logits_(float_bytes(config.slots, config.vocabulary)),
      alignments_(float_bytes(config.slots, config.alignment_heads * config.max_source_tokens)) {
  const Use use(*device_);
  parts_ = std::make_unique<Parts>(config, gpu, device_, arena_bytes(config));
  const int64_t last_id = config.vocabulary - 1;
  device_->upload(parts_->last_id.data(), &last_id, sizeof last_id);
  parts_->cache.resize(source_buckets_.least());
  device_->synchronize();
}

DeviceModel::~DeviceModel() {
  const CaptureGate::Hold hold(CaptureGate::process(), false);
  try {
    device_->activate();
    device_->synchronize();
  } catch (...) {  // a lost device has nothing to wait for
  }
  parts_.reset();
}

void DeviceModel::prepare() {
  const StepBatch nothing;
  for (auto capacity = source_buckets_.sizes().rbegin(); capacity != source_buckets_.sizes().rend(); ++capacity) {
    {
      const Use use(*device_);
      parts_->cache.resize(*capacity);
      device_->synchronize();
    }
    for (auto bucket = row_buckets_.sizes().rbegin(); bucket != row_buckets_.sizes().rend(); ++bucket) {
      const Use use(*device_, captured_);
      decode(*bucket, nothing);
      run_choice(*bucket, 1, 0);
      device_->synchronize();
    }
  }
}

void DeviceModel::encode(const EncodeBatch& batch) {
  const Use use(*device_);
  try {
    flush_branches();
    const int64_t capacity = source_buckets_.of(*std::max_element(batch.lengths.begin(), batch.lengths.end()));
    if (capacity > source_capacity()) parts_->cache.resize(capacity);
  } catch (const std::exception& error) {
    throw StateLost(error.what());
  }
  shorter_steps_ = 0;
  const int64_t* ids = batch.ids.data();
  const int32_t* rows = batch.target_slots.data();
  for (size_t first = 0; first < batch.lengths.size(); first += static_cast<size_t>(encoder_buckets_.most())) {
    const size_t count = std::min(static_cast<size_t>(encoder_buckets_.most()), batch.lengths.size() - first);
    encode_part(batch, first, count, ids, rows);
    const auto lengths = batch.lengths.begin() + static_cast<std::ptrdiff_t>(first);
    const auto counts = batch.target_counts.begin() + static_cast<std::ptrdiff_t>(first);
    ids = std::accumulate(lengths, lengths + static_cast<std::ptrdiff_t>(count), ids);
    rows = std::accumulate(counts, counts + static_cast<std::ptrdiff_t>(count), rows);
    device_->synchronize();
  }
}

void DeviceModel::encode_part(const EncodeBatch& batch, size_t first, size_t count, const int64_t* ids,
                              const int32_t* rows) {
  const int64_t bucket = encoder_buckets_.of(static_cast<int64_t>(count)), capacity = source_capacity();
  std::vector<int64_t> padded(static_cast<size_t>(bucket * capacity), pad_id_);
  std::vector<int32_t> lengths(static_cast<size_t>(bucket), 1);
  for (size_t index = 0; index < count; ++index) {
    lengths[index] = batch.lengths[first + index];
    std::copy(ids, ids + lengths[index], padded.begin() + static_cast<std::ptrdiff_t>(index) * capacity);
    ids += lengths[index];
  }
  const auto [put_ids, put_lengths] = parts_->staging.put(padded, lengths);
  DeviceBinding binding(parts_->sessions, parts_->sessions.encoder);
  binding.input("source_ids", put_ids, ElementType::kInt64, {bucket, capacity});
  binding.input("source_lengths", put_lengths, ElementType::kInt32, {bucket});
  parts_->cache.bind_encoder(binding, bucket);
  binding.run();
  parts_->cache.write(bucket, batch.target_counts.data() + first, count, rows);
}

StepScores DeviceModel::step(const StepBatch& batch) {
  const int64_t bucket = bucket_of(batch), count = std::max(batch.best_count, 1);
  make_room(batch);
  const Use use(*device_, captured_ && is_new(bucket));
  decode(bucket, batch);
  keep_candidates(batch);
  run_choice(bucket, count, 0);
  fetch_logits(batch);
  if (batch.aligned) fetch_alignments(bucket);
  device_->synchronize();
  if (batch.aligned) {
    const auto heads = static_cast<size_t>(shape_.alignment_heads);
    const auto capacity = static_cast<size_t>(source_capacity()), most = static_cast<size_t>(shape_.source_capacity);
    auto* to = reinterpret_cast<float*>(alignments_.data());
    for (const int32_t slot : batch.target_slots)
      for (size_t head = 0; head < heads; ++head, to += most)
        std::copy_n(fetched_alignments_.data() + (static_cast<size_t>(slot) * heads + head) * capacity, capacity, to);
  }
  return {reinterpret_cast<float*>(logits_.data()), collect(best_, batch.target_slots, bucket, count, 0),
          reinterpret_cast<const float*>(alignments_.data())};
}

// The token of a row that is not read is where the choice of the step before has left it. Rows without a hypothesis keep
// any former token.
int32_t DeviceModel::launch(const StepBatch& batch) {
  const int64_t bucket = bucket_of(batch);
  const int32_t number = next_launch_;
  make_room(batch);
  const Use use(*device_, captured_ && is_new(bucket));
  device_->wait(number);
  fill_inputs(batch, number, kUnreadToken);
  const InputLayout layout(shape_.slots);
  device_->upload(parts_->inputs.data() + layout.positions, parts_->pinned_inputs[number].data() + layout.positions,
                  layout.bytes - layout.positions);
  upload_read_tokens(bucket, number);
  run_decoder(bucket);
  run_choice(bucket, 1, number);
  device_->copy(parts_->inputs.data(), parts_->results.data(), static_cast<size_t>(bucket) * sizeof(int64_t));
  device_->mark(number);
  launched_[number].rows = batch.target_slots;
  launched_[number].bucket = bucket;
  next_launch_ = (number + 1) % kMarks;
  return number;
}

Choices DeviceModel::collect(int32_t number) {
  const Use use(*device_);
  device_->wait(number);
  Launched& step = launched_.at(static_cast<size_t>(number));
  return collect(step.best, step.rows, step.bucket, 1, number);
}

void DeviceModel::make_room(const StepBatch& batch) {
  const Use use(*device_);
  flush_branches();
  shrink(*std::max_element(batch.source_lengths.begin(), batch.source_lengths.end()));
}

Choices DeviceModel::choose(int32_t rows, int32_t best_count) {
  const Use use(*device_);
  const int64_t bucket = row_buckets_.of(rows), count = std::max(best_count, 1);
  device_->upload(parts_->logits.data(), logits_.data(), float_bytes(rows, shape_.vocabulary));
  run_choice(bucket, count, 0);
  device_->synchronize();
  std::vector<int32_t> numbers(static_cast<size_t>(rows));
  std::iota(numbers.begin(), numbers.end(), 0);
  return collect(changed_, numbers, bucket, count, 0);
}

// The copy waits for the next call that reads a row, so that the host need not wait for the gate here.
void DeviceModel::branch(int32_t from_slot, int32_t to_slot, int32_t positions) {
  branches_.push_back({from_slot, to_slot, positions});
}

void DeviceModel::flush_branches() {
  // A failing copy must not be repeated with slots that have new owners.
  std::vector<RowCopy> branches;
  branches.swap(branches_);
  for (const RowCopy& each : branches) parts_->cache.branch(each);
}

void DeviceModel::fill(uint8_t byte) {
  const Use use(*device_);
  parts_->cache.fill(byte);
  device_->synchronize();
}

void DeviceModel::shrink(int64_t longest) {
  const int64_t fitting = source_buckets_.of(longest);
  shorter_steps_ = fitting < source_capacity() ? shorter_steps_ + 1 : 0;
  if (shorter_steps_ < shrink_steps_) return;
  parts_->cache.resize(fitting);
  shorter_steps_ = 0;
}

int64_t DeviceModel::bucket_of(const StepBatch& batch) const {
  return row_buckets_.of(*std::max_element(batch.target_slots.begin(), batch.target_slots.end()) + 1);
}

// A step is new until it has run once.
bool DeviceModel::is_new(int64_t bucket) const {
  const auto found = parts_->steps.find({bucket, source_capacity()});
  return found == parts_->steps.end() || found->second.first != nullptr;
}

void DeviceModel::decode(int64_t bucket, const StepBatch& batch) {
  device_->wait(0);
  fill_inputs(batch, 0, begin_id_);
  device_->upload(parts_->inputs.data(), parts_->pinned_inputs[0].data(), parts_->inputs.bytes());
  run_decoder(bucket);
}

// Rows without a hypothesis have position 0 of a source of one token, and the token `free_id`.
void DeviceModel::fill_inputs(const StepBatch& batch, int32_t block, int64_t free_id) {
  const InputLayout layout(shape_.slots);
  char* inputs = parts_->pinned_inputs[block].data();
  auto* token_ids = reinterpret_cast<int64_t*>(inputs);
  auto* positions = reinterpret_cast<int32_t*>(inputs + layout.positions);
  auto* lengths = reinterpret_cast<int32_t*>(inputs + layout.lengths);
  std::fill_n(token_ids, shape_.slots, free_id);
  std::fill_n(positions, shape_.slots, 0);
  std::fill_n(lengths, shape_.slots, 1);
  for (size_t index = 0; index < batch.rows(); ++index) {
    const auto row = static_cast<size_t>(batch.target_slots[index]);
    token_ids[row] = batch.token_ids[index];
    positions[row] = batch.positions[index];
    lengths[row] = batch.source_lengths[index];
  }
}

// Neighbors are one copy.
void DeviceModel::upload_read_tokens(int64_t bucket, int32_t block) {
  const auto* ids = reinterpret_cast<const int64_t*>(parts_->pinned_inputs[block].data());
  for (const int64_t *first = ids, *end = ids + bucket; first != end;) {
    const int64_t* last = std::find(first, end, kUnreadToken);
    const auto offset = static_cast<size_t>(first - ids) * sizeof(int64_t);
    if (last != first)
      device_->upload(parts_->inputs.data() + offset, first, static_cast<size_t>(last - first) * sizeof(int64_t));
    first = std::find_if(last, end, [](int64_t id) { return id != kUnreadToken; });
  }
}

void DeviceModel::run_decoder(int64_t bucket) {
  BoundStep& step = bound_step(bucket);
  if (step.first != nullptr) {
    step.binding.run(step.first.get());
    step.first.reset();
  } else {
    step.binding.run(step.later.get());
  }
}

DeviceModel::BoundStep& DeviceModel::bound_step(int64_t bucket) {
  const int64_t capacity = source_capacity();
  const auto found = parts_->steps.find({bucket, capacity});
  if (found != parts_->steps.end()) return found->second;
  const InputLayout layout(shape_.slots);
  const char* inputs = parts_->inputs.data();
  DeviceBinding binding(parts_->sessions, parts_->sessions.decoder);
  binding.input("token_ids", inputs, ElementType::kInt64, {bucket});
  binding.input("positions", inputs + layout.positions, ElementType::kInt32, {bucket});
  binding.input("source_lengths", inputs + layout.lengths, ElementType::kInt32, {bucket});
  parts_->cache.bind_decoder(binding, bucket);
  binding.output("logits", parts_->logits.data(), ElementType::kFloat, {bucket, shape_.vocabulary});
  if (shape_.alignment_heads > 0)
    binding.output("alignments", parts_->alignments.data(), ElementType::kFloat,
                   {bucket, shape_.alignment_heads, capacity});
  // Ids of CUDA graphs begin with 1: ONNX Runtime reserves 0.
  const int64_t graph_id = captured_ ? static_cast<int64_t>(parts_->steps.size()) + 1 : 0;
  const ort::Api& api = parts_->sessions.api;
  BoundStep step{std::move(binding), run_options(api, true, graph_id), run_options(api, false, graph_id)};
  return parts_->steps.emplace(std::make_pair(bucket, capacity), std::move(step)).first->second;
}

void DeviceModel::run_choice(int64_t bucket, int64_t count, int32_t block) {
  const size_t bytes = ResultLayout(bucket, count).bytes;
  if (bytes > parts_->results.bytes()) {
    device_->synchronize();
    parts_->choices.clear();  // they refer to the old memory
    for (DeviceMemory& pinned : parts_->pinned_results) pinned = DeviceMemory(device_, bytes, true);
    parts_->results = DeviceMemory(device_, bytes);  // the last one: its size tells that all have room
  }
  auto found = parts_->choices.find({bucket, count});
  if (found == parts_->choices.end())
    found = parts_->choices.emplace(std::make_pair(bucket, count), bind_choice(bucket, count)).first;
  found->second.binding.run();
  device_->download(parts_->pinned_results[block].data(), parts_->results.data(), bytes);
}

DeviceModel::BoundChoice DeviceModel::bind_choice(int64_t bucket, int64_t count) {
  auto number = std::make_unique<const int64_t>(count);
  const ResultLayout layout(bucket, count);
  char* results = parts_->results.data();
  DeviceBinding binding(parts_->sessions, parts_->sessions.choose);
  binding.input("logits", parts_->logits.data(), ElementType::kFloat, {bucket, shape_.vocabulary});
  binding.input_number("count", number.get());
  binding.input("last_id", parts_->last_id.data(), ElementType::kInt64, {1, 1});
  binding.output("best_ids", results, ElementType::kInt64, {bucket, count});
  binding.output("log_sums", results + layout.log_sums, ElementType::kFloat, {bucket, 1});
  binding.output("best_scores", results + layout.scores, ElementType::kFloat, {bucket, count});
  return {std::move(number), std::move(binding)};
}

// Returns the results of some rows of a bucket, in their order.
Choices DeviceModel::collect(Best& best, const std::vector<int32_t>& rows, int64_t bucket, int64_t count,
                             int32_t block) const {
  const auto columns = static_cast<size_t>(count);
  const ResultLayout layout(bucket, count);
  const char* results = parts_->pinned_results[block].data();
  const auto* ids = reinterpret_cast<const int64_t*>(results);
  const auto* log_sums = reinterpret_cast<const float*>(results + layout.log_sums);
  const auto* scores = reinterpret_cast<const float*>(results + layout.scores);
  best.log_sums.resize(rows.size());
  best.scores.resize(rows.size() * columns);
  best.ids.resize(rows.size() * columns);
  for (size_t index = 0; index < rows.size(); ++index) {
    const auto row = static_cast<size_t>(rows[index]);
    best.log_sums[index] = log_sums[row];
    std::copy_n(scores + row * columns, columns, best.scores.data() + index * columns);
    std::copy_n(ids + row * columns, columns, best.ids.data() + index * columns);
  }
  return best.choices();
}

// Sets the logits of all other tokens to -inf on the host: a shortlist saves no time on a device.
void DeviceModel::keep_candidates(const StepBatch& batch) {
  const auto vocabulary = static_cast<size_t>(shape_.vocabulary);
  std::vector<float> all, kept;
  for (size_t index = 0; index < batch.candidates.size(); ++index) {
    const CandidateList& candidates = *batch.candidates[index];
    if (candidates.empty()) continue;
    char* row = parts_->logits.data() + static_cast<size_t>(batch.target_slots[index]) * vocabulary * sizeof(float);
    all.resize(vocabulary);
    kept.assign(vocabulary, -std::numeric_limits<float>::infinity());
    device_->download(all.data(), row, vocabulary * sizeof(float));
    device_->synchronize();
    for (const int32_t id : candidates.ids) kept.at(static_cast<size_t>(id)) = all.at(static_cast<size_t>(id));
    device_->upload(row, kept.data(), vocabulary * sizeof(float));
    device_->synchronize();
  }
}

void DeviceModel::fetch_logits(const StepBatch& batch) {
  const size_t bytes = float_bytes(1, shape_.vocabulary);
  char* to = logits_.data();
  for (const int32_t index : batch.scored_rows) {
    const auto row = static_cast<size_t>(batch.target_slots[static_cast<size_t>(index)]);
    device_->download(to, parts_->logits.data() + row * bytes, bytes);
    to += bytes;
  }
}

void DeviceModel::fetch_alignments(int64_t bucket) {
  const auto size = static_cast<size_t>(bucket * shape_.alignment_heads * source_capacity());
  fetched_alignments_.resize(size);
  device_->download(fetched_alignments_.data(), parts_->alignments.data(), size * sizeof(float));
}

}  // namespace dragoman::cuda
