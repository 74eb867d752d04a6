// The C interface of the loop for Python (serve/native/loop.py).
#include "loop/api.hpp"

#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "loop/loop.hpp"

using namespace dragoman;

// Increases with every change of the interface or the records.
DRAGOMAN_API uint32_t dragoman_loop_version() { return 8; }

DRAGOMAN_API const char* dragoman_loop_error() { return last_error().c_str(); }

// The clock of the loop, in seconds.
DRAGOMAN_API double dragoman_loop_seconds() { return monotonic_seconds(); }

DRAGOMAN_API int32_t dragoman_loop_create(const LoopConfig* config, const int64_t* continuing_ids, uint64_t count,
                                          Loop** loop) {
  return guarded([&] {
    std::vector<int64_t> ids(continuing_ids, continuing_ids + count);
    *loop = std::make_unique<Loop>(*config, std::move(ids), monotonic_seconds).release();
  });
}

// All engines must have been stopped.
DRAGOMAN_API void dragoman_loop_destroy(Loop* loop) {
  loop->completions().close();
  delete loop;
}

// Queues the sequences in the bytes, or none. Returns 1 after `dragoman_loop_drain`.
DRAGOMAN_API int32_t dragoman_loop_submit(Loop* loop, const uint8_t* bytes, uint64_t size) {
  return guarded([&] { return loop->submit(bytes, size); });
}

DRAGOMAN_API int32_t dragoman_loop_cancel(Loop* loop, uint64_t ticket) {
  return guarded([&] { loop->scheduler().cancel(ticket); });
}

DRAGOMAN_API int32_t dragoman_loop_drain(Loop* loop) {
  return guarded([&] { loop->scheduler().drain(); });
}

DRAGOMAN_API int32_t dragoman_loop_load(Loop* loop, Load* load) {
  return guarded([&] { *load = loop->scheduler().load(); });
}

// Writes when the longest waiting sequence was queued; infinity: none waits.
DRAGOMAN_API int32_t dragoman_loop_oldest(Loop* loop, double* seconds) {
  return guarded([&] { *seconds = loop->scheduler().oldest_seconds(); });
}

// Writes how many rows start before the first sequence of a new fairness key.
DRAGOMAN_API int32_t dragoman_loop_rows_before(Loop* loop, double deadline_seconds, int32_t priority, int64_t* rows) {
  return guarded([&] { *rows = loop->scheduler().rows_before(deadline_seconds, priority); });
}

// Returns the records since the last call; they are valid until the next one. With `pause`, only ends and first tokens
// wake Python until a call without.
DRAGOMAN_API int32_t dragoman_loop_take(Loop* loop, int32_t pause, const uint8_t** bytes, uint64_t* size) {
  return guarded([&] {
    const Records& records = loop->completions().take(pause != 0);
    *bytes = records.data();
    *size = records.size();
  });
}

DRAGOMAN_API int32_t dragoman_engine_start(Loop* loop, int64_t engine) {
  return guarded([&] { loop->engine(engine).start(); });
}

// Returns 1 if the engine hangs and was abandoned.
DRAGOMAN_API int32_t dragoman_engine_stop(Loop* loop, int64_t engine, double timeout_seconds) {
  return guarded([&] { return loop->engine(engine).stop(timeout_seconds); });
}

DRAGOMAN_API int32_t dragoman_engine_health(Loop* loop, int64_t engine, Health* health) {
  return guarded([&] { *health = loop->engine(engine).health(); });
}

// Writes the counters of the encoder, of the decoder (`PhaseCounters`), and the nanoseconds of search and rest. Fails if
// `count` is another number.
DRAGOMAN_API int32_t dragoman_engine_counters(Loop* loop, int64_t engine, uint64_t* values, uint64_t count) {
  return guarded([&] {
    const std::vector<uint64_t> all = loop->engine(engine).counters();
    if (all.size() != count) throw std::invalid_argument("counters: another number");
    std::copy(all.begin(), all.end(), values);
  });
}
