// The few sizes that a device computes with.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace dragoman::cuda {

// Ascending sizes: `least` times powers of two, and `most`, which is the only one if it is smaller.
class Buckets {
 public:
  Buckets(int64_t most, int64_t least) {
    for (int64_t size = least; size < most; size *= 2) sizes_.push_back(size);
    sizes_.push_back(most);
  }

  // Returns the smallest bucket that holds a size of at most `most`.
  int64_t of(int64_t size) const { return *std::lower_bound(sizes_.begin(), sizes_.end(), size); }

  int64_t least() const { return sizes_.front(); }
  int64_t most() const { return sizes_.back(); }
  const std::vector<int64_t>& sizes() const { return sizes_; }

 private:
  std::vector<int64_t> sizes_;
};

}  // namespace dragoman::cuda
