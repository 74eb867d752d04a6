// The C interface of the loop for Python (serve/native/loop.py).
//
// A call returns 0, or 1 where it says so, or -1 after an error that `dragoman_loop_error` describes to the same
// thread. No exception crosses the interface. Structures start with their size, which is checked.
#pragma once

#include <cstdint>

#define DRAGOMAN_API extern "C" __attribute__((visibility("default")))

struct DragomanLoop;

struct DragomanLoopConfig {
  uint64_t size;
  int64_t engine_rows, engines, prefill_token_budget, running_token_budget;
  int64_t begin_id, end_id, vocabulary, max_source_tokens, max_target_tokens, aligned;
  int64_t descriptor;  // written to when there are records
  const double* seconds_bounds;
  const double* sequence_bounds;
  uint64_t seconds_count, sequence_count;
};

struct DragomanLoad {
  uint64_t size;
  int64_t waiting, waiting_rows, running, running_rows, most_running;
};

struct DragomanHealth {
  uint64_t size;
  double step_started_seconds;  // negative: no step
  int64_t healthy;  // 0 after several failures in a row, until a step succeeds
  int64_t failure_count;  // how often that happened
};

// Increases with every change of the interface or the records.
DRAGOMAN_API uint32_t dragoman_loop_version();
DRAGOMAN_API const char* dragoman_loop_error();
// The clock of the loop, in seconds.
DRAGOMAN_API double dragoman_loop_seconds();

DRAGOMAN_API int32_t dragoman_loop_create(const DragomanLoopConfig* config, DragomanLoop** loop);
// All engines must have been stopped.
DRAGOMAN_API void dragoman_loop_destroy(DragomanLoop* loop);

// Queues the sequences in the bytes, or none. Returns 1 after `dragoman_loop_drain`.
DRAGOMAN_API int32_t dragoman_loop_submit(DragomanLoop* loop, const uint8_t* bytes, uint64_t size);
DRAGOMAN_API int32_t dragoman_loop_cancel(DragomanLoop* loop, uint64_t ticket);
DRAGOMAN_API int32_t dragoman_loop_drain(DragomanLoop* loop);
DRAGOMAN_API int32_t dragoman_loop_load(DragomanLoop* loop, DragomanLoad* load);
// Writes when the longest waiting sequence was queued; infinity: none waits.
DRAGOMAN_API int32_t dragoman_loop_oldest(DragomanLoop* loop, double* seconds);
// Writes how many rows start before the first sequence of a new fairness key.
DRAGOMAN_API int32_t dragoman_loop_rows_before(DragomanLoop* loop, double deadline_seconds, int32_t priority,
                                               int64_t* rows);
// Returns the records since the last call; they are valid until the next one. With `pause`, only urgent records wake
// Python until a call without.
DRAGOMAN_API int32_t dragoman_loop_take(DragomanLoop* loop, int32_t pause, const uint8_t** bytes, uint64_t* size);

DRAGOMAN_API int32_t dragoman_engine_start(DragomanLoop* loop, int64_t engine);
// Returns 1 if the engine hangs and was abandoned.
DRAGOMAN_API int32_t dragoman_engine_stop(DragomanLoop* loop, int64_t engine, double timeout_seconds);
DRAGOMAN_API int32_t dragoman_engine_health(DragomanLoop* loop, int64_t engine, DragomanHealth* health);
// Writes the counters: of the encoder, then of the decoder, the nanoseconds, the sequences, and the counts by seconds
// and by sequences; then the nanoseconds of the search. Fails if `count` is another number.
DRAGOMAN_API int32_t dragoman_engine_counters(DragomanLoop* loop, int64_t engine, uint64_t* values, uint64_t count);
