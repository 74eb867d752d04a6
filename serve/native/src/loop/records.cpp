#include "loop/records.hpp"

#include <cmath>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace dragoman {
namespace {

constexpr size_t kAlignment = 8;
// Bounds that keep scores finite; the interfaces have narrower ones.
constexpr double kMostPatience = 1e6, kMostPenalty = 100;
constexpr uint32_t kStreamed = 1, kAligned = 2, kCancelled = 4, kForcedEnd = 8;

// A sequence that Python submits; the source, the suppressed and the forced tokens follow, each int64.
struct Submission {
  uint64_t ticket, fairness_key, seed;
  int64_t top_k;
  double deadline_seconds, start_by_seconds, submitted_seconds;
  double patience, length_penalty, coverage_penalty, temperature, top_p, repetition_penalty;
  int32_t priority, max_target_tokens, min_target_tokens, beam_size, hypotheses, no_repeat_ngram_tokens;
  uint32_t source_tokens, suppressed_tokens, forced_tokens, start_tokens, flags, unused;
};
static_assert(sizeof(Submission) == 13 * 8 + 12 * 4);

struct Header {
  uint32_t kind, count;
  uint64_t ticket;
};

struct End {
  double started_seconds, encoded_seconds, first_token_seconds, finished_seconds;
  int64_t decoded_tokens;
  uint32_t failure, unused;
};

struct Result {
  double score, normalized_score;
  uint32_t reason, target_tokens, token_scores, aligned_tokens;  // the source tokens if alignments follow, else 0
};

template <class Value>
Value take(const uint8_t* bytes, size_t size, size_t& position) {
  if (size - position < sizeof(Value)) throw std::invalid_argument("submission: the bytes end early");
  Value value;
  std::memcpy(&value, bytes + position, sizeof(Value));
  position += sizeof(Value);
  return value;
}

std::vector<int64_t> take_ids(const uint8_t* bytes, size_t size, size_t& position, uint32_t count) {
  if ((size - position) / sizeof(int64_t) < count) throw std::invalid_argument("submission: the bytes end early");
  std::vector<int64_t> ids(count);
  if (count > 0) std::memcpy(ids.data(), bytes + position, count * sizeof(int64_t));
  position += count * sizeof(int64_t);
  return ids;
}

void check(bool valid, const char* problem) {
  if (!valid) throw std::invalid_argument(problem);
}

SearchOptions options_of(const Submission& submission) {
  check(submission.max_target_tokens >= 1, "max_target_tokens: expected at least 1");
  check(submission.min_target_tokens >= 0, "min_target_tokens: expected at least 0");
  check(submission.beam_size >= 1, "beam_size: expected at least 1");
  check(submission.hypotheses >= 1, "hypotheses: expected at least 1");
  check(submission.start_tokens <= submission.forced_tokens, "start_tokens: expected at most the forced tokens");
  check(submission.no_repeat_ngram_tokens >= 0, "no_repeat_ngram_tokens: expected at least 0");
  check(submission.top_k >= 0, "top_k: expected at least 0");
  check(submission.top_p >= 0 && submission.top_p <= 1, "top_p: expected 0 to 1");
  check(submission.temperature >= 0, "temperature: expected at least 0");
  check(submission.repetition_penalty > 0, "repetition_penalty: expected more than 0");
  check(submission.patience >= 0 && submission.patience <= kMostPatience, "patience: expected at least 0");
  check(std::abs(submission.length_penalty) <= kMostPenalty, "length_penalty: too large");
  check(std::abs(submission.coverage_penalty) <= kMostPenalty, "coverage_penalty: too large");
  check(!std::isnan(submission.deadline_seconds), "deadline_seconds: expected a number");
  SearchOptions options;
  options.max_target_tokens = submission.max_target_tokens;
  options.min_target_tokens = submission.min_target_tokens;
  options.beam_size = submission.beam_size;
  options.hypotheses = submission.hypotheses;
  options.patience = submission.patience;
  options.length_penalty = submission.length_penalty;
  options.coverage_penalty = submission.coverage_penalty;
  options.temperature = submission.temperature;
  options.top_k = submission.top_k;
  options.top_p = submission.top_p;
  options.seed = submission.seed;
  options.repetition_penalty = static_cast<float>(submission.repetition_penalty);
  options.no_repeat_ngram_tokens = submission.no_repeat_ngram_tokens;
  options.start_tokens = submission.start_tokens;
  options.alignments = (submission.flags & kAligned) != 0;
  return options;
}

}  // namespace

