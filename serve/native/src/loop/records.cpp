#include "loop/records.hpp"

#include <cstring>
#include <stdexcept>
#include <utility>

namespace dragoman {
namespace {

constexpr size_t kAlignment = 8;
constexpr uint32_t kCancelled = 1, kForcedEnd = 2, kNewWord = 4, kTogether = 8, kShortlist = 16;

struct Header {
  RecordKind kind;
  uint32_t count;
  uint64_t ticket;
};

struct End {
  double started_seconds, encoded_seconds, first_token_seconds, finished_seconds;
  int64_t decoded_tokens;
  Failure failure;
  uint32_t unused;
};

struct Result {
  double score, normalized_score;
  FinishReason reason;
  uint32_t target_tokens, token_scores, aligned_tokens;  // the source tokens if alignments follow, else 0
};

// Reads values from the front of bytes and advances the position.
struct Reader {
  const uint8_t* bytes;
  size_t size;
  size_t& position;

  // Throws std::invalid_argument if the bytes end early.
  template <class Value>
  std::vector<Value> take(size_t count) {
    if ((size - position) / sizeof(Value) < count) throw std::invalid_argument("submission: the bytes end early");
    std::vector<Value> values(count);
    if (count > 0) std::memcpy(static_cast<void*>(values.data()), bytes + position, count * sizeof(Value));
    position += count * sizeof(Value);
    return values;
  }
};

// Throws std::invalid_argument unless the value is a number in least, ..., most.
void check(const char* name, double value, double least, double most = kNever) {
  if (!(value >= least && value <= most)) throw std::invalid_argument(std::string(name) + ": out of range");
}

void check(const SubmissionRecord& record) {
  check("deadline_seconds", record.submission.deadline_seconds, -kNever);
  check_limits(record.numbers, [](const char* name, double value, double least, double most) {
    check(name, value, least, most);
  });
  check("start_tokens", record.arrays.start_tokens, 0, record.arrays.forced_tokens);
  check("source", record.arrays.source_tokens, 1);
}

}  // namespace

SequencePointer read_sequence(const uint8_t* bytes, size_t size, size_t& position, int64_t end_id,
                              std::shared_ptr<int64_t> left) {
  Reader reader{bytes, size, position};
  const SubmissionRecord record = reader.take<SubmissionRecord>(1)[0];
  check(record);
  auto sequence = std::make_shared<Sequence>();
  static_cast<Submission&>(*sequence) = record.submission;
  static_cast<SearchNumbers&>(sequence->options) = record.numbers;
  sequence->cancelled = (record.arrays.flags & kCancelled) != 0;
  if ((record.arrays.flags & kTogether) != 0) sequence->left = std::move(left);
  sequence->source_ids = reader.take<int64_t>(record.arrays.source_tokens);
  sequence->options.suppressed_ids = reader.take<int64_t>(record.arrays.suppressed_tokens);
  sequence->options.forced_ids = reader.take<int64_t>(record.arrays.forced_tokens);
  sequence->options.candidate_ids = reader.take<int64_t>(record.arrays.candidate_tokens);
  if ((record.arrays.flags & kForcedEnd) != 0) sequence->options.forced_ids.push_back(end_id);
  sequence->options.start_tokens = record.arrays.start_tokens;
  sequence->options.shortlist = (record.arrays.flags & kShortlist) != 0;
  sequence->options.new_word = (record.arrays.flags & kNewWord) != 0;
  return sequence;
}

// Appends values, and zeros up to the next multiple of 8 bytes.
template <class Value>
void Records::put(const Value* values, size_t count) {
  const auto* first = reinterpret_cast<const uint8_t*>(values);
  bytes_.insert(bytes_.end(), first, first + count * sizeof(Value));
  bytes_.resize((bytes_.size() + kAlignment - 1) / kAlignment * kAlignment);
}

void Records::clear() {
  bytes_.clear();
  left_.clear();
  wake_ = Wake::kNever;
}

Wake Records::count_ends() const {
  Wake wake = wake_;
  for (const std::shared_ptr<int64_t>& left : left_) {
    if (--*left == 0) wake = Wake::kAlways;
  }
  return wake;
}

void Records::end(const Sequence& sequence, Failure failure) {
  if (sequence.left != nullptr) left_.push_back(sequence.left);
  if (sequence.left == nullptr || failure != Failure::kNone) wake(Wake::kAlways);
}

void Records::add_token(uint64_t ticket, int64_t token_id, bool first) {
  wake(first ? Wake::kAlways : Wake::kUnlessPaused);
  put(Header{RecordKind::kToken, 1, ticket});
  put(token_id);
}

void Records::add_end(const Sequence& sequence, Failure failure, double finished_seconds) {
  end(sequence, failure);
  const size_t count = failure == Failure::kNone ? sequence.finished.size() : 0;
  put(Header{RecordKind::kEnd, static_cast<uint32_t>(count), sequence.ticket});
  put(End{sequence.started_seconds, sequence.encoded_seconds, sequence.first_token_seconds, finished_seconds,
          sequence.decoded_tokens, failure, 0});
  for (size_t index = 0; index < count; ++index) {
    const Hypothesis& each = sequence.finished[index];
    put(Result{each.score, each.normalized_score, each.reason, static_cast<uint32_t>(each.target_ids.size()),
               static_cast<uint32_t>(each.token_scores.size()),
               sequence.options.alignments != 0 ? static_cast<uint32_t>(sequence.source_ids.size()) : 0});
    put(each.target_ids);
    put(each.token_scores);
    put(each.alignments);
  }
}

void Records::add_abandoned(const Sequence& sequence, Failure failure, double finished_seconds) {
  end(sequence, failure);
  put(Header{RecordKind::kEnd, 0, sequence.ticket});
  put(End{sequence.started_seconds, 0, 0, finished_seconds, 0, failure, 0});
}

void Records::add_problem(const std::string& event, const std::string& message, uint64_t count) {
  wake(Wake::kAlways);
  const std::string text = event + '\n' + message;
  put(Header{RecordKind::kProblem, static_cast<uint32_t>(text.size()), count});
  put(text.data(), text.size());
}

}  // namespace dragoman
