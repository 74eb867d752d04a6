// Records of bytes between Python and the loop (serve/engine/native/records.py).
//
// Every record starts at a multiple of 8 bytes with a header of fixed size, followed by its arrays.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "loop/sequence.hpp"

namespace dragoman {

enum class RecordKind : uint32_t { kToken, kEnd, kProblem };

// When records wake Python: always, unless it takes a pause, or only with other records.
enum class Wake { kNever, kUnlessPaused, kAlways };

// A submitted sequence. The source, the suppressed, the forced and the candidate tokens follow, each int64.
struct SubmissionRecord {
  Submission submission;
  SearchNumbers numbers;
  ArrayHeader arrays;
};
static_assert(sizeof(SubmissionRecord) == sizeof(Submission) + sizeof(SearchNumbers) + sizeof(ArrayHeader));

// Reads one sequence from bytes and advances the position. `left`: the sequences of its submission that have not ended.
//
// Throws std::invalid_argument if the bytes end early or a value is out of range.
SequencePointer read_sequence(const uint8_t* bytes, size_t size, size_t& position, int64_t end_id,
                              std::shared_ptr<int64_t> left);

// Bytes of records for Python. The end of a sequence wakes it, but of those that count together only the last one.
class Records {
 public:
  bool empty() const { return bytes_.empty(); }
  size_t size() const { return bytes_.size(); }
  const uint8_t* data() const { return bytes_.data(); }
  void clear();

  // Subtracts the sequences that count together from those that are left, and returns when to wake Python. Must be
  // called once, with a lock.
  Wake count_ends() const;

  void add_token(uint64_t ticket, int64_t token_id, bool first);
  void add_end(const Sequence& sequence, Failure failure, double finished_seconds);
  // The end of a sequence whose engine hangs: it does not read what the engine owns.
  void add_abandoned(const Sequence& sequence, Failure failure, double finished_seconds);
  // Something for the log: an event name, and how many rows or sequences it concerns.
  void add_problem(const std::string& event, const std::string& message, uint64_t count);
  // Appends the bytes of others.
  void add(const Records& others) { bytes_.insert(bytes_.end(), others.bytes_.begin(), others.bytes_.end()); }

 private:
  template <class Value>
  void put(const Value* values, size_t count);
  template <class Value>
  void put(const Value& value) { put(&value, 1); }
  template <class Value>
  void put(const std::vector<Value>& values) { put(values.data(), values.size()); }

  void end(const Sequence& sequence, Failure failure);
  void wake(Wake wake) { wake_ = std::max(wake_, wake); }

  std::vector<uint8_t> bytes_;
  std::vector<std::shared_ptr<int64_t>> left_;  // of each end of a sequence that counts together with others
  Wake wake_ = Wake::kNever;
};

}  // namespace dragoman
