#include "loop/engine.hpp"

#ifdef __linux__
#include <pthread.h>
#endif

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "loop/ranking.hpp"

namespace dragoman {

Engine::Engine(int32_t number, const EngineConfig& config, std::shared_ptr<StepModel> model,
               std::shared_ptr<Scheduler> scheduler, std::shared_ptr<Completions> completions, Clock clock)
    : encode_counters(config.seconds_bounds, config.sequence_bounds),
      decode_counters(config.seconds_bounds, config.sequence_bounds),
      number_(number),
      config_(config),
      model_(std::move(model)),
      scheduler_(std::move(scheduler)),
      completions_(std::move(completions)),
      clock_(std::move(clock)),
      search_(model_->shape(), config.begin_id, config.end_id) {
  free_all_slots();
}

Engine::~Engine() {
  if (thread_.joinable()) thread_.detach();
}

void Engine::start() {
  ended_ = false;
  thread_ = std::thread([self = shared_from_this()] { self->run(); });
#ifdef __linux__
  pthread_setname_np(thread_.native_handle(), "dragoman-engine");
#endif
}

bool Engine::stop(double timeout_seconds) {
  stopping_ = true;
  scheduler_->drain();
  bool ended = false;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto has_ended = [this] { return ended_; };
    if (std::isinf(timeout_seconds)) {
      changed_.wait(lock, has_ended);
      ended = true;
    } else {
      ended = changed_.wait_for(lock, std::chrono::duration<double>(timeout_seconds), has_ended);
    }
  }
  scheduler_->fail_all(Failure::kDraining);
  if (!ended) {
    scheduler_->abandon(number_, Failure::kDraining);
    return false;
  }
  if (thread_.joinable()) thread_.join();
  fail_running(Failure::kDraining);
  publish();
  return true;
}

