// The shortlist of a bundle: the likely target tokens of each source token, in Marian's binary format.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "loop/mapped_memory.hpp"

namespace dragoman {

// Returns the most candidates of a sequence with some rows, as `max_candidates` of serve/bundle/shortlist.py. More of them
// would take longer than the whole vocabulary, which all rows of a step read together, or the memory of an engine.
inline size_t max_candidates(size_t vocabulary, int32_t rows) {
  return std::clamp<size_t>(vocabulary / (rows > 1 ? 4 : 8), 256, 4096);
}

class Shortlist {
 public:
  // Copies the values of a file: one that is overwritten later must not change what was checked. Throws
  // std::runtime_error if it cannot be read, or std::invalid_argument if a size or a value is wrong.
  Shortlist(const std::string& path, int64_t vocabulary) : vocabulary_(static_cast<size_t>(vocabulary)) {
    const MappedMemory file(path);
    Header header{};
    if (file.bytes() >= sizeof header) std::memcpy(&header, file.data(), sizeof header);
    const uint64_t words = file.bytes() / sizeof(uint64_t);  // an upper bound: the sizes below cannot overflow
    if (header.magic != kMagic || header.offsets == 0 || header.offsets > words || header.ids > 2 * words ||
        file.bytes() != sizeof header + header.offsets * sizeof(uint64_t) + header.ids * sizeof(uint32_t) ||
        header.frequent > vocabulary_)
      throw std::invalid_argument(path + ": no shortlist of this model");
    frequent_ = header.frequent;
    const auto* offsets = reinterpret_cast<const uint64_t*>(file.data() + sizeof header);
    const auto* ids = reinterpret_cast<const uint32_t*>(offsets + header.offsets);
    offsets_.assign(offsets, offsets + header.offsets);
    ids_.assign(ids, ids + header.ids);
    if (!std::is_sorted(offsets_.begin(), offsets_.end()) || offsets_.back() > header.ids ||
        std::any_of(ids_.begin(), ids_.end(), [=](uint32_t id) { return id >= vocabulary_; }))
      throw std::invalid_argument(path + ": no shortlist of this model");
  }

  bool has(int64_t source_id) const { return source_id >= 0 && static_cast<uint64_t>(source_id) < offsets_.size() - 1; }

  // Returns the ids that a translation may use, ascending: the most frequent ones, those of the source tokens, and
  // further ones. Returns none if they are more than `most`.
  std::vector<int32_t> candidates(const std::vector<int64_t>& source_ids, const std::vector<int64_t>& more_ids,
                                  size_t most) const {
    std::vector<uint64_t> chosen(vocabulary_ / 64 + 1);  // a bit for each token
    const auto choose = [&](uint64_t id) { chosen[id / 64] |= uint64_t{1} << (id % 64); };
    for (uint64_t id = 0; id < frequent_; ++id) choose(id);
    for (const int64_t source_id : source_ids) {
      const uint64_t* entry = offsets_.data() + source_id;
      for (uint64_t index = entry[0]; index < entry[1]; ++index) choose(ids_[index]);
    }
    for (const int64_t id : more_ids) choose(static_cast<uint64_t>(id));
    std::vector<int32_t> ids;
    for (size_t word = 0; word < chosen.size(); ++word)
      for (uint64_t left = chosen[word]; left != 0; left &= left - 1)
        ids.push_back(static_cast<int32_t>(64 * word) + __builtin_ctzll(left));
    if (ids.size() > most) ids.clear();
    return ids;
  }

 private:
  static constexpr uint64_t kMagic = 0xF11A48D5013417F5u;
  struct Header {
    uint64_t magic, checksum, frequent, best, offsets, ids;
  };

  size_t vocabulary_;  // target tokens
  uint64_t frequent_ = 0;
  std::vector<uint64_t> offsets_;  // [source vocabulary + 1]
  std::vector<uint32_t> ids_;
};

}  // namespace dragoman
