// The configuration of a loop, as Python passes it (serve/native/loop.py).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace dragoman {

constexpr int64_t kUnbounded = -1;

// Upper bounds of the buckets of a histogram; one more bucket counts what is above all.
struct Bounds {
  uint64_t count;
  double values[32];

  size_t bucket(double value) const {
    return static_cast<size_t>(std::lower_bound(values, values + count, value) - values);
  }
};

struct LoopConfig {
  int64_t engine_rows, engines;
  int64_t prefill_token_budget;  // source tokens that start at once; a longer sequence starts alone
  int64_t running_token_budget;  // tokens that run together; a larger sequence runs alone; or `kUnbounded`
  int64_t begin_id, end_id;
  // The limits of the model, which every submitted sequence keeps.
  int64_t vocabulary, max_source_tokens, max_target_tokens;
  int64_t aligned;     // the model returns alignments
  int64_t descriptor;  // written to when there are records
  Bounds seconds_bounds, sequence_bounds;
  const char* shortlist;  // path of a file; null: the model has none
};

}  // namespace dragoman
