// Continuous batching: one thread advances every running sequence by one token at each step.
//
// Sequences join and leave between steps. The scheduler decides which ones join, the model computes, `search` chooses
// tokens. A failing model ends sequences, never the engine.
#pragma once

#ifdef __linux__
#include <pthread.h>
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "loop/counters.hpp"
#include "loop/ranking.hpp"
#include "loop/records.hpp"
#include "loop/scheduler.hpp"
#include "loop/search.hpp"
#include "loop/shortlist.hpp"
#include "loop/step_model.hpp"
#include "loop/unread_step.hpp"

namespace dragoman {

struct Health {
  double step_started_seconds;  // of the current step; negative: none
  int64_t healthy;              // 0 after `kUnhealthyFailures` in a row, until a step succeeds
  int64_t failure_count;        // how often that happened
};

class Engine : public std::enable_shared_from_this<Engine> {
 public:
  Engine(int32_t number, const LoopConfig& config, std::shared_ptr<StepModel> model,
         std::shared_ptr<Scheduler> scheduler, std::shared_ptr<Completions> completions, Clock clock,
         std::vector<int64_t> continuing_ids, std::shared_ptr<const Shortlist> shortlist)
      : number_(number),
        model_(std::move(model)),
        scheduler_(std::move(scheduler)),
        completions_(std::move(completions)),
        clock_(std::move(clock)),
        shortlist_(std::move(shortlist)),
        created_seconds_(clock_()),
        begin_id_(config.begin_id),
        end_id_(config.end_id),
        search_(model_->shape(), config.begin_id, config.end_id, std::move(continuing_ids)),
        encode_counters_(config),
        decode_counters_(config) {
    free_all_slots();
  }

  ~Engine() {
    if (thread_.joinable()) thread_.detach();
  }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  void start() {
    std::promise<void> ended;
    ended_ = ended.get_future();
    thread_ = std::thread([self = shared_from_this(), ended = std::move(ended)]() mutable {
      self->prepare();
      while (!self->stopping_ && (!self->running_.empty() || self->scheduler_->wait())) self->step();
      ended.set_value();
    });
#ifdef __linux__
    pthread_setname_np(thread_.native_handle(), "dragoman-engine");
#endif
  }

