// A model whose next token depends on all tokens of its row and on nothing else, as tests/support/fakes.py has it.
//
// It keeps sources and targets per slot, as a real model keeps keys and values: a row that is branched wrongly, or whose
// slot was overwritten, gets another translation. A row that needs more tokens than its slot has is an error.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

#include "loop/step_model.hpp"

namespace dragoman {

constexpr int64_t kBegin = 1, kEnd = 2, kPoison = 100, kEndless = 101;
constexpr int32_t kVocabulary = 13, kCapacity = 80;
constexpr uint32_t kSalt = 91320;
constexpr float kLowest = -std::numeric_limits<float>::infinity();

using Ids = std::vector<int64_t>;

inline uint32_t crc32(const Ids& ids, uint32_t start = kSalt) {
  uint32_t crc = ~start;
  for (const int64_t id : ids) {
    for (int byte = 0; byte < 8; ++byte) {
      crc ^= static_cast<uint8_t>(static_cast<uint64_t>(id) >> (8 * byte));
      for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (0xEDB88320u & (0u - (crc & 1u)));
    }
  }
  return ~crc;
}

// The outputs of SplitMix64.
inline uint64_t random_number(uint64_t seed, uint64_t index) {
  uint64_t state = seed + (index + 1) * 0x9E3779B97F4A7C15u;
  state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9u;
  state = (state ^ (state >> 27)) * 0x94D049BB133111EBu;
  return state ^ (state >> 31);
}

inline bool contains(const Ids& ids, int64_t id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); }

inline std::vector<float> next_logits(const Ids& source_ids, const Ids& target_ids) {
  std::vector<float> logits(kVocabulary, std::numeric_limits<float>::quiet_NaN());
  if (contains(source_ids, kPoison) && target_ids.size() > 2) return logits;
  const uint32_t seed = crc32(source_ids, crc32(target_ids));
  for (size_t id = 0; id < logits.size(); ++id) {
    const uint64_t number = random_number(seed, id);
    int64_t sum = -2 * 0xFFFF;
    for (int part = 0; part < 4; ++part) sum += static_cast<int64_t>((number >> (16 * part)) & 0xFFFF);
    logits[id] = static_cast<float>(sum) * 0x1p-14f;
  }
  logits[0] = logits[kBegin] = kLowest;
  if (contains(source_ids, kEndless)) logits[kEnd] = kLowest;
  return logits;
}

inline std::vector<float> next_attention(size_t source_length, const Ids& target_ids) {
  const uint32_t seed = crc32(target_ids);
  std::vector<double> weights(source_length);
  for (size_t token = 0; token < source_length; ++token) {
    weights[token] = static_cast<double>(random_number(seed, token) >> 48) + 1;
  }
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<float> attention;
  for (const double weight : weights) attention.push_back(static_cast<float>(weight / sum));
  return attention;
}

inline float log_sum(const float* logits) {
  const float highest = *std::max_element(logits, logits + kVocabulary);
  const bool broken = std::any_of(logits, logits + kVocabulary, [](float logit) { return std::isnan(logit); });
  if (broken || std::isinf(highest)) return std::numeric_limits<float>::quiet_NaN();
  double total = 0;
  for (int id = 0; id < kVocabulary; ++id) {
    total += std::exp(static_cast<double>(logits[id]) - static_cast<double>(highest));
  }
  return static_cast<float>(std::log(total) + static_cast<double>(highest));
}

class FakeModel : public StepModel {
 public:
  explicit FakeModel(int32_t slots, bool finite = false) : finite_(finite), sources_(size_t(slots)), targets_(size_t(slots)) {
    shape_.slots = slots;
    shape_.vocabulary = kVocabulary;
    shape_.alignment_heads = 1;
    shape_.source_capacity = shape_.target_capacity = kCapacity;
    shape_.keeps_sources = true;
  }

  std::function<void()> on_encode = [] {};
  std::function<void()> on_step = [] {};
  std::atomic<bool> encode_fails{false};
  std::atomic<bool> decode_fails{false};
  bool ahead = false;
  std::vector<int64_t> prefills;  // sequences and tokens of each run of the encoder
  std::vector<int64_t> steps;     // rows of each step

  const ModelShape& shape() const override { return shape_; }

  void encode(const EncodeBatch& batch) override {
    prefills.push_back(static_cast<int64_t>(batch.slots.size()));
    prefills.push_back(static_cast<int64_t>(batch.ids.size()));
    on_encode();
    if (encode_fails) throw std::runtime_error("encoder");
    auto first = batch.ids.begin();
    for (size_t index = 0; index < batch.slots.size(); ++index) {
      sources_.at(size_t(batch.slots[index])).assign(first, first + batch.lengths[index]);
      first += batch.lengths[index];
    }
    if (first != batch.ids.end()) throw std::logic_error("lengths");
  }

