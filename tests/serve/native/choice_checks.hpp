// Checks of the choice of tokens, against sorting.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "cases.hpp"

namespace testing {
namespace {

Chosen chosen_by_sorting(const Floats& logits, Index count, float log_sum) {
  std::vector<std::int64_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto better = [&](std::int64_t a, std::int64_t b) { return logits[at(a)] > logits[at(b)]; };
  std::stable_sort(ids.begin(), ids.end(), better);
  Chosen r{log_sum, {}, {}};
  for (Index i = 0; i < count; ++i) {
    r.ids.push_back(ids[at(i)]);
    r.scores.push_back(logits[at(ids[at(i)])] - log_sum);
  }
  return r;
}

void check_choice(const Kernels& kernels, const Floats& logits, Index count, Record& record) {
  const std::string text = name(kernels, "choice", {static_cast<Index>(logits.size()), count});
  const Chosen got = choose(kernels, logits, count);
  const float top = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (float x : logits) sum += std::exp(static_cast<double>(x) - top);
  expect_near({got.log_sum}, {top + std::log(sum)}, 5e-7, text + ", log-sum");
  const Chosen wanted = chosen_by_sorting(logits, count, got.log_sum);
  check(got.ids == wanted.ids, text + ", ids");
  expect_same(got.scores, wanted.scores, text + ", scores");
  for (Index lists : {1, 2, 3}) {
    const Chosen other = choose(kernels, logits, count, lists, lists != 2);
    check(other.ids == got.ids && same(other.log_sum, got.log_sum), text + ", other order of strips");
    expect_same(other.scores, got.scores, text + ", scores of another order of strips");
  }
  record.add(got.log_sum), record.add(got.scores), record.add(got.ids);
}

void test_choices(const Kernels& kernels, Record& record) {
  Random random(13);
  for (Index size : {1, 2, 15, 16, 17, 255, 256, 257, 1000, 5000})
    for (Index count : {0, 1, 2, 8, 40, 5000}) {
      if (count > size) count = size;
      Floats logits = random.numbers(size, 12.0f);
      check_choice(kernels, logits, count, record);
      for (float& x : logits) x = std::floor(x / 4.0f);  // many ties
      check_choice(kernels, logits, count, record);
      for (Index i = 0; i < size; ++i)
        if (i % 512 != 7 % size) logits[at(i)] = -kInf;  // whole strips without a token
      check_choice(kernels, logits, count, record);
      std::fill(logits.begin(), logits.end(), -30.5f);
      check_choice(kernels, logits, count, record);
    }
}

void test_bad_choices(const Kernels& kernels, Record& record) {
  Random random(14);
  for (Index size : {1, 20, 700})
    for (Index count : {Index{0}, Index{1}, std::min<Index>(size, 5), size})
      for (int kind = 0; kind < 4; ++kind)
        for (Index index : {Index{0}, size / 2, size - 1}) {
          Floats logits = random.numbers(size, 5.0f);
          if (kind == 2) std::fill(logits.begin(), logits.end(), -kInf);
          if (kind == 3) std::fill(logits.begin(), logits.end(), -kInf), logits[at(index)] = NAN;
          if (kind < 2) logits[at(index)] = kind == 0 ? static_cast<float>(NAN) : kInf;
          const Chosen got = choose(kernels, logits, count);
          bool right = std::isnan(got.log_sum);
          for (Index i = 0; i < count; ++i) right &= std::isnan(got.scores[at(i)]) && got.ids[at(i)] == i;
          check(right, name(kernels, "bad choice", {size, count, kind, index}));
          record.add(got.scores);
        }
}

}  // namespace
}  // namespace testing