  // Ends the thread after its current step, and fails all sequences. Returns false if the thread does not end in time:
  // it is abandoned, and lives on with what it needs.
  bool stop(double timeout_seconds) {
    stopping_ = true;
    scheduler_->drain();
    const std::chrono::duration<double> timeout(std::min(timeout_seconds, kMaxSeconds));
    const bool ended = !ended_.valid() || ended_.wait_for(timeout) == std::future_status::ready;
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

  // Advances every sequence by one token.
  void step() {
    step_started_seconds_ = clock_();
    try {
      const auto running_rows = model_->shape().slots - static_cast<int64_t>(free_target_slots_.size());
      const auto scheduled = scheduler_->schedule(number_, static_cast<int64_t>(free_target_slots_.size()), running_rows);
      if (!scheduled.empty()) encode(scheduled);
      decode();
    } catch (...) {
      count_failure("decode_failed", running_.size());
      fail_running(Failure::kInternal);
      scheduler_->abandon(number_, Failure::kInternal);  // what was scheduled but did not run yet
    }
    count_rest();
    publish();
    step_started_seconds_ = -1;
  }

  Health health() const { return {step_started_seconds_, failures_ < kUnhealthyFailures, failure_count_}; }

  // Those of the encoder, of the decoder, and the nanoseconds of the search and of all else until the end of a step.
  std::vector<uint64_t> counters() const {
    std::vector<uint64_t> values;
    encode_counters_.append_to(values);
    decode_counters_.append_to(values);
    values.push_back(search_nanoseconds_);
    values.push_back(rest_nanoseconds_);
    return values;
  }

 private:
  // One failure may have its cause in one input; several in a row point to the model.
  static constexpr int64_t kUnhealthyFailures = 3;
  static constexpr double kMaxSeconds = 1e8;  // clocks overflow beyond

  // A model that fails here fails again in its first step, which ends the sequences of that step.
  void prepare() {
    try {
      model_->prepare();
    } catch (...) {
      count_failure("prepare_failed", 0);
      publish();
    }
  }

  void publish() {
    completions_->publish(records_);
    records_.clear();
  }

  // Counts the time since the creation that no other counter has.
  void count_rest() {
    const uint64_t counted =
        encode_counters_.total_nanoseconds() + decode_counters_.total_nanoseconds() + search_nanoseconds_;
    rest_nanoseconds_ = nanoseconds(clock_() - created_seconds_) - counted;
  }

  // Assigns slots to sequences and encodes their sources; all of them fail if the encoder fails. Throws `StateLost`.
  void encode(const std::vector<SequencePointer>& scheduled) {
    encode_batch_.clear();
    // A device computes all slots up to the highest one in use.
    std::sort(free_target_slots_.begin(), free_target_slots_.end(), std::greater<>());
    for (const SequencePointer& sequence : scheduled) {
      choose_candidates(*sequence);
      take_slots(*sequence);
      if (!share_source(*sequence, scheduled)) take_source(*sequence);
    }
    for (const int32_t slot : encode_batch_.slots) add_target_slots(slot, scheduled);
    const double started_seconds = clock_();
    try {
      if (!encode_batch_.slots.empty()) model_->encode(encode_batch_);
    } catch (const StateLost&) {
      running_.insert(running_.end(), scheduled.begin(), scheduled.end());  // they fail with all others
      throw;
    } catch (...) {
      count_failure("encode_failed", scheduled.size());
      for (const SequencePointer& sequence : scheduled) {
        release_slots(*sequence);
        scheduler_->finish(*sequence, Failure::kInternal, records_);
      }
      return;
    }
    const double encoded_seconds = clock_();
    for (const SequencePointer& sequence : scheduled) sequence->encoded_seconds = encoded_seconds;
    running_.insert(running_.end(), scheduled.begin(), scheduled.end());
    // The model computes adjacent rows that choose from all tokens together.
    std::stable_partition(running_.begin(), running_.end(), [](const auto& each) { return each->candidates.empty(); });
    const size_t sources = encode_batch_.slots.size();
    if (sources > 0) encode_counters_.observe(encoded_seconds - started_seconds, sources);
  }

  // Gives a sequence the source slot of another one that its request has for the same source, if there is one. A slot
  // has one list of candidates.
  bool share_source(Sequence& sequence, const std::vector<SequencePointer>& scheduled) {
    const auto shares = [&](const SequencePointer& other) {
      return other->source_slot >= 0 && other->fairness_key == sequence.fairness_key &&
             other->source_ids == sequence.source_ids && other->candidates.ids == sequence.candidates.ids;
    };
    auto found = std::find_if(scheduled.begin(), scheduled.end(), shares);
    if (found == scheduled.end()) {
      if (!model_->shape().keeps_sources) return false;
      found = std::find_if(running_.begin(), running_.end(), shares);
      if (found == running_.end()) return false;
    }
    sequence.source_slot = (*found)->source_slot;
    sequence.candidates = (*found)->candidates;
    ++source_uses_[static_cast<size_t>(sequence.source_slot)];
    return true;
  }

  // Gives a sequence a source slot of its own, and its source to the encoder.
  void take_source(Sequence& sequence) {
    sequence.source_slot = free_source_slots_.back();
    free_source_slots_.pop_back();
    ++source_uses_[static_cast<size_t>(sequence.source_slot)];
    encode_batch_.ids.insert(encode_batch_.ids.end(), sequence.source_ids.begin(), sequence.source_ids.end());
    encode_batch_.lengths.push_back(sequence.source_length());
    encode_batch_.slots.push_back(sequence.source_slot);
  }

  // Adds the target slots of all sequences that start with a source.
  void add_target_slots(int32_t source_slot, const std::vector<SequencePointer>& scheduled) {
    std::vector<int32_t>& slots = encode_batch_.target_slots;
    const size_t first = slots.size();
    for (const SequencePointer& sequence : scheduled) {
      if (sequence->source_slot != source_slot) continue;
      for (const Row& row : sequence->rows) slots.push_back(row.slot);
      slots.insert(slots.end(), sequence->spare_slots.begin(), sequence->spare_slots.end());
    }
    encode_batch_.target_counts.push_back(static_cast<int32_t>(slots.size() - first));
  }

  // They depend on the sequence alone, so its translation does not depend on its company.
  void choose_candidates(Sequence& sequence) const {
    const SearchOptions& options = sequence.options;
    if (!options.shortlist) return;
    std::vector<int64_t> more_ids = options.candidate_ids;
    more_ids.insert(more_ids.end(), options.forced_ids.begin(), options.forced_ids.end());
    more_ids.push_back(end_id_);
    static std::atomic<uint64_t> last_number{0};
    const size_t most = max_candidates(static_cast<size_t>(model_->shape().vocabulary), options.rows());
    sequence.candidates = {shortlist_->candidates(sequence.source_ids, more_ids, most), ++last_number};
  }

  // Reads the step that runs, after it has started the next one if all sequences are plain; else computes a step.
  void decode() {
    const auto plain = [](const SequencePointer& each) { return each->options.plain(); };
    const bool ahead = model_->runs_ahead() && std::all_of(running_.begin(), running_.end(), plain);
    const double started_seconds = clock_();
    UnreadStep next;
    if (ahead) next = UnreadStep::start(running_, begin_id_, *model_);
    if (!unread_.empty()) decode_unread(started_seconds);
    unread_ = std::move(next);
    if (running_.empty()) unread_ = {};  // it has no row that lives, and an idle engine would keep its sequences
    if (!ahead && !running_.empty()) decode_now();
  }

  // `started_seconds`: before the start of the step that follows.
  void decode_unread(double started_seconds) {
    const std::vector<SequencePointer> live = unread_.read(*model_);
    const double decoded_seconds = clock_();
    if (live.empty()) return;
    decode_counters_.observe(decoded_seconds - started_seconds, live.size());
    search_.plan(live, step_batch_);
    advance(live, unread_.scores(), 0, decoded_seconds);
  }

  void decode_now() {
    const double started_seconds = clock_();
    search_.plan(running_, step_batch_);
    const double planned_seconds = clock_();
    const StepScores scores = model_->step(step_batch_);
    const double decoded_seconds = clock_();
    decode_counters_.observe(decoded_seconds - planned_seconds, step_batch_.rows());
    advance(running_, scores, planned_seconds - started_seconds, decoded_seconds);
  }

  // Gives the sequences of a step their tokens; `planned_seconds`: the time to plan it.
  void advance(const std::vector<SequencePointer>& sequences, const StepScores& scores, double planned_seconds,
               double decoded_seconds) {
    search_.advance(sequences, step_batch_, scores, *model_);
    for (const Branch& each : search_.branches) model_->branch(each.from_slot, each.to_slot, each.positions);
    search_.branches.clear();
    free_target_slots_.insert(free_target_slots_.end(), search_.freed_slots.begin(), search_.freed_slots.end());
    search_.freed_slots.clear();
    const double now_seconds = clock_();
    notify(sequences, now_seconds);
    retire(now_seconds);
    const double search_seconds = planned_seconds + clock_() - decoded_seconds;
    search_nanoseconds_.fetch_add(nanoseconds(search_seconds), std::memory_order_relaxed);
  }

  // Records the time of first tokens, and the newest tokens of streamed sequences.
  void notify(const std::vector<SequencePointer>& sequences, double now_seconds) {
    for (const SequencePointer& sequence : sequences) {
      const bool first = sequence->first_token_seconds == 0;
      if (first) sequence->first_token_seconds = now_seconds;
      if (!sequence->streamed || sequence->rows.empty()) continue;
      records_.add_token(sequence->ticket, sequence->rows[0].target_ids.back(), first);
    }
  }

  // Removes sequences that are over or abandoned.
  void retire(double now_seconds) {
    const auto leaves = [&](const SequencePointer& sequence) {
      const bool over = sequence->rows.empty() || sequence->abandonment(now_seconds) != Failure::kNone;
      if (over) finish(*sequence, now_seconds);
      return over;
    };
    running_.erase(std::remove_if(running_.begin(), running_.end(), leaves), running_.end());
    failures_ = 0;
  }

  void finish(Sequence& sequence, double now_seconds) {
    Failure failure = sequence.abandonment(now_seconds);
    bool valid = !sequence.finished.empty();
    for (const Hypothesis& each : sequence.finished) valid = valid && std::isfinite(each.score);
    if (failure == Failure::kNone && !valid) failure = Failure::kInvalidProbabilities;
    if (failure == Failure::kNone) rank(sequence);
    release_slots(sequence);
    scheduler_->finish(sequence, failure, records_);
  }

  void fail_running(Failure failure) {
    for (const SequencePointer& sequence : running_) scheduler_->finish(*sequence, failure, records_);
    running_.clear();
    unread_ = {};
    free_all_slots();
  }

  void release_slots(Sequence& sequence) {
    if (--source_uses_[static_cast<size_t>(sequence.source_slot)] == 0)
      free_source_slots_.push_back(sequence.source_slot);
    for (const Row& row : sequence.rows) free_target_slots_.push_back(row.slot);
    free_target_slots_.insert(free_target_slots_.end(), sequence.spare_slots.begin(), sequence.spare_slots.end());
    sequence.rows.clear();
    sequence.spare_slots.clear();
  }

  void take_slots(Sequence& sequence) {
    const int32_t slots = sequence.options.rows();
    // A beam starts with one hypothesis, the empty one; every sample has a row of its own.
    const int32_t rows = sequence.options.sampled() ? slots : 1;
    for (int32_t index = 0; index < slots; ++index) {
      const int32_t slot = free_target_slots_.back();
      free_target_slots_.pop_back();
      if (index < rows) {
        Row& row = sequence.rows.emplace_back();
        row.slot = slot;
        row.number = static_cast<uint64_t>(index);
      } else {
        sequence.spare_slots.push_back(slot);
      }
    }
  }

  void free_all_slots() {
    free_target_slots_.clear();
    free_source_slots_.clear();
    source_uses_.assign(static_cast<size_t>(model_->shape().slots), 0);
    for (int32_t slot = model_->shape().slots; slot-- > 0;) {
      free_target_slots_.push_back(slot);
      free_source_slots_.push_back(slot);
    }
    search_.branches.clear();
    search_.freed_slots.clear();
  }

  // Counts and reports the exception that is being handled.
  void count_failure(const char* event, size_t count) {
    std::string message = "unknown exception";
    try {
      throw;
    } catch (const std::exception& error) {
      message = error.what();
    } catch (...) {
    }
    if (++failures_ == kUnhealthyFailures) ++failure_count_;
    records_.add_problem(event, message, count);
  }

  const int32_t number_;
  const std::shared_ptr<StepModel> model_;
  const std::shared_ptr<Scheduler> scheduler_;
  const std::shared_ptr<Completions> completions_;
  const Clock clock_;
  const std::shared_ptr<const Shortlist> shortlist_;
  const double created_seconds_;

  const int64_t begin_id_, end_id_;

  // Only the engine's thread uses these.
  Search search_;
  StepBatch step_batch_;
  EncodeBatch encode_batch_;
  std::vector<SequencePointer> running_;
  UnreadStep unread_;
  std::vector<int32_t> free_target_slots_;
  std::vector<int32_t> free_source_slots_;
  std::vector<int32_t> source_uses_;  // sequences of each source slot
  Records records_;

  PhaseCounters encode_counters_;
  PhaseCounters decode_counters_;
  std::atomic<uint64_t> search_nanoseconds_{0};
  std::atomic<uint64_t> rest_nanoseconds_{0};
  std::atomic<double> step_started_seconds_{-1};
  std::atomic<int64_t> failures_{0};
  std::atomic<int64_t> failure_count_{0};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
  std::future<void> ended_;  // of the thread
};

}  // namespace dragoman
