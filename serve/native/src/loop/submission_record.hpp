// The record in which Python submits a sequence. `make tables` writes this file: change serve/search/option_table.py
// or serve/engine/native/records.py instead. serve/search/options.py documents the numbers of the search.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace dragoman {

struct alignas(8) Submission {
  uint64_t ticket = 0;
  uint64_t fairness_key = 0;
  double deadline_seconds = std::numeric_limits<double>::infinity();
  double start_by_seconds = std::numeric_limits<double>::infinity();
  double submitted_seconds = 0;
  int32_t priority = 0;
  uint32_t streamed = 0;
};
static_assert(offsetof(Submission, ticket) == 0);
static_assert(offsetof(Submission, fairness_key) == 8);
static_assert(offsetof(Submission, deadline_seconds) == 16);
static_assert(offsetof(Submission, start_by_seconds) == 24);
static_assert(offsetof(Submission, submitted_seconds) == 32);
static_assert(offsetof(Submission, priority) == 40);
static_assert(offsetof(Submission, streamed) == 44);
static_assert(sizeof(Submission) == 48);

struct alignas(8) SearchNumbers {
  double temperature = 0;
  double patience = 1;
  double length_penalty = 1;
  double coverage_penalty = 0;
  int64_t top_k = 0;
  double top_p = 1;
  uint64_t seed = 0;
  int32_t beam_size = 1;
  int32_t hypotheses = 1;
  int32_t max_target_tokens = 1;
  int32_t min_target_tokens = 0;
  float repetition_penalty = 1;
  int32_t no_repeat_ngram_tokens = 0;
  uint32_t alignments = 0;
};
static_assert(offsetof(SearchNumbers, temperature) == 0);
static_assert(offsetof(SearchNumbers, patience) == 8);
static_assert(offsetof(SearchNumbers, length_penalty) == 16);
static_assert(offsetof(SearchNumbers, coverage_penalty) == 24);
static_assert(offsetof(SearchNumbers, top_k) == 32);
static_assert(offsetof(SearchNumbers, top_p) == 40);
static_assert(offsetof(SearchNumbers, seed) == 48);
static_assert(offsetof(SearchNumbers, beam_size) == 56);
static_assert(offsetof(SearchNumbers, hypotheses) == 60);
static_assert(offsetof(SearchNumbers, max_target_tokens) == 64);
static_assert(offsetof(SearchNumbers, min_target_tokens) == 68);
static_assert(offsetof(SearchNumbers, repetition_penalty) == 72);
static_assert(offsetof(SearchNumbers, no_repeat_ngram_tokens) == 76);
static_assert(offsetof(SearchNumbers, alignments) == 80);
static_assert(sizeof(SearchNumbers) == 88);

struct alignas(8) ArrayHeader {
  uint32_t source_tokens = 0;
  uint32_t suppressed_tokens = 0;
  uint32_t forced_tokens = 0;
  uint32_t candidate_tokens = 0;
  uint32_t start_tokens = 0;
  uint32_t flags = 0;
};
static_assert(offsetof(ArrayHeader, source_tokens) == 0);
static_assert(offsetof(ArrayHeader, suppressed_tokens) == 4);
static_assert(offsetof(ArrayHeader, forced_tokens) == 8);
static_assert(offsetof(ArrayHeader, candidate_tokens) == 12);
static_assert(offsetof(ArrayHeader, start_tokens) == 16);
static_assert(offsetof(ArrayHeader, flags) == 20);
static_assert(sizeof(ArrayHeader) == 24);

// Calls check(name, value, least, most) for each number that has limits.
template <class Check>
void check_limits(const SearchNumbers& numbers, Check check) {
  check("temperature", static_cast<double>(numbers.temperature), 0, 100);
  check("patience", static_cast<double>(numbers.patience), 0, 10);
  check("length_penalty", static_cast<double>(numbers.length_penalty), 0, 10);
  check("coverage_penalty", static_cast<double>(numbers.coverage_penalty), 0, 10);
  check("top_k", static_cast<double>(numbers.top_k), 0, 1000000);
  check("top_p", static_cast<double>(numbers.top_p), 0, 1);
  check("beam_size", static_cast<double>(numbers.beam_size), 1, 1000);
  check("hypotheses", static_cast<double>(numbers.hypotheses), 1, 1000);
  check("max_target_tokens", static_cast<double>(numbers.max_target_tokens), 1, 4294967295);
  check("min_target_tokens", static_cast<double>(numbers.min_target_tokens), 0, 4294967295);
  check("repetition_penalty", static_cast<double>(numbers.repetition_penalty), 0.10000000000000001, 10);
  check("no_repeat_ngram_tokens", static_cast<double>(numbers.no_repeat_ngram_tokens), 0, 1000);
}

}  // namespace dragoman
