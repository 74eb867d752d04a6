// The outputs of a matrix that belong to some ids, copied to a matrix of their own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "model/buffer.hpp"
#include "model/weights.hpp"

namespace dragoman {

struct TokenList {
  const std::int32_t* ids;  // [count], ascending
  Index count;
  std::uint64_t number;  // of these ids, which no other list has ever had; 0: unknown
};

// A copy in the layout of the whole matrix, so that a product has the bits of the same outputs of the whole product.
class PackedColumns {
 public:
  // Copies the outputs of the ids unless the last call had the same ids of the same matrix; `number` names the matrix,
  // and no other one has ever had it. Returns the copy, which the next call may change.
  const Linear& pack(std::uint64_t number, const Linear& whole, const TokenList& list) {
    if (number == number_ && has(list)) return packed_;
    number_ = list_number_ = 0;
    const Index count = list.count;
    ids_.assign(list.ids, list.ids + count);
    const Index padded = round_up(count, kLanes), lines = whole.int8 ? round_up(whole.inputs, 4) / 4 : whole.inputs;
    std::uint32_t* weight = words_.fit(padded * (lines + 3));
    std::uint32_t* vectors[] = {weight + padded * lines, weight + padded * (lines + 1), weight + padded * (lines + 2)};
    packed_ = {whole.int8, {}, {}, count, whole.inputs};
    if (whole.int8) {
      copy_weight(whole.integers.weight, lines, weight);
      copy_vector(whole.integers.scale, vectors[0]);
      copy_vector(whole.integers.offset, vectors[1]);
      copy_vector(whole.integers.bias, vectors[2]);
      packed_.integers = {reinterpret_cast<const std::int8_t*>(weight), reinterpret_cast<const float*>(vectors[0]),
                          reinterpret_cast<const std::int32_t*>(vectors[1]), reinterpret_cast<const float*>(vectors[2]),
                          count, whole.inputs};
    } else {
      copy_weight(whole.floats.weight, lines, weight);
      copy_vector(whole.floats.bias, vectors[0]);
      packed_.floats = {reinterpret_cast<const float*>(weight), reinterpret_cast<const float*>(vectors[0]), count,
                        whole.inputs};
    }
    number_ = number;
    list_number_ = list.number;
    return packed_;
  }

 private:
  bool has(const TokenList& list) const {
    if (list.number != 0 && list_number_ != 0) return list.number == list_number_;
    return std::equal(list.ids, list.ids + list.count, ids_.begin(), ids_.end());
  }

  static constexpr Index kWord = 4;  // bytes: a float, or four 8-bit weights

  // A block has a word of each of its 16 outputs per line. Padding is zero.
  void copy_weight(const void* from, Index lines, std::uint32_t* to) const {
    const auto* words = static_cast<const char*>(from);
    const Index count = static_cast<Index>(ids_.size());
    for (Index first = 0; first < count; first += kLanes, to += lines * kLanes) {
      const Index lanes = std::min(kLanes, count - first);
      if (lanes < kLanes) std::fill_n(to, lines * kLanes, 0u);
      for (Index lane = 0; lane < lanes; ++lane) {
        const Index id = ids_[static_cast<std::size_t>(first + lane)];
        const char* column = words + (id / kLanes * lines * kLanes + id % kLanes) * kWord;
        for (Index line = 0; line < lines; ++line)
          std::memcpy(to + line * kLanes + lane, column + line * kLanes * kWord, kWord);
      }
    }
  }

  void copy_vector(const void* from, std::uint32_t* to) const {
    const auto* words = static_cast<const char*>(from);
    for (const std::int32_t id : ids_) std::memcpy(to++, words + id * kWord, kWord);
    std::fill_n(to, round_up(static_cast<Index>(ids_.size()), kLanes) - static_cast<Index>(ids_.size()), 0u);
  }

  std::uint64_t number_ = 0;       // of no matrix
  std::uint64_t list_number_ = 0;  // of no list
  std::vector<std::int32_t> ids_;
  Buffer<std::uint32_t> words_;
  Linear packed_{};
};

}  // namespace dragoman