  StepScores step(const StepBatch& batch) override {
    steps.push_back(static_cast<int64_t>(batch.rows()));
    on_step();
    if (decode_fails) throw std::runtime_error("decoder");
    unread_ids_.clear();
    const size_t rows = batch.rows();
    std::vector<float> logits;
    alignments_.assign(batch.aligned ? rows * kCapacity : 0, std::numeric_limits<float>::quiet_NaN());
    for (size_t row = 0; row < rows; ++row) {
      Ids& target = targets_.at(size_t(batch.target_slots[row]));
      const Ids& source = sources_.at(size_t(batch.source_slots[row]));
      const auto position = static_cast<size_t>(batch.positions[row]);
      if (target.size() < position) throw std::logic_error("a slot without the tokens of its row");
      if (source.size() != static_cast<size_t>(batch.source_lengths[row])) throw std::logic_error("another source");
      target.resize(position);
      target.push_back(batch.token_ids[row]);
      std::vector<float> next = next_logits(source, target);
      if (finite_) {
        for (float& logit : next) logit = std::max(logit, -20.0f);
      }
      if (!batch.candidates.empty()) keep_candidates(batch.candidates[row]->ids, next);
      logits.insert(logits.end(), next.begin(), next.end());
      if (!batch.aligned) continue;
      const std::vector<float> attention = next_attention(source.size(), target);
      std::copy(attention.begin(), attention.end(), alignments_.begin() + std::ptrdiff_t(row * kCapacity));
    }
    const Choices choices = chosen_.of(logits.data(), rows, batch.best_count);
    logits_.clear();
    for (const int32_t row : batch.scored_rows) {
      const auto first = logits.begin() + std::ptrdiff_t{row} * kVocabulary;
      logits_.insert(logits_.end(), first, first + kVocabulary);
    }
    return {logits_.data(), choices, alignments_.data()};
  }

  bool runs_ahead() const override { return ahead; }

  // The token of a row stays in its slot until the next step, as on a device.
  int32_t launch(const StepBatch& batch) override {
    StepBatch read = batch;
    for (size_t row = 0; row < batch.rows(); ++row)
      if (batch.token_ids[row] == kUnreadToken) read.token_ids[row] = unread_ids_.at(batch.target_slots[row]);
    step(read);
    for (size_t row = 0; row < batch.rows(); ++row) unread_ids_[batch.target_slots[row]] = chosen_.best_ids[row];
    launched_[next_launch_] = chosen_;
    return static_cast<int32_t>(std::exchange(next_launch_, 1 - next_launch_));
  }

  Choices collect(int32_t number) override {
    on_step();
    if (decode_fails) throw std::runtime_error("decoder");
    return launched_.at(size_t(number)).choices();
  }

  Choices choose(int32_t rows, int32_t best_count) override {
    return rechosen_.of(logits_.data(), static_cast<size_t>(rows), best_count);
  }

  void branch(int32_t from_slot, int32_t to_slot, int32_t positions) override {
    const Ids& from = targets_.at(size_t(from_slot));
    if (from.size() < static_cast<size_t>(positions)) throw std::logic_error("a branch of missing tokens");
    targets_.at(size_t(to_slot)).assign(from.begin(), from.begin() + positions);
  }

 private:
  static void keep_candidates(const std::vector<int32_t>& ids, std::vector<float>& logits) {
    for (int32_t id = 0; !ids.empty() && id < kVocabulary; ++id)
      if (std::find(ids.begin(), ids.end(), id) == ids.end()) logits[size_t(id)] = kLowest;
  }

  struct Chosen {
    std::vector<float> log_sums, best_scores;
    std::vector<int64_t> best_ids;

    Choices of(const float* logits, size_t rows, int32_t count) {
      log_sums.clear(), best_scores.clear(), best_ids.clear();
      for (size_t row = 0; row < rows; ++row, logits += kVocabulary) {
        const float sum = log_sum(logits);
        log_sums.push_back(sum);
        Ids ids(kVocabulary);
        std::iota(ids.begin(), ids.end(), 0);
        if (!std::isnan(sum)) {
          std::stable_sort(ids.begin(), ids.end(), [&](int64_t left, int64_t right) { return logits[left] > logits[right]; });
        }
        for (int32_t index = 0; index < count; ++index) {
          best_ids.push_back(ids[size_t(index)]);
          best_scores.push_back(logits[ids[size_t(index)]] - sum);
        }
      }
      return choices();
    }

    Choices choices() const { return {log_sums.data(), best_scores.data(), best_ids.data()}; }
  };

  ModelShape shape_;
  bool finite_;
  std::vector<Ids> sources_, targets_;
  std::vector<float> logits_, alignments_;
  Chosen chosen_, rechosen_;
  std::array<Chosen, 2> launched_;
  size_t next_launch_ = 0;
  std::map<int32_t, int64_t> unread_ids_;
};

}  // namespace dragoman
