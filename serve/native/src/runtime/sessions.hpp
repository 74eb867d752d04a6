// The sessions of a bundle with native graphs, which all engines share, opened by ONNX Runtime's C interface.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ort/api.hpp"

namespace dragoman {

// A tensor of the file of weights, or the cache of one slot.
struct TensorSpec {
  std::string name;
  ort::ElementType type;
  std::vector<int64_t> shape;
  uint64_t offset_bytes = 0;  // in the file of weights

  size_t bytes() const;
};

struct SessionsConfig {
  std::string encoder, decoder, choose, weights;  // paths
  // Weights that both graphs read; without them, each session would map its own.
  std::vector<TensorSpec> encoder_weights, decoder_weights;
  std::vector<TensorSpec> source_cache, target_cache;
  int32_t threads = 1;
  int32_t vocabulary = 0;
  int32_t alignment_heads = 0;
};

// Memory that is mapped page by page: the whole of a file, read-only, or zeros.
class MappedMemory {
 public:
  explicit MappedMemory(const std::string& path);
  explicit MappedMemory(size_t bytes);
  ~MappedMemory();
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;

  char* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_;
  char* data_;
};

class Sessions {
 public:
  using Session = std::unique_ptr<ort::Session, ort::Deleter<ort::Session, &ort::Api::release_session>>;

  // Throws std::runtime_error if ONNX Runtime rejects a graph, or std::invalid_argument.
  explicit Sessions(const SessionsConfig& config);

  const SessionsConfig& config() const { return config_; }
  const ort::Api& api() const { return api_; }
  ort::Session* encoder() const { return encoder_.get(); }
  ort::Session* decoder() const { return decoder_.get(); }
  ort::Session* choose() const { return choose_.get(); }
  // Returns a tensor that wraps memory.
  ort::OwnedValue tensor(void* data, ort::ElementType type, const std::vector<int64_t>& shape) const;

 private:
  Session open(const std::string& path, const std::vector<TensorSpec>& weights);

  const SessionsConfig config_;
  const ort::ApiBase* base_;
  const ort::Api& api_;
  ort::OwnedMemoryInfo memory_;
  MappedMemory weights_;
  std::vector<ort::OwnedValue> values_;  // of the weights; like them, they outlive the sessions
  Session encoder_, decoder_, choose_;
};

// One run of a session with tensors in memory that the caller keeps.
class Binding {
 public:
  Binding(const Sessions& sessions, ort::Session* session);

  void input(const char* name, void* data, ort::ElementType type, const std::vector<int64_t>& shape);
  void output(const char* name, void* data, ort::ElementType type, const std::vector<int64_t>& shape);
  void run();

 private:
  const Sessions& sessions_;
  ort::Session* session_;
  std::unique_ptr<ort::IoBinding, ort::Deleter<ort::IoBinding, &ort::Api::release_io_binding>> binding_;
};

}  // namespace dragoman