void Engine::run() {
  while (!stopping_ && (!running_.empty() || scheduler_->wait())) step();
  const std::lock_guard<std::mutex> lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

void Engine::step() {
  step_started_seconds_ = clock_();
  try {
    const auto running_rows = model_->shape().slots - static_cast<int64_t>(free_target_slots_.size());
    const auto admitted = scheduler_->admit(number_, static_cast<int64_t>(free_target_slots_.size()), running_rows);
    if (!admitted.empty()) prefill(admitted);
    if (!running_.empty()) decode();
  } catch (...) {
    count_failure("decode_failed", running_.size());
    fail_running(Failure::kInternal);
    scheduler_->abandon(number_, Failure::kInternal);  // what was admitted but did not run yet
  }
  publish();
  step_started_seconds_ = -1;
}

void Engine::publish() {
  completions_->publish(records_, urgent_);
  records_.clear();
  urgent_ = false;
}

// Assigns slots to sequences and encodes them; those of a failed run of the encoder fail.
void Engine::prefill(const std::vector<SequencePointer>& admitted) {
  for (size_t first = 0, end = 0; first < admitted.size(); first = end) {
    size_t tokens = 0;
    while (end < admitted.size() && (end == first || tokens + admitted[end]->source_ids.size() <= kEncodedTokens)) {
      tokens += admitted[end++]->source_ids.size();
    }
    encode(&admitted[first], end - first);
  }
}

void Engine::encode(const SequencePointer* sequences, size_t count) {
  encode_batch_.clear();
  for (size_t place = 0; place < count; ++place) {
    Sequence& sequence = *sequences[place];
    take_slots(sequence);
    encode_batch_.ids.insert(encode_batch_.ids.end(), sequence.source_ids.begin(), sequence.source_ids.end());
    encode_batch_.lengths.push_back(sequence.source_length());
    encode_batch_.slots.push_back(sequence.source_slot);
  }
  const double started_seconds = clock_();
  try {
    model_->encode(encode_batch_);
  } catch (...) {
    count_failure("encode_failed", count);
    for (size_t place = 0; place < count; ++place) {
      release_slots(*sequences[place]);
      scheduler_->finish(*sequences[place], Failure::kInternal, records_);
    }
    return;
  }
  const double encoded_seconds = clock_();
  for (size_t place = 0; place < count; ++place) {
    sequences[place]->encoded_seconds = encoded_seconds;
    running_.push_back(sequences[place]);
  }
  encode_counters.observe(encoded_seconds - started_seconds, count);
}

void Engine::decode() {
  const double started_seconds = clock_();
  search_.plan(running_, step_batch_);
  const double planned_seconds = clock_();
  const StepScores scores = model_->step(step_batch_);
  const double decoded_seconds = clock_();
  decode_counters.observe(decoded_seconds - planned_seconds, step_batch_.rows());
  search_.advance(running_, step_batch_, scores, *model_);
  for (const Branch& each : search_.branches) model_->branch(each.from_slot, each.to_slot, each.positions);
  search_.branches.clear();
  free_target_slots_.insert(free_target_slots_.end(), search_.freed_slots.begin(), search_.freed_slots.end());
  search_.freed_slots.clear();
  const double now_seconds = clock_();
  notify(now_seconds);
  retire(now_seconds);
  const double search_seconds = planned_seconds - started_seconds + clock_() - decoded_seconds;
  search_nanoseconds.fetch_add(static_cast<uint64_t>(std::max(0.0, search_seconds) * 1e9), std::memory_order_relaxed);
}

// Records the time of first tokens, and the newest tokens of streamed sequences.
void Engine::notify(double now_seconds) {
  for (const SequencePointer& sequence : running_) {
    const bool first = sequence->first_token_seconds == 0;
    if (first) sequence->first_token_seconds = now_seconds;
    if (!sequence->streamed || sequence->rows.empty()) continue;
    records_.add_token(sequence->ticket, sequence->rows[0].target_ids.back());
    urgent_ = urgent_ || first;
  }
}

// Removes sequences that are over or abandoned.
void Engine::retire(double now_seconds) {
  const auto leaves = [&](const SequencePointer& sequence) {
    const bool over = sequence->rows.empty() || sequence->abandonment(now_seconds) != Failure::kNone;
    if (over) finish(*sequence, now_seconds);
    return over;
  };
  running_.erase(std::remove_if(running_.begin(), running_.end(), leaves), running_.end());
  failures_ = 0;
}

void Engine::finish(Sequence& sequence, double now_seconds) {
  Failure failure = sequence.abandonment(now_seconds);
  bool valid = !sequence.finished.empty();
  for (const Hypothesis& each : sequence.finished) valid = valid && std::isfinite(each.score);
  if (failure == Failure::kNone && !valid) failure = Failure::kInvalidProbabilities;
  if (failure == Failure::kNone) rank(sequence);
  release_slots(sequence);
  urgent_ = true;
  scheduler_->finish(sequence, failure, records_);
}

void Engine::fail_running(Failure failure) {
  for (const SequencePointer& sequence : running_) scheduler_->finish(*sequence, failure, records_);
  running_.clear();
  urgent_ = true;
  free_all_slots();
}

void Engine::free_all_slots() {
  free_target_slots_.clear();
  free_source_slots_.clear();
  for (int32_t slot = model_->shape().slots; slot-- > 0;) {
    free_target_slots_.push_back(slot);
    free_source_slots_.push_back(slot);
  }
  search_.branches.clear();
  search_.freed_slots.clear();
}

void Engine::take_slots(Sequence& sequence) {
  sequence.source_slot = free_source_slots_.back();
  free_source_slots_.pop_back();
  const int32_t slots = sequence.options.rows();
  // A beam starts with one hypothesis, the empty one; every sample has a row of its own.
  const int32_t rows = sequence.options.sampled() ? slots : 1;
  for (int32_t place = 0; place < slots; ++place) {
    const int32_t slot = free_target_slots_.back();
    free_target_slots_.pop_back();
    if (place < rows) {
      Row row;
      row.slot = slot;
      row.number = static_cast<uint64_t>(place);
      sequence.rows.push_back(std::move(row));
    } else {
      sequence.spare_slots.push_back(slot);
    }
  }
}

void Engine::release_slots(Sequence& sequence) {
  free_source_slots_.push_back(sequence.source_slot);
  for (const Row& row : sequence.rows) free_target_slots_.push_back(row.slot);
  free_target_slots_.insert(free_target_slots_.end(), sequence.spare_slots.begin(), sequence.spare_slots.end());
  sequence.rows.clear();
  sequence.spare_slots.clear();
}

// Counts and reports the exception that is being handled.
void Engine::count_failure(const char* event, size_t count) {
  std::string message = "unknown exception";
  try {
    throw;
  } catch (const std::exception& error) {
    message = error.what();
  } catch (...) {
  }
  urgent_ = true;
  if (++failures_ == kUnhealthyFailures) ++failure_count_;
  records_.add_problem(event, message, count);
}

}  // namespace dragoman
