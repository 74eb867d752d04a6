// Lets the Python tests step the loop by hand: with fake models, a clock that a test sets, and a scheduler whose engines
// a test plays.

#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "loop/api.hpp"
#include "loop/loop.hpp"
#include "loop/sampling.hpp"
#include "fake_model.hpp"

namespace {

using namespace dragoman;

struct Driver {
  std::atomic<double> seconds{0};
  std::unique_ptr<Loop> loop;
  std::vector<std::shared_ptr<FakeModel>> models;
  std::unordered_map<uint64_t, SequencePointer> running;  // of the engines that a test plays
};

int64_t write_all(const std::vector<int64_t>& values, int64_t* out, int64_t capacity) {
  const auto count = static_cast<int64_t>(values.size());
  std::copy(values.begin(), values.begin() + std::min(count, capacity), out);
  return count;
}

}  // namespace

DRAGOMAN_API Driver* driver_new(const LoopConfig* config, const int64_t* continuing_ids, uint64_t count,
                                int32_t real_clock) {
  auto* driver = new Driver;
  const Clock clock = real_clock ? Clock(monotonic_seconds) : Clock([driver] { return driver->seconds.load(); });
  driver->loop = std::make_unique<Loop>(*config, Ids(continuing_ids, continuing_ids + count), clock);
  return driver;
}

DRAGOMAN_API Loop* driver_loop(Driver* driver) { return driver->loop.release(); }

DRAGOMAN_API void driver_free(Driver* driver) { delete driver; }

DRAGOMAN_API void driver_set_seconds(Driver* driver, double seconds) { driver->seconds = seconds; }

DRAGOMAN_API void driver_add_engine(Driver* driver, Loop* loop, int32_t slots, int32_t finite) {
  driver->models.push_back(std::make_shared<FakeModel>(slots, finite != 0));
  loop->add_engine(driver->models.back());
}

DRAGOMAN_API void driver_step(Loop* loop, int64_t engine) { loop->engine(engine).step(); }

DRAGOMAN_API void driver_set_failures(Driver* driver, int64_t engine, int32_t encode_fails, int32_t decode_fails) {
  driver->models.at(static_cast<size_t>(engine))->encode_fails = encode_fails != 0;
  driver->models.at(static_cast<size_t>(engine))->decode_fails = decode_fails != 0;
}

DRAGOMAN_API void driver_set_hooks(Driver* driver, int64_t engine, void (*on_encode)(), void (*on_step)()) {
  driver->models.at(static_cast<size_t>(engine))->on_encode = on_encode;
  driver->models.at(static_cast<size_t>(engine))->on_step = on_step;
}

DRAGOMAN_API int64_t driver_prefills(Driver* driver, int64_t engine, int64_t* out, int64_t capacity) {
  return write_all(driver->models.at(static_cast<size_t>(engine))->prefills, out, capacity);
}

DRAGOMAN_API int64_t driver_steps(Driver* driver, int64_t engine, int64_t* out, int64_t capacity) {
  return write_all(driver->models.at(static_cast<size_t>(engine))->steps, out, capacity);
}

DRAGOMAN_API int64_t driver_schedule(Driver* driver, Loop* loop, int32_t engine, int64_t free_rows,
                                  int64_t running_rows, uint64_t* tickets, int64_t capacity) {
  int64_t count = 0;
  for (const SequencePointer& each : loop->scheduler().schedule(engine, free_rows, running_rows)) {
    driver->running.emplace(each->ticket, each);
    if (count < capacity) tickets[count] = each->ticket;
    ++count;
  }
  return count;
}

DRAGOMAN_API void driver_finish(Driver* driver, Loop* loop, uint64_t ticket, int32_t failure, double encoded_seconds,
                                int64_t decoded_tokens) {
  const SequencePointer sequence = driver->running.at(ticket);
  driver->running.erase(ticket);
  sequence->encoded_seconds = encoded_seconds;
  sequence->decoded_tokens = decoded_tokens;
  sequence->finished.emplace_back();
  sequence->finished.back().token_scores.push_back(0);
  Records records;
  loop->scheduler().finish(*sequence, static_cast<Failure>(failure), records);
  loop->completions().publish(records);
}

DRAGOMAN_API void driver_fail_all(Loop* loop, int32_t failure) {
  loop->scheduler().fail_all(static_cast<Failure>(failure));
}

DRAGOMAN_API int32_t driver_wait(Loop* loop) { return loop->scheduler().wait(); }

// Writes ticket and passed rows of each waiting sequence, in order.
DRAGOMAN_API int64_t driver_line(Loop* loop, uint64_t* out, int64_t capacity) {
  int64_t count = 0;
  for (const SequencePointer& each : loop->scheduler().line()) {
    if (2 * count + 1 < capacity) {
      out[2 * count] = each->ticket;
      out[2 * count + 1] = static_cast<uint64_t>(each->queued.passed_rows);
    }
    ++count;
  }
  return count;
}

DRAGOMAN_API void driver_apply(const int64_t* target_ids, int64_t count, int32_t min_target_tokens, int32_t ngram_tokens,
                               float repetition_penalty, const int64_t* suppressed_ids, int64_t suppressed, int64_t end_id,
                               float* logits, int32_t vocabulary) {
  SearchOptions options;
  options.min_target_tokens = min_target_tokens;
  options.no_repeat_ngram_tokens = ngram_tokens;
  options.repetition_penalty = repetition_penalty;
  options.suppressed_ids.assign(suppressed_ids, suppressed_ids + suppressed);
  const Constraint constraint = constraint_of(options, {target_ids, target_ids + count}, end_id);
  apply(constraint, repetition_penalty, {}, end_id, logits, vocabulary);
}

DRAGOMAN_API int64_t driver_draw(const float* logits, int32_t vocabulary, double temperature, int64_t top_k, double top_p,
                                 double number) {
  SearchOptions options;
  options.temperature = temperature;
  options.top_k = top_k;
  options.top_p = top_p;
  return Sampler().draw(logits, vocabulary, options, number);
}
