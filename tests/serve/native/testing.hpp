// Random inputs that are the same on every machine, checks, and the comparison of bits.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace testing {

inline int failures = 0;

inline void fail(const std::string& what) {
  if (++failures <= 20) std::printf("FAIL %s\n", what.c_str());
}

inline void check(bool right, const std::string& what) {
  if (!right) fail(what);
}

// Numbers by a linear congruence: the same everywhere, unlike the distributions of the standard library.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 2654435761u + 88172645463325252u) {}

  std::uint32_t next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::uint32_t>(state_ >> 33);
  }
  std::ptrdiff_t below(std::ptrdiff_t n) { return static_cast<std::ptrdiff_t>(next()) % n; }
  // Between -size and size.
  float number(float size = 1.0f) { return (static_cast<float>(next() >> 7) / 8388608.0f - 1.0f) * size; }
  std::vector<float> numbers(std::ptrdiff_t n, float size = 1.0f) {
    std::vector<float> v(static_cast<std::size_t>(n));
    for (float& x : v) x = number(size);
    return v;
  }
  std::vector<std::int8_t> bytes(std::ptrdiff_t n) {
    std::vector<std::int8_t> v(static_cast<std::size_t>(n));
    for (std::int8_t& x : v) x = static_cast<std::int8_t>(below(255) - 127);
    return v;
  }

 private:
  std::uint64_t state_;
};

// The bits of a float; all NaN are one.
inline std::uint32_t bits(float x) {
  std::uint32_t b = 0x7fc00000;
  if (!std::isnan(x)) std::memcpy(&b, &x, sizeof b);
  return b;
}

inline bool same(float a, float b) { return bits(a) == bits(b); }

inline void expect_same(const std::vector<float>& got, const std::vector<float>& wanted, const std::string& what) {
  if (got.size() != wanted.size()) return fail(what + ": sizes differ");
  for (std::size_t i = 0; i < got.size(); ++i)
    if (!same(got[i], wanted[i]))
      return fail(what + ": [" + std::to_string(i) + "] is " + std::to_string(got[i]) + ", expected " +
                  std::to_string(wanted[i]));
}

// |got - wanted| <= tolerance * max(1, |wanted|).
inline void expect_near(const std::vector<float>& got, const std::vector<double>& wanted, double tolerance,
                        const std::string& what) {
  if (got.size() != wanted.size()) return fail(what + ": sizes differ");
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double error = std::fabs(got[i] - wanted[i]);
    if (!(error <= tolerance * std::fmax(1.0, std::fabs(wanted[i]))))
      return fail(what + ": [" + std::to_string(i) + "] is " + std::to_string(got[i]) + ", expected " +
                  std::to_string(wanted[i]));
  }
}

// What kernels have written, for the comparison of instruction sets and machines.
class Record {
 public:
  void add(const std::vector<float>& values) {
    for (float x : values) words_.push_back(bits(x));
  }
  void add(float x) { words_.push_back(bits(x)); }
  void add(const std::vector<std::int8_t>& values) {
    for (std::int8_t x : values) words_.push_back(static_cast<std::uint32_t>(x));
  }
  void add(const std::vector<std::int64_t>& values) {
    for (std::int64_t x : values) words_.push_back(static_cast<std::uint32_t>(x));
  }
  // FNV-1a.
  std::uint64_t digest() const {
    std::uint64_t hash = 14695981039346656037u;
    for (std::uint32_t w : words_) hash = (hash ^ w) * 1099511628211u;
    return hash;
  }
  std::size_t size() const { return words_.size(); }

 private:
  std::vector<std::uint32_t> words_;
};

}  // namespace testing