SequencePointer read_sequence(const uint8_t* bytes, size_t size, size_t& position, int64_t end_id) {
  const auto submission = take<Submission>(bytes, size, position);
  auto sequence = std::make_shared<Sequence>();
  sequence->ticket = submission.ticket;
  sequence->fairness_key = submission.fairness_key;
  sequence->priority = submission.priority;
  sequence->deadline_seconds = submission.deadline_seconds;
  sequence->start_by_seconds = submission.start_by_seconds;
  sequence->submitted_seconds = submission.submitted_seconds;
  sequence->streamed = (submission.flags & kStreamed) != 0;
  sequence->cancelled = (submission.flags & kCancelled) != 0;
  sequence->options = options_of(submission);
  sequence->source_ids = take_ids(bytes, size, position, submission.source_tokens);
  sequence->options.suppressed_ids = take_ids(bytes, size, position, submission.suppressed_tokens);
  sequence->options.forced_ids = take_ids(bytes, size, position, submission.forced_tokens);
  if ((submission.flags & kForcedEnd) != 0) sequence->options.forced_ids.push_back(end_id);
  check(!sequence->source_ids.empty(), "source: expected at least one token");
  return sequence;
}

template <class Value>
void Records::put(const Value& value) {
  const auto* first = reinterpret_cast<const uint8_t*>(&value);
  bytes_.insert(bytes_.end(), first, first + sizeof(Value));
}

template <class Value>
void Records::put_array(const std::vector<Value>& values) {
  const auto* first = reinterpret_cast<const uint8_t*>(values.data());
  bytes_.insert(bytes_.end(), first, first + values.size() * sizeof(Value));
  bytes_.resize((bytes_.size() + kAlignment - 1) / kAlignment * kAlignment);
}

void Records::add_token(uint64_t ticket, int64_t token_id) {
  put(Header{static_cast<uint32_t>(RecordKind::kToken), 1, ticket});
  put(token_id);
}

void Records::add_end(const Sequence& sequence, Failure failure, double finished_seconds) {
  const size_t count = failure == Failure::kNone ? sequence.finished.size() : 0;
  put(Header{static_cast<uint32_t>(RecordKind::kEnd), static_cast<uint32_t>(count), sequence.ticket});
  put(End{sequence.started_seconds, sequence.encoded_seconds, sequence.first_token_seconds, finished_seconds,
          sequence.decoded_tokens, static_cast<uint32_t>(failure), 0});
  for (size_t place = 0; place < count; ++place) {
    const Hypothesis& each = sequence.finished[place];
    put(Result{each.score, each.normalized_score, static_cast<uint32_t>(each.reason),
               static_cast<uint32_t>(each.target_ids.size()), static_cast<uint32_t>(each.token_scores.size()),
               sequence.options.alignments ? static_cast<uint32_t>(sequence.source_ids.size()) : 0});
    put_array(each.target_ids);
    put_array(each.token_scores);
    put_array(each.alignments);
  }
}

void Records::add_abandoned(const Sequence& sequence, Failure failure, double finished_seconds) {
  put(Header{static_cast<uint32_t>(RecordKind::kEnd), 0, sequence.ticket});
  put(End{sequence.started_seconds, 0, 0, finished_seconds, 0, static_cast<uint32_t>(failure), 0});
}

void Records::add_problem(const std::string& event, const std::string& message, uint64_t count) {
  const std::string text = event + '\n' + message;
  put(Header{static_cast<uint32_t>(RecordKind::kProblem), static_cast<uint32_t>(text.size()), count});
  put_array(std::vector<char>(text.begin(), text.end()));
}

}  // namespace dragoman
