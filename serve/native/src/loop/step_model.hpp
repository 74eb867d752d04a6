// What the loop requires of a model.
//
// A row of a step names the slots that hold its state, so rows that leave cost no copy. A target slot belongs to one
// hypothesis. The hypotheses of a sequence share a source slot, and so do sequences of a request with the same source.
//
// Shapes: R rows of a step, M of them with logits, V vocabulary, C best tokens, A alignment heads, S source capacity.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

namespace dragoman {

struct ModelShape {
  int32_t slots = 0;  // of targets, and as many of sources
  int32_t vocabulary = 0;
  int32_t alignment_heads = 0;
  int32_t source_capacity = 0;  // tokens
  int32_t target_capacity = 0;  // tokens, the begin token included
  bool forbids = false;         // steps forbid tokens themselves
  bool keeps_sources = false;   // hypotheses that start later may read an encoded source
};

// The tokens that a sequence may use.
struct CandidateList {
  std::vector<int32_t> ids;  // ascending
  uint64_t number = 0;       // no other list of the process has it

  bool empty() const { return ids.empty(); }
};

template <class... Vectors>
void clear_all(Vectors&... vectors) {
  (vectors.clear(), ...);
}

// Sources, one behind the other without padding.
struct EncodeBatch {
  std::vector<int64_t> ids;
  std::vector<int32_t> lengths;
  std::vector<int32_t> slots;
  std::vector<int32_t> target_slots;   // of all sources: those of the hypotheses that start now
  std::vector<int32_t> target_counts;  // of each source

  void clear() { clear_all(ids, lengths, slots, target_slots, target_counts); }
};

// The token that the model chose in the slot of a row in the step before, which the host has not read.
constexpr int64_t kUnreadToken = -1;

struct StepBatch {
  std::vector<int64_t> token_ids;       // [R], the last token of each row
  std::vector<int32_t> positions;       // [R], tokens that the row has read before
  std::vector<int32_t> target_slots;    // [R], all different
  std::vector<int32_t> source_slots;    // [R]
  std::vector<int32_t> source_lengths;  // [R]
  std::vector<int32_t> scored_rows;     // [M], rows whose logits are wanted, all different
  std::vector<const CandidateList*> candidates;  // [R], an empty list: all tokens; or [0] if all are empty
  std::vector<std::pair<int32_t, int32_t>> forbidden;  // ids whose logits become -inf, and their rows; ascending
  int32_t best_count = 0;               // C
  bool aligned = false;

  size_t rows() const { return token_ids.size(); }

  void clear() {
    clear_all(token_ids, positions, target_slots, source_slots, source_lengths, scored_rows, candidates, forbidden);
    best_count = 0;
    aligned = false;
  }
};

// The best tokens of some rows. A broken row has NaN: logits with NaN or +inf, or only -inf.
struct Choices {
  const float* log_sums = nullptr;     // [rows], natural log of the sum of exp of the logits
  const float* best_scores = nullptr;  // [rows, C], log-probabilities, best first, ties by lower id
  const int64_t* best_ids = nullptr;   // [rows, C]
};

struct StepScores {
  float* logits = nullptr;            // [M, V], the caller may change them; -inf outside of a shortlist
  Choices choices;                    // of all R rows
  const float* alignments = nullptr;  // [R, A, S] if aligned
};

// A failure that may have damaged the state of all rows.
struct StateLost : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Results are valid until the next call of the same method. A failure throws. One of `encode` concerns the new rows only,
// unless it is `StateLost`.
class StepModel {
 public:
  virtual ~StepModel() = default;

  virtual const ModelShape& shape() const = 0;
  // Does slow preparation once, in the thread that will call the methods below.
  virtual void prepare() {}
  virtual void encode(const EncodeBatch& batch) = 0;
  virtual StepScores step(const StepBatch& batch) = 0;
  // Chooses again for the first `rows` of the logits of the last step, which constraints changed.
  virtual Choices choose(int32_t rows, int32_t best_count) = 0;
  // Whether a step may start before the host has read the one before it.
  virtual bool runs_ahead() const { return false; }
  // Starts a step in which each row chooses one token from all; `token_ids` may be `kUnreadToken`. Returns the number
  // that `collect` takes to return its choices. At most two steps are unread; a third one replaces the first.
  virtual int32_t launch(const StepBatch&) { throw std::logic_error("this model does not run ahead"); }
  virtual Choices collect(int32_t) { throw std::logic_error("this model does not run ahead"); }
  // Copies the first `positions` tokens of a target slot to another one.
  virtual void branch(int32_t from_slot, int32_t to_slot, int32_t positions) = 0;
};

}  // namespace dragoman
